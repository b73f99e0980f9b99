// Scalar functors of the transcendental ops and of the activations built on them.
#pragma once
#include <math.h>  // lgamma_r

#include "tensor/kernels/scalar_ops.h"

namespace pg::scalar {

inline constexpr double kPi = 3.14159265358979323846;

struct Exp {
  template <class T>
  constexpr T operator()(T x) const {
    return std::exp(x);
  }
};
struct Exp2 {
  template <class T>
  constexpr T operator()(T x) const {
    return std::exp2(x);
  }
};
struct Expm1 {
  template <class T>
  constexpr T operator()(T x) const {
    return std::expm1(x);
  }
};
struct Log {
  template <class T>
  constexpr T operator()(T x) const {
    return std::log(x);
  }
};
struct Log2 {
  template <class T>
  constexpr T operator()(T x) const {
    return std::log2(x);
  }
};
struct Log10 {
  template <class T>
  constexpr T operator()(T x) const {
    return std::log10(x);
  }
};
struct Log1p {
  template <class T>
  constexpr T operator()(T x) const {
    return std::log1p(x);
  }
};
struct Sin {
  template <class T>
  constexpr T operator()(T x) const {
    return std::sin(x);
  }
};
struct Cos {
  template <class T>
  constexpr T operator()(T x) const {
    return std::cos(x);
  }
};
struct Tan {
  template <class T>
  constexpr T operator()(T x) const {
    return std::tan(x);
  }
};
struct Asin {
  template <class T>
  constexpr T operator()(T x) const {
    return std::asin(x);
  }
};
struct Acos {
  template <class T>
  constexpr T operator()(T x) const {
    return std::acos(x);
  }
};
struct Atan {
  template <class T>
  constexpr T operator()(T x) const {
    return std::atan(x);
  }
};
struct Sinh {
  template <class T>
  constexpr T operator()(T x) const {
    return std::sinh(x);
  }
};
struct Cosh {
  template <class T>
  constexpr T operator()(T x) const {
    return std::cosh(x);
  }
};
struct Tanh {
  template <class T>
  constexpr T operator()(T x) const {
    return std::tanh(x);
  }
};
struct Asinh {
  template <class T>
  constexpr T operator()(T x) const {
    return std::asinh(x);
  }
};
struct Acosh {
  template <class T>
  constexpr T operator()(T x) const {
    return std::acosh(x);
  }
};
struct Atanh {
  template <class T>
  constexpr T operator()(T x) const {
    return std::atanh(x);
  }
};
struct Erf {
  template <class T>
  constexpr T operator()(T x) const {
    return std::erf(x);
  }
};
struct Erfc {
  template <class T>
  constexpr T operator()(T x) const {
    return std::erfc(x);
  }
};
struct Atan2 {
  template <class T>
  constexpr T operator()(T y, T x) const {
    return std::atan2(y, x);
  }
};
struct Hypot {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return std::hypot(x, y);
  }
};
struct Copysign {
  template <class T>
  constexpr T operator()(T x, T y) const {
    return std::copysign(x, y);
  }
};
struct Logaddexp {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if (a == b) return a + T(0.69314718055994530942);  // equal infinities included
    return Maximum()(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
  }
};

// The reentrant form: plain lgamma writes a global.
struct Lgamma {
  double operator()(double x) const {
    int sign;
    return ::lgamma_r(x, &sign);
  }
  float operator()(float x) const {
    int sign;
    return ::lgammaf_r(x, &sign);
  }
};

// Recurrence up to 10, then the asymptotic series; reflection below zero.
// Abramowitz and Stegun, Handbook of Mathematical Functions, 6.3.
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
    if (x < 0) {  // the terms left of 0 are those of another zeta function, up to where the series begins
      const double fraction = x - std::floor(x), left = zeta(s, 1 - fraction) - zeta(s, 1 - x);
      sum = n % 2 ? zeta(s, fraction) + left : zeta(s, fraction) - left;
    } else {
      sum = zeta(s, x);
    }
    return T(n % 2 ? factorial * sum : -factorial * sum);
  }

  // Hurwitz's, of positive x: summed up to 12 and continued by Euler and Maclaurin's formula.
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

// A rational start (Giles, Approximating the erfinv function, 2011) and two steps of Halley's method.
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

struct Sigmoid {
  template <class T>
  constexpr T operator()(T x) const {
    const T e = std::exp(-std::fabs(x));
    return (x < T(0) ? e : T(1)) / (T(1) + e);
  }
};
struct Silu {
  template <class T>
  constexpr T operator()(T x) const {
    return x * Sigmoid()(x);
  }
};
struct Mish {  // x tanh(log(1 + e^x)), where tanh(log(u)) = (u^2 - 1) / (u^2 + 1)
  template <class T>
  constexpr T operator()(T x) const {
    if (x > T(20)) return x;
    const T e = std::exp(x), m = e * (e + T(2));
    return x * (m / (m + T(2)));
  }
};
struct Gelu {
  bool tanh_form;
  explicit constexpr Gelu(const double* params) : tanh_form(params[0] != 0) {}
  template <class T>
  constexpr T operator()(T x) const {
    if (tanh_form) {
      const T inner = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
      return T(0.5) * x * (T(1) + std::tanh(inner));
    }
    return T(0.5) * x * (T(1) + std::erf(x * T(0.70710678118654752440)));
  }
};
struct Elu {
  double alpha;
  explicit constexpr Elu(const double* params) : alpha(params[0]) {}
  template <class T>
  constexpr T operator()(T x) const {
    return x > T(0) ? x : T(alpha) * std::expm1(x);
  }
};
struct Celu {
  double alpha;
  explicit constexpr Celu(const double* params) : alpha(params[0]) {}
  template <class T>
  constexpr T operator()(T x) const {
    return x > T(0) ? x : T(alpha) * std::expm1(x / T(alpha));
  }
};
inline constexpr double kSeluScale = 1.0507009873554804934193349852946;
inline constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
struct Selu {
  template <class T>
  constexpr T operator()(T x) const {
    return x > T(0) ? T(kSeluScale) * x : T(kSeluScale * kSeluAlpha) * std::expm1(x);
  }
};
struct Softplus {
  double beta, threshold;
  explicit constexpr Softplus(const double* params) : beta(params[0]), threshold(params[1]) {}
  template <class T>
  constexpr T operator()(T x) const {
    const T scaled = x * T(beta);
    return scaled > T(threshold) ? x : std::log1p(std::exp(scaled)) / T(beta);
  }
};
struct Logsigmoid {
  template <class T>
  constexpr T operator()(T x) const {
    return (x < T(0) ? x : x != x ? x : T(0)) - std::log1p(std::exp(-std::fabs(x)));
  }
};

}  // namespace pg::scalar
