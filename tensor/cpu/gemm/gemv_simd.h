// Matrix products with few rows, on unpacked row-major operands. Each element of the matrix is read once.
#pragma once
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/gemm_simd.h"

namespace pg::cpu {

constexpr int64_t kGemvMaxRows = 4;

// y[m * y_row + n * y_col] = sum_k x[m * ldx + k] * w[n * ldw + k]; 1 <= m <= kGemvMaxRows.
void gemv_nt_f32(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
                 int64_t y_row, int64_t y_col, const Epilogue<float>& finish);

// y[m * y_row + n * y_col] = sum_k x[m * ldx + k] * w[k * ldw + n]; 1 <= m <= kGemvMaxRows.
void gemv_nn_f32(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
                 int64_t y_row, int64_t y_col, const Epilogue<float>& finish);

// A matrix whose element [i, j] is at i * row + j * col.
struct Layout {
  int64_t row, col;
};

// `count` products of small matrices. The element of a column is summed in the order of k, as gemv_nn_f32 does.
void small_products_f32(int64_t count, const BatchStrides& s, int64_t m, int64_t n, int64_t k, const float* a,
                        Layout la, const float* b, Layout lb, float* c, int64_t ldc);

}  // namespace pg::cpu
