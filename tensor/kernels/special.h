// Scalar functions that have no form for vectors. Host and device compilers share them: they are constexpr templates
// without state beyond their parameters (`params` are the op's attributes in order).
#pragma once
#include <math.h>  // lgamma_r
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace pg::scalar {

inline constexpr double kPi = 3.14159265358979323846;

// Division rounded towards minus infinity. Integer divisors are not zero: the kernel looks first.
struct FloorDivide {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (b == 0) return a / b;
      const T mod = std::fmod(a, b);
      T quotient = (a - mod) / b;
      if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
      if (quotient == 0) return std::copysign(T(0), a / b);
      const T floored = std::floor(quotient);
      return quotient - floored > T(0.5) ? floored + 1 : floored;
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return T(-std::make_unsigned_t<T>(a));
      const T quotient = T(a / b);
      return T(quotient - (a % b != 0 && (a < 0) != (b < 0)));
    }
  }
};
// The remainder with the sign of the divisor, Lua's `%`.
struct Remainder {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
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
    if constexpr (std::is_floating_point_v<T>) {
      return std::fmod(a, b);
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return 0;
      return T(a % b);
    }
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
    if constexpr (std::is_floating_point_v<T>) {
      if (!has_short_fraction(b)) return std::pow(a, b);  // one test for most exponents
      if (b == T(2)) return a * a;
      if (b == T(3)) return a * a * a;
      if (b == T(0.5)) return std::sqrt(a);
      if (b == T(-1)) return T(1) / a;
      return std::pow(a, b);
    } else {
      std::make_unsigned_t<T> base = std::make_unsigned_t<T>(a), out = 1;
      for (std::make_unsigned_t<T> e = std::make_unsigned_t<T>(b); e; e >>= 1) {
        if (e & 1) out = std::make_unsigned_t<T>(out * base);
        base = std::make_unsigned_t<T>(base * base);
      }
      return T(out);
    }
  }
};

struct Logaddexp {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if (a == b) return a + T(0.69314718055994530942);  // equal infinities included
    return (a > b || a != a ? a : b) + std::log1p(std::exp(-std::fabs(a - b)));
  }
};

// Uses the reentrant functions: plain lgamma writes a global variable.
struct Lgamma {
  template <class T>
  constexpr T operator()(T x) const {
    int sign = 0;
    if constexpr (sizeof(T) == sizeof(float))
      return lgammaf_r(x, &sign);
    else
      return lgamma_r(x, &sign);
  }
};

// Uses the recurrence up to 10, then the asymptotic series; below zero the reflection formula. Abramowitz and Stegun,
// Handbook of Mathematical Functions, 6.3.
struct Digamma {
  template <class T>
  constexpr T operator()(T value) const {
    double x = double(value);
    if (x == 0) return T(std::copysign(std::numeric_limits<double>::infinity(), -x));
    if (x < 0 && x == std::floor(x)) return std::numeric_limits<T>::quiet_NaN();
    double out = 0;
    if (x < 0) {
      const double fraction = x - std::floor(x);  // exact; keeps the tangent accurate far from zero
      out = -kPi / std::tan(kPi * fraction);
      x = 1 - x;
    }
    for (; x < 10; x += 1) out -= 1 / x;
    const double z = 1 / (x * x);
    const double series =
        z * (1.0 / 12 -
             z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
    return T(out + std::log(x) - 0.5 / x - series);
  }
};

// The n-th derivative of digamma, (-1)^(n+1) n! zeta(n + 1, x). Abramowitz and Stegun, 6.4 and 23.2.
struct Polygamma {
  int n;
  explicit constexpr Polygamma(const double* params) : n(int(params[0])) {}
  template <class T>
  constexpr T operator()(T value) const {
    if (n == 0) return Digamma()(value);
    const double x = double(value), s = n + 1, factorial = std::tgamma(s);
    if (x <= 0 && x == std::floor(x)) return std::numeric_limits<T>::infinity();
    double sum = 0;
    if (x < 0) {  // the terms left of 0 form another zeta function, which ends where this series begins
      const double fraction = x - std::floor(x), left = zeta(s, 1 - fraction) - zeta(s, 1 - x);
      sum = n % 2 ? zeta(s, fraction) + left : zeta(s, fraction) - left;
    } else {
      sum = zeta(s, x);
    }
    return T(n % 2 ? factorial * sum : -factorial * sum);
  }

  // The Hurwitz zeta function of positive x: summed directly up to 12, then by the Euler-Maclaurin formula.
  static constexpr double zeta(double s, double x) {
    double sum = 0;
    for (; x < 12; x += 1) sum += std::pow(x, -s);
    const double b[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
    sum += std::pow(x, 1 - s) / (s - 1) + 0.5 * std::pow(x, -s);
    double term = s * std::pow(x, -s - 1) / 2;
    for (int k = 0; k < 7; ++k) {
      sum += b[k] * term;
      term *= (s + 2 * k + 1) * (s + 2 * k + 2) / ((2 * k + 3) * (2 * k + 4) * x * x);
    }
    return sum;
  }
};

// A rational approximation (Giles, Approximating the erfinv function, 2011), improved by two steps of Halley's method.
struct Erfinv {
  static constexpr double start(double x) {
    double w = -std::log((1 - x) * (1 + x));
    const double central[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                              -0.00125372503, -0.00417768164, 0.246640727,    1.50140941};
    const double tail[] = {-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                           -0.0076224613,   0.00943887047,  1.00167406,    2.83297682};
    const double* c = w < 5 ? central : tail;
    w = w < 5 ? w - 2.5 : std::sqrt(w) - 3;
    double p = c[0];
    for (int i = 1; i < 9; ++i) p = c[i] + p * w;
    return p * x;
  }
  template <class T>
  constexpr T operator()(T value) const {
    const double x = double(value), a = std::fabs(x);
    if (!(a <= 1)) return std::numeric_limits<T>::quiet_NaN();
    if (a == 1) return T(std::copysign(std::numeric_limits<double>::infinity(), x));
    double y = start(a);
    for (int i = 0; i < 2; ++i) {
      const double error = a < 0.5 ? std::erf(y) - a : (1 - a) - std::erfc(y);
      const double slope = 1.12837916709551257390 * std::exp(-y * y);
      y -= error / (slope + y * error);
    }
    return T(std::copysign(y, x));
  }
};

}  // namespace pg::scalar
