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

// The polynomial with these coefficients, that of the highest power first, at x. They are odd in number, at least 7.
// Even and odd powers of the high terms do not wait for each other; the low terms, which count in the last place, round
// once each.
template <class D, class V = hn::Vec<D>, size_t n>
HWY_INLINE V polynomial_of(D d, V x, const double (&c)[n]) {
  constexpr size_t kHigh = n - 4;
  static_assert(n >= 7 && n % 2 == 1);
  const V x2 = hn::Mul(x, x);
  V even = hn::Set(d, c[0]), odd = hn::Set(d, c[1]);
  for (size_t k = 2; k + 1 < kHigh; k += 2) {
    even = hn::MulAdd(even, x2, hn::Set(d, c[k]));
    odd = hn::MulAdd(odd, x2, hn::Set(d, c[k + 1]));
  }
  V sum = hn::MulAdd(odd, x, hn::MulAdd(even, x2, hn::Set(d, c[kHigh - 1])));
  for (size_t k = kHigh; k < n; ++k) sum = hn::MulAdd(sum, x, hn::Set(d, c[k]));
  return sum;
}

// As verf. For double it is x + x p(x^2) up to 1, then 1 - exp(q(a - 1)), minimax with respect to the relative error.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return verf(d, x);
  } else {
    constexpr double kSmall[] = {5.94525558422348801e-11,  -1.13656706718271601e-09, 1.46578835309196528e-08,
                                 -1.63500261920772693e-07, 1.64609729541537652e-06,  -1.49255935187282259e-05,
                                 1.20553310375511082e-04,  -8.54832697876514854e-04, 5.22397762478137018e-03,
                                 -2.68661706450729586e-02, 1.12837916709548583e-01,  -3.76126389031837483e-01,
                                 1.28379167095512586e-01};
    constexpr double kLogErfc[] = {
        1.03909678049354095e-12,  -2.88154214009456003e-11, 3.68245966431685043e-10,  -2.86402420782584937e-09,
        1.49113780042554721e-08,  -5.20376612637119558e-08, 9.75469518730209380e-08,  1.42875894297962237e-07,
        -2.05977228421751552e-06, 9.60890008430145088e-06,  -2.71591117209220325e-05, 2.62778747336778518e-05,
        2.37322481591387065e-04,  -1.97790256793982117e-03, 1.00338253744116992e-02,  -4.15610980418086029e-02,
        -8.43107256358676782e-01, -2.63896751423478815e+00, -1.84960550993324824e+00};
    const V one = hn::Set(d, 1.0), a = hn::Abs(x), t = hn::Sub(hn::Min(a, hn::Set(d, 6.0)), one);  // erf(6) rounds to 1
    const V small = hn::MulAdd(x, polynomial_of(d, hn::Mul(x, x), kSmall), x);
    const V large = hn::CopySign(hn::Sub(one, sleef_exp(d, polynomial_of(d, t, kLogErfc))), x);
    return keep_nan<D>(x, hn::IfThenElse(hn::Lt(a, one), small, large));
  }
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
    const V q = polynomial_of(d, t, kTail);
    const V square = hn::Mul(a, a), e = sleef_exp(d, hn::Mul(square, hn::Neg(half)));
    // a^2 = square + lost, where the product rounds once
    const V lost = HWY_NATIVE_FMA ? hn::MulSub(a, a, square) : hn::Zero(d);
    const V tail = hn::Mul(hn::Mul(hn::Mul(a, inverse), q), hn::NegMulAdd(hn::Mul(half, lost), e, e));
    const V above = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);  // keeps NaN and -0
    return hn::Sub(above, tail);
  }
}

// As vnormal_slope.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V normal_slope(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return vnormal_slope(d, x);
  } else {
    const V z = hn::Max(hn::Min(x, hn::Set(d, 40.0)), hn::Set(d, -40.0));  // beyond it the second term is 0
    const V density =
        hn::Mul(sleef_exp(d, hn::Mul(hn::Mul(z, z), hn::Set(d, -0.5))), hn::Set(d, 0.39894228040143267794));
    const V normal = hn::Mul(sleef_erfc(d, hn::Mul(z, hn::Set(d, -0.70710678118654752440))), hn::Set(d, 0.5));
    return keep_nan<D>(x, hn::MulAdd(z, density, normal));
  }
}

// As verfinv. For double there are three polynomials: in w up to 6.25, and in its square root up to 4 and up to 6.01,
// which is that of the last number before 1. Each variable is counted from about the middle of its range.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfinv(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return verfinv(d, x);
  } else {
    constexpr double kNear[] = {
        -3.59320289270206934e-22, 3.19401554813627101e-21,  1.99925998886153485e-20,  -3.47347938885380362e-19,
        6.07505070207241414e-19,  1.55107870099025256e-17,  -1.22156371924041717e-16, -3.94018812230432025e-17,
        6.52133351150223883e-15,  -4.00200310875584962e-14, -8.07192593899004061e-14, 2.63052683125951832e-12,
        -1.29788053699325650e-11, -5.41430328391950415e-11, 1.05122337705042901e-09,  -4.11266043716321846e-09,
        -2.90703912756413199e-08, 4.23478816822245981e-07,  -1.36546917587856564e-06, -1.38825233939574828e-05,
        1.86734208019811857e-04,  -7.40702534154643135e-04, -6.03367087142685134e-03, 2.40158182425588340e-01,
        1.65365456268310274e+00};
    constexpr double kMiddle[] = {7.68020047907705305e-09,  -1.53053979641525481e-08, -2.09145333477312603e-08,
                                  1.31586636831929664e-07,  -2.45498189633398231e-07, -2.76171622381624115e-08,
                                  1.48159778740225388e-06,  -3.98570594564817299e-06, 2.93257845538534999e-06,
                                  1.24650282242174545e-05,  -4.73206806654469670e-05, 6.82871173925195523e-05,
                                  2.40315128657583568e-05,  -3.55037813785245187e-04, 9.53289341579413693e-04,
                                  -1.68827553544885554e-03, 2.49144209795696021e-03,  -3.75120850822473423e-03,
                                  5.37091455355503261e-03,  1.00525896769416545e+00,  3.08388561049222076e+00};
    constexpr double kFar[] = {
        -1.77103098931851924e-11, 4.32671314627219082e-11,  5.75963021917995557e-11, -4.39180116857746763e-10,
        1.33824321671905448e-09,  -3.46865340636516583e-09, 7.79917014387967050e-09, -1.52573948172788657e-08,
        2.90316054099725306e-08,  -6.75550473471433875e-08, 2.29048403204267640e-07, -9.93029709192219882e-07,
        4.52605336749948399e-06,  -1.96817706506158118e-05, 7.59952780168429389e-05, -2.15030119831352990e-04,
        -1.38719318377239433e-04, 1.01030046486454550e+00,  4.84990640140858442e+00};
    const V one = hn::Set(d, 1.0), a = hn::Abs(x);
    const V w = hn::Neg(sleef_log(d, hn::Mul(hn::Sub(one, a), hn::Add(one, a))));
    V p = polynomial_of(d, hn::Sub(w, hn::Set(d, 3.125)), kNear);
    const auto near = hn::Lt(w, hn::Set(d, 6.25));
    if (!hn::AllTrue(d, near)) {
      const V root = hn::Sqrt(w);
      const V middle = polynomial_of(d, hn::Sub(root, hn::Set(d, 3.25)), kMiddle);
      const V far = polynomial_of(d, hn::Sub(root, hn::Set(d, 5.0)), kFar);
      const V beyond = hn::IfThenElse(hn::Lt(w, hn::Set(d, 16.0)), middle, hn::IfThenElse(hn::Eq(a, one), w, far));
      p = hn::IfThenElse(near, p, beyond);
    }
    return hn::Mul(x, p);
  }
}

}  // namespace pg::cpu::HWY_NAMESPACE::elementary
HWY_AFTER_NAMESPACE();
#endif
