// The formulas of elementary functions and of the activations built on them; see formulas-inl.h beside it.
#if defined(PERIGEE_MATH_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_MATH_FORMULAS_INL_H
#undef PERIGEE_MATH_FORMULAS_INL_H
#else
#define PERIGEE_MATH_FORMULAS_INL_H
#endif

#include "tensor/cpu/pointwise/formulas-inl.h"
#include "tensor/cpu/simd_erf-inl.h"
#include "tensor/cpu/simd_math-inl.h"
#include "tensor/cpu/simd_trig-inl.h"

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
PERIGEE_VECTOR(log10, vlog10)
PERIGEE_VECTOR(log1p, vlog1p)
PERIGEE_VECTOR(tanh, vtanh)
PERIGEE_VECTOR(erf, verf)
PERIGEE_VECTOR(erfc, verfc)
PERIGEE_VECTOR(erfinv, verfinv)
PERIGEE_VECTOR(times_normal, vtimes_normal)
PERIGEE_VECTOR(sin, vsin)
PERIGEE_VECTOR(cos, vcos)
PERIGEE_VECTOR(tan, vtan)
PERIGEE_VECTOR(exp_below, vexp_below)
#undef PERIGEE_VECTOR

template <class D>
HWY_INLINE Lanes<D> fmod(Lanes<D> x, Lanes<D> y) {
  return vfmod(D(), x.v, y.v);
}
template <class D>
HWY_INLINE Lanes<D> multiply_add(Lanes<D> a, Lanes<D> b, Lanes<D> c) {
  return hn::MulAdd(a.v, b.v, c.v);
}
template <class D>
HWY_INLINE Lanes<D> at_most(Lanes<D> x, double high) {
  return HWY_NAMESPACE::at_most(D(), x.v, float(high));
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
