#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/norm/norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "tensor/cpu/norm/norm_simd.h"

#include <algorithm>
#include <cmath>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class H>
using Tag = hn::ScalableTag<Arithmetic<H>>;
template <class H>
using One = hn::CappedTag<Arithmetic<H>, 1>;

// Terms are functions of a tag and a place. What is left of a row after its whole vectors is done one element at a
// time by the same term, so that an element's bits do not depend on its place.

// Returns the sum of a term over i < n, with four accumulators.
template <class T, class Term>
HWY_INLINE T accumulate(int64_t n, const Term& term) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, term(d, i));
    b = hn::Add(b, term(d, i + lanes));
    c = hn::Add(c, term(d, i + 2 * lanes));
    e = hn::Add(e, term(d, i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Add(a, term(d, i));
  T sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < n; ++i) sum += hn::GetLane(term(One<T>(), i));
  return sum;
}

// Returns a long sum as blocks, whose results are added in double.
template <class T, class Term>
HWY_INLINE double accumulate_blocks(int64_t n, const Term& term) {
  constexpr int64_t kBlock = 4096;
  double total = 0;
  for (int64_t s = 0; s < n; s += kBlock)
    total += double(accumulate<T>(std::min(kBlock, n - s), [&](auto d, int64_t i) HWY_ATTR { return term(d, s + i); }));
  return total;
}

// Fetches the row after this one of y and of the inputs in `next` meanwhile: rows of a page are too short for the
// hardware to see it coming.
template <class H, class Term, class... Next>
HWY_INLINE void fill_row(H* y, int64_t n, const Term& term, const Next*... next) {
  const Tag<H> d;
  const One<H> one;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if constexpr (sizeof...(next) > 0) __builtin_prefetch(y + n + i, 1);
    (__builtin_prefetch(next + i), ...);
    store(d, term(d, i), y + i);
  }
  for (; i < n; ++i) store(one, term(one, i), y + i);
}

// The same past the caches, for a whole number of vectors and aligned y. To be flushed after the last row: a flush
// waits for the memory.
template <class T, class Term, class... Next>
HWY_INLINE void stream_into(T* y, int64_t n, const Term& term, const Next*... next) {
  const Tag<T> d;
  for (int64_t i = 0; i < n; i += hn::Lanes(d)) {
    (__builtin_prefetch(next + i), ...);
    hn::Stream(term(d, i), d, y + i);
  }
}

template <bool kStreams, class H, class Term, class... Next>
HWY_INLINE void write_row(H* y, int64_t n, const Term& term, const Next*... next) {
  if constexpr (kStreams)
    stream_into(y, n, term, next...);
  else
    fill_row(y, n, term, next...);
}

template <class H, class T = Arithmetic<H>>
double sum(const H* x, int64_t n) {
  return accumulate_blocks<T>(n, [&](auto d, int64_t i) HWY_ATTR { return load(d, x + i); });
}

template <class H, class T = Arithmetic<H>>
double offset(const H* x, int64_t n, T from) {
  return accumulate_blocks<T>(n, [&](auto d, int64_t i) HWY_ATTR { return hn::Sub(load(d, x + i), hn::Set(d, from)); });
}

template <class H, class T = Arithmetic<H>>
double deviation(const H* x, int64_t n, T mean) {
  return accumulate_blocks<T>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::Sub(load(d, x + i), hn::Set(d, mean));
    return hn::Mul(v, v);
  });
}

template <class H, bool kStreams, class T = Arithmetic<H>>
HWY_INLINE void row(const H* x, H* y, int64_t n, bool centered, double eps, const T* weight, const T* bias, T* mean,
                    T* rstd) {
  const T m = centered ? T(sum(x, n) / double(n)) : T(0);
  const T r = T(1.0 / std::sqrt(deviation(x, n, m) / double(n) + eps));
  *mean = m;
  *rstd = r;
  const auto hat = [&](auto d, int64_t i)
                       HWY_ATTR { return hn::Mul(hn::Sub(load(d, x + i), hn::Set(d, m)), hn::Set(d, r)); };
  const auto fill = [&](const auto& term) HWY_ATTR { write_row<kStreams>(y, n, term, x + n); };
  if (weight && bias)
    fill([&](auto d, int64_t i)
             HWY_ATTR { return hn::MulAdd(hat(d, i), hn::LoadU(d, weight + i), hn::LoadU(d, bias + i)); });
  else if (weight)
    fill([&](auto d, int64_t i) HWY_ATTR { return hn::Mul(hat(d, i), hn::LoadU(d, weight + i)); });
  else if (bias)
    fill([&](auto d, int64_t i) HWY_ATTR { return hn::Add(hat(d, i), hn::LoadU(d, bias + i)); });
  else
    fill(hat);
}

template <class H, bool kStreams, class T = Arithmetic<H>>
void rows(const H* x, H* y, int64_t count, int64_t n, bool centered, double eps, const T* weight, const T* bias,
          T* mean, T* rstd) {
  for (int64_t r = 0; r < count; ++r, x += n, y += n)
    row<H, kStreams>(x, y, n, centered, eps, weight, bias, mean + r, rstd + r);
  if constexpr (kStreams) hwy::FlushStream();
}

// Returns the sums of g = dy weight and of g (x - mean) over a row.
template <class H, bool kWeight, class T = Arithmetic<H>>
HWY_INLINE void row_sums(const H* x, const H* dy, int64_t n, T mean, const T* weight, T* total, T* dot) {
  const auto g = [&](auto d, int64_t i) HWY_ATTR {
    const auto v = load(d, dy + i);
    if constexpr (kWeight)
      return hn::Mul(v, hn::LoadU(d, weight + i));
    else
      return v;
  };
  *total = T(accumulate_blocks<T>(n, g));
  *dot = T(accumulate_blocks<T>(
      n, [&](auto d, int64_t i) HWY_ATTR { return hn::Mul(g(d, i), hn::Sub(load(d, x + i), hn::Set(d, mean))); }));
}

template <class H, bool kStreams, class T = Arithmetic<H>>
HWY_INLINE void row_dx(const H* x, const H* dy, H* dx, int64_t n, bool centered, T mean, T rstd, const T* weight) {
  T total, dot;
  if (weight)
    row_sums<H, true>(x, dy, n, mean, weight, &total, &dot);
  else
    row_sums<H, false>(x, dy, n, mean, weight, &total, &dot);
  // dx = rstd g + slope (x - mean) + term
  const T slope = -dot * rstd * rstd * rstd / T(n), term = centered ? -total * rstd / T(n) : T(0);
  const auto rest = [&](auto d, int64_t i) HWY_ATTR {
    return hn::MulAdd(hn::Sub(load(d, x + i), hn::Set(d, mean)), hn::Set(d, slope), hn::Set(d, term));
  };
  const auto fill = [&](const auto& term) HWY_ATTR { write_row<kStreams>(dx, n, term, x + n, dy + n); };
  if (weight)
    fill([&](auto d, int64_t i) HWY_ATTR {
      const auto g = hn::Mul(load(d, dy + i), hn::LoadU(d, weight + i));
      return hn::MulAdd(g, hn::Set(d, rstd), rest(d, i));
    });
  else
    fill([&](auto d, int64_t i) HWY_ATTR { return hn::MulAdd(load(d, dy + i), hn::Set(d, rstd), rest(d, i)); });
}

template <class H, bool kStreams, class T = Arithmetic<H>>
void rows_dx(const H* x, const H* dy, H* dx, int64_t count, int64_t n, bool centered, const T* mean, const T* rstd,
             const T* weight) {
  for (int64_t r = 0; r < count; ++r, x += n, dy += n, dx += n)
    row_dx<H, kStreams>(x, dy, dx, n, centered, centered ? mean[r] : T(0), rstd[r], weight);
  if constexpr (kStreams) hwy::FlushStream();
}

template <class H, class T = Arithmetic<H>>
void row_dw(const H* x, const H* dy, T* dw, T* db, int64_t n, T mean, T rstd) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto add = [&](auto tag, int64_t i) HWY_ATTR {
    const auto g = load(tag, dy + i);
    const auto hat = hn::Mul(hn::Sub(load(tag, x + i), hn::Set(tag, mean)), hn::Set(tag, rstd));
    hn::StoreU(hn::MulAdd(g, hat, hn::LoadU(tag, dw + i)), tag, dw + i);
    hn::StoreU(hn::Add(g, hn::LoadU(tag, db + i)), tag, db + i);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) add(d, i);
  for (; i < n; ++i) add(One<T>(), i);
}

template <class H, class T = Arithmetic<H>>
void products(const H* x, const H* dy, int64_t n, T mean, double* dot, double* total) {
  constexpr int64_t kBlock = 2048;  // of both inputs, so that they are in the cache for the second sum
  for (int64_t s = 0; s < n; s += kBlock) {
    const int64_t k = std::min(kBlock, n - s);
    const H *p = x + s, *q = dy + s;
    *total += double(accumulate<T>(k, [&](auto d, int64_t i) HWY_ATTR { return load(d, q + i); }));
    *dot += double(accumulate<T>(k, [&](auto d, int64_t i) HWY_ATTR {
      return hn::Mul(load(d, q + i), hn::Sub(load(d, p + i), hn::Set(d, mean)));
    }));
  }
}

// Rounds the product, as the mul and the add that plans write in its place.
template <class H, class T = Arithmetic<H>>
void affine(const H* x, H* y, int64_t n, T scale, T shift) {
  fill_row(y, n, [&](auto d, int64_t i) HWY_ATTR {
    return hn::Add(hn::Mul(load(d, x + i), hn::Set(d, scale)), hn::Set(d, shift));
  });
}

template <class H, class T = Arithmetic<H>>
void blend(const H* x, const H* dy, H* dx, int64_t n, T a, T b, T c) {
  fill_row(dx, n, [&](auto d, int64_t i) HWY_ATTR {
    const auto rest = hn::MulAdd(load(d, x + i), hn::Set(d, b), hn::Set(d, c));
    return hn::MulAdd(load(d, dy + i), hn::Set(d, a), rest);
  });
}

template <class H, class T = Arithmetic<H>>
void offset_row(const H* x, const H* from, T* sums, int64_t n) {
  fill_row(sums, n, [&](auto d, int64_t i) HWY_ATTR {
    return hn::Add(hn::LoadU(d, sums + i), hn::Sub(load(d, x + i), load(d, from + i)));
  });
}

template <class H, class T = Arithmetic<H>>
void deviation_row(const H* x, const T* mean, T* sums, int64_t n) {
  fill_row(sums, n, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::Sub(load(d, x + i), hn::LoadU(d, mean + i));
    return hn::MulAdd(v, v, hn::LoadU(d, sums + i));
  });
}

template <class H, class T = Arithmetic<H>>
void affine_row(const H* x, H* y, int64_t n, const T* scale, const T* shift) {
  fill_row(y, n, [&](auto d, int64_t i) HWY_ATTR {
    return hn::Add(hn::Mul(load(d, x + i), hn::LoadU(d, scale + i)), hn::LoadU(d, shift + i));
  });
}

template <class H, class T = Arithmetic<H>>
void blend_row(const H* x, const H* dy, H* dx, int64_t n, const T* a, const T* b, const T* c) {
  fill_row(dx, n, [&](auto d, int64_t i) HWY_ATTR {
    const auto rest = hn::MulAdd(load(d, x + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i));
    return hn::MulAdd(load(d, dy + i), hn::LoadU(d, a + i), rest);
  });
}

// Adds two terms of each row to the sums of the columns. `terms` adds those of a row, from a column on, to two vectors.
template <class T, class Terms>
HWY_INLINE void add_rows(int64_t count, int64_t n, T* first, T* second, const Terms& terms) {
  constexpr int kAtOnce = 4;  // vectors, to hide the latency of an addition
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto add = [&](auto tag, auto vectors, int64_t column) HWY_ATTR {
    constexpr int kVectors = decltype(vectors)::value;
    const int64_t step = hn::Lanes(tag);
    hn::Vec<decltype(tag)> a[kVectors], b[kVectors];
    PERIGEE_UNROLL
    for (int v = 0; v < kVectors; ++v) a[v] = b[v] = hn::Zero(tag);
    for (int64_t r = 0; r < count; ++r) {
      PERIGEE_UNROLL
      for (int v = 0; v < kVectors; ++v) terms(tag, r, column + v * step, a[v], b[v]);
    }
    PERIGEE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      T *p = first + column + v * step, *q = second + column + v * step;
      hn::StoreU(hn::Add(hn::LoadU(tag, p), a[v]), tag, p);
      hn::StoreU(hn::Add(hn::LoadU(tag, q), b[v]), tag, q);
    }
  };
  int64_t i = 0;
  for (; i + kAtOnce * lanes <= n; i += kAtOnce * lanes) add(d, std::integral_constant<int, kAtOnce>(), i);
  for (; i + lanes <= n; i += lanes) add(d, std::integral_constant<int, 1>(), i);
  for (; i < n; ++i) add(hn::CappedTag<T, 1>(), std::integral_constant<int, 1>(), i);
}

template <class H, class T = Arithmetic<H>>
void moments_of_rows(const H* x, int64_t count, int64_t stride, int64_t n, const T* center, T* sums, T* squares) {
  add_rows(count, n, sums, squares, [&](auto d, int64_t r, int64_t i, auto& sum, auto& square) HWY_ATTR {
    const auto v = hn::Sub(load(d, x + r * stride + i), hn::LoadU(d, center + i));
    sum = hn::Add(sum, v);
    square = hn::MulAdd(v, v, square);
  });
}

template <class H, class T = Arithmetic<H>>
void products_of_rows(const H* x, const H* dy, int64_t count, int64_t stride, int64_t n, const T* mean, T* dots,
                      T* totals) {
  add_rows(count, n, dots, totals, [&](auto d, int64_t r, int64_t i, auto& dot, auto& total) HWY_ATTR {
    const auto g = load(d, dy + r * stride + i);
    dot = hn::MulAdd(hn::Sub(load(d, x + r * stride + i), hn::LoadU(d, mean + i)), g, dot);
    total = hn::Add(total, g);
  });
}

// Narrow numbers do not stream: a vector of them is half of a line.
template <class H>
NormLoops<H> loops() {
  constexpr bool kStreams = sizeof(H) > 2;
  return {rows<H, false>,     rows<H, kStreams>,
          rows_dx<H, false>,  rows_dx<H, kStreams>,
          row_dw<H>,          sum<H>,
          offset<H>,          deviation<H>,
          products<H>,        affine<H>,
          blend<H>,           offset_row<H>,
          deviation_row<H>,   affine_row<H>,
          blend_row<H>,       moments_of_rows<H>,
          products_of_rows<H>};
}
NormLoops<float> float_loops() { return loops<float>(); }
NormLoops<double> double_loops() { return loops<double>(); }
NormLoops<Half> half_loops() { return loops<Half>(); }
NormLoops<BFloat16> bfloat_loops() { return loops<BFloat16>(); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
#define PG_NORM_LOOPS(NAME, T)           \
  HWY_EXPORT(NAME);                      \
  template <>                            \
  NormLoops<T> norm_loops<T>() {         \
    return HWY_DYNAMIC_DISPATCH(NAME)(); \
  }
PG_NORM_LOOPS(float_loops, float)
PG_NORM_LOOPS(double_loops, double)
PG_NORM_LOOPS(half_loops, Half)
PG_NORM_LOOPS(bfloat_loops, BFloat16)
#undef PG_NORM_LOOPS
}  // namespace pg::cpu
#endif
