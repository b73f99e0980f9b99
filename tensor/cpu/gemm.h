// Matrix products on row-major arrays. Zero sizes are fine; beta = 0 never reads c. Large products use the pool.
#pragma once
#include <cstdint>

namespace pg::cpu {

// c[m, n] = alpha * op(a)[m, k] * op(b)[k, n] + beta * c[m, n]; leading dims count elements of the stored rows.
void gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a, int64_t lda,
              const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a, int64_t lda,
              const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

// c = alpha * op(a) * op(b) on 16-bit floats, accumulated in float32 and rounded once.
enum class HalfKind { kFloat16, kBFloat16 };
void gemm_half(HalfKind kind, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
               const uint16_t* a, int64_t lda, const uint16_t* b, int64_t ldb, float beta, uint16_t* c, int64_t ldc);

// Strides between the matrices of a batch, in elements; 0 repeats one operand (not c).
struct BatchStrides {
  int64_t a = 0, b = 0, c = 0;
};
void gemm_batched_f32(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                      float alpha, const float* a, int64_t lda, const float* b, int64_t ldb, float beta, float* c,
                      int64_t ldc);
void gemm_batched_f64(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                      double alpha, const double* a, int64_t lda, const double* b, int64_t ldb, double beta, double* c,
                      int64_t ldc);

// y[m, n] = x[m, k] * w[n, k]^T + bias[n], then relu where asked. bias may be null.
void linear_f32(int64_t m, int64_t n, int64_t k, const float* x, const float* w, const float* bias, bool relu,
                float* y);
void linear_f64(int64_t m, int64_t n, int64_t k, const double* x, const double* w, const double* bias, bool relu,
                double* y);

// Whether linear_f32 of this shape is best done by a primitive of oneDNN.
bool linear_prefers_primitive(int64_t m, int64_t n, int64_t k);

}  // namespace pg::cpu
