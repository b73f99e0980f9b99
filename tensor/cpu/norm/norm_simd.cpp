#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/norm/norm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "tensor/cpu/norm/norm_simd.h"

#include <algorithm>
#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using One = hn::CappedTag<T, 1>;

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
template <class T, class Term, class... Next>
HWY_INLINE void fill_row(T* y, int64_t n, const Term& term, const Next*... next) {
  const Tag<T> d;
  const One<T> one;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    if constexpr (sizeof...(next) > 0) __builtin_prefetch(y + n + i, 1);
    (__builtin_prefetch(next + i), ...);
    hn::StoreU(term(d, i), d, y + i);
  }
  for (; i < n; ++i) hn::StoreU(term(one, i), one, y + i);
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

template <bool kStreams, class T, class Term, class... Next>
HWY_INLINE void write_row(T* y, int64_t n, const Term& term, const Next*... next) {
  if constexpr (kStreams)
    stream_into(y, n, term, next...);
  else
    fill_row(y, n, term, next...);
}

template <class T>
double sum(const T* x, int64_t n) {
  return accumulate_blocks<T>(n, [&](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, x + i); });
}

template <class T>
double offset(const T* x, int64_t n, T from) {
  return accumulate_blocks<T>(
      n, [&](auto d, int64_t i) HWY_ATTR { return hn::Sub(hn::LoadU(d, x + i), hn::Set(d, from)); });
}

template <class T>
double deviation(const T* x, int64_t n, T mean) {
  return accumulate_blocks<T>(n, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean));
    return hn::Mul(v, v);
  });
}

template <class T, bool kStreams>
HWY_INLINE void row(const T* x, T* y, int64_t n, bool centered, double eps, const T* weight, const T* bias, T* mean,
                    T* rstd) {
  const T m = centered ? T(sum(x, n) / double(n)) : T(0);
  const T r = T(1.0 / std::sqrt(deviation(x, n, m) / double(n) + eps));
  *mean = m;
  *rstd = r;
  const auto hat = [&](auto d, int64_t i)
                       HWY_ATTR { return hn::Mul(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, m)), hn::Set(d, r)); };
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

template <class T, bool kStreams>
void rows(const T* x, T* y, int64_t count, int64_t n, bool centered, double eps, const T* weight, const T* bias,
          T* mean, T* rstd) {
  for (int64_t r = 0; r < count; ++r, x += n, y += n)
    row<T, kStreams>(x, y, n, centered, eps, weight, bias, mean + r, rstd + r);
  if constexpr (kStreams) hwy::FlushStream();
}

// Returns the sums of g = dy weight and of g (x - mean) over a row.
template <class T, bool kWeight>
HWY_INLINE void row_sums(const T* x, const T* dy, int64_t n, T mean, const T* weight, T* total, T* dot) {
  const auto g = [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, dy + i);
    if constexpr (kWeight)
      return hn::Mul(v, hn::LoadU(d, weight + i));
    else
      return v;
  };
  *total = T(accumulate_blocks<T>(n, g));
  *dot = T(accumulate_blocks<T>(
      n, [&](auto d, int64_t i) HWY_ATTR { return hn::Mul(g(d, i), hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean))); }));
}

template <class T, bool kStreams>
HWY_INLINE void row_dx(const T* x, const T* dy, T* dx, int64_t n, bool centered, T mean, T rstd, const T* weight) {
  T total, dot;
  if (weight)
    row_sums<T, true>(x, dy, n, mean, weight, &total, &dot);
  else
    row_sums<T, false>(x, dy, n, mean, weight, &total, &dot);
  // dx = rstd g + slope (x - mean) + term
  const T slope = -dot * rstd * rstd * rstd / T(n), term = centered ? -total * rstd / T(n) : T(0);
  const auto rest = [&](auto d, int64_t i) HWY_ATTR {
    return hn::MulAdd(hn::Sub(hn::LoadU(d, x + i), hn::Set(d, mean)), hn::Set(d, slope), hn::Set(d, term));
  };
  const auto fill = [&](const auto& term) HWY_ATTR { write_row<kStreams>(dx, n, term, x + n, dy + n); };
  if (weight)
    fill([&](auto d, int64_t i) HWY_ATTR {
      const auto g = hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, weight + i));
      return hn::MulAdd(g, hn::Set(d, rstd), rest(d, i));
    });
  else
    fill([&](auto d, int64_t i) HWY_ATTR { return hn::MulAdd(hn::LoadU(d, dy + i), hn::Set(d, rstd), rest(d, i)); });
}

template <class T, bool kStreams>
void rows_dx(const T* x, const T* dy, T* dx, int64_t count, int64_t n, bool centered, const T* mean, const T* rstd,
             const T* weight) {
  for (int64_t r = 0; r < count; ++r, x += n, dy += n, dx += n)
    row_dx<T, kStreams>(x, dy, dx, n, centered, centered ? mean[r] : T(0), rstd[r], weight);
  if constexpr (kStreams) hwy::FlushStream();
}

template <class T>
void row_dw(const T* x, const T* dy, T* dw, T* db, int64_t n, T mean, T rstd) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto add = [&](auto tag, int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(tag, dy + i);
    const auto hat = hn::Mul(hn::Sub(hn::LoadU(tag, x + i), hn::Set(tag, mean)), hn::Set(tag, rstd));
    hn::StoreU(hn::MulAdd(g, hat, hn::LoadU(tag, dw + i)), tag, dw + i);
    hn::StoreU(hn::Add(g, hn::LoadU(tag, db + i)), tag, db + i);
  };
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) add(d, i);
  for (; i < n; ++i) add(One<T>(), i);
}

template <class T>
void products(const T* x, const T* dy, int64_t n, T mean, double* dot, double* total) {
  constexpr int64_t kBlock = 2048;  // of both inputs, so that they are in the cache for the second sum
  for (int64_t s = 0; s < n; s += kBlock) {
    const int64_t k = std::min(kBlock, n - s);
    const T *p = x + s, *q = dy + s;
    *total += double(accumulate<T>(k, [&](auto d, int64_t i) HWY_ATTR { return hn::LoadU(d, q + i); }));
    *dot += double(accumulate<T>(k, [&](auto d, int64_t i) HWY_ATTR {
      return hn::Mul(hn::LoadU(d, q + i), hn::Sub(hn::LoadU(d, p + i), hn::Set(d, mean)));
    }));
  }
}

// Rounds the product, as the mul and the add that plans write in its place.
template <class T>
void affine(const T* x, T* y, int64_t n, T scale, T shift) {
  fill_row(y, n, [&](auto d, int64_t i) HWY_ATTR {
    return hn::Add(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), hn::Set(d, shift));
  });
}

template <class T>
void blend(const T* x, const T* dy, T* dx, int64_t n, T a, T b, T c) {
  fill_row(dx, n, [&](auto d, int64_t i) HWY_ATTR {
    const auto rest = hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, b), hn::Set(d, c));
    return hn::MulAdd(hn::LoadU(d, dy + i), hn::Set(d, a), rest);
  });
}

template <class T>
void sum_row(const T* x, T* sums, int64_t n) {
  fill_row(sums, n, [&](auto d, int64_t i) HWY_ATTR { return hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, x + i)); });
}

template <class T>
void offset_row(const T* x, const T* from, T* sums, int64_t n) {
  fill_row(sums, n, [&](auto d, int64_t i) HWY_ATTR {
    return hn::Add(hn::LoadU(d, sums + i), hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, from + i)));
  });
}

template <class T>
void deviation_row(const T* x, const T* mean, T* sums, int64_t n) {
  fill_row(sums, n, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i));
    return hn::MulAdd(v, v, hn::LoadU(d, sums + i));
  });
}

template <class T>
void products_row(const T* x, const T* dy, const T* mean, T* dots, T* totals, int64_t n) {
  sum_row(dy, totals, n);
  fill_row(dots, n, [&](auto d, int64_t i) HWY_ATTR {
    const auto v = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i));
    return hn::MulAdd(v, hn::LoadU(d, dy + i), hn::LoadU(d, dots + i));
  });
}

template <class T>
void affine_row(const T* x, T* y, int64_t n, const T* scale, const T* shift) {
  fill_row(y, n, [&](auto d, int64_t i) HWY_ATTR {
    return hn::Add(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, scale + i)), hn::LoadU(d, shift + i));
  });
}

template <class T>
void blend_row(const T* x, const T* dy, T* dx, int64_t n, const T* a, const T* b, const T* c) {
  fill_row(dx, n, [&](auto d, int64_t i) HWY_ATTR {
    const auto rest = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i));
    return hn::MulAdd(hn::LoadU(d, dy + i), hn::LoadU(d, a + i), rest);
  });
}

template <class T>
NormLoops<T> loops() {
  return {rows<T, false>, rows<T, true>,    rows_dx<T, false>, rows_dx<T, true>, row_dw<T>,   sum<T>,
          offset<T>,      deviation<T>,     products<T>,       affine<T>,        blend<T>,    sum_row<T>,
          offset_row<T>,  deviation_row<T>, products_row<T>,   affine_row<T>,    blend_row<T>};
}
NormLoops<float> float_loops() { return loops<float>(); }
NormLoops<double> double_loops() { return loops<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(float_loops);
HWY_EXPORT(double_loops);
template <>
NormLoops<float> norm_loops<float>() {
  return HWY_DYNAMIC_DISPATCH(float_loops)();
}
template <>
NormLoops<double> norm_loops<double>() {
  return HWY_DYNAMIC_DISPATCH(double_loops)();
}
}  // namespace pg::cpu
#endif
