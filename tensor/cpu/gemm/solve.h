// Solvers for one row-major n x n matrix. T is float or double, and is also the type of the computation. Large solves
// poll for interrupts.
#pragma once
#include <cstdint>

namespace pg::cpu {

// x = a^-1 b, where x and b have `columns` columns. Returns false when a is singular. Uses LU with partial pivoting.
template <class T>
bool solve(int64_t n, int64_t columns, const T* a, const T* b, T* x);

// l = the lower Cholesky factor of a. Returns false when a is not positive definite.
template <class T>
bool cholesky(int64_t n, const T* a, T* l);

}  // namespace pg::cpu
