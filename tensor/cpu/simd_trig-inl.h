// sin, cos and tan on Highway vectors of float. Errors are at most 1 ulp (tests/golden/accuracy.txt). The result of a
// lane does not depend on the other lanes. Include after highway.h, once per target.
#if defined(PERIGEE_SIMD_TRIG_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_SIMD_TRIG_INL_H
#undef PERIGEE_SIMD_TRIG_INL_H
#else
#define PERIGEE_SIMD_TRIG_INL_H
#endif

#include "tensor/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kTrigLimit = 1e5f;  // beyond it the number of quarter turns loses bits

// x = quarters pi / 2 + high + low, where low is below half an ulp of high and |high| is at most 0.795.
template <class D>
struct Angle {
  hn::Vec<D> high, low;
  hn::Vec<IntOf<D>> quarters;
};
// Cody and Waite, Software Manual for the Elementary Functions, 1980, 8: pi / 2 in parts.
#if HWY_NATIVE_FMA
template <class D, class V = hn::Vec<D>>
HWY_INLINE Angle<D> reduce_angle(D d, V x) {
  const V c2 = hn::Set(d, 7.54979013e-08f);
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 0.636619772f)));
  const V r = hn::NegMulAdd(n, hn::Set(d, 1.57079625f), x);  // exact: the first part has 23 bits
  const V t = hn::Mul(n, c2), high = hn::Sub(r, t);
  const V lost = hn::MulAdd(n, hn::Set(d, -1.71512451e-15f), hn::MulSub(n, c2, t));
  return {high, hn::Sub(hn::Sub(hn::Sub(r, high), t), lost), hn::ConvertTo(IntOf<D>(), n)};
}
#else
// In double precision.
template <class D64, class D, class V64 = hn::Vec<D64>>
HWY_INLINE Angle<D> reduce_wide(D64 d64, D d, hn::Vec<D> x) {
  const V64 wide = hn::PromoteTo(d64, x);
  const V64 n = hn::Round(hn::Mul(wide, hn::Set(d64, 0.63661977236758134308)));
  V64 r = hn::NegMulAdd(n, hn::Set(d64, 1.57079632673412561417e+00), wide);  // the first 33 bits
  r = hn::NegMulAdd(n, hn::Set(d64, 6.07710050650619224932e-11), r);
  const auto high = hn::DemoteTo(d, r);
  return {high, hn::DemoteTo(d, hn::Sub(r, hn::PromoteTo(d64, high))), hn::DemoteTo(IntOf<D>(), n)};
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE Angle<D> reduce_angle(D d, V x) {
#if HWY_TARGET == HWY_SCALAR
  return reduce_wide(hn::Rebind<double, D>(), d, x);
#else
  const hn::Half<D> dh;
  const hn::Rebind<double, hn::Half<D>> d64;
  const auto a = reduce_wide(d64, dh, hn::LowerHalf(dh, x));
  const auto b = reduce_wide(d64, dh, hn::UpperHalf(dh, x));
  return {hn::Combine(d, b.high, a.high), hn::Combine(d, b.low, a.low),
          hn::Combine(IntOf<D>(), b.quarters, a.quarters)};
#endif
}
#endif

// f of the lanes within kTrigLimit. The others, infinite or NaN are computed by libm one by one.
template <class D, class F, class G, class V = hn::Vec<D>>
HWY_INLINE V trigonometric(D d, V x, F f, G libm) {
  const auto within = hn::Le(hn::Abs(x), hn::Set(d, kTrigLimit));
  return or_by_lane(d, within, f(hn::IfThenElseZero(within, x)), libm, x);
}

// sin(x + shift pi / 2) for |x| <= kTrigLimit.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sin_shifted(D d, V x, int shift) {
  const IntOf<D> di;
  const Angle<D> a = reduce_angle(d, x);
  const auto q = hn::Add(a.quarters, hn::Set(di, shift));
  const V r = a.high, z = hn::Mul(r, r);
  const V p = polynomial(d, z, hn::Set(d, -1.950727623e-04f), 8.332102224e-03f, -1.666665369e-01f);
  const V sine = hn::Add(r, hn::MulAdd(hn::Mul(r, z), p, a.low));
  // 1 - z / 2, what it loses, and the rest of the series
  const V one = hn::Set(d, 1.0f), half = hn::Mul(z, hn::Set(d, 0.5f)), top = hn::Sub(one, half);
  const V lost = hn::NegMulAdd(r, a.low, hn::Sub(hn::Sub(one, top), half));
  const V rest = polynomial(d, z, hn::Set(d, 2.442958380e-05f), -1.388729213e-03f, 4.166664537e-02f);
  const V cosine = hn::Add(top, hn::MulAdd(hn::Mul(z, z), rest, lost));
  const auto odd = hn::TestBit(q, hn::Set(di, 1));
  const V y = hn::IfThenElse(hn::RebindMask(d, odd), cosine, sine);
  return hn::BitCast(d, hn::Xor(hn::BitCast(di, y), hn::ShiftLeft<30>(hn::And(q, hn::Set(di, 2)))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vsin(D d, V x) {
  const auto f = [d](V v) HWY_ATTR { return sin_shifted(d, v, 0); };
  const V y = trigonometric(d, x, f, [](float v) { return std::sin(v); });
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);  // keeps -0
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vcos(D d, V x) {
  const auto f = [d](V v) HWY_ATTR { return sin_shifted(d, v, 1); };
  return trigonometric(d, x, f, [](float v) { return std::cos(v); });
}

// tan(x) for |x| <= kTrigLimit: the polynomial's value as a sum y + rest, or -1 over it.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tan_within(D d, V x) {
  const IntOf<D> di;
  const Angle<D> a = reduce_angle(d, x);
  const V z = hn::Mul(a.high, a.high), minus_one = hn::Set(d, -1.0f);
  const V p = polynomial(d, z, hn::Set(d, 4.487424158e-03f), -1.282832527e-04f, 1.100106258e-02f, 2.122127265e-02f,
                         5.407109112e-02f, 1.333257109e-01f, 3.333335221e-01f);
  const V low = hn::Mul(a.low, hn::MulAdd(z, hn::Set(d, 1.5f), hn::Set(d, 1.0f)));  // about low (1 + tan(high)^2)
  const V c = hn::MulAdd(hn::Mul(a.high, z), p, low);
  const V y = hn::Add(a.high, c), rest = hn::Sub(c, hn::Sub(y, a.high));
  const V quotient = hn::Div(minus_one, y);
#if HWY_NATIVE_FMA
  const V error = hn::NegMulAdd(quotient, rest, hn::NegMulAdd(quotient, y, minus_one));
#else
  const V error = hn::Mul(hn::Neg(quotient), rest);
#endif
  const V cotangent = hn::NegMulAdd(error, quotient, quotient);
  const auto odd = hn::TestBit(a.quarters, hn::Set(di, 1));
  return hn::IfThenElse(hn::RebindMask(d, odd), cotangent, y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V vtan(D d, V x) {
  const auto f = [d](V v) HWY_ATTR { return tan_within(d, v); };
  const V y = trigonometric(d, x, f, [](float v) { return float(std::tan(double(v))); });
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, y);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
