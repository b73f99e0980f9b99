// Matrix products of row-major arrays. Sizes may be 0. Results are only written, never read. Large products use the
// thread pool.
#pragma once
#include <cstdint>

#include "tensor/cpu/gemm/gemm_simd.h"

namespace pg::cpu {

// c[m, n] = op(a)[m, k] * op(b)[k, n]; op transposes if trans_a or trans_b. lda, ldb and ldc are distances between
// stored rows, in elements. T is float or double.
template <class T>
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb,
          T* c, int64_t ldc);

// The same for Half or BFloat16, with an epilogue: sums are accumulated in float32 and rounded once.
template <class H>
void gemm_half(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const H* a, int64_t lda, const H* b,
               int64_t ldb, H* c, int64_t ldc, const Epilogue<float>& finish = {});

// Distances between the matrices of a batch, in elements. 0 reuses one matrix of a or b for the whole batch.
struct BatchStrides {
  int64_t a = 0, b = 0, c = 0;
};
template <class T>
void gemm_batched(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                  const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc);

template <class H>
void gemm_half_batched(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                       const H* a, int64_t lda, const H* b, int64_t ldb, H* c, int64_t ldc);

// y[m, n] = x[m, k] * w[n, k]^T + bias[n], followed by relu if `relu`. bias may be null. `packed`: w as pack_right
// packs it, or null; only where right_packs is true.
template <class T>
void linear(int64_t m, int64_t n, int64_t k, const T* x, const T* w, const T* bias, bool relu, T* y,
            const float* packed = nullptr);

// c[m, n] = a[m, k] * b[k, n]. `packed`: likewise, of b.
void gemm_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, const float* packed);

// Whether linear<float> (trans_b) or gemm_packed is faster with a packed right side.
bool right_packs(bool trans_b, int64_t m, int64_t n, int64_t k);

}  // namespace pg::cpu
