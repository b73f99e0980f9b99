// The vocabulary of formulas on scalars. Included once for each compilation target, in the namespace PERIGEE_FORMULAS;
// the includer gives the same functions to its other kinds of values. PERIGEE_FORMULA_INLINE declares a function.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#ifndef PERIGEE_EXPRESSION
#define PERIGEE_EXPRESSION(Name, expression, ...)               \
  struct Name {                                                 \
    template <class V>                                          \
    PERIGEE_FORMULA_INLINE auto operator()(__VA_ARGS__) const { \
      return expression;                                        \
    }                                                           \
  };
#define PERIGEE_UNARY(Name, op_, serves_, expression, ...)          \
  PERIGEE_FORMULA(Name, op_, 1, serves_ __VA_OPT__(, ) __VA_ARGS__) \
  PERIGEE_EXPRESSION(Name, expression, V x)
#define PERIGEE_BINARY(Name, op_, serves_, expression, ...)         \
  PERIGEE_FORMULA(Name, op_, 2, serves_ __VA_OPT__(, ) __VA_ARGS__) \
  PERIGEE_EXPRESSION(Name, expression, V x, V y)
#define PERIGEE_TERNARY(Name, op_, serves_, expression, ...)        \
  PERIGEE_FORMULA(Name, op_, 3, serves_ __VA_OPT__(, ) __VA_ARGS__) \
  PERIGEE_EXPRESSION(Name, expression, V x, V y, V z)
// The same with the op's only attribute as a number that the expression reads.
#define PERIGEE_WITH_NUMBER(Name, number, expression, ...)               \
  struct Name {                                                          \
    double number;                                                       \
    explicit constexpr Name(const double* params) : number(params[0]) {} \
    template <class V>                                                   \
    PERIGEE_FORMULA_INLINE V operator()(__VA_ARGS__) const {             \
      return expression;                                                 \
    }                                                                    \
  };
#define PERIGEE_UNARY_WITH(number, Name, op_, serves_, expression, ...) \
  PERIGEE_FORMULA(Name, op_, 1, serves_ __VA_OPT__(, ) __VA_ARGS__)     \
  PERIGEE_WITH_NUMBER(Name, number, expression, V x)
#define PERIGEE_TERNARY_WITH(number, Name, op_, serves_, expression, ...) \
  PERIGEE_FORMULA(Name, op_, 3, serves_ __VA_OPT__(, ) __VA_ARGS__)       \
  PERIGEE_WITH_NUMBER(Name, number, expression, V x, V y, V z)
#endif

namespace PERIGEE_FORMULAS {

template <class T>
concept Scalar = std::is_arithmetic_v<T>;
template <class F>
concept Lazy = std::is_invocable_v<F>;
template <class T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;
template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <class T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !kIsBool<T>;

// a where the condition holds, else b. A function in place of a value is called only for scalars that need it.
template <Scalar T>
PERIGEE_FORMULA_INLINE T select(bool condition, T a, T b) {
  return condition ? a : b;
}
template <Scalar T, Lazy F>
PERIGEE_FORMULA_INLINE T select(bool condition, T a, F b) {
  return condition ? a : b();
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T select_or_zero(bool condition, T a) {
  return condition ? a : T(0);
}
// The same for a condition from memory: by bits, which compilers make vectors of.
template <Scalar T>
PERIGEE_FORMULA_INLINE T choose(bool condition, T a, T b) {
  if constexpr (kIsBool<T>) return (condition & a) | (!condition & b);
  if constexpr (kIsInteger<T>) {
    using U = std::make_unsigned_t<T>;
    const U mask = U(-U(condition));
    return T((U(a) & mask) | (U(b) & U(~mask)));
  }
  using U = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  if constexpr (kIsFloat<T>) return std::bit_cast<T>(choose(condition, std::bit_cast<U>(a), std::bit_cast<U>(b)));
}
// a where x is below zero, else b; NaN and -0 may go either way.
template <Scalar T>
PERIGEE_FORMULA_INLINE T select_negative(T x, T a, T b) {
  return x < T(0) ? a : b;
}

// Integer arithmetic wraps around, as two's complement does. Bools add as or and multiply as and.
template <Scalar T>
PERIGEE_FORMULA_INLINE T add(T a, T b) {
  if constexpr (kIsInteger<T>)
    return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
  else if constexpr (kIsBool<T>)
    return a | b;
  else
    return a + b;
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T sub(T a, T b) {
  if constexpr (kIsInteger<T>)
    return T(std::make_unsigned_t<T>(a) - std::make_unsigned_t<T>(b));
  else
    return a - b;
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T mul(T a, T b) {
  if constexpr (kIsInteger<T>)
    return T(std::make_unsigned_t<T>(a) * std::make_unsigned_t<T>(b));
  else if constexpr (kIsBool<T>)
    return a & b;
  else
    return a * b;
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T neg(T a) {
  if constexpr (kIsFloat<T>)
    return -a;
  else
    return T(-std::make_unsigned_t<T>(a));
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T abs(T a) {
  if constexpr (kIsFloat<T>)
    return std::fabs(a);
  else
    return a < 0 ? neg(a) : a;
}

// NaN wins, that of a first.
template <Scalar T>
PERIGEE_FORMULA_INLINE T maximum(T a, T b) {
  if constexpr (kIsFloat<T>)
    return ((a > b) | (a != a)) ? a : b;
  else
    return a > b ? a : b;
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T minimum(T a, T b) {
  if constexpr (kIsFloat<T>)
    return ((a < b) | (a != a)) ? a : b;
  else
    return a < b ? a : b;
}
// A limit that NaN passes.
template <Scalar T>
PERIGEE_FORMULA_INLINE T at_most(T x, double high) {
  return T(high) < x ? T(high) : x;
}

template <Scalar T>
PERIGEE_FORMULA_INLINE bool nonzero(T a) {
  return a != T(0);
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T bits_and(T a, T b) {
  return T(a & b);
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T bits_or(T a, T b) {
  return T(a | b);
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T bits_xor(T a, T b) {
  return T(a ^ b);
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T bits_not(T a) {
  if constexpr (kIsBool<T>)
    return !a;
  else
    return T(~a);
}

// Integers are their own floor, ceiling and so on.
#define PERIGEE_ROUNDING(name, function) \
  template <Scalar T>                    \
  PERIGEE_FORMULA_INLINE T name(T a) {   \
    if constexpr (kIsFloat<T>)           \
      return function(a);                \
    else                                 \
      return a;                          \
  }
PERIGEE_ROUNDING(floor, std::floor)
PERIGEE_ROUNDING(ceil, std::ceil)
PERIGEE_ROUNDING(round, std::rint)  // halves to even
PERIGEE_ROUNDING(trunc, std::trunc)
#undef PERIGEE_ROUNDING

template <Scalar T>
PERIGEE_FORMULA_INLINE bool is_nan(T a) {
  return a != a;
}
template <Scalar T>
PERIGEE_FORMULA_INLINE bool is_inf(T a) {
  if constexpr (kIsFloat<T>)
    return std::fabs(a) == std::numeric_limits<T>::infinity();
  else
    return false;
}
template <Scalar T>
PERIGEE_FORMULA_INLINE bool is_finite(T a) {
  if constexpr (kIsFloat<T>)
    return std::fabs(a) <= std::numeric_limits<T>::max();
  else
    return true;
}

#define PERIGEE_LIBM(name)             \
  template <Scalar T>                  \
  PERIGEE_FORMULA_INLINE T name(T x) { \
    return std::name(x);               \
  }
PERIGEE_LIBM(sqrt)
PERIGEE_LIBM(exp)
PERIGEE_LIBM(exp2)
PERIGEE_LIBM(expm1)
PERIGEE_LIBM(log)
PERIGEE_LIBM(log2)
PERIGEE_LIBM(log10)
PERIGEE_LIBM(log1p)
PERIGEE_LIBM(tanh)
PERIGEE_LIBM(erf)
PERIGEE_LIBM(erfc)
PERIGEE_LIBM(sin)
PERIGEE_LIBM(cos)
PERIGEE_LIBM(tan)
PERIGEE_LIBM(asin)
PERIGEE_LIBM(acos)
PERIGEE_LIBM(atan)
PERIGEE_LIBM(cosh)
PERIGEE_LIBM(asinh)
PERIGEE_LIBM(acosh)
#undef PERIGEE_LIBM
// Float results of functions whose float form in libm is less exact and no faster than its double form.
template <Scalar T>
PERIGEE_FORMULA_INLINE T sinh(T x) {
  return T(std::sinh(double(x)));
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T atanh(T x) {
  return T(std::atanh(double(x)));
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T atan2(T y, T x) {
  return std::atan2(y, x);
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T hypot(T x, T y) {
  return std::hypot(x, y);
}

template <Scalar T>
PERIGEE_FORMULA_INLINE T lgamma(T x) {
  return scalar::Lgamma()(x);
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T erfinv(T x) {
  return scalar::Erfinv()(x);
}
// e^x for x at most 0.
template <Scalar T>
PERIGEE_FORMULA_INLINE T exp_below(T x) {
  return std::exp(x);
}
// What is left of x after division by y rounded towards zero; exact.
template <Scalar T>
PERIGEE_FORMULA_INLINE T fmod(T x, T y) {
  if constexpr (kIsFloat<T>) {
    return std::fmod(x, y);
  } else {
    if constexpr (std::is_signed_v<T>)
      if (y == -1) return 0;
    return T(x % y);
  }
}
// a b + c; vectors may round once.
template <Scalar T>
PERIGEE_FORMULA_INLINE T multiply_add(T a, T b, T c) {
  return a * b + c;
}
// x times the normal distribution function of x, which keeps its digits below zero. It is 0 where infinity would be
// multiplied by 0.
template <Scalar T>
PERIGEE_FORMULA_INLINE T times_normal(T x) {
  return select(x < T(-40), T(0), T(0.5) * x * std::erfc(x * T(-0.70710678118654752440)));
}
// Its derivative. Beyond the bounds the second term is 0 in every dtype, and its factors are not finite.
template <Scalar T>
PERIGEE_FORMULA_INLINE T normal_slope(T x) {
  const T z = select(x < T(-40), T(-40), select(x > T(40), T(40), x));
  const T density = std::exp(z * z * T(-0.5)) * T(0.39894228040143267794);
  return std::erfc(z * T(-0.70710678118654752440)) * T(0.5) + z * density;  // 1 + erf would cancel below zero
}
template <Scalar T>
PERIGEE_FORMULA_INLINE T copysign(T x, T y) {
  return std::copysign(x, y);
}

}  // namespace PERIGEE_FORMULAS
