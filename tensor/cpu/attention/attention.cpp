#include "tensor/cpu/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/cpu/attention/attention_simd.h"
#include "tensor/cpu/fill/dropout.h"
#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/scratch.h"

namespace pg::cpu {
namespace {

// Keys of a step of attend: the scores of a block of queries fit the second-level cache.
constexpr int64_t kStepKeys = 256;

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
template <class E>
int64_t visible(const Head<E>& h, int64_t query, int64_t key, int64_t n) {
  return h.causal ? std::clamp<int64_t>(query - key + 1, 0, n) : n;
}

// Drops weights of a query, or gradients of dropped weights.
template <class E>
void drop_weights(const Head<E>& h, int64_t query, int64_t key, int64_t n, SumOf<E>* row) {
  if (h.drops.share > 0) drop(h.drops.key, h.drops.share, h.drops.first + query * h.keys + key, n, row);
}

// c = or += op(a) op(b), with dense rows of c. Sizes may be 0. If b is of bfloat16, a may be of float32: it is rounded.
template <class A, class E>
void multiply(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const Matrix<A>& a, const Matrix<E>& b,
              SumOf<E>* c, bool adds) {
  if (k == 0 && !adds) std::fill_n(c, m * n, SumOf<E>(0));
  if (times(times(m, n), k) == 0) return;
  if constexpr (std::is_same_v<E, BFloat16>)
    gemm_bf16(trans_a, trans_b, m, n, k, a.data, a.stride, b.data, b.stride, Bf16Result<float>{c, n, adds});
  else if (!adds)  // a few queries are dot products
    gemm<E>(trans_a, trans_b, m, n, k, a.data, a.stride, b.data, b.stride, c, n);
  else
    gemm_simd(trans_a, trans_b, m, n, k, a.data, a.stride, b.data, b.stride, c, n, adds);
}

// Queries times the scale, as dense rows. Those of bfloat16 stay as they are, and their products are scaled.
template <class E>
class ScaledQueries {
 public:
  ScaledQueries(const Head<E>& h, int64_t first, int64_t count)
      : memory_(kScalesProducts ? 0 : count * h.width), rows_{h.query.row(first), h.query.stride} {
    if constexpr (!kScalesProducts) {
      const auto loops = attention_loops(E());
      E* const to = memory_;
      for (int64_t i = 0; i < count; ++i) loops.scale(to + i * h.width, h.query.row(first + i), h.width, h.scale);
      rows_ = {to, h.width};
    }
  }
  static constexpr bool kScalesProducts = std::is_same_v<E, BFloat16>;
  Matrix<E> from(int64_t i) const { return {rows_.row(i), rows_.stride}; }

 private:
  Scratch<E> memory_;
  Matrix<E> rows_;
};

// Sums of a block of gradients: in the result itself, which is cleared, or in memory of their own until they are
// stored.
template <class E>
class Sums {
 public:
  using T = SumOf<E>;
  Sums(int64_t count, E* result) : memory_(kRounds ? count : 0), count_(count), result_(result) {
    std::fill_n(data(), count, T(0));
  }
  T* data() {
    if constexpr (kRounds)
      return memory_;
    else
      return result_;
  }
  void store(T factor) {
    if constexpr (kRounds) {
      attention_loops(T()).scale(data(), data(), count_, factor);
      from_float(data(), result_, count_);
    }
  }

 private:
  static constexpr bool kRounds = !std::is_same_v<E, T>;
  Scratch<T> memory_;
  int64_t count_;
  E* result_;
};

}  // namespace

template <class E>
void attend(const Head<E>& h, int64_t first, int64_t count, SumOf<E>* out, const Normalizers<SumOf<E>>& normalizers) {
  using T = SumOf<E>;
  const auto loops = attention_loops(T());
  const Scratch<T> scores_memory(count * (kStepKeys + h.value_width));
  T *const scores = scores_memory, *const part = scores + count * kStepKeys;
  RunningSum<T> rows[kQueryBlock];
  T factors[kQueryBlock];
  std::fill_n(rows, count, RunningSum<T>{-kInfinity<T>, 0});
  std::fill_n(out, count * h.value_width, T(0));
  const ScaledQueries<E> queries(h, first, count);
  const int64_t end = h.causal ? std::min(h.keys, first + count) : h.keys;
  for (int64_t key = 0; key < end; key += kStepKeys) {
    const int64_t n = std::min(kStepKeys, end - key);
    multiply(false, true, count, n, h.width, queries.from(0), Matrix<E>{h.key.row(key), h.key.stride}, scores, false);
    for (int64_t i = 0; i < count; ++i) {
      T* row = scores + i * n;
      const int64_t seen = visible(h, first + i, key, n);
      if (queries.kScalesProducts) loops.scale(row, row, seen, h.scale);
      apply_mask(h.mask, first + i, key, seen, row);
      factors[i] = loops.weigh(row, seen, h.mask.data != nullptr, rows[i]);
      drop_weights(h, first + i, key, seen, row);
      std::fill(row + seen, row + n, T(0));
    }
    T* sums = key == 0 ? out : part;
    multiply(false, false, count, h.value_width, n, Matrix<T>{scores, n}, Matrix<E>{h.value.row(key), h.value.stride},
             sums, false);
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

template <class E>
void attend_backward(const Head<E>& h, const Matrix<E>& dy, const Normalizers<const SumOf<E>>& normalizers,
                     const SumOf<E>* delta, int64_t first, int64_t end, SumOf<E>* dq, E* dk, E* dv) {
  using T = SumOf<E>;
  const auto loops = attention_loops(T());
  const ScaledQueries<E> queries(h, 0, h.queries);
  const Scratch<T> scores_memory(2 * kQueryBlock * kKeyBlock);
  T *const weights = scores_memory, *const grads = weights + kQueryBlock * kKeyBlock;
  for (int64_t key = first; key < end; key += kKeyBlock) {
    const int64_t n = std::min(kKeyBlock, end - key);
    const Matrix<E> keys{h.key.row(key), h.key.stride}, values{h.value.row(key), h.value.stride};
    Sums<E> dk_sums(n * h.width, dk + (key - first) * h.width);
    Sums<E> dv_sums(n * h.value_width, dv + (key - first) * h.value_width);
    for (int64_t q = h.causal ? key / kQueryBlock * kQueryBlock : 0; q < h.queries; q += kQueryBlock) {
      const int64_t count = std::min(kQueryBlock, h.queries - q);
      const Matrix<E> rows = queries.from(q), dy_rows{dy.row(q), dy.stride};
      multiply(false, true, count, n, h.width, rows, keys, weights, false);
      multiply(false, true, count, n, h.value_width, dy_rows, values, grads, false);
      for (int64_t i = 0; i < count; ++i) {
        T *p = weights + i * n, *g = grads + i * n;
        const int64_t seen = visible(h, q + i, key, n);
        if (queries.kScalesProducts) loops.scale(p, p, seen, h.scale);
        apply_mask(h.mask, q + i, key, seen, p);
        loops.weights(p, seen, normalizers.top[q + i], normalizers.log_sum[q + i]);
        drop_weights(h, q + i, key, seen, g);
        loops.score_grads(p, g, seen, delta[q + i]);
        drop_weights(h, q + i, key, seen, p);
        std::fill(p + seen, p + n, T(0));
        std::fill(g + seen, g + n, T(0));
      }
      const Matrix<T> p{weights, n}, g{grads, n};
      multiply(true, false, n, h.value_width, count, p, dy_rows, dv_sums.data(), true);
      multiply(true, false, n, h.width, count, g, rows, dk_sums.data(), true);
      multiply(false, false, count, h.width, n, g, keys, dq + q * h.width, true);
    }
    dv_sums.store(1);
    dk_sums.store(h.scale);
  }
}

#define PG_ATTENTION(E)                                                                                  \
  template void attend<E>(const Head<E>&, int64_t, int64_t, SumOf<E>*, const Normalizers<SumOf<E>>&);    \
  template void attend_backward<E>(const Head<E>&, const Matrix<E>&, const Normalizers<const SumOf<E>>&, \
                                   const SumOf<E>*, int64_t, int64_t, SumOf<E>*, E*, E*);
PG_ATTENTION(float)
PG_ATTENTION(double)
PG_ATTENTION(BFloat16)
#undef PG_ATTENTION

}  // namespace pg::cpu
