// Orthogonal factorizations of one row-major matrix by Eigen. T is float or double, and is also the type of the
// computation. A matrix with NaN or inf gives NaN everywhere. Null outputs are not computed.
#pragma once
#include <cstdint>

namespace pg::cpu {

// a = q r by Householder reflections, for an m x n matrix a. q is m x k and r is k x n; k is min(m, n) or m.
template <class T>
void qr(int64_t m, int64_t n, int64_t k, const T* a, T* q, T* r);

// a = u diag(s) vh with s in descending order. u is m x m and vh is n x n if `full`, else m x k and k x n with
// k = min(m, n). u and vh are both null or both not. The largest element of each of the first k columns of u is
// positive.
template <class T>
void svd(int64_t m, int64_t n, bool full, const T* a, T* u, T* s, T* vh);

// The eigenvalues, ascending, and the eigenvectors as columns, of a symmetric matrix of which only the lower triangle
// is read. The largest element of each eigenvector is positive.
template <class T>
void eigh(int64_t n, const T* a, T* values, T* vectors);

}  // namespace pg::cpu
