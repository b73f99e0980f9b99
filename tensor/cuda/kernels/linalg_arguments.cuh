// The arguments of kernels/linalg.cuh. Matrices follow each other in memory, `step` elements apart.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

constexpr int kSmallMatrix = 64;  // the rows of a matrix that a block factors in shared memory

// Copies `count` elements of rows x columns matrices. The result is row-major.
struct MatrixCopyArgs {
  const void* from;     // null: zeros
  void* to;
  int64_t count, rows, columns;
  int64_t from_step, from_row, from_column, to_step;
  const void* scales;   // of matrices, or null. A matrix whose scale is NaN becomes NaN, or 0 if it is divided
  const int32_t* info;  // of matrices, or null. A matrix with another number than 0 becomes `failed`
  const void* signs;    // factors of columns, or of rows if `sign_rows`, `sign_count` for each matrix; or null
  int64_t sign_count;
  double failed;
  int32_t scaling;      // 1: times the scale; -1: divided by it; 0: neither
  int32_t triangle;     // 1: elements below the diagonal are 0; -1: those above it
  int32_t unit;         // the diagonal is 1
  int32_t sign_rows;
};

// Facts about matrices: elements (i, j) are at i * row + j * column.
struct MatrixFactArgs {
  const void* from;
  int64_t matrices, rows, columns, step, row, column;
  void* out;            // scales, signs, determinants or signs of them
  void* out2;           // logarithms of determinants
  int32_t* squarings;   // of exponentials; -1: NaN
  const int64_t* pivots;
  const int32_t* info;
  const int32_t* exponents;  // of BalanceArgs
  double limit;         // of a norm
  int32_t lower;        // only the lower triangle is read
  int32_t report;
  Fault* fault;
};

// Column-major n x n matrices a with a_ij = b_ij 2^(row i + column j). A matrix has 2 n + 1 exponents: those of
// rows, those of columns, and whether b differs from a.
struct BalanceArgs {
  void* a;               // becomes b
  int32_t* exponents;
  int64_t n;
  // The right-hand sides of systems, or their solutions: `count` columns, `columns` of each matrix, which is row-major.
  void* x;
  int32_t* largest;      // of each column: the exponent of its largest element, which is divided out
  int64_t count, columns;
  int64_t step;          // from the exponents of one matrix to the next; 0: one matrix for all
  int32_t solved;        // x holds solutions
};

// Systems of n equations with `columns` right-hand sides. Element (i, j) of the matrix is at i * row + j * column.
struct SystemArgs {
  void* a;
  void* x;
  int64_t* pivots;
  int32_t* info;
  int64_t matrices, n, columns;
  int64_t a_step, row, column;          // a_step 0: one matrix for all
  int64_t x_step, x_row, x_column;
  int32_t down, unit;                   // of a triangular system
  int32_t report;
  Fault* fault;
};

// to = identity times I plus the sum of factors times matrices of n x n, `count` elements in all.
struct CombinationArgs {
  const void* matrices[4];
  double factors[4];
  double identity;
  void* to;
  int64_t count, n;
  const int32_t* squarings;  // matrices with more than `done` of them are copied from matrices[0]; or null
  int32_t done;
};

}  // namespace pg::kernels
