// Factorizations of column-major matrices by cuSOLVER, one after the other. They may wait for the device.
#pragma once
#include "tensor/cuda/stream.h"

namespace pg::cuda {

// `count` column-major matrices of float32 or float64, whose columns have no gaps between them.
struct Columns {
  DType dtype;
  void* data;
  int64_t rows, columns, count, step;  // step: elements from one matrix to the next
  void* at(int64_t i) const { return static_cast<char*>(data) + i * step * size_of(dtype); }
};

// Each function works in place. `info`, if there is one, has a number for each matrix: 0 for success.

// The upper triangle of a becomes U with a = U^T U; info: not positive definite.
void factor_cholesky(Stream& stream, const Columns& a, int32_t* info);

// a becomes L, without its diagonal of ones, and U. Row i was exchanged with row pivots[i] - 1. info: singular.
void factor_lu(Stream& stream, const Columns& a, int64_t* pivots, int32_t* info);
// b becomes op(a)^-1 b; op transposes if asked to.
void solve_lu(Stream& stream, bool transposed, const Columns& lu, const int64_t* pivots, const Columns& b);

// a becomes r above the diagonal and reflectors below it; tau has min(rows, columns) factors of each matrix.
void factor_qr(Stream& stream, const Columns& a, void* tau);
// The first `reflectors` columns of q hold reflectors; they become orthonormal columns.
void make_q(Stream& stream, const Columns& q, int64_t reflectors, const void* tau);

// Eigenvalues, ascending, of symmetric matrices of which the upper triangle is read. a becomes the eigenvectors, or is
// destroyed. info: it did not converge.
void find_eigenvalues(Stream& stream, const Columns& a, bool vectors, void* values, int32_t* info);

// a = u diag(s) vt for matrices with as many rows as columns or more. a is destroyed; u and vt are not written if they
// have no data. u has as many columns as a has, or as it has rows.
struct Svd {
  Columns u, vt;
  void* s;
};
void find_singular_values(Stream& stream, const Columns& a, const Svd& out, int32_t* info);

}  // namespace pg::cuda
