// The formulas of the elementary functions and of the activations built on them; see formulas-inl.h. Their
// functions are in the vocabulary: for vectors of float polynomials and for those of double Sleef's, for scalars
// libm's.
#include <cmath>
#include <type_traits>

namespace PERIGEE_FORMULAS {

#define PERIGEE_SIMD(cost_) .cost = cost_, .step_cost = 250, .simd = true
#define PERIGEE_LIBRARY(cost_) .cost = cost_, .lanes = false, .simd = true
#define PERIGEE_SCALAR(cost_) .cost = cost_, .lanes = false
PERIGEE_UNARY(Exp, "exp", kFloats, exp(x), PERIGEE_SIMD(400))
PERIGEE_UNARY(Exp2, "exp2", kFloats, exp2(x), PERIGEE_SIMD(400))
PERIGEE_UNARY(Expm1, "expm1", kFloats, expm1(x), PERIGEE_SIMD(400))
PERIGEE_UNARY(Log, "log", kFloats, log(x), PERIGEE_SIMD(500))
PERIGEE_UNARY(Log2, "log2", kFloats, log2(x), PERIGEE_SIMD(500))
PERIGEE_UNARY(Log10, "log10", kFloats, log10(x), PERIGEE_SIMD(500))
PERIGEE_UNARY(Log1p, "log1p", kFloats, log1p(x), PERIGEE_SIMD(600))
PERIGEE_UNARY(Tanh, "tanh", kFloats, tanh(x), PERIGEE_SIMD(500))
PERIGEE_UNARY(Erf, "erf", kFloats, erf(x), PERIGEE_SIMD(800))
PERIGEE_UNARY(Erfc, "erfc", kFloats, erfc(x), PERIGEE_SIMD(1000))
PERIGEE_UNARY(Sin, "sin", kFloats, sin(x), PERIGEE_SIMD(400))
PERIGEE_UNARY(Cos, "cos", kFloats, cos(x), PERIGEE_SIMD(400))
PERIGEE_UNARY(Tan, "tan", kFloats, tan(x), PERIGEE_SIMD(600))
PERIGEE_UNARY(Asin, "asin", kFloats, asin(x), PERIGEE_LIBRARY(700))
PERIGEE_UNARY(Acos, "acos", kFloats, acos(x), PERIGEE_LIBRARY(900))
PERIGEE_UNARY(Atan, "atan", kFloats, atan(x), PERIGEE_LIBRARY(900))
PERIGEE_UNARY(Sinh, "sinh", kFloats, sinh(x), PERIGEE_LIBRARY(1300))
PERIGEE_UNARY(Cosh, "cosh", kFloats, cosh(x), PERIGEE_LIBRARY(1300))
PERIGEE_UNARY(Asinh, "asinh", kFloats, asinh(x), PERIGEE_LIBRARY(2300))
PERIGEE_UNARY(Acosh, "acosh", kFloats, acosh(x), PERIGEE_LIBRARY(2300))
PERIGEE_UNARY(Atanh, "atanh", kFloats, atanh(x), PERIGEE_LIBRARY(1300))
PERIGEE_UNARY(Erfinv, "erfinv", kFloats, erfinv(x), PERIGEE_SIMD(1000))
PERIGEE_UNARY(Lgamma, "lgamma", kFloats, lgamma(x), PERIGEE_LIBRARY(3000))
PERIGEE_UNARY(Digamma, "digamma", kFloats, scalar::Digamma()(x), PERIGEE_SCALAR(30000))
PERIGEE_FORMULA(Polygamma, "polygamma", 1, kFloats, PERIGEE_SCALAR(300000))
struct Polygamma : scalar::Polygamma {
  using scalar::Polygamma::Polygamma;
};
PERIGEE_BINARY(Xlogy, "xlogy", kFloats, select(is_nan(y), y, select(x == V(0), V(0), log(y) * x)), PERIGEE_LIBRARY(600))
PERIGEE_BINARY(Atan2, "atan2", kFloats, atan2(x, y), PERIGEE_LIBRARY(1300))
PERIGEE_BINARY(Hypot, "hypot", kFloats, hypot(x, y), PERIGEE_LIBRARY(1100))
PERIGEE_EXPRESSION(Larger, select(bits_or(x > y, is_nan(x)), x, y), V x, V y)
PERIGEE_BINARY(Logaddexp, "logaddexp", kFloats,
               select(x == y, x + V(0.69314718055994530942),  // equal infinities included
                      Larger()(x, y) + log1p(exp_below(-abs(x - y)))),
               PERIGEE_LIBRARY(1000))
// Some exponents have a formula of their own, so that the bits do not depend on whether a kernel knows that all
// elements have this exponent.
PERIGEE_FORMULA(Pow, "pow", 2, kNumbers, .cost = 2500, .check = SpanCheck::kNegativeExponent, .lanes = false,
                .simd = true)
struct Pow {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x, V y) const {
    if constexpr (std::is_arithmetic_v<V>)
      return scalar::Pow()(x, y);
    else
      return select(
          y == V(2), x * x,
          select(y == V(3), Cube()(x), select(y == V(0.5), Root()(x), select(y == V(-1), V(1) / x, pow(x, y)))));
  }
};

// The remainders with the sign of the dividend, C's, and of the divisor, Lua's `%`, and the quotient for the latter.
#define PERIGEE_DIVISION .cost = 1000, .step_cost = 250, .check = SpanCheck::kZeroDivisor, .simd = true
PERIGEE_BINARY(Fmod, "fmod", kNumbers, fmod(x, y), PERIGEE_DIVISION)
PERIGEE_EXPRESSION(OtherSign, bits_and(nonzero(mod), bits_xor(mod < V(0), y < V(0))), V mod, V y)
PERIGEE_FORMULA(Remainder, "remainder", 2, kNumbers, PERIGEE_DIVISION)
struct Remainder {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x, V y) const {
    const V mod = fmod(x, y);
    return choose(OtherSign()(mod, y), add(mod, y), mod);  // scalars without a branch
  }
};
PERIGEE_FORMULA(FloorDivide, "floor_divide", 2, kNumbers, PERIGEE_DIVISION)
struct FloorDivide {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x, V y) const {
    const V mod = fmod(x, y);
    if constexpr (kIsInteger<V>) {
      return sub(scalar::TruncDivide()(x, y), V(OtherSign()(mod, y)));
    } else {
      const V whole = (x - mod) / y, quotient = select(OtherSign()(mod, y), whole - V(1), whole);
      const V below = floor(quotient), nearest = select(quotient - below > V(0.5), below + V(1), below);
      return select(y == V(0), x / y, select(quotient == V(0), copysign(V(0), x / y), nearest));
    }
  }
};
#undef PERIGEE_DIVISION

PERIGEE_FORMULA(Sigmoid, "sigmoid", 1, kFloats, PERIGEE_SIMD(500))
struct Sigmoid {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    const V e = exp_below(-abs(x));
    return select_negative(x, e, V(1)) / (V(1) + e);
  }
};
// Where e^x could be subnormal but x e^x is not, e^(x + 40) is computed instead, which 1 is still large beside.
PERIGEE_EXPRESSION(FarExponent, select(x < V(-80), x + V(40), x), V x)
PERIGEE_EXPRESSION(FarScale, select(x < V(-80), V(4.248354255291589e-18), V(1)), V x)  // e^-40
PERIGEE_FORMULA(Silu, "silu", 1, kFloats, PERIGEE_SIMD(500))
struct Silu {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    const V e = exp_below(FarExponent()(-abs(x)));
    return select_negative(x, e, V(1)) / (V(1) + e) * x * FarScale()(x);
  }
};
// x tanh(log(1 + e^x)), where tanh(log(u)) = (u^2 - 1) / (u^2 + 1).
PERIGEE_FORMULA(Mish, "mish", 1, kFloats, PERIGEE_SIMD(600))
struct Mish {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    const V e = exp(FarExponent()(at_most(x, 20))), m = e * (e + V(2));
    return select(x > V(20), x, x * (m / (m + V(2))) * FarScale()(x));
  }
};
// The logarithm of u = x / rest, where rest = 1 - x, and near the root at 1/2 also what u and rest lost by rounding.
// Where u is in [1/2, 2], the differences of the correction are exact.
PERIGEE_FORMULA(Logit, "logit", 1, kFloats, PERIGEE_SIMD(700))
struct Logit {
  double eps;  // NaN: no limits
  explicit constexpr Logit(const double* params) : eps(params[0]) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    if (eps == eps) x = minimum(maximum(x, V(eps)), V(1 - eps));
    const V rest = V(1) - x, u = x / rest, beside = (V(1) - rest) - x;
    const V lost = ((x - rest) / rest - (u - V(1))) / u - beside / rest;
    return log(u) + select_or_zero(abs(x - V(0.5)) <= V(1.0 / 6), lost);
  }
};
PERIGEE_FORMULA(Gelu, "gelu", 1, kFloats, PERIGEE_SIMD(800))
struct Gelu {
  bool tanh_form;
  explicit constexpr Gelu(const double* params) : tanh_form(params[0] != 0) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    if (!tanh_form) return times_normal(x);
    // x (1 + tanh(t)) / 2 = x / (1 + exp(-2 t))
    const V exponent = V(-2 * 0.79788456080286535588) * x * multiply_add(V(0.044715), x * x, V(1));
    return select_or_zero(x > V(-30), x) / (V(1) + exp(exponent));  // the division keeps NaN
  }
};
// Derivatives: of the cotangent x and the op's input y.
PERIGEE_FORMULA(SiluGrad, "silu_grad", 2, kFloats, PERIGEE_SIMD(600))
struct SiluGrad {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x, V y) const {
    const V s = Sigmoid()(y);
    return x * (s * (y * (V(1) - s) + V(1)));
  }
};
// The tanh form is y s with s = sigmoid(u), so s + y s (1 - s) u', which does not cancel below zero.
PERIGEE_FORMULA(GeluGrad, "gelu_grad", 2, kFloats, PERIGEE_SIMD(900))
struct GeluGrad {
  bool tanh_form;
  explicit constexpr GeluGrad(const double* params) : tanh_form(params[0] != 0) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x, V y) const {
    if (!tanh_form) return x * normal_slope(y);
    constexpr double k = 2 * 0.79788456080286535588, cubic = 0.044715;
    const V z = minimum(maximum(y, V(-40)), V(40)), square = z * z;  // beyond these bounds factors are not finite
    const V s = Sigmoid()(z * (square * V(cubic) + V(1)) * V(k));
    return x * (s + z * s * (V(1) - s) * ((square * V(3 * cubic) + V(1)) * V(k)));
  }
};
// PERIGEE_LAZY: what scalars above zero need not compute.
PERIGEE_UNARY_WITH(alpha, Elu, "elu", kFloats, select(x > V(0), x, PERIGEE_LAZY(V(alpha) * expm1(x))),
                   PERIGEE_SIMD(400))
PERIGEE_UNARY_WITH(alpha, Celu, "celu", kFloats,
                   select(x > V(0), x, PERIGEE_LAZY(V(alpha) * expm1(alpha == 1 ? x : x / V(alpha)))),
                   PERIGEE_SIMD(400))
PERIGEE_FORMULA(Selu, "selu", 1, kFloats, PERIGEE_SIMD(400))
struct Selu {
  static constexpr double kScale = 1.0507009873554804934193349852946, kAlpha = 1.6732632423543772848170429916717;
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    return select(x > V(0), V(kScale) * x, PERIGEE_LAZY(V(kScale * kAlpha) * expm1(x)));
  }
};
PERIGEE_FORMULA(Softplus, "softplus", 1, kFloats, PERIGEE_SIMD(900))
struct Softplus {
  double beta, threshold;
  explicit constexpr Softplus(const double* params) : beta(params[0]), threshold(params[1]) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    const V scaled = x * V(beta);
    return select(scaled > V(threshold), x, PERIGEE_LAZY(log1p(exp(scaled)) / V(beta)));
  }
};
PERIGEE_UNARY(Logsigmoid, "logsigmoid", kFloats, select(x > V(0), V(0), x) - log1p(exp(-abs(x))), PERIGEE_SIMD(900))
// x - tanh(x), which cancels near 0: up to 2 it is x q / (1 + q), where tanh(x) = x / (1 + q), from the first ten terms
// of Lambert's continued fraction q = z / (3 + z / (5 + z / (7 + ...))) with z = x^2.
PERIGEE_FORMULA(Tanhshrink, "tanhshrink", 1, kFloats, PERIGEE_SIMD(700))
struct Tanhshrink {
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    const V z = at_most(x * x, 4);
    V p = multiply_add(V(4.727509764612325e-09), z, V(3.1201564446441344e-06));
    p = multiply_add(p, z, V(5.012531328320802e-04));
    p = multiply_add(p, z, V(2.5396825396825397e-02));
    p = multiply_add(p, z, V(1.0 / 3)) * z;
    V q = multiply_add(V(4.800240684067899e-09), z, V(3.2761642668763414e-06));
    q = multiply_add(q, z, V(5.503955968352253e-04));
    q = multiply_add(q, z, V(3.007518796992481e-02));
    q = multiply_add(q, z, V(4.7619047619047616e-01));
    q = multiply_add(q, z, V(1));
    return select(abs(x) > V(2), x - tanh(x), x * (p / q));
  }
};
#undef PERIGEE_SIMD
#undef PERIGEE_LIBRARY
#undef PERIGEE_SCALAR

}  // namespace PERIGEE_FORMULAS
