// The formulas of pointwise ops on scalars and on vectors of floats, compiled once per target. Include after highway.h.
//
// Values are scalars, Lanes (a vector of float or double), Mask (which lanes: what comparisons of Lanes return) and
// Truth (a vector of bools, all bits of a lane; the bool dtype in chains). Formulas that only change signs have
// HalfBits, too.
#if defined(PERIGEE_FORMULAS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_FORMULAS_INL_H
#undef PERIGEE_FORMULAS_INL_H
#else
#define PERIGEE_FORMULAS_INL_H
#endif

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"
#include "tensor/cpu/targets-inl.h"
#include "tensor/kernels/formula.h"
#include "tensor/kernels/special.h"

#ifndef PERIGEE_FORMULA_INLINE
#define PERIGEE_FORMULAS pg::cpu::HWY_NAMESPACE::formulas
#define PERIGEE_FORMULA_INLINE HWY_INLINE
#define PERIGEE_LAZY(...) [&]() HWY_ATTR { return __VA_ARGS__; }
// Adds the struct that follows to the list that is open.
#define PERIGEE_FORMULA(Name, op_, inputs_, serves_, ...)                                    \
  struct Name;                                                                               \
  template <>                                                                                \
  struct Listed<PERIGEE_FORMULA_LIST, __COUNTER__ - PERIGEE_FORMULA_LIST::kBefore - 1> {     \
    using F = Name;                                                                          \
    static constexpr FormulaRow row = {                                                      \
        .op = op_, .inputs = inputs_, .serves = Serves::serves_ __VA_OPT__(, ) __VA_ARGS__}; \
  };
#endif

HWY_BEFORE_NAMESPACE();
#include "tensor/kernels/values-inl.h"
#include "tensor/kernels/convert-inl.h"

namespace PERIGEE_FORMULAS {
namespace hn = hwy::HWY_NAMESPACE;

// The k-th formula of a list and what is said of it.
template <class List, int k>
struct Listed;

template <class D>
struct Mask {
  decltype(hn::Eq(hn::Zero(D()), hn::Zero(D()))) m;
};
template <class D>
struct Lanes {
  hn::Vec<D> v;
  HWY_INLINE Lanes(hn::Vec<D> x) : v(x) {}
  HWY_INLINE explicit Lanes(double number) : v(hn::Set(D(), hn::TFromD<D>(number))) {}
};
template <class D>
struct Truth {
  hn::Vec<D> v;
};

// The representation of a value in the accumulator of a chain.
template <class D>
HWY_INLINE hn::Vec<D> raw(Lanes<D> x) {
  return x.v;
}
template <class D>
HWY_INLINE hn::Vec<D> raw(Mask<D> x) {
  return hn::VecFromMask(D(), x.m);
}
template <class D>
HWY_INLINE hn::Vec<D> raw(Truth<D> x) {
  return x.v;
}

// Functions of values that are one call of Highway.
#define PERIGEE_LANES1(name, function)   \
  template <class D>                     \
  HWY_INLINE Lanes<D> name(Lanes<D> x) { \
    return function(x.v);                \
  }
#define PERIGEE_LANES2(name, function)               \
  template <class D>                                 \
  HWY_INLINE Lanes<D> name(Lanes<D> x, Lanes<D> y) { \
    return function(x.v, y.v);                       \
  }
#define PERIGEE_COMPARE(name, ...)                  \
  template <class D>                                \
  HWY_INLINE Mask<D> name(Lanes<D> x, Lanes<D> y) { \
    return {__VA_ARGS__};                           \
  }
#define PERIGEE_MASKS(name, function)             \
  template <class D>                              \
  HWY_INLINE Mask<D> name(Mask<D> x, Mask<D> y) { \
    return {function(x.m, y.m)};                  \
  }
#define PERIGEE_TRUTHS(name, ...)                    \
  template <class D>                                 \
  HWY_INLINE Truth<D> name(Truth<D> x, Truth<D> y) { \
    return {__VA_ARGS__};                            \
  }
PERIGEE_LANES1(operator-, hn::Neg)
PERIGEE_LANES1(neg, hn::Neg)
PERIGEE_LANES1(abs, hn::Abs)
PERIGEE_LANES1(sqrt, hn::Sqrt)
// The result has the sign of x, 0 too, which Highway loses where the processor has no instruction for it.
#define PERIGEE_ROUNDING(name, function)                                              \
  template <class D>                                                                  \
  HWY_INLINE Lanes<D> name(Lanes<D> x) {                                              \
    return HWY_TARGET <= HWY_SSE4 ? function(x.v) : hn::CopySign(function(x.v), x.v); \
  }
PERIGEE_ROUNDING(floor, hn::Floor)
PERIGEE_ROUNDING(ceil, hn::Ceil)
PERIGEE_ROUNDING(round, hn::Round)
PERIGEE_ROUNDING(trunc, hn::Trunc)
#undef PERIGEE_ROUNDING
PERIGEE_LANES2(operator+, hn::Add)
PERIGEE_LANES2(operator-, hn::Sub)
PERIGEE_LANES2(operator*, hn::Mul)
PERIGEE_LANES2(operator/, hn::Div)
PERIGEE_LANES2(add, hn::Add)
PERIGEE_LANES2(sub, hn::Sub)
PERIGEE_LANES2(mul, hn::Mul)
PERIGEE_LANES2(copysign, hn::CopySign)
PERIGEE_COMPARE(operator==, hn::Eq(x.v, y.v))
PERIGEE_COMPARE(operator!=, hn::Not(hn::Eq(x.v, y.v)))  // hn::Ne does not hold for NaN
PERIGEE_COMPARE(operator<, hn::Lt(x.v, y.v))
PERIGEE_COMPARE(operator<=, hn::Le(x.v, y.v))
PERIGEE_COMPARE(operator>, hn::Gt(x.v, y.v))
PERIGEE_COMPARE(operator>=, hn::Ge(x.v, y.v))
PERIGEE_MASKS(bits_and, hn::And)
PERIGEE_MASKS(bits_or, hn::Or)
PERIGEE_MASKS(bits_xor, hn::Xor)
PERIGEE_TRUTHS(bits_and, hn::And(x.v, y.v))
PERIGEE_TRUTHS(bits_or, hn::Or(x.v, y.v))
PERIGEE_TRUTHS(bits_xor, hn::Xor(x.v, y.v))
PERIGEE_TRUTHS(add, hn::Or(x.v, y.v))
PERIGEE_TRUTHS(mul, hn::And(x.v, y.v))
PERIGEE_TRUTHS(maximum, hn::Or(x.v, y.v))
PERIGEE_TRUTHS(minimum, hn::And(x.v, y.v))
PERIGEE_TRUTHS(operator==, hn::Not(hn::Xor(x.v, y.v)))
PERIGEE_TRUTHS(operator!=, hn::Xor(x.v, y.v))
PERIGEE_TRUTHS(operator<, hn::AndNot(x.v, y.v))
PERIGEE_TRUTHS(operator<=, hn::Or(hn::Not(x.v), y.v))
PERIGEE_TRUTHS(operator>, hn::AndNot(y.v, x.v))
PERIGEE_TRUTHS(operator>=, hn::Or(x.v, hn::Not(y.v)))
#undef PERIGEE_LANES1
#undef PERIGEE_LANES2
#undef PERIGEE_COMPARE
#undef PERIGEE_MASKS
#undef PERIGEE_TRUTHS

template <class D>
HWY_INLINE Mask<D> bits_not(Mask<D> x) {
  return {hn::Not(x.m)};
}
template <class D>
HWY_INLINE Truth<D> bits_not(Truth<D> x) {
  return {hn::Not(x.v)};
}
template <class D>
HWY_INLINE Truth<D> nonzero(Truth<D> x) {
  return x;
}
template <class D>
HWY_INLINE Mask<D> nonzero(Lanes<D> x) {
  return x != Lanes<D>(0);
}
template <class D>
HWY_INLINE Truth<D> is_nan(Truth<D>) {
  return {hn::Zero(D())};
}
template <class D>
HWY_INLINE Truth<D> is_inf(Truth<D>) {
  return {hn::Zero(D())};
}
template <class D>
HWY_INLINE Truth<D> is_finite(Truth<D>) {
  return {hn::Not(hn::Zero(D()))};
}
template <class D>
HWY_INLINE Mask<D> is_nan(Lanes<D> x) {
  return {hn::IsNaN(x.v)};
}
template <class D>
HWY_INLINE Mask<D> is_inf(Lanes<D> x) {
  return abs(x) == Lanes<D>(std::numeric_limits<hn::TFromD<D>>::infinity());
}
template <class D>
HWY_INLINE Mask<D> is_finite(Lanes<D> x) {
  return abs(x) <= Lanes<D>(std::numeric_limits<hn::TFromD<D>>::max());
}

template <class D>
HWY_INLINE Lanes<D> select(Mask<D> c, Lanes<D> a, Lanes<D> b) {
  return hn::IfThenElse(c.m, a.v, b.v);
}
template <class D>
HWY_INLINE Lanes<D> choose(Mask<D> c, Lanes<D> a, Lanes<D> b) {
  return select(c, a, b);
}
template <class D, Lazy F>
HWY_INLINE Lanes<D> select(Mask<D> c, Lanes<D> a, F b) {
  return select(c, a, b());
}
template <class D>
HWY_INLINE Lanes<D> select_or_zero(Mask<D> c, Lanes<D> a) {
  return hn::IfThenElseZero(c.m, a.v);
}
template <class D>
HWY_INLINE Lanes<D> select_negative(Lanes<D> x, Lanes<D> a, Lanes<D> b) {
  return hn::IfNegativeThenElse(x.v, a.v, b.v);
}
template <class D>
HWY_INLINE Lanes<D> maximum(Lanes<D> x, Lanes<D> y) {
  return select(is_nan(x), x, Lanes<D>(max_or_second(x.v, y.v)));
}
template <class D>
HWY_INLINE Lanes<D> minimum(Lanes<D> x, Lanes<D> y) {
  return select(is_nan(x), x, Lanes<D>(min_or_second(x.v, y.v)));
}

// A float16 or bfloat16 as an array holds it.
struct HalfBits {
  uint16_t bits;
};
PERIGEE_FORMULA_INLINE HalfBits neg(HalfBits x) { return {uint16_t(x.bits ^ 0x8000)}; }
PERIGEE_FORMULA_INLINE HalfBits abs(HalfBits x) { return {uint16_t(x.bits & 0x7fff)}; }
PERIGEE_FORMULA_INLINE HalfBits copysign(HalfBits x, HalfBits y) {
  return {uint16_t((x.bits & 0x7fff) | (y.bits & 0x8000))};
}

struct Basic {
  static constexpr int kBefore = __COUNTER__;
};

}  // namespace PERIGEE_FORMULAS
#define PERIGEE_FORMULA_LIST Basic
#include "tensor/kernels/formulas-inl.h"
#undef PERIGEE_FORMULA_LIST
namespace PERIGEE_FORMULAS {
using BasicFormulas = std::make_integer_sequence<int, __COUNTER__ - Basic::kBefore - 1>;
}
HWY_AFTER_NAMESPACE();
#endif
