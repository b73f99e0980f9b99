// The formulas of elementary functions and of the activations built on them; see formulas-inl.h beside it.
#if defined(PERIGEE_MATH_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_MATH_FORMULAS_INL_H
#undef PERIGEE_MATH_FORMULAS_INL_H
#else
#define PERIGEE_MATH_FORMULAS_INL_H
#endif

#include "tensor/cpu/elementary-inl.h"
#include "tensor/cpu/pointwise/formulas-inl.h"

HWY_BEFORE_NAMESPACE();
namespace PERIGEE_FORMULAS {

#define PERIGEE_VECTOR(name)             \
  template <class D>                     \
  HWY_INLINE Lanes<D> name(Lanes<D> x) { \
    return elementary::name(D(), x.v);   \
  }
PERIGEE_VECTOR(exp)
PERIGEE_VECTOR(exp_below)
PERIGEE_VECTOR(times_normal)
PERIGEE_VECTOR(normal_slope)
PERIGEE_VECTOR(exp2)
PERIGEE_VECTOR(expm1)
PERIGEE_VECTOR(log)
PERIGEE_VECTOR(log2)
PERIGEE_VECTOR(log10)
PERIGEE_VECTOR(log1p)
PERIGEE_VECTOR(tanh)
PERIGEE_VECTOR(erf)
PERIGEE_VECTOR(erfc)
PERIGEE_VECTOR(erfinv)
PERIGEE_VECTOR(sin)
PERIGEE_VECTOR(cos)
PERIGEE_VECTOR(tan)
#undef PERIGEE_VECTOR
#define PERIGEE_LIBRARY(name, ...)               \
  template <class D, class... V>                 \
  HWY_INLINE Lanes<D> name(Lanes<D> x, V... y) { \
    return sleef_##name(D(), x.v, y.v...);       \
  }
PERIGEE_LIBRARY(asin)
PERIGEE_LIBRARY(acos)
PERIGEE_LIBRARY(atan)
PERIGEE_LIBRARY(sinh)
PERIGEE_LIBRARY(cosh)
PERIGEE_LIBRARY(asinh)
PERIGEE_LIBRARY(acosh)
PERIGEE_LIBRARY(atanh)
PERIGEE_LIBRARY(atan2)
PERIGEE_LIBRARY(hypot)
PERIGEE_LIBRARY(lgamma)
PERIGEE_LIBRARY(pow)
#undef PERIGEE_LIBRARY

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
  return HWY_NAMESPACE::at_most(D(), x.v, hn::TFromD<D>(high));
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
