// Matrix products of row-major arrays. Sizes may be 0. Results are only written, never read. Large products use the
// thread pool.
#pragma once
#include <cstdint>

namespace pg::cpu {

// c[m, n] = op(a)[m, k] * op(b)[k, n]; op transposes if trans_a or trans_b. lda, ldb and ldc are distances between
// stored rows, in elements. T is float or double.
template <class T>
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb,
          T* c, int64_t ldc);

// The same for 16-bit floats: sums are accumulated in float32 and rounded once.
enum class HalfKind { kFloat16, kBFloat16 };
void gemm_half(HalfKind kind, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const uint16_t* a,
               int64_t lda, const uint16_t* b, int64_t ldb, uint16_t* c, int64_t ldc);

// Distances between the matrices of a batch, in elements. 0 reuses one matrix of a or b for the whole batch.
struct BatchStrides {
  int64_t a = 0, b = 0, c = 0;
};
template <class T>
void gemm_batched(int64_t count, BatchStrides strides, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                  const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc);

// y[m, n] = x[m, k] * w[n, k]^T + bias[n], followed by relu if `relu`. bias may be null. `packed`: w as pack_right
// packs it, or null; only where right_packs is true.
template <class T>
void linear(int64_t m, int64_t n, int64_t k, const T* x, const T* w, const T* bias, bool relu, T* y,
            const float* packed = nullptr);

// c[m, n] = a[m, k] * b[k, n]. `packed`: likewise, of b.
void gemm_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, const float* packed);

// Whether linear<float> (trans_b) or gemm_packed is faster with a packed right side.
bool right_packs(bool trans_b, int64_t m, int64_t n, int64_t k);

// Copies a dense matrix of `columns` columns to rows that are `ld` elements apart.
template <class T>
void place_columns(int64_t rows, int64_t columns, const T* from, int64_t ld, T* to);

}  // namespace pg::cpu
