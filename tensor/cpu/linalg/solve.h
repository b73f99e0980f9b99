// Solvers for one row-major n x n matrix. T is float or double, and is also the type of the computation. Large solves
// poll for interrupts.
#pragma once
#include <cstdint>

namespace pg::cpu {

inline constexpr int64_t kTiny = 8;  // up to this size a factorization takes less time than an allocation

// x = a^-1 b, where x and b have `columns` columns. Returns false when a is singular. Uses LU with partial pivoting.
template <class T>
bool solve(int64_t n, int64_t columns, const T* a, const T* b, T* x);

// l = the lower Cholesky factor of a. Returns false when a is not positive definite.
template <class T>
bool cholesky(int64_t n, const T* a, T* l);

// One triangle of a matrix; op(a) is a or its transpose. `upper` is that of a.
template <class T>
struct Triangle {
  const T* a;
  int64_t n;
  bool upper, transposed = false;
  bool unit = false;  // the diagonal counts as ones and is not read
};

// x = op(a)^-1 x, where x has `columns` columns. With a 0 on the diagonal the result has no meaning.
template <class T>
void solve_triangle(const Triangle<T>& triangle, int64_t columns, T* x);

// Overwrites a with L, without its diagonal of ones, and U. Row i of L U is row order[i] of a. Returns false when a
// pivot is 0.
template <class T>
bool factor_lu(int64_t n, T* a, int64_t* order);

}  // namespace pg::cpu
