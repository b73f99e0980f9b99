#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/reduce/extremes_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/reduce/extremes_simd.h"

#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <bool kMax, class V>
HWY_INLINE auto beaten(V x, V best) {  // NaN is ignored
  return kMax ? hn::Gt(x, best) : hn::Lt(x, best);
}
template <bool kMax, class V>
HWY_INLINE auto unbeaten(V x, V best) {  // false when either is NaN
  return kMax ? hn::Le(x, best) : hn::Ge(x, best);
}
template <bool kMax, class T>
HWY_INLINE bool beats(T x, T best) {
  if (best != best) return false;
  return x != x || (kMax ? x > best : x < best);
}

// Returns the first position with x[i] == value, or the first NaN when value is NaN. There must be one.
template <class T>
HWY_INLINE int64_t find_first(const T* HWY_RESTRICT x, int64_t n, T value) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto v = hn::Set(d, value);
  const bool nan = value != value;
  const auto matches = [&](auto e) HWY_ATTR { return nan ? hn::IsNaN(e) : hn::Eq(e, v); };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto a = matches(hn::LoadU(d, x + i)), b = matches(hn::LoadU(d, x + i + lanes));
    const auto c = matches(hn::LoadU(d, x + i + 2 * lanes)), e = matches(hn::LoadU(d, x + i + 3 * lanes));
    if (!hn::AllFalse(d, hn::Or(hn::Or(a, b), hn::Or(c, e)))) break;
  }
  for (; i + lanes <= n; i += lanes) {
    const intptr_t at = hn::FindFirstTrue(d, matches(hn::LoadU(d, x + i)));
    if (at >= 0) return i + at;
  }
  while (i + 1 < n && !(nan ? x[i] != x[i] : x[i] == value)) ++i;
  return i;
}

// Sets the extreme of the whole vectors of a block. Returns false when the block may contain NaN or infinity.
template <bool kMax, class T>
HWY_INLINE bool finite_extreme(const T* HWY_RESTRICT x, int64_t n, T* best) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto pick = [](auto p, auto q) HWY_ATTR { return kMax ? hn::Max(p, q) : hn::Min(p, q); };
  auto a = hn::LoadU(d, x), b = a, c = a, e = a;
  auto s = hn::Zero(d), t = s;  // sums of x * 0, which are NaN if a NaN or infinity occurred
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto p = hn::LoadU(d, x + i), q = hn::LoadU(d, x + i + lanes);
    const auto u = hn::LoadU(d, x + i + 2 * lanes), v = hn::LoadU(d, x + i + 3 * lanes);
    a = pick(a, p), b = pick(b, q), c = pick(c, u), e = pick(e, v);
    s = hn::MulAdd(hn::Add(p, q), hn::Zero(d), s);
    t = hn::MulAdd(hn::Add(u, v), hn::Zero(d), t);
  }
  for (; i + lanes <= n; i += lanes)
    a = pick(a, hn::LoadU(d, x + i)), s = hn::MulAdd(hn::LoadU(d, x + i), hn::Zero(d), s);
  if (!hn::AllTrue(d, hn::Eq(hn::Add(s, t), hn::Zero(d)))) return false;
  const auto all = pick(pick(a, b), pick(c, e));
  *best = hn::GetLane(kMax ? hn::MaxOfLanes(d, all) : hn::MinOfLanes(d, all));
  return true;
}

// The same for any values; the result is NaN if there is one.
template <bool kMax, class T>
HWY_INLINE T any_extreme(const T* HWY_RESTRICT x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  auto a = hn::LoadU(d, x), nan = hn::Zero(d);
  for (int64_t i = 0; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    a = kMax ? hn::Max(v, a) : hn::Min(v, a);
    nan = hn::IfThenElse(hn::IsNaN(v), v, nan);
  }
  if (!hn::AllFalse(d, hn::IsNaN(nan))) return std::numeric_limits<T>::quiet_NaN();
  return hn::GetLane(kMax ? hn::MaxOfLanes(d, a) : hn::MinOfLanes(d, a));
}

template <bool kMax, class T>
HWY_INLINE T extreme(const T* HWY_RESTRICT x, int64_t n) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<T>());
  T best = x[0];
  int64_t i = 0;
  if (n >= 2 * lanes) {
    if (!finite_extreme<kMax>(x, n, &best)) best = any_extreme<kMax>(x, n);
    i = n - n % lanes;
  }
  for (; i < n; ++i)
    if (beats<kMax>(x[i], best)) best = x[i];
  return best;
}

template <bool kMax, class T>
int64_t row_extreme(const T* x, int64_t n) {
  constexpr int64_t kBlock = 4096;
  T best = x[0];
  int64_t first = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const T found = extreme<kMax>(x + i, std::min(kBlock, n - i));
    if (i > 0 && !beats<kMax>(found, best)) continue;
    best = found;
    first = i;
  }
  return first + find_first(x + first, std::min(kBlock, n - first), best);
}

// Compares rows r, …, r + count - 1 with the best so far. Most vectors contain no better element, which one comparison
// per row shows.
template <bool kMax, class T, class I>
HWY_INLINE void take_rows(const T* HWY_RESTRICT x, int64_t stride, int64_t r, int count, int64_t width,
                          T* HWY_RESTRICT best, I* HWY_RESTRICT at) {
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = hn::Lanes(d);
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    auto b = hn::LoadU(d, best + j);
    if (count == 4) {
      const auto p = unbeaten<kMax>(hn::LoadU(d, x + j), b), q = unbeaten<kMax>(hn::LoadU(d, x + stride + j), b);
      const auto s = unbeaten<kMax>(hn::LoadU(d, x + 2 * stride + j), b),
                 t = unbeaten<kMax>(hn::LoadU(d, x + 3 * stride + j), b);
      if (HWY_LIKELY(hn::AllTrue(d, hn::And(hn::And(p, q), hn::And(s, t))))) continue;
    }
    auto i = hn::LoadU(di, at + j);
    for (int k = 0; k < count; ++k) {
      const auto v = hn::LoadU(d, x + k * stride + j);
      const auto better = hn::And(hn::Or(beaten<kMax>(v, b), hn::IsNaN(v)), hn::Not(hn::IsNaN(b)));
      b = hn::IfThenElse(better, v, b);
      i = hn::IfThenElse(hn::RebindMask(di, better), hn::Set(di, I(r + k)), i);
    }
    hn::StoreU(b, d, best + j);
    hn::StoreU(i, di, at + j);
  }
  for (; j < width; ++j)
    for (int k = 0; k < count; ++k)
      if (beats<kMax>(x[k * stride + j], best[j])) best[j] = x[k * stride + j], at[j] = I(r + k);
}

template <bool kMax, class T>
void column_extremes(const T* x, int64_t n, int64_t stride, int64_t width, T* best, int64_t* at) {
  using I = hwy::MakeSigned<T>;
  constexpr int64_t kRows = int64_t(1) << 30;  // the most rows that a lane can count
  I local[kExtremesTile];
  for (int64_t first = 0; first < n; first += kRows) {
    T top[kExtremesTile];
    const T* from = x + first * stride;
    const int64_t rows = std::min(kRows, n - first);
    std::copy_n(from, width, top);
    std::fill_n(local, width, I(0));
    int64_t r = 1;
    for (; r + 4 <= rows; r += 4) take_rows<kMax, T, I>(from + r * stride, stride, r, 4, width, top, local);
    for (; r < rows; ++r) take_rows<kMax, T, I>(from + r * stride, stride, r, 1, width, top, local);
    for (int64_t j = 0; j < width; ++j)
      if (first == 0 || beats<kMax>(top[j], best[j])) best[j] = top[j], at[j] = first + local[j];
  }
}

template <class T>
bool within(const T* HWY_RESTRICT x, int64_t n, T low, T high) {
  constexpr int64_t kBlock = 4096;
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto least = hn::Set(d, low), most = hn::Set(d, high);
  const auto fits = [&](int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, x + i);
    return hn::And(hn::Ge(v, least), hn::Le(v, most));
  };
  int64_t i = 0;
  while (i + 2 * lanes <= n) {
    auto all = fits(i);
    for (const int64_t end = std::min(n, i + kBlock); i + 2 * lanes <= end; i += 2 * lanes)
      all = hn::And(all, hn::And(fits(i), fits(i + lanes)));
    if (!hn::AllTrue(d, all)) return false;
  }
  for (; i < n; ++i)
    if (!(x[i] >= low && x[i] <= high)) return false;
  return true;
}

template <class T>
ExtremeLoops<T> extremes_for() {
  return {
      {row_extreme<false, T>, row_extreme<true, T>}, {column_extremes<false, T>, column_extremes<true, T>}, within<T>};
}
ExtremeLoops<float> float_extremes() { return extremes_for<float>(); }
ExtremeLoops<double> double_extremes() { return extremes_for<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(float_extremes);
HWY_EXPORT(double_extremes);
ExtremeLoops<float> extreme_loops(float) { return HWY_DYNAMIC_DISPATCH(float_extremes)(); }
ExtremeLoops<double> extreme_loops(double) { return HWY_DYNAMIC_DISPATCH(double_extremes)(); }
}  // namespace pg::cpu
#endif
