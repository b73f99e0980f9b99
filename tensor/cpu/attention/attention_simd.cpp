#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/attention/attention_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/attention/attention_simd.h"
#include "tensor/cpu/elementary-inl.h"

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {  // other files have functions of the same names

template <class T>
using Lanes = hn::ScalableTag<T>;

template <class T>
constexpr T kHidden = -std::numeric_limits<T>::infinity();

// Replaces each element of y by f(element of x), in whole vectors and a part of one.
template <class T, class F>
HWY_INLINE void map_row(const T* x, T* y, int64_t n, const F& f) {
  const Lanes<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i)), d, y + i);
  if (i < n) store_part(d, f(load_part(d, x + i, n - i)), y + i, n - i);
}

template <class T>
HWY_INLINE T largest(const T* x, int64_t n) {
  const Lanes<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto a = hn::Set(d, kHidden<T>), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::Max(a, hn::LoadU(d, x + i));
    b = hn::Max(b, hn::LoadU(d, x + i + lanes));
  }
  for (; i < n; i += lanes) a = hn::Max(a, load_part(d, x + i, std::min(lanes, n - i), kHidden<T>));
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(a, b)));
}

// x = e^(x - shift) for x <= shift. Returns the sum.
template <class T>
HWY_INLINE T exp_row(T* x, int64_t n, T shift) {
  const Lanes<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto s = hn::Set(d, shift);
  auto a = hn::Zero(d), b = a;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto u = elementary::exp_below(d, hn::Sub(hn::LoadU(d, x + i), s));
    const auto v = elementary::exp_below(d, hn::Sub(hn::LoadU(d, x + i + lanes), s));
    hn::StoreU(u, d, x + i);
    hn::StoreU(v, d, x + i + lanes);
    a = hn::Add(a, u), b = hn::Add(b, v);
  }
  for (; i < n; i += lanes) {
    const int64_t m = std::min(lanes, n - i);
    const auto u = elementary::exp_below(d, hn::Sub(load_part(d, x + i, m, kHidden<T>), s));
    store_part(d, u, x + i, m);
    a = hn::Add(a, hn::IfThenElseZero(hn::FirstN(d, size_t(m)), u));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
}

template <class T>
T weigh(T* scores, int64_t n, bool may_hide, RunningSum<T>& row) {
  if (n == 0) return 1;
  const T before = row.top;
  row.top = std::max(before, largest(scores, n));
  const T shift = may_hide && row.top == kHidden<T> ? T(0) : row.top;
  const T factor = before == shift ? T(1) : std::exp(before - shift), sum = exp_row(scores, n, shift);
  row.sum = row.sum == 0 ? sum : row.sum * factor + sum;
  return factor;
}

// The two are not added up: beside a large top a logarithm would be rounded away.
template <class T>
void weights(T* scores, int64_t n, T top, T log_sum) {
  const Lanes<T> d;
  const auto t = hn::Set(d, top), l = hn::Set(d, log_sum);
  map_row(scores, scores, n, [&](auto v) HWY_ATTR { return elementary::exp(d, hn::Sub(hn::Sub(v, t), l)); });
}

template <class T>
void score_grads(const T* p, T* g, int64_t n, T delta) {
  const Lanes<T> d;
  const auto s = hn::Set(d, delta);
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, p + i), hn::Sub(hn::LoadU(d, g + i), s)), d, g + i);
  for (; i < n; ++i) g[i] = p[i] * (g[i] - delta);
}

template <class T>
void merge(T* y, const T* x, int64_t n, T factor) {
  const Lanes<T> d;
  const auto f = hn::Set(d, factor);
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(hn::LoadU(d, y + i), f, hn::LoadU(d, x + i)), d, y + i);
  for (; i < n; ++i) y[i] = y[i] * factor + x[i];
}

template <class T>
void scale(T* y, const T* x, int64_t n, T factor) {
  const auto f = hn::Set(Lanes<T>(), factor);
  map_row(x, y, n, [&](auto v) HWY_ATTR { return hn::Mul(v, f); });
}

template <class T>
AttentionLoops<T> loops_of() {
  return {weigh<T>, weights<T>, score_grads<T>, merge<T>, scale<T>};
}
}  // namespace

AttentionLoops<float> attention_f32() { return loops_of<float>(); }
AttentionLoops<double> attention_f64() { return loops_of<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(attention_f32);
HWY_EXPORT(attention_f64);
AttentionLoops<float> attention_loops(float) { return HWY_DYNAMIC_DISPATCH(attention_f32)(); }
AttentionLoops<double> attention_loops(double) { return HWY_DYNAMIC_DISPATCH(attention_f64)(); }
}  // namespace pg::cpu
#endif
