// Scalar functions of formulas; most have no form for vectors. Host and device compilers share them: they are constexpr
// templates without state beyond their parameters (`params` are the op's attributes in order).
#pragma once
#include <math.h>  // lgamma_r
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace pg::scalar {

inline constexpr double kPi = 3.14159265358979323846;

// Division rounded towards zero. Integer divisors are not zero: the kernel looks first.
struct TruncDivide {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::trunc(a / b);
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b == -1) return T(-std::make_unsigned_t<T>(a));
      return T(a / b);
    }
  }
};
// The greatest common divisor, by Euclid's algorithm, and the least common multiple, which wraps around; of 0 and 0
// both are 0. bool is never passed.
struct Gcd {
  template <class T>
  static constexpr auto magnitude(T a) {
    using U = std::make_unsigned_t<T>;
    if constexpr (std::is_signed_v<T>)
      if (a < 0) return U(-U(a));
    return U(a);
  }
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else {
      auto x = magnitude(a), y = magnitude(b);
      while (y != 0) {
        const auto rest = decltype(x)(x % y);
        x = y;
        y = rest;
      }
      return T(x);
    }
  }
};
struct Lcm {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else {
      const T divisor = Gcd()(a, b);
      if (divisor == 0) return 0;
      const auto x = Gcd::magnitude(a), y = Gcd::magnitude(b), d = Gcd::magnitude(divisor);
      return T(decltype(x)(x / d) * y);
    }
  }
};

// Shifts of all bits, for right shifts with copies of the sign. A distance that is negative, or not below the number of
// bits, leaves nothing but the sign of a right shift. bool is never passed.
struct LeftShift {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && !b;
    } else {
      const bool inside = int64_t(b) >= 0 && int64_t(b) < int64_t(sizeof(T)) * 8;
      return inside ? T(std::make_unsigned_t<T>(a) << b) : T(0);
    }
  }
};
struct RightShift {
  template <class T>
  constexpr T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && !b;
    } else {
      constexpr int kMost = int(sizeof(T)) * 8 - int(std::is_signed_v<T>);
      const bool inside = int64_t(b) >= 0 && int64_t(b) < kMost;
      if (inside) return T(a >> b);
      if constexpr (std::is_signed_v<T>) return T(a < 0 ? -1 : 0);
      return T(0);
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
      if (b == T(0.5)) return std::fabs(std::fabs(a) == std::numeric_limits<T>::infinity() ? a : std::sqrt(a));
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

// The polynomial with these coefficients, from the highest.
template <int n>
constexpr double horner(const double (&c)[n], double x) {
  double p = c[0];
  for (int k = 1; k < n; ++k) p = c[k] + p * x;
  return p;
}

// log |gamma(x)|. Doubles use the reentrant function of libm, since plain lgamma writes a global variable. Floats are
// computed in double: a polynomial on [1, 2] and the recurrence up to 8, then Stirling's series; below zero the
// reflection formula. Abramowitz and Stegun, Handbook of Mathematical Functions, 6.1.
struct Lgamma {
  template <class T>
  constexpr T operator()(T x) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return T(of_any(double(x)));
    } else {
      int sign = 0;
      return lgamma_r(x, &sign);
    }
  }
  static constexpr double of_any(double x) {
    if (x > 0) return of_positive(x);
    if (x != x) return x;
    const double fraction = x - std::rint(x);  // exact
    if (fraction == 0 || x < -1e9) return std::numeric_limits<double>::infinity();
    const double value = std::log(kPi / std::fabs(x * std::sin(kPi * fraction))) - of_positive(-x);
    if (x > -2 || std::fabs(value) > 0.5) return value;
    int sign = 0;  // near a root the polynomial has not the digits
    return lgamma_r(x, &sign);
  }
  static constexpr double of_positive(double x) {
    if (x >= 8) {
      if (x > 1e300) return x;
      const double z = 1 / (x * x), series = (1.0 / 12 - z * (1.0 / 360 - z * (1.0 / 1260 - z / 1680))) / x;
      return (x - 0.5) * std::log(x) - x + 0.91893853320467274178 + series;
    }
    if (x < 1) return of_unit(x) - std::log(x);
    if (x <= 2) return of_unit(x - 1);
    double product = 1;
    while (x > 2) product *= x -= 1;
    return of_unit(x - 1) + std::log(product);
  }
  // log(gamma(1 + x)) for x in [0, 1], where it has two roots.
  static constexpr double of_unit(double x) {
    const double c[] = {-6.081048452386903e-04, 9.591768032137439e-04, -1.107384733424363e-03, 1.848771961039359e-03,
                        -3.220955520288056e-03, 5.456375490382240e-03, -9.424958309658725e-03, 1.679650632007516e-02,
                        -3.130850867332449e-02, 6.291141393283468e-02, -1.459598957217713e-01, 4.831289504959026e-01};
    return x * (x - 1) * horner(c, x - 0.5);
  }
};

// Uses a polynomial on [0.75, 2.4] and the recurrence up to 10, then the asymptotic series; below zero the reflection
// formula. Abramowitz and Stegun, Handbook of Mathematical Functions, 6.3.
struct Digamma {
  template <class T>
  constexpr T operator()(T value) const {
    double x = double(value);
    if (x == 0) return T(std::copysign(std::numeric_limits<double>::infinity(), -x));
    double out = 0;
    if (x < 0) {
      const double fraction = x - std::rint(x), rest = 0.5 - std::fabs(fraction);  // exact
      if (fraction == 0) return std::numeric_limits<T>::quiet_NaN();
      out = rest < 0.25 ? -std::copysign(kPi * std::tan(kPi * rest), fraction) : -kPi / std::tan(kPi * fraction);
      x = 1 - x;
    }
    if (x < 0.75) {
      out -= 1 / x;
      x += 1;
    }
    if (x < 10) {
      double sum = 0, lost = 0;  // down to where the polynomial is not far below zero, so that nothing cancels
      while (x > 2.4) {
        const double term = 1 / (x -= 1), next = sum + term;
        lost += term - (next - sum);
        sum = next;
      }
      return T(out + (sum + (near_root(x) + lost)));
    }
    const double z = 1 / (x * x);
    const double series =
        z * (1.0 / 12 -
             z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
    return T(out + (std::log(x) - 0.5 / x - series));
  }
  // For x in [0.75, 2.4]: the distance from the root times a polynomial, whose higher powers are in two halves.
  static constexpr double near_root(double x) {
    const double even[] = {6.18247086720137275e-06,  -1.83879518609577116e-05, 3.77535456496956836e-05,
                           -2.98679100283237888e-05, 4.81559636612360092e-05,  3.42028100130339173e-05,
                           1.27919747275144101e-04,  3.01389529146210569e-04,  7.52151297673938506e-04,
                           1.86612362686169007e-03,  4.63718130543545274e-03,  1.15568856562847343e-02,
                           2.90443466461466973e-02,  7.48451811372125297e-02,  2.10114097019789975e-01};
    const double odd[] = {-4.12537177749812306e-06, 1.27297855121572403e-05,  -2.64833722430529885e-05,
                          2.25369809270399490e-05,  -3.39528758140959319e-05, -1.94788586962571178e-05,
                          -8.22830555715100789e-05, -1.90978830491969181e-04, -4.77579668610160295e-04,
                          -1.18435905931844150e-03, -2.94111928375078227e-03, -7.31637804365161282e-03,
                          -1.82907253061789267e-02, -4.63863493063783813e-02, -1.23075166210522086e-01};
    const double t = x - 1.575, t2 = t * t, rest = horner(even, t2) + t * horner(odd, t2);
    const double p = 9.20577128052694316e-01 + t * (-3.89899335957311466e-01 + t * rest);
    return ((x - 1.4616321449683622) - 9.549995429965697e-17) * p;
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
    if (x == -std::numeric_limits<double>::infinity()) return std::numeric_limits<T>::quiet_NaN();
    if (x <= 0 && x == std::floor(x))  // a pole, by zeta at its right
      return n % 2 ? std::numeric_limits<T>::infinity() : -std::numeric_limits<T>::infinity();
    double sum = 0;
    if (x < 0) {  // the terms left of 0 form another zeta function, which ends where this series begins
      const double fraction = x - std::floor(x), below = -x - std::floor(-x);  // 1 - fraction, exact near 0
      const double left = zeta(s, below) - zeta(s, 1 - x);
      sum = n % 2 ? zeta(s, fraction) + left : zeta(s, fraction) - left;
    } else {
      sum = zeta(s, x);
    }
    return T(n % 2 ? factorial * sum : -factorial * sum);
  }

  // The Hurwitz zeta function of positive x: the Euler-Maclaurin formula beyond 12, and the terms below it, which are
  // added from the smallest.
  static constexpr double zeta(double s, double x) {
    const double below = x < 12 ? std::ceil(12 - x) : 0, first = x;
    x += below;
    const double b[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
    double sum = std::pow(x, 1 - s) / (s - 1) + 0.5 * std::pow(x, -s);
    double term = s * std::pow(x, -s - 1) / 2;
    for (int k = 0; k < 7; ++k) {
      sum += b[k] * term;
      term *= (s + 2 * k + 1) * (s + 2 * k + 2) / ((2 * k + 3) * (2 * k + 4) * x * x);
    }
    for (double k = below - 1; k >= 0; --k) sum += std::pow(first + k, -s);
    return sum;
  }
};

// A rational approximation (Giles, Approximating the erfinv function, 2011), and where only doubles are a closed form
// (Winitzki, A handy approximation for the error function and its inverse, 2008), improved by Halley's method.
struct Erfinv {
  static constexpr double kFar = 17;  // floats are nearer
  static constexpr double start(double x, double w) {
    if (w > kFar) {
      const double a = 4.3307467508 - w / 2;  // 2 / (0.147 pi) - w / 2
      return std::sqrt(std::sqrt(a * a + w / 0.147) - a);
    }
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
    const double w = -std::log((1 - a) * (1 + a));
    double y = start(a, w);
    for (int i = w > kFar ? -1 : 0; i < 2; ++i) {
      const double error = a < 0.5 ? std::erf(y) - a : (1 - a) - std::erfc(y);
      const double slope = 1.12837916709551257390 * std::exp(-y * y);
      y -= error / (slope + y * error);
    }
    return T(std::copysign(y, x));
  }
};

}  // namespace pg::scalar
