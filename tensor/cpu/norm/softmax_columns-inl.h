// Softmax and its relatives along columns, for the first or a middle dim. softmax_simd.cpp has rows. Include after
// highway.h, once per target.
#if defined(PERIGEE_SOFTMAX_COLUMNS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_SOFTMAX_COLUMNS_INL_H
#undef PERIGEE_SOFTMAX_COLUMNS_INL_H
#else
#define PERIGEE_SOFTMAX_COLUMNS_INL_H
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "tensor/cpu/elementary-inl.h"
#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {  // templates of other files have the same names

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// What is missing from sum = a + b because it is rounded, 0 if it is not finite (Knuth's TwoSum).
template <class D, class V>
HWY_INLINE V rounded_off(D d, V a, V b, V sum) {
  const V part = hn::Sub(sum, a);
  const V rest = hn::Add(hn::Sub(a, hn::Sub(sum, part)), hn::Sub(b, part));
  return hn::IfThenElseZero(hn::Lt(hn::Abs(sum), hn::Set(d, kInfinity<hn::TFromD<D>>)), rest);
}

template <class D, class V>
HWY_INLINE V backward_value(D d, bool log, V y, V dy, V sum) {
  return log ? hn::NegMulAdd(elementary::exp(d, y), sum, dy) : hn::Mul(y, hn::Sub(dy, sum));
}

// Calls f(j, lanes) for each whole vector of a row of `width` elements, then f(j, rest).
template <class T, class F>
HWY_INLINE void over_row(int64_t width, const F& f) {
  const int64_t lanes = hn::Lanes(Tag<T>());
  int64_t j = 0;
  for (; j + lanes <= width; j += lanes) f(j, lanes);
  if (j < width) f(j, width - j);
}
template <class T>
HWY_INLINE hn::Vec<Tag<T>> load_some(Tag<T> d, const T* p, int64_t n) {
  return n == int64_t(hn::Lanes(d)) ? hn::LoadU(d, p) : load_part(d, p, n);
}
template <class T>
HWY_INLINE void store_some(Tag<T> d, hn::Vec<Tag<T>> v, T* p, int64_t n) {
  if (n == int64_t(hn::Lanes(d)))
    hn::StoreU(v, d, p);
  else
    store_part(d, v, p, n);
}

// How columns are walked: rows that follow each other without a gap, and are too narrow for vectors, `fold` at a time
// as one row. A wide row has at most kSoftmaxTile elements. The choice depends on sizes only.
struct Columns {
  int64_t n, stride, width, fold;
  Columns(int64_t n, int64_t stride, int64_t width) : n(n), stride(stride), width(width), fold(1) {
    constexpr int64_t kEnough = 256, kNarrow = 64, kLanes = 16;
    if (stride == width && width < kNarrow)
      fold = std::max<int64_t>(1, std::min(kEnough / width, n / 2) / kLanes * kLanes);
  }
  int64_t wide() const { return fold * width; }

  // Calls f(at, j, m) for each group of m adjacent elements at column j of a wide row and offset `at`, row after row.
  template <class T, class F>
  HWY_INLINE void each(const F& f) const {
    Poller poll;
    for (int64_t i = 0; i < n; i += fold, poll(wide()))
      over_row<T>(std::min(fold, n - i) * width, [&](int64_t j, int64_t m) HWY_ATTR { f(i * stride + j, j, m); });
  }
  // Joins the values of the columns of a wide row into those of the columns, and repeats these for a wide row.
  template <class T, class F>
  void join(T* values, const F& both) const {
    for (int64_t j = width; j < wide(); ++j) values[j % width] = both(values[j % width], values[j]);
    repeat(values);
  }
  template <class T>
  void repeat(T* values) const {
    for (int64_t j = width; j < wide(); ++j) values[j] = values[j - width];
  }
};

template <class V>
HWY_INLINE V max_with_nan(V a, V x) {
  return hn::IfThenElse(hn::Or(hn::Gt(x, a), hn::IsNaN(x)), x, a);
}

// The largest element of each column, NaN if it contains one.
template <class T>
HWY_INLINE void column_tops(const Columns& c, const T* x, T* top) {
  const Tag<T> d;
  std::fill(top, top + c.wide(), -kInfinity<T>);
  c.each<T>([&](int64_t at, int64_t j, int64_t m)
                HWY_ATTR { store_some(d, max_with_nan(hn::LoadU(d, top + j), load_some(d, x + at, m)), top + j, m); });
  c.join(top, [](T a, T b) { return b > a || b != b ? b : a; });
}

// The sum of each column, to which add(sum, at, j, m) adds its elements.
template <class T, class F>
HWY_INLINE void column_sums(const Columns& c, T* sum, const F& add) {
  const Tag<T> d;
  std::fill(sum, sum + c.wide(), T(0));
  c.each<T>([&](int64_t at, int64_t j, int64_t m)
                HWY_ATTR { store_some(d, add(hn::LoadU(d, sum + j), at, j, m), sum + j, m); });
  c.join(sum, [](T a, T b) { return a + b; });
}

template <class T>
void columns(bool log, const T* x, T* y, int64_t n, int64_t stride, int64_t width) {
  const Tag<T> d;
  const Columns c(n, stride, width);
  HWY_ALIGN T top[kSoftmaxTile + hn::MaxLanes(d)], sum[kSoftmaxTile + hn::MaxLanes(d)];
  column_tops(c, x, top);
  column_sums(c, sum, [&](hn::Vec<Tag<T>> s, int64_t at, int64_t j, int64_t m) HWY_ATTR {
    const auto e = elementary::exp(d, hn::Sub(load_some(d, x + at, m), hn::LoadU(d, top + j)));
    if (!log) store_some(d, e, y + at, m);
    return hn::Add(s, e);
  });
  over_row<T>(c.wide(), [&](int64_t j, int64_t) HWY_ATTR {
    const auto s = hn::LoadU(d, sum + j);
    hn::StoreU(log ? elementary::log(d, s) : hn::Div(hn::Set(d, T(1)), s), d, sum + j);
  });
  c.each<T>([&](int64_t at, int64_t j, int64_t m) HWY_ATTR {
    const auto s = hn::LoadU(d, sum + j);
    const auto out =
        log ? hn::Sub(hn::Sub(load_some(d, x + at, m), hn::LoadU(d, top + j)), s) : hn::Mul(load_some(d, y + at, m), s);
    store_some(d, out, y + at, m);
  });
}

template <class T>
void columns_log_sum_exp(const T* x, T* out, T* rest, int64_t n, int64_t stride, int64_t width) {
  const Tag<T> d;
  const Columns c(n, stride, width);
  HWY_ALIGN T top[kSoftmaxTile + hn::MaxLanes(d)], sum[kSoftmaxTile + hn::MaxLanes(d)];
  column_tops(c, x, top);
  for (int64_t j = 0; j < c.wide(); ++j)
    if (!(std::fabs(top[j]) < kInfinity<T>)) top[j] = 0;  // the terms then decide the result
  column_sums(c, sum, [&](hn::Vec<Tag<T>> s, int64_t at, int64_t j, int64_t m) HWY_ATTR {
    return hn::Add(s, elementary::exp(d, hn::Sub(load_some(d, x + at, m), hn::LoadU(d, top + j))));
  });
  over_row<T>(width, [&](int64_t j, int64_t m) HWY_ATTR {
    const auto log = elementary::log(d, hn::LoadU(d, sum + j)), most = hn::LoadU(d, top + j), lse = hn::Add(log, most);
    store_some(d, lse, out + j, m);
    if (rest) store_some(d, rounded_off(d, most, log, lse), rest + j, m);
  });
}

template <class T>
void columns_scaled_exp(const T* x, const T* lse, const T* rest, const T* a, const T* b, T* dx, int64_t n,
                        int64_t stride, int64_t width) {
  const Tag<T> d;
  const Columns c(n, stride, width);
  constexpr int64_t kSize = kSoftmaxTile + int64_t(hn::MaxLanes(Tag<T>()));
  const Scratch<T> scratch(4 * kSize);
  T* const factors[] = {scratch, scratch + kSize, scratch + 2 * kSize, scratch + 3 * kSize};
  const T* const lists[] = {lse, rest, a, b};
  for (int k = 0; k < 4; ++k) {
    std::copy(lists[k], lists[k] + width, factors[k]);
    c.repeat(factors[k]);
  }
  c.each<T>([&](int64_t at, int64_t j, int64_t m) HWY_ATTR {
    const auto above = hn::Sub(load_some(d, x + at, m), hn::LoadU(d, factors[0] + j));
    const auto e = elementary::exp(d, hn::Sub(above, hn::LoadU(d, factors[1] + j)));
    store_some(d, hn::MulSub(hn::LoadU(d, factors[2] + j), e, hn::LoadU(d, factors[3] + j)), dx + at, m);
  });
}

template <class T>
void columns_backward(bool log, const T* y, const T* dy, T* dx, int64_t n, int64_t stride, int64_t width) {
  const Tag<T> d;
  const Columns c(n, stride, width);
  HWY_ALIGN T sum[kSoftmaxTile + hn::MaxLanes(d)];
  column_sums(c, sum, [&](hn::Vec<Tag<T>> s, int64_t at, int64_t, int64_t m) HWY_ATTR {
    const auto g = load_some(d, dy + at, m);
    return log ? hn::Add(s, g) : hn::MulAdd(g, load_some(d, y + at, m), s);
  });
  c.each<T>([&](int64_t at, int64_t j, int64_t m) HWY_ATTR {
    const auto g = load_some(d, dy + at, m);
    store_some(d, backward_value(d, log, load_some(d, y + at, m), g, hn::LoadU(d, sum + j)), dx + at, m);
  });
}

}  // namespace
}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
