// Matrix products on row-major arrays. Zero sizes are fine; c and y are only written. Large products use the pool.
#pragma once
#include <cstdint>

namespace pg::cpu {

// c[m, n] = op(a)[m, k] * op(b)[k, n], where op transposes if asked; leading dims count elements of the stored rows.
// T: float, double.
template <class T>
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb,
          T* c, int64_t ldc);

// The same on 16-bit floats, accumulated in float32 and rounded once.
enum class HalfKind { kFloat16, kBFloat16 };
void gemm_half(HalfKind kind, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const uint16_t* a,
               int64_t lda, const uint16_t* b, int64_t ldb, uint16_t* c, int64_t ldc);

// Strides between the matrices of a batch, in elements; 0 repeats one operand (not c).
struct BatchStrides {
  int64_t a = 0, b = 0, c = 0;
};
template <class T>
void gemm_batched(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                  const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc);

// y[m, n] = x[m, k] * w[n, k]^T + bias[n], then relu where asked. bias may be null.
template <class T>
void linear(int64_t m, int64_t n, int64_t k, const T* x, const T* w, const T* bias, bool relu, T* y);

// Whether linear<float> of this shape is best done by a primitive of oneDNN.
bool linear_prefers_primitive(int64_t m, int64_t n, int64_t k);

}  // namespace pg::cpu
