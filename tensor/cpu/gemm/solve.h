// Solvers for one row-major n x n matrix. T is float or double; float computes in float. Large ones poll.
#pragma once
#include <cstdint>

namespace pg::cpu {

// x = a^-1 b with n x columns matrices; false when a is singular. By LU with partial pivoting.
template <class T>
bool solve(int64_t n, int64_t columns, const T* a, const T* b, T* x);

// The lower Cholesky factor; false when a is not positive definite.
template <class T>
bool cholesky(int64_t n, const T* a, T* l);

}  // namespace pg::cpu
