#include "tensor/cpu/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/cpu/attention/attention_simd.h"
#include "tensor/cpu/fill/dropout.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/scratch.h"

namespace pg::cpu {
namespace {

// Keys of a step of attend: the scores of a block of queries fit the second-level cache.
constexpr int64_t kStepKeys = 512;

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Applies the mask of a query to n scores, of keys from `key` on.
template <class T>
void apply_mask(const Mask& mask, int64_t query, int64_t key, int64_t n, T* scores) {
  if (!mask.data) return;
  const int64_t at = query * mask.row + key * mask.column;
  if (mask.adds) {
    const T* terms = static_cast<const T*>(mask.data) + at;
    for (int64_t j = 0; j < n; ++j) scores[j] += terms[j * mask.column];
  } else {
    const bool* seen = static_cast<const bool*>(mask.data) + at;
    for (int64_t j = 0; j < n; ++j) scores[j] = seen[j * mask.column] ? scores[j] : -kInfinity<T>;
  }
}

// How many of n keys from `key` on a query may see.
template <class T>
int64_t visible(const Head<T>& h, int64_t query, int64_t key, int64_t n) {
  return h.causal ? std::clamp<int64_t>(query - key + 1, 0, n) : n;
}

// Drops weights of a query, or gradients of dropped weights.
template <class T>
void drop_weights(const Head<T>& h, int64_t query, int64_t key, int64_t n, T* row) {
  if (h.drops.share > 0) drop(h.drops.key, h.drops.share, h.drops.first + query * h.keys + key, n, row);
}

// Copies queries times the scale, as dense rows.
template <class T>
void scale_queries(const Head<T>& h, int64_t first, int64_t count, T* to) {
  const auto loops = attention_loops(T());
  for (int64_t i = 0; i < count; ++i) loops.scale(to + i * h.width, h.query.row(first + i), h.width, h.scale);
}

// gemm_simd for sizes that may be 0.
template <class T>
void multiply(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
              int64_t ldb, T* c, bool adds) {
  if (k == 0 && !adds) std::fill_n(c, m * n, T(0));
  if (m * n * k > 0) gemm_simd(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, n, adds);
}

}  // namespace

template <class T>
void attend(const Head<T>& h, int64_t first, int64_t count, T* out, const Normalizers<T>& normalizers) {
  const auto loops = attention_loops(T());
  const Scratch<T> scaled_memory(count * (h.width + kStepKeys + h.value_width));
  T* const scaled = scaled_memory;
  T *scores = scaled + count * h.width, *part = scores + count * kStepKeys;
  RunningSum<T> rows[kQueryBlock];
  T factors[kQueryBlock];
  std::fill_n(rows, count, RunningSum<T>{-kInfinity<T>, 0});
  std::fill_n(out, count * h.value_width, T(0));
  scale_queries(h, first, count, scaled);
  const int64_t end = h.causal ? std::min(h.keys, first + count) : h.keys;
  for (int64_t key = 0; key < end; key += kStepKeys) {
    const int64_t n = std::min(kStepKeys, end - key);
    gemm<T>(false, true, count, n, h.width, scaled, h.width, h.key.row(key), h.key.stride, scores, n);
    for (int64_t i = 0; i < count; ++i) {
      T* row = scores + i * n;
      const int64_t seen = visible(h, first + i, key, n);
      apply_mask(h.mask, first + i, key, seen, row);
      factors[i] = loops.weigh(row, seen, h.mask.data != nullptr, rows[i]);
      drop_weights(h, first + i, key, seen, row);
      std::fill(row + seen, row + n, T(0));
    }
    T* sums = key == 0 ? out : part;
    gemm<T>(false, false, count, h.value_width, n, scores, n, h.value.row(key), h.value.stride, sums, h.value_width);
    for (int64_t i = 0; key > 0 && i < count; ++i)
      loops.merge(out + i * h.value_width, part + i * h.value_width, h.value_width, factors[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    const bool hidden = rows[i].sum == 0;
    T* row = out + i * h.value_width;
    normalizers.top[i] = hidden ? T(0) : rows[i].top;
    normalizers.log_sum[i] = hidden ? kInfinity<T> : std::log(rows[i].sum);
    loops.scale(row, row, h.value_width, hidden ? T(0) : 1 / rows[i].sum);
  }
}

template <class T>
void attend_backward(const Head<T>& h, const Matrix<T>& dy, const Normalizers<const T>& normalizers, const T* delta,
                     int64_t first, int64_t end, T* dq, T* dk, T* dv) {
  const auto loops = attention_loops(T());
  const Scratch<T> scaled_memory(h.queries * h.width + 2 * kQueryBlock * kKeyBlock);
  T* const scaled = scaled_memory;
  T *weights = scaled + h.queries * h.width, *grads = weights + kQueryBlock * kKeyBlock;
  scale_queries(h, 0, h.queries, scaled);
  for (int64_t key = first; key < end; key += kKeyBlock) {
    const int64_t n = std::min(kKeyBlock, end - key);
    const Matrix<T> keys{h.key.row(key), h.key.stride}, values{h.value.row(key), h.value.stride};
    T *dk_rows = dk + (key - first) * h.width, *dv_rows = dv + (key - first) * h.value_width;
    for (int64_t q = h.causal ? key / kQueryBlock * kQueryBlock : 0; q < h.queries; q += kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, h.queries - q);
      const T* queries = scaled + q * h.width;
      multiply(false, true, count, n, h.width, queries, h.width, keys.data, keys.stride, weights, false);
      multiply(false, true, count, n, h.value_width, dy.row(q), dy.stride, values.data, values.stride, grads, false);
      for (int64_t i = 0; i < count; ++i) {
        T *p = weights + i * n, *g = grads + i * n;
        const int64_t seen = visible(h, q + i, key, n);
        apply_mask(h.mask, q + i, key, seen, p);
        loops.weights(p, seen, normalizers.top[q + i], normalizers.log_sum[q + i]);
        drop_weights(h, q + i, key, seen, g);
        loops.score_grads(p, g, seen, delta[q + i]);
        drop_weights(h, q + i, key, seen, p);
        std::fill(p + seen, p + n, T(0));
        std::fill(g + seen, g + n, T(0));
      }
      multiply(true, false, n, h.value_width, count, weights, n, dy.row(q), dy.stride, dv_rows, true);
      multiply(true, false, n, h.width, count, grads, n, queries, h.width, dk_rows, true);
      multiply(false, false, count, h.width, n, grads, n, keys.data, keys.stride, dq + q * h.width, true);
    }
  }
}

#define PG_ATTENTION(T)                                                                                              \
  template void attend<T>(const Head<T>&, int64_t, int64_t, T*, const Normalizers<T>&);                              \
  template void attend_backward<T>(const Head<T>&, const Matrix<T>&, const Normalizers<const T>&, const T*, int64_t, \
                                   int64_t, T*, T*, T*);
PG_ATTENTION(float)
PG_ATTENTION(double)
#undef PG_ATTENTION

}  // namespace pg::cpu
