#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/pool_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/conv/pool.h"

#include <limits>
#include <type_traits>

#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A later element replaces the best so far when it is larger or NaN.
template <class D, class V, class I>
HWY_INLINE void take_larger(D, V next, I next_at, V& best, I& at) {
  const auto wins = hn::Or(hn::Gt(next, best), hn::IsNaN(next));
  best = hn::IfThenElse(wins, next, best);
  at = hn::IfThenElse(hn::RebindMask(hn::RebindToSigned<D>(), wins), next_at, at);
}

template <class D>
HWY_INLINE void windows(D d, const float* top, const float* bottom, int32_t first, int32_t width, float* y,
                        int32_t* index) {
  const hn::RebindToSigned<D> di;
  hn::Vec<D> a, b, c, e;
  hn::LoadInterleaved2(d, top, a, b);
  hn::LoadInterleaved2(d, bottom, c, e);
  const auto one = hn::Set(di, 1);
  const auto start = hn::Iota(di, 0);
  auto at = hn::Add(hn::Add(start, start), hn::Set(di, first));
  const auto below = hn::Add(at, hn::Set(di, width));
  auto best = a;
  take_larger(d, b, hn::Add(at, one), best, at);
  take_larger(d, c, below, best, at);
  take_larger(d, e, hn::Add(below, one), best, at);
  hn::StoreU(best, d, y);
  if (index) hn::StoreU(at, di, index);
}

template <class D>
HWY_INLINE int64_t run(D d, int64_t from, const float* top, const float* bottom, int64_t count, int32_t first,
                       int32_t width, float* y, int32_t* index) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; from + lanes <= count; from += lanes)
    windows(d, top + 2 * from, bottom + 2 * from, first + static_cast<int32_t>(2 * from), width, y + from,
            index ? index + from : nullptr);
  return from;
}

void pool_rows(const float* x, int64_t width, int64_t first, int64_t last, int64_t out_cols, float* y, int32_t* index) {
  x += 2 * first * width;
  y += first * out_cols;
  for (int64_t r = first; r < last; ++r, x += 2 * width, y += out_cols) {
    const int32_t start = static_cast<int32_t>(2 * r * width), step = static_cast<int32_t>(width);
    int32_t* at = index ? index + r * out_cols : nullptr;
    int64_t i = run(hn::ScalableTag<float>(), 0, x, x + width, out_cols, start, step, y, at);
    i = run(hn::CappedTag<float, 8>(), i, x, x + width, out_cols, start, step, y, at);
    i = run(hn::CappedTag<float, 4>(), i, x, x + width, out_cols, start, step, y, at);
    run(hn::CappedTag<float, 1>(), i, x, x + width, out_cols, start, step, y, at);
  }
}

// The places of the first elements of adjacent windows, from the first window's on.
template <class DI>
HWY_INLINE hn::Vec<DI> offsets(DI di, const PoolShape& s) {
  return hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(s.stride[2])));
}

// Calls take(elements, places) for each tap of as many windows as a vector has elements, in the order of the places. i:
// the first window.
template <int kStride, class D, class Take>
HWY_INLINE void each_tap(D d, const WindowRow& w, int64_t i, const Take& take) {
  const PoolShape& s = w.shape;
  const hn::RebindToSigned<D> di;
  const auto from_first = offsets(di, s);
  for (int64_t z = w.z.first; z < w.z.last; z += w.z.step)
    for (int64_t y = w.y.first; y < w.y.last; y += w.y.step) {
      int64_t at = (z * s.in[1] + y) * s.in[2] + w.column + i * s.stride[2];
      for (int64_t tap = 0; tap < s.kernel[2]; ++tap, at += s.dilation[2]) {
        const auto places = hn::Add(from_first, hn::Set(di, static_cast<int32_t>(at)));
        if constexpr (kStride == 1) {
          take(hn::LoadU(d, w.plane + at), places);
        } else if constexpr (kStride == 2) {
          hn::Vec<D> even, odd;
          hn::LoadInterleaved2(d, w.plane + at, even, odd);
          take(even, places);
        } else {
          take(hn::GatherIndex(d, w.plane + at, from_first), places);
        }
      }
    }
}

// Calls f(tag, first window) for vectors of windows, and returns the number of windows. The last vector may contain
// windows of the one before. Pairs of elements are loaded for a stride of 2, so those of a vector must end inside the
// plane.
template <int kStride, class D, class F>
HWY_INLINE int64_t over_windows(D d, const WindowRow& w, const F& f) {
  const PoolShape& s = w.shape;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), reach = (s.kernel[2] - 1) * s.dilation[2] + 2 * lanes;
  const int64_t last_row = ((w.z.last - 1) * s.in[1] + w.y.last - 1) * s.in[2] + w.column;
  const auto fits = [&](int64_t i) { return kStride != 2 || last_row + 2 * i + reach <= s.in_plane(); };
  int64_t i = 0;
  for (; i + lanes <= w.count && fits(i); i += lanes) f(d, i);
  if (i == 0 || i == w.count || !fits(w.count - lanes)) return i;
  f(d, w.count - lanes);
  return w.count;
}
template <int kStride, class F>
HWY_INLINE int64_t over_windows(const WindowRow& w, const F& f) {
  if (const int64_t n = over_windows<kStride>(hn::ScalableTag<float>(), w, f)) return n;
  if (const int64_t n = over_windows<kStride>(hn::CappedTag<float, 8>(), w, f)) return n;
  return over_windows<kStride>(hn::CappedTag<float, 4>(), w, f);
}

template <int kStride>
int64_t largest(const WindowRow& w, float* y, int32_t* index) {
  return over_windows<kStride>(w, [&](auto d, int64_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    const PoolShape& s = w.shape;
    const bool empty = w.z.empty() || w.y.empty();
    const int64_t first = (w.z.first * s.in[1] + w.y.first) * s.in[2] + w.column + i * s.stride[2];
    auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
    auto at = empty ? hn::Set(di, -1) : hn::Add(offsets(di, s), hn::Set(di, static_cast<int32_t>(first)));
    each_tap<kStride>(d, w, i, [&](auto next, auto places) HWY_ATTR { take_larger(d, next, places, best, at); });
    hn::StoreU(best, d, y + i);
    if (index) hn::StoreU(at, di, index + i);
  });
}

template <int kStride>
int64_t means(const WindowRow& w, float divisor, float* y) {
  return over_windows<kStride>(w, [&](auto d, int64_t i) HWY_ATTR {
    auto sum = hn::Zero(d);
    each_tap<kStride>(d, w, i, [&](auto next, auto) HWY_ATTR { sum = hn::Add(sum, next); });
    hn::StoreU(hn::Div(sum, hn::Set(d, divisor)), d, y + i);
  });
}

int64_t largest_row(const WindowRow& w, float* y, int32_t* index) {
  const int64_t stride = w.shape.stride[2];
  return stride == 1 ? largest<1>(w, y, index) : stride == 2 ? largest<2>(w, y, index) : largest<0>(w, y, index);
}
int64_t means_row(const WindowRow& w, float divisor, float* y) {
  const int64_t stride = w.shape.stride[2];
  return stride == 1 ? means<1>(w, divisor, y) : stride == 2 ? means<2>(w, divisor, y) : means<0>(w, divisor, y);
}

// Calls f(vector tag, index) over [0, n), with vectors of one element at the end.
template <class T, class F>
HWY_INLINE void over_row(int64_t n, F f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(d, i);
  for (; i < n; ++i) f(hn::CappedTag<T, 1>(), i);
}
template <class T>
void row_sum(int64_t n, const T* x, T* to) {
  over_row<T>(n, [&](auto d, int64_t i) { hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, x + i)), d, to + i); });
}
template <class T>
void row_quotient(int64_t n, T by, T* to) {
  over_row<T>(n, [&](auto d, int64_t i) { hn::StoreU(hn::Div(hn::LoadU(d, to + i), hn::Set(d, by)), d, to + i); });
}
void sum_f32(int64_t n, const float* x, float* to) { row_sum(n, x, to); }
void sum_f64(int64_t n, const double* x, double* to) { row_sum(n, x, to); }
void quotient_f32(int64_t n, float by, float* to) { row_quotient(n, by, to); }
void quotient_f64(int64_t n, double by, double* to) { row_quotient(n, by, to); }

template <class H>
HWY_INLINE void largest_pixels(const PixelWindow& w, const H* image, int64_t first, int64_t count, H* y,
                               int32_t* index) {
  using T = std::conditional_t<sizeof(H) == 2, float, H>;
  const PoolShape& s = w.shape;
  over_row<T>(count, [&](auto d, int64_t i) HWY_ATTR {
    const hn::RebindToSigned<decltype(d)> di;
    using Place = hn::TFromD<decltype(di)>;
    const int64_t channel = first + i;
    auto best = hn::Set(d, -std::numeric_limits<T>::infinity());
    auto at = hn::Set(di, static_cast<Place>(first_place(s, w.z, w.y, w.x)));
    for (int64_t z = w.z.first; z < w.z.last; z += w.z.step)
      for (int64_t row = w.y.first; row < w.y.last; row += w.y.step) {
        const int64_t line = (z * s.in[1] + row) * s.in[2];
        for (int64_t x = w.x.first; x < w.x.last; x += w.x.step)
          take_larger(d, load(d, image + (line + x) * w.channels + channel), hn::Set(di, static_cast<Place>(line + x)),
                      best, at);
      }
    store(d, best, y + channel);
    if (!index) return;
    if constexpr (sizeof(Place) == sizeof(int32_t)) {
      hn::StoreU(at, di, index + channel);
    } else {
      HWY_ALIGN Place places[hn::MaxLanes(di)];
      hn::Store(at, di, places);
      for (size_t k = 0; k < hn::Lanes(di); ++k) index[channel + int64_t(k)] = static_cast<int32_t>(places[k]);
    }
  });
}
template <class H>
HWY_INLINE void rounded_rows(const float* from, int64_t rows, int64_t n, H* to, int64_t ld) {
  for (int64_t r = 0; r < rows; ++r, from += n, to += ld)
    over_row<float>(n, [&](auto d, int64_t i) HWY_ATTR { store(d, hn::LoadU(d, from + i), to + i); });
}
#define PG_POOL_PIXELS(NAME, H)                                                                                   \
  void largest_##NAME(const PixelWindow& w, const H* image, int64_t first, int64_t count, H* y, int32_t* index) { \
    largest_pixels(w, image, first, count, y, index);                                                             \
  }
PG_POOL_PIXELS(f32, float)
PG_POOL_PIXELS(f64, double)
PG_POOL_PIXELS(f16, Half)
PG_POOL_PIXELS(bf16, BFloat16)
#undef PG_POOL_PIXELS
void round_f16(const float* from, int64_t rows, int64_t n, Half* to, int64_t ld) {
  rounded_rows(from, rows, n, to, ld);
}
void round_bf16(const float* from, int64_t rows, int64_t n, BFloat16* to, int64_t ld) {
  rounded_rows(from, rows, n, to, ld);
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

HWY_EXPORT(pool_rows);
HWY_EXPORT(largest_row);
HWY_EXPORT(means_row);

#define PG_POOL_PIXELS(NAME, H)                                                                                      \
  HWY_EXPORT(largest_##NAME);                                                                                        \
  template <>                                                                                                        \
  void largest_of_pixels(const PixelWindow& w, const H* image, int64_t first, int64_t count, H* y, int32_t* index) { \
    HWY_DYNAMIC_DISPATCH(largest_##NAME)(w, image, first, count, y, index);                                          \
  }
PG_POOL_PIXELS(f32, float)
PG_POOL_PIXELS(f64, double)
PG_POOL_PIXELS(f16, Half)
PG_POOL_PIXELS(bf16, BFloat16)
#undef PG_POOL_PIXELS
HWY_EXPORT(round_f16);
HWY_EXPORT(round_bf16);
template <>
void round_rows(const float* from, int64_t rows, int64_t n, Half* to, int64_t ld) {
  HWY_DYNAMIC_DISPATCH(round_f16)(from, rows, n, to, ld);
}
template <>
void round_rows(const float* from, int64_t rows, int64_t n, BFloat16* to, int64_t ld) {
  HWY_DYNAMIC_DISPATCH(round_bf16)(from, rows, n, to, ld);
}

#define PG_POOL_ROWS(NAME, T)                         \
  HWY_EXPORT(sum_##NAME);                             \
  HWY_EXPORT(quotient_##NAME);                        \
  template <>                                         \
  void add_row(int64_t n, const T* x, T* to) {        \
    HWY_DYNAMIC_DISPATCH(sum_##NAME)(n, x, to);       \
  }                                                   \
  template <>                                         \
  void divide_row(int64_t n, T by, T* to) {           \
    HWY_DYNAMIC_DISPATCH(quotient_##NAME)(n, by, to); \
  }
PG_POOL_ROWS(f32, float)
PG_POOL_ROWS(f64, double)
#undef PG_POOL_ROWS

int64_t largest_of_windows(const WindowRow& w, float* y, int32_t* index) {
  return HWY_DYNAMIC_DISPATCH(largest_row)(w, y, index);
}
int64_t means_of_windows(const WindowRow& w, float divisor, float* y) {
  return HWY_DYNAMIC_DISPATCH(means_row)(w, divisor, y);
}

void max_pool_2x2_rows(const float* x, int64_t width, int64_t first, int64_t last, int64_t out_cols, float* y,
                       int32_t* index) {
  HWY_DYNAMIC_DISPATCH(pool_rows)(x, width, first, last, out_cols, y, index);
}

}  // namespace pg::cpu
#endif
