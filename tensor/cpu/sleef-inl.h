// Elementary functions on vectors of float and double by Sleef: Shibata and Petrogalli, SLEEF: A portable vectorized
// library of C standard mathematical functions (IEEE TPDS 31, 2020). Errors are at most 1 ulp, 1.5 for erfc. These are
// its deterministic forms: the result of a lane depends neither on the other lanes nor on the width of vectors. Include
// after highway.h, once per target.
#if defined(PERIGEE_SLEEF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_SLEEF_INL_H
#undef PERIGEE_SLEEF_INL_H
#else
#define PERIGEE_SLEEF_INL_H
#endif

#include <cmath>
#include <limits>
#include <string>

#include "hwy/highway.h"
#include "tensor/cpu/sleef.h"
#include "tensor/cpu/targets-inl.h"
#include "tensor/kernels/special.h"

// Whether Sleef has functions on the vectors of this target.
#undef PERIGEE_HAS_SLEEF
#define PERIGEE_HAS_SLEEF ((HWY_ARCH_X86 && HWY_TARGET < HWY_EMU128) || HWY_TARGET == HWY_NEON)

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The name of a function of Sleef on vectors of D: Sleef_finz_expd8_u10avx512f. `accuracy` is part of it.
template <class D>
std::string sleef_name(const char* function, const char* accuracy) {
  constexpr size_t kBytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  const char* const kind = HWY_NATIVE_FMA ? "finz" : "cinz";
  const char* const target = HWY_TARGET == HWY_NEON  ? "advsimd"
                             : HWY_TARGET > HWY_SSE4 ? "sse2"
                             : HWY_TARGET > HWY_AVX2 ? "sse4"
                             : kBytes == 16          ? "avx2128"
                             : kBytes == 32          ? "avx2"
                                                     : "avx512f";
  return std::string("Sleef_") + kind + "_" + function + (sizeof(hn::TFromD<D>) == 8 ? "d" : "f") +
         std::to_string(hn::MaxLanes(D())) + "_" + accuracy + target;
}

// Which results of Sleef are as accurate as it says; libm computes the others: all, those of arguments up to a limit,
// those that are not infinite, where Sleef overflows too early, or those of positive arguments and of others those from
// a limit on, beside which the absolute error is small.
enum class Trusted { kAll, kBelow, kFinite, kPositive };

// F has the function's name, accuracy and limits, and applies it to numbers.
template <class F, class D, class... V>
HWY_INLINE hn::Vec<D> by_sleef(D d, V... x) {
  auto fine = hn::FirstN(d, 0);
  auto y = hn::Zero(d);
#if PERIGEE_HAS_SLEEF
  using T = hn::TFromD<D>;
  using Raw = decltype(y.raw);
  using Function = Raw (*)(decltype(x.raw)...);
  static const auto function =
      reinterpret_cast<Function>(sleef_function(sleef_name<D>(F::kName, F::kAccuracy).c_str()));
  if (HWY_LIKELY(function != nullptr)) {
    y = hn::Vec<D>{function(x.raw...)};
    if constexpr (F::kTrusted == Trusted::kAll)
      return y;
    else if constexpr (F::kTrusted == Trusted::kFinite)
      fine = hn::Not(hn::Eq(hn::Abs(y), hn::Set(d, std::numeric_limits<T>::infinity())));
    else if constexpr (F::kTrusted == Trusted::kPositive)
      fine = hn::And(
          hn::Or(hn::Gt(x..., hn::Zero(d)), hn::Ge(hn::Abs(y), hn::Set(d, T(sizeof(T) == 8 ? F::kWide : F::kNarrow)))),
          hn::Lt(hn::Abs(y), hn::Set(d, std::numeric_limits<T>::infinity())));
    else
      fine = hn::Not(hn::Gt(hn::Abs(x...), hn::Set(d, T(sizeof(T) == 8 ? F::kWide : F::kNarrow))));
  }
#endif
  return or_by_lane(d, fine, y, F(), x...);
}

// narrow, wide: the limits for float and double. libm: the function on numbers.
#define PERIGEE_SLEEF_TRUSTED(name, accuracy, trusted, narrow, wide, libm) \
  struct Sleef_##name {                                                    \
    static constexpr const char *kName = #name, *kAccuracy = #accuracy;    \
    static constexpr Trusted kTrusted = Trusted::trusted;                  \
    static constexpr double kNarrow = narrow, kWide = wide;                \
    template <class... T>                                                  \
    auto operator()(T... x) const {                                        \
      return libm(x...);                                                   \
    }                                                                      \
  };                                                                       \
  template <class D, class... V>                                           \
  HWY_INLINE hn::Vec<D> sleef_##name(D d, V... x) {                        \
    return by_sleef<Sleef_##name>(d, x...);                                \
  }
#define PERIGEE_SLEEF(name, accuracy) PERIGEE_SLEEF_TRUSTED(name, accuracy, kAll, 0, 0, std::name)
#define PERIGEE_SLEEF_BELOW(name, accuracy, narrow, wide) \
  PERIGEE_SLEEF_TRUSTED(name, accuracy, kBelow, narrow, wide, std::name)
#define PERIGEE_SLEEF_FINITE(name, accuracy) PERIGEE_SLEEF_TRUSTED(name, accuracy, kFinite, 0, 0, std::name)
PERIGEE_SLEEF_FINITE(exp, u10)
PERIGEE_SLEEF(exp2, u10)
PERIGEE_SLEEF_FINITE(expm1, u10)
PERIGEE_SLEEF(log, u10)
PERIGEE_SLEEF(log2, u10)
PERIGEE_SLEEF(log10, u10)
PERIGEE_SLEEF_BELOW(log1p, u10, 1e38, 1e307)
PERIGEE_SLEEF(sin, u10)
PERIGEE_SLEEF(cos, u10)
PERIGEE_SLEEF(tan, u10)
PERIGEE_SLEEF(asin, u10)
PERIGEE_SLEEF(acos, u10)
PERIGEE_SLEEF(atan, u10)
PERIGEE_SLEEF_BELOW(sinh, u10, 88.5, 709)
PERIGEE_SLEEF_BELOW(cosh, u10, 88.5, 709)
PERIGEE_SLEEF(tanh, u10)
PERIGEE_SLEEF_BELOW(asinh, u10, 1.8e19, 1.3e154)
PERIGEE_SLEEF_BELOW(acosh, u10, 1.8e19, 1.3e154)
PERIGEE_SLEEF(atanh, u10)
PERIGEE_SLEEF_BELOW(erfc, u15, 9.3, 26.2)
PERIGEE_SLEEF_FINITE(pow, u10)
PERIGEE_SLEEF(atan2, u10)
PERIGEE_SLEEF(hypot, u05)
PERIGEE_SLEEF_TRUSTED(lgamma, u10, kPositive, 0.5, 8, scalar::Lgamma())
#undef PERIGEE_SLEEF
#undef PERIGEE_SLEEF_BELOW
#undef PERIGEE_SLEEF_FINITE
#undef PERIGEE_SLEEF_TRUSTED

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
