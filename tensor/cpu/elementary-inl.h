// Elementary functions on vectors of float, by the polynomials of simd_math-inl.h and its relatives, and on vectors of
// double, by Sleef. Include after highway.h, once per target.
#if defined(PERIGEE_ELEMENTARY_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_ELEMENTARY_INL_H
#undef PERIGEE_ELEMENTARY_INL_H
#else
#define PERIGEE_ELEMENTARY_INL_H
#endif

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

}  // namespace pg::cpu::HWY_NAMESPACE::elementary
HWY_AFTER_NAMESPACE();
#endif
