// Shared by the kernel rows of linear algebra.
#pragma once
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/linalg_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/solver.h"
#include "tensor/device_table.h"

namespace pg::cuda {

// The matrices in the last two dims of a view.
struct MatrixBatch {
  int64_t rows, columns, count = 1;
  explicit MatrixBatch(const Dims& shape);
  explicit MatrixBatch(const View& v) : MatrixBatch(v.shape()) {}
  int64_t size() const { return rows * columns; }
};

// The threads of a block that factors an n x n matrix.
inline unsigned matrix_threads(int64_t n) { return n <= 8 ? 64 : kThreads; }
CUfunction linalg_kernel(Stream& stream, DType dtype, const char* name);
// Runs copy_matrices of kernels/linalg.cuh for so many matrices.
void copy_matrices(Stream& stream, DType dtype, int64_t matrices, kernels::MatrixCopyArgs args);
// Row-major matrices without gaps become the identity, as far as they are square.
void fill_identity(Stream& stream, const View& to);

// Reports the first matrix with another `info` than 0, late: `OP: bad argument 'a' (expected EXPECTED, got GOT)`.
struct MatrixRefusal {
  const char *expected, *got;
};
void report_failures(const KernelArgs& a, const int32_t* info, int64_t matrices, const MatrixRefusal& refusal);
int32_t refusal_number(const KernelArgs& a, const MatrixRefusal& refusal);

// Factors of square matrices: P b = L U, column-major, where b is a without extreme elements (BalanceArgs).
class Lu {
 public:
  // a: matrices with any strides
  Lu(Stream& stream, const View& a, DType dtype);
  // x = a^-1 x, for row-major x without gaps. a holds one matrix, or one for each x.
  void solve(void* x, int64_t matrices, int64_t columns) const;
  void determinants(void* out, void* logarithms) const;  // logarithms: null for plain determinants
  const int32_t* info() const { return static_cast<const int32_t*>(info_.data()); }
  int64_t count() const { return batch_.count; }

 private:
  int64_t step() const { return batch_.count == 1 ? 0 : batch_.size(); }
  Columns factors() const { return {dtype_, factors_.data(), batch_.rows, batch_.rows, batch_.count, batch_.size()}; }
  int64_t* pivots() const { return static_cast<int64_t*>(pivots_.data()); }
  int32_t* exponents() const { return static_cast<int32_t*>(exponents_.data()); }
  void solve_balanced(void* x, int64_t matrices, int64_t columns) const;
  void solve_large(void* x, int64_t matrices, int64_t columns) const;

  Stream& stream_;
  const DType dtype_;
  const MatrixBatch batch_;
  const Scratch factors_, pivots_, info_, exponents_;
};

}  // namespace pg::cuda
