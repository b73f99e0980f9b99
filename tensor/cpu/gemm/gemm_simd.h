// Matrix products written with Highway. They run on the calling thread.
#pragma once
#include <cstdint>
#include <type_traits>

namespace pg::cpu {

// The type of the sums of products of T.
template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

// What follows a product: a bias for each column, or null, then relu. NaN stays NaN.
template <class T>
struct Epilogue {
  const T* bias = nullptr;
  bool relu = false;

  // Of the columns from this one on.
  Epilogue from(int64_t column) const { return {bias ? bias + column : nullptr, relu}; }
};

// A product is summed in steps that divide this many elements of k: the products of two pieces, cut at a multiple of
// it, have the bits of one when the second is added to the first.
constexpr int64_t kGemmDepth = 1024;

// Row-major c[m, n] = op(a)[m, k] * op(b)[k, n] for m, n, k >= 1; op transposes if asked. lda, ldb and ldc are
// distances between stored rows, in elements. c is only written; if `adds`, the product is added to it. T is float or
// double.
template <class T>
void gemm_simd(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
               int64_t ldb, T* c, int64_t ldc, bool adds = false, const Epilogue<T>& finish = {});

// Packs op(b)[k, n], where op transposes if asked, for multiply_packed: into packed_size(n, k) elements that are
// aligned to a cache line.
constexpr int64_t kPackedColumns = 32;
constexpr int64_t packed_size(int64_t n, int64_t k) {
  return (n + kPackedColumns - 1) / kPackedColumns * kPackedColumns * k;
}
void pack_right(bool trans_b, int64_t n, int64_t k, const float* b, float* packed);

// Writes `count` columns, from the first one of c on, of c[m, n] = a[m, k] * op(b)[k, n]. They are those of op(b) from
// `first` on, a multiple of kPackedColumns. The bits are those of gemm_simd.
void multiply_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* packed, int64_t first, int64_t count,
                     float* c, const Epilogue<float>& finish = {});

}  // namespace pg::cpu
