// Determinants and functions of one row-major n x n matrix. T is float or double, and is also the type of the
// computation.
#pragma once
#include <cstdint>

namespace pg::cpu {

template <class T>
T determinant(int64_t n, const T* a);

// The sign of the determinant (-1, 0 or 1) and the logarithm of its absolute value (-inf for a singular matrix).
template <class T>
struct LogDeterminant {
  T sign, log;
};
template <class T>
LogDeterminant<T> log_determinant(int64_t n, const T* a);

// out[i][j] = the derivative of the determinant by a[i][j]. Finite for singular matrices too.
template <class T>
void cofactors(int64_t n, const T* a, T* out);

// The exponential of a matrix; NaN where a power of it has no finite norm. Large ones poll.
template <class T>
void matrix_exp(int64_t n, const T* a, T* out);

}  // namespace pg::cpu
