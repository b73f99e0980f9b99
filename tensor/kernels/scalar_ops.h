// Scalar functors of the arithmetic, comparison and rounding ops, one a pointwise op. Host and device compilers share
// them: they are constexpr templates without state beyond their parameters (`params` are the op's attributes in order).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace pg::scalar {

template <class T>
inline constexpr bool kIsBool = std::is_same_v<T, bool>;
template <class T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <class T>
inline constexpr bool kIsInteger = std::is_integral_v<T> && !kIsBool<T>;

// Integer arithmetic wraps around, as two's complement does.
template <class T>
using Wrapping = std::make_unsigned_t<T>;

struct Add {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsInteger<T>)
      return T(Wrapping<T>(a) + Wrapping<T>(b));
    else if constexpr (kIsBool<T>)
      return a | b;
    else
      return a + b;
  }
};
struct Sub {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsInteger<T>)
      return T(Wrapping<T>(a) - Wrapping<T>(b));
    else
      return a - b;
  }
};
struct Mul {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsInteger<T>)
      return T(Wrapping<T>(a) * Wrapping<T>(b));
    else if constexpr (kIsBool<T>)
      return a & b;
    else
      return a * b;
  }
};
struct Div {
  template <class T>
  constexpr T operator()(T a, T b) const {
    return a / b;
  }
};

// Division rounded towards minus infinity. Integer divisors are not zero: the kernel looks first.
struct FloorDivide {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      if (b == 0) return a / b;
      const T mod = std::fmod(a, b);
      T quotient = (a - mod) / b;
      if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
      if (quotient == 0) return std::copysign(T(0), a / b);
      const T floored = std::floor(quotient);
      return quotient - floored > T(0.5) ? floored + 1 : floored;
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return T(-Wrapping<T>(a));
      const T quotient = T(a / b);
      return T(quotient - (a % b != 0 && (a < 0) != (b < 0)));
    }
  }
};
// The remainder with the sign of the divisor, Lua's `%`.
struct Remainder {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      const T mod = std::fmod(a, b);
      return mod != 0 && (b < 0) != (mod < 0) ? mod + b : mod;
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
      const T mod = T(a % b);
      return T(mod != 0 && (mod < 0) != (b < 0) ? mod + b : mod);
    }
  }
};
// The remainder with the sign of the dividend, C's.
struct Fmod {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      return std::fmod(a, b);
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
      return T(a % b);
    }
  }
};

struct Maximum {  // NaN wins
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return ((a > b) | (a != a)) ? a : b;
    else
      return a > b ? a : b;
  }
};
struct Minimum {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>)
      return ((a < b) | (a != a)) ? a : b;
    else
      return a < b ? a : b;
  }
};

// Whether b is a power of two, or one and a half times one: at most the first bit of the fraction is set.
template <class T>
constexpr bool has_short_fraction(T b) {
  if constexpr (sizeof(T) == sizeof(uint32_t)) return (std::bit_cast<uint32_t>(b) & 0x3fffff) == 0;
  if constexpr (sizeof(T) == sizeof(uint64_t)) return (std::bit_cast<uint64_t>(b) & 0x7ffffffffffff) == 0;
  return true;
}

// Integer exponents are not negative: the kernel looks first. Some exponents have a formula of their own, so that the
// bits do not depend on whether a kernel knows that all elements have this exponent.
struct Pow {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (kIsFloat<T>) {
      if (!has_short_fraction(b)) return std::pow(a, b);  // one test for most exponents
      if (b == T(2)) return a * a;
      if (b == T(3)) return a * a * a;
      if (b == T(0.5)) return std::sqrt(a);
      if (b == T(-1)) return T(1) / a;
      return std::pow(a, b);
    } else {
      Wrapping<T> base = Wrapping<T>(a), out = 1;
      for (Wrapping<T> e = Wrapping<T>(b); e; e >>= 1) {
        if (e & 1) out = Wrapping<T>(out * base);
        base = Wrapping<T>(base * base);
      }
      return T(out);
    }
  }
};

struct Eq {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return a == b;
  }
};
struct Ne {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Lt {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return a < b;
  }
};
struct Le {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Gt {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return a > b;
  }
};
struct Ge {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct LogicalAnd {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return (a != T(0)) & (b != T(0));
  }
};
struct LogicalOr {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return (a != T(0)) | (b != T(0));
  }
};
struct LogicalXor {
  template <class T>
  constexpr bool operator()(T a, T b) const {
    return (a != T(0)) != (b != T(0));
  }
};
struct LogicalNot {
  template <class T>
  constexpr bool operator()(T a) const {
    return a == T(0);
  }
};
struct BitwiseAnd {
  template <class T>
  constexpr T operator()(T a, T b) const {
    return T(a & b);
  }
};
struct BitwiseOr {
  template <class T>
  constexpr T operator()(T a, T b) const {
    return T(a | b);
  }
};
struct BitwiseXor {
  template <class T>
  constexpr T operator()(T a, T b) const {
    return T(a ^ b);
  }
};
struct BitwiseNot {
  template <class T>
  constexpr T operator()(T a) const {
    if constexpr (kIsBool<T>)
      return !a;
    else
      return T(~a);
  }
};

struct Neg {
  template <class T>
  constexpr T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return -a;
    else
      return T(-Wrapping<T>(a));
  }
};
struct Abs {
  template <class T>
  constexpr T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::fabs(a);
    else
      return a < 0 ? T(-Wrapping<T>(a)) : a;
  }
};
struct Sign {
  template <class T>
  constexpr T operator()(T a) const {
    return T(int(a > T(0)) - int(a < T(0)));
  }
};
struct Square {
  template <class T>
  constexpr T operator()(T a) const {
    return Mul()(a, a);
  }
};
struct Sqrt {
  template <class T>
  constexpr T operator()(T a) const {
    return std::sqrt(a);
  }
};
struct Rsqrt {
  template <class T>
  constexpr T operator()(T a) const {
    return T(1) / std::sqrt(a);
  }
};
struct Reciprocal {
  template <class T>
  constexpr T operator()(T a) const {
    return T(1) / a;
  }
};

// Integers are their own floor, ceiling and so on.
struct Floor {
  template <class T>
  constexpr T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::floor(a);
    else
      return a;
  }
};
struct Ceil {
  template <class T>
  constexpr T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::ceil(a);
    else
      return a;
  }
};
struct Round {  // halves to even
  template <class T>
  constexpr T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::rint(a);
    else
      return a;
  }
};
struct Trunc {
  template <class T>
  constexpr T operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::trunc(a);
    else
      return a;
  }
};
struct IsNan {
  template <class T>
  constexpr bool operator()(T a) const {
    return a != a;
  }
};
struct IsInf {
  template <class T>
  constexpr bool operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::fabs(a) == std::numeric_limits<T>::infinity();
    else
      return false;
  }
};
struct IsFinite {
  template <class T>
  constexpr bool operator()(T a) const {
    if constexpr (kIsFloat<T>)
      return std::fabs(a) <= std::numeric_limits<T>::max();
    else
      return true;
  }
};

struct Where {
  template <class T>
  constexpr T operator()(bool c, T a, T b) const {
    return c ? a : b;
  }
};
struct Lerp {  // exact at both ends
  template <class T>
  constexpr T operator()(T a, T b, T w) const {
    return std::fabs(w) < T(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w);
  }
};
struct Clamp {
  template <class T>
  constexpr T operator()(T x, T low, T high) const {
    return Minimum()(Maximum()(x, low), high);
  }
};

struct Relu {
  template <class T>
  constexpr T operator()(T x) const {
    return x <= T(0) ? T(0) : x;
  }
};
struct Relu6 {
  template <class T>
  constexpr T operator()(T x) const {
    return x <= T(0) ? T(0) : x >= T(6) ? T(6) : x;
  }
};
// dy where the output was positive.
struct ReluGrad {
  template <class T>
  constexpr T operator()(T dy, T y) const {
    return y > T(0) ? dy : T(0);
  }
};
struct TanhGrad {
  template <class T>
  constexpr T operator()(T dy, T y) const {
    return dy * (T(1) - y * y);
  }
};
struct SigmoidGrad {
  template <class T>
  constexpr T operator()(T dy, T y) const {
    return dy * (y * (T(1) - y));
  }
};
struct Hardsigmoid {
  template <class T>
  constexpr T operator()(T x) const {
    return Relu6()(x + T(3)) / T(6);
  }
};
struct Hardswish {
  template <class T>
  constexpr T operator()(T x) const {
    return x * Relu6()(x + T(3)) / T(6);
  }
};
struct Softsign {
  template <class T>
  constexpr T operator()(T x) const {
    return x / (T(1) + std::fabs(x));
  }
};
struct LeakyRelu {
  double slope;
  explicit constexpr LeakyRelu(const double* params) : slope(params[0]) {}
  template <class T>
  constexpr T operator()(T x) const {
    return x > T(0) ? x : x * T(slope);
  }
};
struct Hardtanh {
  double low, high;
  explicit constexpr Hardtanh(const double* params) : low(params[0]), high(params[1]) {}
  template <class T>
  constexpr T operator()(T x) const {
    return x < T(low) ? T(low) : x > T(high) ? T(high) : x;
  }
};

}  // namespace pg::scalar
