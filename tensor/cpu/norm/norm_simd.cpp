#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/norm/norm_simd.cpp"
#include <hwy/foreach_target.h>
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

// Returns the sum of a term over i < n: vec(i) for whole vectors in four accumulators, one(i) for the rest.
template <class T, class Vec, class One>
HWY_INLINE T accumulate(int64_t n, const Vec& vec, const One& one) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a = hn::Add(a, vec(i));
    b = hn::Add(b, vec(i + lanes));
    c = hn::Add(c, vec(i + 2 * lanes));
    e = hn::Add(e, vec(i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) a = hn::Add(a, vec(i));
  T sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
  for (; i < n; ++i) sum += one(i);
  return sum;
}

// Returns a long sum as blocks, whose results are added in double.
template <class T, class Vec, class One>
HWY_INLINE double accumulate_blocks(int64_t n, const Vec& vec, const One& one) {
  constexpr int64_t kBlock = 4096;
  double total = 0;
  for (int64_t s = 0; s < n; s += kBlock)
    total += double(accumulate<T>(
        std::min(kBlock, n - s), [&](int64_t i) HWY_ATTR { return vec(s + i); },
        [&](int64_t i) HWY_ATTR { return one(s + i); }));
  return total;
}

template <class T, class Vec, class One>
HWY_INLINE void fill_row(T* y, int64_t n, const Vec& vec, const One& one) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(vec(i), d, y + i);
  for (; i < n; ++i) y[i] = one(i);
}

template <class T>
double sum(const T* x, int64_t n) {
  const Tag<T> d;
  return accumulate_blocks<T>(
      n, [&](int64_t i) HWY_ATTR { return hn::LoadU(d, x + i); }, [&](int64_t i) HWY_ATTR { return x[i]; });
}

template <class T>
double offset(const T* x, int64_t n, T from) {
  const Tag<T> d;
  const auto v = hn::Set(d, from);
  return accumulate_blocks<T>(
      n, [&](int64_t i) HWY_ATTR { return hn::Sub(hn::LoadU(d, x + i), v); },
      [&](int64_t i) HWY_ATTR { return x[i] - from; });
}

template <class T>
double deviation(const T* x, int64_t n, T mean) {
  const Tag<T> d;
  const auto m = hn::Set(d, mean);
  return accumulate_blocks<T>(
      n,
      [&](int64_t i) HWY_ATTR {
        const auto v = hn::Sub(hn::LoadU(d, x + i), m);
        return hn::Mul(v, v);
      },
      [&](int64_t i) HWY_ATTR { return (x[i] - mean) * (x[i] - mean); });
}

template <class T>
void row(const T* x, T* y, int64_t n, bool centered, double eps, const T* weight, const T* bias, T* mean, T* rstd) {
  const Tag<T> d;
  const T m = centered ? T(sum(x, n) / double(n)) : T(0);
  const T r = T(1.0 / std::sqrt(deviation(x, n, m) / double(n) + eps));
  *mean = m;
  *rstd = r;
  const auto vm = hn::Set(d, m), vr = hn::Set(d, r);
  const auto hat = [&](int64_t i) HWY_ATTR { return hn::Mul(hn::Sub(hn::LoadU(d, x + i), vm), vr); };
  if (weight && bias)
    return fill_row(
        y, n, [&](int64_t i) HWY_ATTR { return hn::MulAdd(hat(i), hn::LoadU(d, weight + i), hn::LoadU(d, bias + i)); },
        [&](int64_t i) HWY_ATTR { return (x[i] - m) * r * weight[i] + bias[i]; });
  if (weight)
    return fill_row(
        y, n, [&](int64_t i) HWY_ATTR { return hn::Mul(hat(i), hn::LoadU(d, weight + i)); },
        [&](int64_t i) HWY_ATTR { return (x[i] - m) * r * weight[i]; });
  if (bias)
    return fill_row(
        y, n, [&](int64_t i) HWY_ATTR { return hn::Add(hat(i), hn::LoadU(d, bias + i)); },
        [&](int64_t i) HWY_ATTR { return (x[i] - m) * r + bias[i]; });
  fill_row(y, n, hat, [&](int64_t i) HWY_ATTR { return (x[i] - m) * r; });
}

// Returns the sums of g = dy weight and of g (x - mean) over a row.
template <class T, bool kWeight>
HWY_INLINE void row_sums(const T* x, const T* dy, int64_t n, T mean, const T* weight, T* total, T* dot) {
  const Tag<T> d;
  const auto m = hn::Set(d, mean);
  const auto g = [&](int64_t i) HWY_ATTR {
    const auto v = hn::LoadU(d, dy + i);
    if constexpr (kWeight)
      return hn::Mul(v, hn::LoadU(d, weight + i));
    else
      return v;
  };
  const auto g1 = [&](int64_t i) HWY_ATTR { return kWeight ? dy[i] * weight[i] : dy[i]; };
  *total = T(accumulate_blocks<T>(n, g, g1));
  *dot = T(accumulate_blocks<T>(
      n, [&](int64_t i) HWY_ATTR { return hn::Mul(g(i), hn::Sub(hn::LoadU(d, x + i), m)); },
      [&](int64_t i) HWY_ATTR { return g1(i) * (x[i] - mean); }));
}

template <class T>
void row_dx(const T* x, const T* dy, T* dx, int64_t n, bool centered, T mean, T rstd, const T* weight) {
  const Tag<T> d;
  T total, dot;
  if (weight)
    row_sums<T, true>(x, dy, n, mean, weight, &total, &dot);
  else
    row_sums<T, false>(x, dy, n, mean, weight, &total, &dot);
  // dx = rstd g + slope (x - mean) + term
  const T slope = -dot * rstd * rstd * rstd / T(n), term = centered ? -total * rstd / T(n) : T(0);
  const auto vm = hn::Set(d, mean), vr = hn::Set(d, rstd), vs = hn::Set(d, slope), vt = hn::Set(d, term);
  const auto rest = [&](int64_t i) HWY_ATTR { return hn::MulAdd(hn::Sub(hn::LoadU(d, x + i), vm), vs, vt); };
  if (weight)
    return fill_row(
        dx, n,
        [&](int64_t i)
            HWY_ATTR { return hn::MulAdd(hn::Mul(hn::LoadU(d, dy + i), hn::LoadU(d, weight + i)), vr, rest(i)); },
        [&](int64_t i) HWY_ATTR { return dy[i] * weight[i] * rstd + (x[i] - mean) * slope + term; });
  fill_row(
      dx, n, [&](int64_t i) HWY_ATTR { return hn::MulAdd(hn::LoadU(d, dy + i), vr, rest(i)); },
      [&](int64_t i) HWY_ATTR { return dy[i] * rstd + (x[i] - mean) * slope + term; });
}

template <class T>
void row_dw(const T* x, const T* dy, T* dw, T* db, int64_t n, T mean, T rstd) {
  const Tag<T> d;
  const int64_t lanes = hn::Lanes(d);
  const auto m = hn::Set(d, mean), r = hn::Set(d, rstd);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto g = hn::LoadU(d, dy + i);
    const auto hat = hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), r);
    hn::StoreU(hn::MulAdd(g, hat, hn::LoadU(d, dw + i)), d, dw + i);
    hn::StoreU(hn::Add(g, hn::LoadU(d, db + i)), d, db + i);
  }
  for (; i < n; ++i) dw[i] += dy[i] * (x[i] - mean) * rstd, db[i] += dy[i];
}

template <class T>
void products(const T* x, const T* dy, int64_t n, T mean, double* dot, double* total) {
  const Tag<T> d;
  const auto m = hn::Set(d, mean);
  constexpr int64_t kBlock = 2048;  // of both inputs, so that they are in the cache for the second sum
  for (int64_t s = 0; s < n; s += kBlock) {
    const int64_t k = std::min(kBlock, n - s);
    const T *p = x + s, *q = dy + s;
    *total += double(accumulate<T>(
        k, [&](int64_t i) HWY_ATTR { return hn::LoadU(d, q + i); }, [&](int64_t i) HWY_ATTR { return q[i]; }));
    *dot += double(accumulate<T>(
        k, [&](int64_t i) HWY_ATTR { return hn::Mul(hn::LoadU(d, q + i), hn::Sub(hn::LoadU(d, p + i), m)); },
        [&](int64_t i) HWY_ATTR { return q[i] * (p[i] - mean); }));
  }
}

template <class T>
void affine(const T* x, T* y, int64_t n, T scale, T shift) {
  const Tag<T> d;
  const auto s = hn::Set(d, scale), t = hn::Set(d, shift);
  fill_row(
      y, n, [&](int64_t i) HWY_ATTR { return hn::MulAdd(hn::LoadU(d, x + i), s, t); },
      [&](int64_t i) HWY_ATTR { return x[i] * scale + shift; });
}

template <class T>
void blend(const T* x, const T* dy, T* dx, int64_t n, T a, T b, T c) {
  const Tag<T> d;
  const auto va = hn::Set(d, a), vb = hn::Set(d, b), vc = hn::Set(d, c);
  fill_row(
      dx, n,
      [&](int64_t i) HWY_ATTR { return hn::MulAdd(hn::LoadU(d, dy + i), va, hn::MulAdd(hn::LoadU(d, x + i), vb, vc)); },
      [&](int64_t i) HWY_ATTR { return dy[i] * a + (x[i] * b + c); });
}

template <class T>
void sum_row(const T* x, T* sums, int64_t n) {
  const Tag<T> d;
  fill_row(
      sums, n, [&](int64_t i) HWY_ATTR { return hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, x + i)); },
      [&](int64_t i) HWY_ATTR { return sums[i] + x[i]; });
}

template <class T>
void offset_row(const T* x, const T* from, T* sums, int64_t n) {
  const Tag<T> d;
  fill_row(
      sums, n,
      [&](int64_t i)
          HWY_ATTR { return hn::Add(hn::LoadU(d, sums + i), hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, from + i))); },
      [&](int64_t i) HWY_ATTR { return sums[i] + (x[i] - from[i]); });
}

template <class T>
void deviation_row(const T* x, const T* mean, T* sums, int64_t n) {
  const Tag<T> d;
  fill_row(
      sums, n,
      [&](int64_t i) HWY_ATTR {
        const auto v = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i));
        return hn::MulAdd(v, v, hn::LoadU(d, sums + i));
      },
      [&](int64_t i) HWY_ATTR { return sums[i] + (x[i] - mean[i]) * (x[i] - mean[i]); });
}

template <class T>
void products_row(const T* x, const T* dy, const T* mean, T* dots, T* totals, int64_t n) {
  const Tag<T> d;
  sum_row(dy, totals, n);
  fill_row(
      dots, n,
      [&](int64_t i) HWY_ATTR {
        const auto v = hn::Sub(hn::LoadU(d, x + i), hn::LoadU(d, mean + i));
        return hn::MulAdd(v, hn::LoadU(d, dy + i), hn::LoadU(d, dots + i));
      },
      [&](int64_t i) HWY_ATTR { return dots[i] + (x[i] - mean[i]) * dy[i]; });
}

template <class T>
void affine_row(const T* x, T* y, int64_t n, const T* scale, const T* shift) {
  const Tag<T> d;
  fill_row(
      y, n,
      [&](int64_t i)
          HWY_ATTR { return hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, scale + i), hn::LoadU(d, shift + i)); },
      [&](int64_t i) HWY_ATTR { return x[i] * scale[i] + shift[i]; });
}

template <class T>
void blend_row(const T* x, const T* dy, T* dx, int64_t n, const T* a, const T* b, const T* c) {
  const Tag<T> d;
  fill_row(
      dx, n,
      [&](int64_t i) HWY_ATTR {
        const auto rest = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i));
        return hn::MulAdd(hn::LoadU(d, dy + i), hn::LoadU(d, a + i), rest);
      },
      [&](int64_t i) HWY_ATTR { return dy[i] * a[i] + (x[i] * b[i] + c[i]); });
}

template <class T>
NormLoops<T> loops() {
  return {row<T>,   row_dx<T>,  row_dw<T>,     sum<T>,           offset<T>,       deviation<T>,  products<T>, affine<T>,
          blend<T>, sum_row<T>, offset_row<T>, deviation_row<T>, products_row<T>, affine_row<T>, blend_row<T>};
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
