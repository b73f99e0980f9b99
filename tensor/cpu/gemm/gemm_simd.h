// Matrix products in Highway, on the calling thread.
#pragma once
#include <cstdint>

namespace pg::cpu {

// With at most this many rows, and b not transposed, gemm_simd packs no more than the last columns of b and is at least
// as fast as oneDNN's kernels.
constexpr int64_t kGemmUnpackedRows = 64;

// Row-major c[m, n] = op(a)[m, k] * op(b)[k, n] for m, n, k >= 1, where op transposes if asked. Leading dims count
// elements of the stored rows. c is only written. T: float, double.
template <class T>
void gemm_simd(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
               int64_t ldb, T* c, int64_t ldc);

}  // namespace pg::cpu
