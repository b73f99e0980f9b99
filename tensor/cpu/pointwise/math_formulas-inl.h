// The formulas of elementary functions and of the activations built on them; see formulas-inl.h beside it.
#if defined(PERIGEE_MATH_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_MATH_FORMULAS_INL_H
#undef PERIGEE_MATH_FORMULAS_INL_H
#else
#define PERIGEE_MATH_FORMULAS_INL_H
#endif

#include "tensor/cpu/pointwise/formulas-inl.h"
#include "tensor/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace PERIGEE_FORMULAS {

#define PERIGEE_VECTOR(name, function)   \
  template <class D>                     \
  HWY_INLINE Lanes<D> name(Lanes<D> x) { \
    return function(D(), x.v);           \
  }
PERIGEE_VECTOR(exp, vexp)
PERIGEE_VECTOR(exp2, vexp2)
PERIGEE_VECTOR(expm1, vexpm1)
PERIGEE_VECTOR(log, vlog)
PERIGEE_VECTOR(log2, vlog2)
PERIGEE_VECTOR(log1p, vlog1p)
PERIGEE_VECTOR(tanh, vtanh)
PERIGEE_VECTOR(erf, verf)
PERIGEE_VECTOR(sin, vsin)
PERIGEE_VECTOR(cos, vcos)
PERIGEE_VECTOR(exp_below, vexp_below)
#undef PERIGEE_VECTOR

template <class D>
HWY_INLINE Lanes<D> tan(Lanes<D> x) {
  return sin(x) / cos(x);
}
template <class D>
HWY_INLINE Lanes<D> multiply_add(Lanes<D> a, Lanes<D> b, Lanes<D> c) {
  return hn::MulAdd(a.v, b.v, c.v);
}
template <class D>
HWY_INLINE Lanes<D> at_most(Lanes<D> x, double high) {
  return HWY_NAMESPACE::at_most(D(), x.v, float(high));
}
// max(x, 0) - |x| Q(|x|) with the upper tail Q of the normal distribution from a polynomial for log(Q): one
// exponential, and no bits are lost below zero as they are in 1 + erf(x).
template <class D>
HWY_INLINE Lanes<D> times_normal(Lanes<D> lanes) {
  using V = hn::Vec<D>;
  const D d;
  const V x = lanes.v, a = hn::Min(hn::Abs(x), hn::Set(d, 14.0f));  // beyond it Q is 0
  const V log_q = polynomial(d, a, hn::Set(d, -1.65782412e-08f), 5.01783177e-07f, -6.53526240e-06f, 4.64251386e-05f,
                             -1.70080020e-04f, -5.14487911e-05f, 4.88041621e-03f, -3.63949649e-02f, -3.18292230e-01f,
                             -7.97886550e-01f, -6.93147123e-01f);
  V n;
  const V r = reduce_ln2(d, hn::Max(log_q, hn::Set(d, -88.02f)), &n);
  const V q = hn::Mul(hn::Add(hn::Set(d, 1.0f), expm1_reduced(d, r)), power_of_two(d, hn::ConvertTo(IntOf<D>(), n)));
  return keep_nan<D>(x, hn::NegMulAdd(a, q, hn::Max(x, hn::Zero(d))));
}

struct Math {
  static constexpr int kBefore = __COUNTER__;
};

}  // namespace PERIGEE_FORMULAS
#define PERIGEE_FORMULA_LIST Math
#include "tensor/kernels/math_formulas-inl.h"
#undef PERIGEE_FORMULA_LIST
namespace PERIGEE_FORMULAS {
using MathFormulas = std::make_integer_sequence<int, __COUNTER__ - Math::kBefore - 1>;
}
HWY_AFTER_NAMESPACE();
#endif
