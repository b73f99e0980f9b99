// Elementary functions on vectors of float, by the polynomials of simd_math-inl.h and its relatives, and on vectors of
// double, by Sleef. Include after highway.h, once per target.
#if defined(PERIGEE_ELEMENTARY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_ELEMENTARY_INL_H
#undef PERIGEE_ELEMENTARY_INL_H
#else
#define PERIGEE_ELEMENTARY_INL_H
#endif

#include <iterator>

#include "tensor/cpu/simd_erf-inl.h"
#include "tensor/cpu/simd_math-inl.h"
#include "tensor/cpu/simd_trig-inl.h"
#include "tensor/cpu/sleef-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE::elementary {

template <class D>
inline constexpr bool kIsFloat32 = sizeof(hn::TFromD<D>) == sizeof(float);

#define PERIGEE_ELEMENTARY(name)                  \
  template <class D>                              \
  HWY_INLINE hn::Vec<D> name(D d, hn::Vec<D> x) { \
    if constexpr (kIsFloat32<D>)                  \
      return v##name(d, x);                       \
    else                                          \
      return sleef_##name(d, x);                  \
  }
PERIGEE_ELEMENTARY(exp)
PERIGEE_ELEMENTARY(exp2)
PERIGEE_ELEMENTARY(expm1)
PERIGEE_ELEMENTARY(log)
PERIGEE_ELEMENTARY(log2)
PERIGEE_ELEMENTARY(log10)
PERIGEE_ELEMENTARY(log1p)
PERIGEE_ELEMENTARY(tanh)
PERIGEE_ELEMENTARY(erf)
PERIGEE_ELEMENTARY(erfc)
PERIGEE_ELEMENTARY(sin)
PERIGEE_ELEMENTARY(cos)
PERIGEE_ELEMENTARY(tan)
#undef PERIGEE_ELEMENTARY

// e^x for x at most 0.
template <class D>
HWY_INLINE hn::Vec<D> exp_below(D d, hn::Vec<D> x) {
  if constexpr (kIsFloat32<D>)
    return vexp_below(d, x);
  else
    return sleef_exp(d, x);
}

// As vtimes_normal. For double the polynomial goes to 38.6, beyond which Q is 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V times_normal(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return vtimes_normal(d, x);
  } else {
    constexpr double kTail[] = {
        -1.08346792877099993e-09, -6.48479737317731514e-09, -8.76526024659005428e-09, 2.40383887459684877e-08,
        8.73021022834749772e-08,  4.24970116736164047e-08,  -2.65936728658687919e-07, -5.91681694557002267e-07,
        4.06056590889798154e-09,  2.25478735728797064e-06,  3.64130369249441231e-06,  -3.51661871974453197e-06,
        -2.06893762963455285e-05, -1.32464401767824458e-05, 7.88126961616353951e-05,  1.54394552828107618e-04,
        -2.56575347257857170e-04, -1.04582863363838997e-03, 1.02759225907989265e-03,  6.97262124118227383e-03,
        -1.04628670233086526e-02, -4.72630251429927498e-02, 2.30017719974603685e-01,  -5.09331981917489296e-01,
        7.29083690133373041e-01};
    const V a = hn::Min(hn::Abs(x), hn::Set(d, 38.6)), one = hn::Set(d, 1.0), half = hn::Set(d, 0.5);
    const V inverse = hn::Div(one, hn::Add(a, hn::Set(d, 3.0))), t = hn::MulAdd(inverse, hn::Set(d, -6.0), one);
    const V t2 = hn::Mul(t, t);  // even and odd powers by themselves, which do not wait for each other
    V even = hn::Set(d, kTail[0]), odd = hn::Set(d, kTail[1]);
    for (size_t k = 2; k + 1 < std::size(kTail); k += 2) {
      even = hn::MulAdd(even, t2, hn::Set(d, kTail[k]));
      odd = hn::MulAdd(odd, t2, hn::Set(d, kTail[k + 1]));
    }
    even = hn::MulAdd(even, t2, hn::Set(d, kTail[std::size(kTail) - 1]));
    const V q = hn::MulAdd(odd, t, even);
    const V square = hn::Mul(a, a), e = sleef_exp(d, hn::Mul(square, hn::Neg(half)));
    // a^2 = square + lost, where the product rounds once
    const V lost = HWY_NATIVE_FMA ? hn::MulSub(a, a, square) : hn::Zero(d);
    const V tail = hn::Mul(hn::Mul(hn::Mul(a, inverse), q), hn::NegMulAdd(hn::Mul(half, lost), e, e));
    return keep_nan<D>(x, hn::Sub(hn::Max(x, hn::Zero(d)), tail));
  }
}

}  // namespace pg::cpu::HWY_NAMESPACE::elementary
HWY_AFTER_NAMESPACE();
#endif
