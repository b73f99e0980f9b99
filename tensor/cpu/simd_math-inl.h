// Elementary functions on Highway vectors of float. Errors are at most 2 to 4 ulp; NaN, infinities, zeros and
// subnormals give the correct results. The result of a lane does not depend on the other lanes. Include after
// highway.h, once per target.
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

// 2^n for whole n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  const IntOf<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// e^r - 1 for |r| <= ln(2) / 2.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_reduced(D d, V r) {
  const V q = polynomial(d, r, hn::Set(d, 1.393368836e-03f), 8.363205468e-03f, 4.166646457e-02f, 1.666657682e-01f,
                         5.000000014e-01f);
  return hn::MulAdd(hn::Mul(r, r), q, r);
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

template <class D, class V = hn::Vec<D>>
HWY_INLINE V keep_nan(V x, V y) {
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// Lower and upper limits that keep NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_least(D d, V x, float low) {
  return max_or_second(hn::Set(d, low), x);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V at_most(D d, V x, float high) {
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
  const V s = scale(d, half, n);
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
  const V s = scale(d, one, n);
  const V t = hn::MulAdd(s, expm1_reduced(d, r), hn::Sub(s, one));
  return hn::CopySign(hn::Div(t, hn::Add(t, hn::Set(d, 2.0f))), x);
}

// e^x for x at most 0; off by 2 ulp at most where the result is below 1e-30.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vexp_below(D d, V x) {
  const V a = at_least(d, x, -104.0f);
  const V n = hn::Round(hn::Mul(a, hn::Set(d, 1.442695041f)));
  const V r = hn::NegMulAdd(n, hn::Set(d, 0.693147181f), a);
  return scale(d, exp_reduced(d, r), n);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V verf(D d, V x) {
  const V one = hn::Set(d, 1.0f), a = hn::Abs(x);
  const V small =
      hn::MulAdd(x,
                 polynomial(d, hn::Mul(x, x), hn::Set(d, 7.882497112e-05f), -8.018854993e-04f, 5.189311943e-03f,
                            -2.685432880e-02f, 1.128359746e-01f, -3.761262690e-01f, 1.283791659e-01f),
                 x);
  const V t = hn::Min(a, hn::Set(d, 4.0f));
  const V log_erfc =
      polynomial(d, t, hn::Set(d, 1.614061609e-06f), -4.559062256e-05f, 5.927695389e-04f, -4.740222347e-03f,
                 2.636471738e-02f, -1.099782452e-01f, -6.319370936e-01f, -1.130166676e+00f, 3.032129751e-04f);
  const V large = hn::CopySign(hn::Sub(one, vexp(d, log_erfc)), x);
  return keep_nan<D>(x, hn::IfThenElse(hn::Lt(a, one), small, large));
}

// Returns x - q pi/2, computed in double precision, and q.
template <class D64, class V32, class DI, class V64 = hn::Vec<D64>>
HWY_INLINE V32 reduce_quadrant(D64 d64, V32 x, DI di, hn::Vec<DI>* quadrant) {
  const hn::Rebind<float, D64> df;
  const V64 wide = hn::PromoteTo(d64, x);
  const V64 q = hn::Round(hn::Mul(wide, hn::Set(d64, 0.63661977236758134308)));
  V64 r = hn::NegMulAdd(q, hn::Set(d64, 1.57079632673412561417e+00), wide);  // the first 33 bits of pi / 2
  r = hn::NegMulAdd(q, hn::Set(d64, 6.07710050650619224932e-11), r);
  *quadrant = hn::DemoteTo(di, q);
  return hn::DemoteTo(df, r);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V reduce_quadrants([[maybe_unused]] D d, V x, hn::Vec<IntOf<D>>* quadrants) {
#if HWY_TARGET == HWY_SCALAR
  return reduce_quadrant(hn::Rebind<double, D>(), x, IntOf<D>(), quadrants);
#else
  const hn::Half<D> dh;
  const hn::Rebind<double, hn::Half<D>> d64;
  const IntOf<hn::Half<D>> dih;
  hn::Vec<IntOf<hn::Half<D>>> q_low, q_high;
  const auto low = reduce_quadrant(d64, hn::LowerHalf(dh, x), dih, &q_low);
  const auto high = reduce_quadrant(d64, hn::UpperHalf(dh, x), dih, &q_high);
  *quadrants = hn::Combine(IntOf<D>(), q_high, q_low);
  return hn::Combine(d, high, low);
#endif
}

inline constexpr float kTrigLimit = 1e6f;  // beyond it the quadrant number loses bits

// sin(x + shift pi/2) for |x| <= kTrigLimit.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sin_shifted(D d, V x, int shift) {
  const IntOf<D> di;
  hn::Vec<IntOf<D>> q;
  const V r = reduce_quadrants(d, x, &q);
  q = hn::Add(q, hn::Set(di, shift));
  const V s = hn::Mul(r, r);
  const V sine = hn::MulAdd(hn::Mul(r, s),
                            polynomial(d, s, hn::Set(d, -1.958769821e-04f), 8.332747470e-03f, -1.666666466e-01f), r);
  const V tail =
      hn::MulAdd(hn::Mul(s, s), polynomial(d, s, hn::Set(d, 2.454773910e-05f), -1.388830217e-03f, 4.166666466e-02f),
                 hn::Mul(s, hn::Set(d, -0.5f)));
  const V cosine = hn::Add(hn::Set(d, 1.0f), tail);
  const auto odd = hn::TestBit(q, hn::Set(di, 1));
  const V y = hn::IfThenElse(hn::RebindMask(d, odd), cosine, sine);
  const auto sign = hn::ShiftLeft<30>(hn::And(q, hn::Set(di, 2)));
  return hn::BitCast(d, hn::Xor(hn::BitCast(di, y), sign));
}

// Lanes beyond kTrigLimit, infinite or NaN are computed by libm one by one.
template <class D, class V = hn::Vec<D>, class F>
HWY_INLINE V trigonometric(D d, V x, int shift, F libm) {
  const auto small = hn::Le(hn::Abs(x), hn::Set(d, kTrigLimit));
  const V y = sin_shifted(d, hn::IfThenElseZero(small, x), shift);
  if (HWY_LIKELY(hn::AllTrue(d, small))) return y;
  HWY_ALIGN float in[hn::MaxLanes(d)], out[hn::MaxLanes(d)];
  hn::Store(x, d, in);
  hn::Store(y, d, out);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (!(std::fabs(in[i]) <= kTrigLimit)) out[i] = libm(in[i]);
  return hn::Load(d, out);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vsin(D d, V x) {
  const V y = trigonometric(d, x, 0, [](float v) { return std::sin(v); });
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);  // keeps -0
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vcos(D d, V x) {
  return trigonometric(d, x, 1, [](float v) { return std::cos(v); });
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
