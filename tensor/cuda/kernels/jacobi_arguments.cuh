// The arguments of kernels/jacobi.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

constexpr int kJacobi = 32;  // the most rows of a matrix, and the threads of a block

// Column-major matrices one after the other, of m rows and n <= m columns.
struct JacobiArgs {
  const void* from;
  void* values;      // singular values, descending; or eigenvalues, ascending
  void *left, *right;  // m x kept and n x n, or null; eigenvectors are on the right
  int64_t m, n, kept;
  int32_t symmetric;  // eigenvalues; the upper triangle is read
};

}  // namespace pg::kernels
