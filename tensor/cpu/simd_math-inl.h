// Exponentials, logarithms and tanh on Highway vectors of float; simd_trig-inl.h and simd_erf-inl.h have others. The
// worst errors are in tests/golden/accuracy.txt; NaN, infinities, zeros and subnormals give the correct results. The
// result of a lane does not depend on the other lanes. Include after highway.h, once per target.
#if defined(PERIGEE_SIMD_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_SIMD_MATH_INL_H
#undef PERIGEE_SIMD_MATH_INL_H
#else
#define PERIGEE_SIMD_MATH_INL_H
#endif

#include <cmath>
#include <limits>

#include "hwy/highway.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using IntOf = hn::RebindToSigned<D>;

// Horner's scheme, from the highest coefficient down.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V polynomial(D, V, V highest) {
  return highest;
}
template <class D, class V = hn::Vec<D>, class... Rest>
HWY_INLINE V polynomial(D d, V x, V high, float next, Rest... rest) {
  return polynomial(d, x, hn::MulAdd(high, x, hn::Set(d, next)), rest...);
}

// What is left of x after division by y rounded towards zero; exact. While the rounded quotient is at most 1 too large,
// the fused multiply-add does not round, and a remainder in [0, y) is the only one there is. Others are left to libm,
// all without the instruction.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vfmod(D d, V x, V y) {
  using T = hn::TFromD<D>;
  const auto libm = [](T a, T b) { return std::fmod(a, b); };
#if HWY_NATIVE_FMA
  const V a = hn::Abs(x), b = hn::Abs(y), zero = hn::Zero(d);
  const V above = hn::NegMulAdd(hn::Trunc(hn::Div(a, b)), b, a);
  const V r = hn::IfThenElse(hn::Lt(above, zero), hn::Add(above, b), above);
  const auto infinite = hn::Eq(b, hn::Set(d, std::numeric_limits<T>::infinity()));
  const auto outside = hn::Or(infinite, hn::Or(hn::Lt(r, zero), hn::Ge(r, b)));  // NaN is correct
  return or_by_lane(d, hn::Not(outside), hn::CopySign(r, x), libm, x, y);
#else
  return or_by_lane(d, hn::FirstN(d, 0), x, libm, x, y);
#endif
}

// 2^n for whole n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  const IntOf<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_rest(D d, V r) {
  return polynomial(d, r, hn::Set(d, 1.393368836e-03f), 8.363205468e-03f, 4.166646457e-02f, 1.666657682e-01f,
                    5.000000014e-01f);
}
// e^r - 1 for |r| <= ln(2) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_reduced(D d, V r) {
  return hn::MulAdd(hn::Mul(r, r), expm1_rest(d, r), r);
}

// Returns r, and n such that x = n ln(2) + r.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V reduce_ln2(D d, V x, V* n) {
  *n = hn::Round(hn::Mul(x, hn::Set(d, 1.442695041f)));
  const V r = hn::NegMulAdd(*n, hn::Set(d, 0.693359375f), x);
  return hn::NegMulAdd(*n, hn::Set(d, -2.12194440e-4f), r);
}

// p 2^n for whole n, rounded once. Subnormal results, 0 and infinity are correct.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE hn::Vec512<float> scale_vector(hn::Vec512<float> p, hn::Vec512<float> n) {
  return hn::Vec512<float>{_mm512_scalef_ps(p.raw, n.raw)};
}
HWY_INLINE hn::Vec256<float> scale_vector(hn::Vec256<float> p, hn::Vec256<float> n) {
  return hn::Vec256<float>{_mm256_scalef_ps(p.raw, n.raw)};
}
template <size_t N>
HWY_INLINE hn::Vec128<float, N> scale_vector(hn::Vec128<float, N> p, hn::Vec128<float, N> n) {
  return hn::Vec128<float, N>{_mm_scalef_ps(p.raw, n.raw)};
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scale(D, V p, V n) {
  return scale_vector(p, n);
}
#else
template <class D, class V = hn::Vec<D>>
HWY_INLINE V scale(D d, V p, V n) {
  const IntOf<D> di;
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  return hn::Mul(hn::Mul(p, power_of_two(d, half)), power_of_two(d, hn::Sub(whole, half)));
}
#endif

// 2^n for whole n in [-126, 127]; anything for NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_power(D d, V n) {
#if HWY_TARGET == HWY_AVX3
  return scale(d, hn::Set(d, 1.0f), n);
#else
  return power_of_two(d, hn::ConvertTo(IntOf<D>(), n));
#endif
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V keep_nan(V x, V y) {
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Lower and upper limits that keep NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D d, V x, hn::TFromD<D> low) {
  return max_or_second(hn::Set(d, low), x);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_most(D d, V x, hn::TFromD<D> high) {
  return min_or_second(hn::Set(d, high), x);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V clip(D d, V x, float low, float high) {
  return at_most(d, at_least(d, x, low), high);
}

// e^r for |r| <= ln(2) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_reduced(D d, V r) {
  return polynomial(d, r, hn::Set(d, 1.393368836e-03f), 8.363205468e-03f, 4.166646457e-02f, 1.666657682e-01f,
                    5.000000014e-01f, 1.0f, 1.0f);
}

// e^x for x in [-104, 89] or NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_within(D d, V x) {
  V n;
  const V r = reduce_ln2(d, x, &n);
  return scale(d, exp_reduced(d, r), n);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vexp(D d, V x) {
  return exp_within(d, clip(d, x, -104.0f, 89.0f));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vexp2(D d, V x) {
  const V c = clip(d, x, -151.0f, 129.0f);
  const V n = hn::Round(c);
  const V r = hn::Mul(hn::Sub(c, n), hn::Set(d, 0.693147181f));
  return scale(d, exp_reduced(d, r), n);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vexpm1(D d, V x) {
  V n;
  const V r = reduce_ln2(d, clip(d, x, -18.0f, 89.0f), &n);
  const V half = hn::Set(d, 0.5f);
  // The form 2 (2^(n-1) (p + 1) - 1/2) overflows only where the result does.
  const V s = normal_power(d, hn::Sub(n, hn::Set(d, 1.0f)));
  const V y = hn::MulAdd(s, expm1_reduced(d, r), hn::Sub(s, half));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Add(y, y));  // keeps -0
}

// x = 2^e (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and y = log(1 + f) - f.
template <class V>
struct LogParts {
  V e, f, y;
};
// For positive normal numbers only.
template <class D, class V = hn::Vec<D>>
HWY_INLINE LogParts<V> log_parts(D d, V x) {
  const IntOf<D> di;
  const auto bits = hn::BitCast(di, x);
  // The bias puts the mantissa into [sqrt(1/2), sqrt(2)).
  const auto shifted = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  const auto exponent = hn::ShiftRight<23>(shifted);
  const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(exponent)));
  const V f = hn::Sub(m, hn::Set(d, 1.0f));
  const V f2 = hn::Mul(f, f);
  const V p = polynomial(d, f, hn::Set(d, 7.149753893e-02f), -1.157120072e-01f, 1.166151107e-01f, -1.241105068e-01f,
                         1.424993653e-01f, -1.666848024e-01f, 2.000070748e-01f, -2.499998905e-01f, 3.333333119e-01f);
  return {hn::ConvertTo(d, exponent), f, hn::Mul(hn::Mul(f2, f), p)};
}

// The logarithms from their parts.
struct NaturalLog {
  template <class D, class V>
  HWY_INLINE V operator()(D d, const LogParts<V>& p) const {
    V y = hn::MulAdd(p.e, hn::Set(d, -2.12194440e-4f), p.y);
    y = hn::NegMulAdd(hn::Set(d, 0.5f), hn::Mul(p.f, p.f), y);
    return hn::MulAdd(p.e, hn::Set(d, 0.693359375f), hn::Add(p.f, y));
  }
};
struct BinaryLog {
  template <class D, class V>
  HWY_INLINE V operator()(D d, const LogParts<V>& p) const {
    const V y = hn::NegMulAdd(hn::Set(d, 0.5f), hn::Mul(p.f, p.f), p.y);
    // log2(e) = 1 + 0.4426950409
    const V extra = hn::Set(d, 0.4426950409f);
    return hn::Add(p.e, hn::Add(p.f, hn::MulAdd(p.f, extra, hn::MulAdd(y, extra, y))));
  }
};

// The terms of log10(e) f are f / 2, which is exact, and the rest, which is small.
struct DecimalLog {
  template <class D, class V>
  HWY_INLINE V operator()(D d, const LogParts<V>& p) const {
    const V half = hn::Set(d, 0.5f);
    const V y = hn::NegMulAdd(half, hn::Mul(p.f, p.f), p.y);
    const V rest = hn::Mul(hn::Add(p.f, y), hn::Set(d, -0.0657055181f));  // log10(e) - 1/2
    const V small = hn::MulAdd(half, y, hn::MulAdd(p.e, hn::Set(d, 4.605038981e-06f), rest));
    return hn::MulAdd(p.e, hn::Set(d, 0.301025390625f), hn::MulAdd(half, p.f, small));
  }
};

// For any x: subnormal lanes are scaled first; lanes <= 0, infinite or NaN are replaced at the end.
template <class Log, class D, class V = hn::Vec<D>>
HWY_NOINLINE V log_of_any(D d, V x) {
  const auto subnormal = hn::Lt(x, hn::Set(d, std::numeric_limits<float>::min()));
  LogParts<V> p = log_parts(d, hn::IfThenElse(subnormal, hn::Mul(x, hn::Set(d, 0x1p25f)), x));
  p.e = hn::IfThenElse(subnormal, hn::Sub(p.e, hn::Set(d, 25.0f)), p.e);
  const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  V out = hn::IfThenElse(hn::Eq(x, infinity), x, Log()(d, p));
  out = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), out);
  out = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), out);
  return keep_nan<D>(x, out);
}

// Nearly all vectors hold only positive normal numbers and take the short path. A lane has the same result on both
// paths.
template <class Log, class D, class V = hn::Vec<D>>
HWY_INLINE V logarithm(D d, V x) {
  const auto normal = hn::And(hn::Ge(x, hn::Set(d, std::numeric_limits<float>::min())),
                              hn::Lt(x, hn::Set(d, std::numeric_limits<float>::infinity())));
  if (HWY_LIKELY(hn::AllTrue(d, normal))) return Log()(d, log_parts(d, x));
  return log_of_any<Log>(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vlog(D d, V x) {
  return logarithm<NaturalLog>(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vlog2(D d, V x) {
  return logarithm<BinaryLog>(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vlog10(D d, V x) {
  return logarithm<DecimalLog>(d, x);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vlog1p(D d, V x) {
  const V one = hn::Set(d, 1.0f), infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  const V u = hn::Add(one, x);
  const V correction = hn::Div(hn::Sub(x, hn::Sub(u, one)), u);  // the rounding error of 1 + x
  const V y = vlog(d, u);
  const auto plain = hn::Or(hn::Eq(u, infinity), hn::Eq(u, hn::Zero(d)));
  const V out = hn::IfThenElse(plain, y, hn::Add(y, correction));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, out);
}

// With t = e^2|x| - 1, t / (t + 2) is accurate to a few ulp near 0. It is 1 from |x| = 10 on.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vtanh(D d, V x) {
  const V a = at_most(d, hn::Abs(x), 10.0f), one = hn::Set(d, 1.0f);
  const V b = hn::Add(a, a), n = hn::Round(hn::Mul(b, hn::Set(d, 1.442695041f)));
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693147181f), b);  // n is small: a one-part ln(2) is exact enough
  const V s = normal_power(d, n);
  const V t = hn::MulAdd(s, expm1_reduced(d, r), hn::Sub(s, one));
  return hn::CopySign(hn::Div(t, hn::Add(t, hn::Set(d, 2.0f))), x);
}

// e^x for x at most 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vexp_below(D d, V x) {
#if HWY_TARGET == HWY_AVX3
  return exp_within(d, at_least(d, x, -104.0f));
#else
  V n;
  const V r = reduce_ln2(d, at_least(d, x, -104.0f), &n);
  // The first product is normal, so that only the second one rounds.
  const V large = hn::Mul(exp_reduced(d, r), normal_power(d, hn::Add(n, hn::Set(d, 64.0f))));
  return hn::Mul(large, hn::Set(d, 0x1p-64f));
#endif
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
