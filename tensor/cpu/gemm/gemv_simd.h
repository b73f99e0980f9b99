// Matrix products with few rows, on unpacked row-major operands. Each element of the matrix is read once.
#pragma once
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/dtype.h"

namespace pg::cpu {

constexpr int64_t kGemvMaxRows = 4;

// Products of m rows, 1 <= m <= kGemvMaxRows, by a matrix whose elements have type W: float, double, Half or BFloat16.
template <class W>
struct GemvLoops {
  using T = SumOf<W>;
  using Fn = void (*)(int64_t m, int64_t n, int64_t k, const T* x, int64_t ldx, const W* w, int64_t ldw, T* y,
                      int64_t y_row, int64_t y_col, const Epilogue<T>& finish);
  Fn nt;  // y[m * y_row + n * y_col] = sum_k x[m * ldx + k] * w[n * ldw + k]
  Fn nn;  // y[m * y_row + n * y_col] = sum_k x[m * ldx + k] * w[k * ldw + n]
};
GemvLoops<float> gemv_loops(float);
GemvLoops<double> gemv_loops(double);
GemvLoops<Half> gemv_loops(Half);
GemvLoops<BFloat16> gemv_loops(BFloat16);

// A matrix whose element [i, j] is at i * row + j * col.
struct Layout {
  int64_t row, col;
};

// `count` products of small matrices. The element of a column is summed in the order of k, as GemvLoops::nn does.
void small_products_f32(int64_t count, const BatchStrides& s, int64_t m, int64_t n, int64_t k, const float* a,
                        Layout la, const float* b, Layout lb, float* c, int64_t ldc);

}  // namespace pg::cpu
