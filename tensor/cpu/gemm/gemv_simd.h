// Matrix products with few rows, on unpacked row-major operands. Each element of the matrix is read once.
#pragma once
#include "tensor/cpu/gemm/gemm_simd.h"

namespace pg::cpu {

constexpr int64_t kGemvMaxRows = 4;

// y[m * y_row + n * y_col] = sum_k x[m * ldx + k] * w[n * ldw + k]; 1 <= m <= kGemvMaxRows.
void gemv_nt_f32(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
                 int64_t y_row, int64_t y_col, const Epilogue<float>& finish);

// y[m * y_row + n * y_col] = sum_k x[m * ldx + k] * w[k * ldw + n]; 1 <= m <= kGemvMaxRows.
void gemv_nn_f32(int64_t m, int64_t n, int64_t k, const float* x, int64_t ldx, const float* w, int64_t ldw, float* y,
                 int64_t y_row, int64_t y_col, const Epilogue<float>& finish);

}  // namespace pg::cpu
