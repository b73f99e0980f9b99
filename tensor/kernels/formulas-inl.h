// The formulas of arithmetic, comparison, rounding and of the activations made of them, each written once for all kinds
// of values: scalars of every dtype and vectors. An op needs its row in tensor/ops/ and its formula here; kernels and
// steps of fused chains are made from the list.
//
// Included once for each compilation target, in the namespace PERIGEE_FORMULAS with the vocabulary of values-inl.h for
// all kinds of values, and compiled for CUDA by cuda-inl.h. The includer defines PERIGEE_FORMULA (before a struct).
// PERIGEE_UNARY of x, PERIGEE_BINARY of x and y, PERIGEE_TERNARY of x, y and z have a name, op, dtypes, an expression,
// and what else FormulaRow says; those with _WITH first name the op's attribute, which the expression reads as a
// number. PERIGEE_EXPRESSION is for helpers. V is the kind of value, `params` are the op's attributes in order.
#include <limits>

namespace PERIGEE_FORMULAS {

PERIGEE_BINARY(Add, "add", kAll, add(x, y))
PERIGEE_BINARY(Sub, "sub", kNumbers, sub(x, y))
PERIGEE_BINARY(Mul, "mul", kAll, mul(x, y))
PERIGEE_BINARY(Div, "div", kFloats, x / y, .step_cost = 80)
PERIGEE_BINARY(TruncDivide, "trunc_divide", kNumbers, scalar::TruncDivide()(x, y), .cost = 1000,
               .check = SpanCheck::kZeroDivisor, .lanes = false)
PERIGEE_BINARY(Maximum, "maximum", kAll, maximum(x, y))
PERIGEE_BINARY(Minimum, "minimum", kAll, minimum(x, y))
PERIGEE_BINARY(Fmax, "fmax", kNumbers, select(is_nan(x), y, select(is_nan(y), x, maximum(x, y))))
PERIGEE_BINARY(Fmin, "fmin", kNumbers, select(is_nan(x), y, select(is_nan(y), x, minimum(x, y))))
PERIGEE_BINARY(Heaviside, "heaviside", kNumbers, select(x == V(0), y, select_or_zero(x > V(0), V(1))))
PERIGEE_TERNARY(Clamp, "clamp", kNumbers, minimum(maximum(x, y), z))
PERIGEE_TERNARY(Lerp, "lerp", kFloats,
                select(abs(z) < V(0.5), x + z * (y - x), y - (y - x) * (V(1) - z)))  // exact ends
PERIGEE_TERNARY_WITH(value, AddProduct, "add_product", kNumbers, add(x, V(mul(V(mul(y, V(value))), z))))
PERIGEE_TERNARY_WITH(value, AddQuotient, "add_quotient", kFloats, x + y * V(value) / z, .step_cost = 80)
PERIGEE_BINARY(ScaleBelow, "scale_below", kFloats, select(x > V(0), x, x* y))
PERIGEE_FORMULA(ReplaceSpecial, "replace_special", 1, kFloats)
struct ReplaceSpecial {
  double nan, high, low;
  explicit constexpr ReplaceSpecial(const double* params) : nan(params[0]), high(params[1]), low(params[2]) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    const V some = select(x == V(kInf), V(high), select(x == V(-kInf), V(low), x));
    return select(is_nan(x), V(nan), some);
  }
};
PERIGEE_BINARY(Copysign, "copysign", kFloats, copysign(x, y), .signs = true)

PERIGEE_BINARY(Eq, "eq", kAll, x == y)
PERIGEE_BINARY(Ne, "ne", kAll, x != y)
PERIGEE_BINARY(Lt, "lt", kAll, x < y)
PERIGEE_BINARY(Le, "le", kAll, x <= y)
PERIGEE_BINARY(Gt, "gt", kAll, x > y)
PERIGEE_BINARY(Ge, "ge", kAll, x >= y)
PERIGEE_BINARY(LogicalAnd, "logical_and", kAll, bits_and(nonzero(x), nonzero(y)))
PERIGEE_BINARY(LogicalOr, "logical_or", kAll, bits_or(nonzero(x), nonzero(y)))
PERIGEE_BINARY(LogicalXor, "logical_xor", kAll, bits_xor(nonzero(x), nonzero(y)))
PERIGEE_UNARY(LogicalNot, "logical_not", kAll, bits_not(nonzero(x)))
PERIGEE_BINARY(BitwiseAnd, "bitwise_and", kIntegers, bits_and(x, y))
PERIGEE_BINARY(BitwiseOr, "bitwise_or", kIntegers, bits_or(x, y))
PERIGEE_BINARY(BitwiseXor, "bitwise_xor", kIntegers, bits_xor(x, y))
PERIGEE_UNARY(BitwiseNot, "bitwise_not", kIntegers, bits_not(x))
PERIGEE_BINARY(BitwiseLeftShift, "bitwise_left_shift", kIntegers, scalar::LeftShift()(x, y), .lanes = false)
PERIGEE_BINARY(BitwiseRightShift, "bitwise_right_shift", kIntegers, scalar::RightShift()(x, y), .lanes = false)
PERIGEE_BINARY(Gcd, "gcd", kIntegers, scalar::Gcd()(x, y), .cost = 30000, .lanes = false)
PERIGEE_BINARY(Lcm, "lcm", kIntegers, scalar::Lcm()(x, y), .cost = 30000, .lanes = false)
PERIGEE_UNARY(IsNan, "isnan", kAll, is_nan(x))
PERIGEE_UNARY(IsInf, "isinf", kAll, is_inf(x))
PERIGEE_UNARY(IsFinite, "isfinite", kAll, is_finite(x))
PERIGEE_FORMULA(Where, "where", 3, kAll, .condition = true)
struct Where {
  template <class C, class V>
  PERIGEE_FORMULA_INLINE V operator()(C condition, V x, V y) const {
    return choose(condition, x, y);
  }
};

PERIGEE_UNARY(Neg, "neg", kNumbers, neg(x), .signs = true)
PERIGEE_UNARY(Abs, "abs", kNumbers, abs(x), .signs = true)
PERIGEE_UNARY(Sign, "sign", kNumbers, sub(select_or_zero(x > V(0), V(1)), select_or_zero(x < V(0), V(1))))
PERIGEE_UNARY(Square, "square", kNumbers, mul(x, x))
PERIGEE_EXPRESSION(Cube, x* x* x, V x)  // not an op: pow with exponent 3
// Not an op: pow with exponent 0.5, which C defines for -0 and -infinity otherwise than sqrt.
PERIGEE_EXPRESSION(Root, select(is_inf(x), abs(x), abs(sqrt(x))), V x)
PERIGEE_UNARY(Sqrt, "sqrt", kFloats, sqrt(x), .cost = 150, .step_cost = 80)
PERIGEE_UNARY(Rsqrt, "rsqrt", kFloats, V(1) / sqrt(x), .cost = 250, .step_cost = 80)
PERIGEE_UNARY(Reciprocal, "reciprocal", kFloats, V(1) / x, .step_cost = 80)
PERIGEE_UNARY(Floor, "floor", kNumbers, floor(x))
PERIGEE_UNARY(Ceil, "ceil", kNumbers, ceil(x))
PERIGEE_UNARY(Round, "round", kNumbers, round(x))
PERIGEE_UNARY(Trunc, "trunc", kNumbers, trunc(x))
PERIGEE_UNARY(Frac, "frac", kFloats, x - trunc(x))

PERIGEE_UNARY(Relu, "relu", kNumbers, select(x <= V(0), V(0), x))
PERIGEE_UNARY(Relu6, "relu6", kNumbers, select(x <= V(0), V(0), select(x >= V(6), V(6), x)))
PERIGEE_UNARY(Hardsigmoid, "hardsigmoid", kFloats, Relu6()(x + V(3)) / V(6))
PERIGEE_UNARY(Hardswish, "hardswish", kFloats, Relu6()(x + V(3)) * x / V(6))
PERIGEE_UNARY(Softsign, "softsign", kFloats, x / (V(1) + abs(x)))
// Derivatives: of the cotangent x and the op's output y.
PERIGEE_BINARY(ReluGrad, "relu_grad", kNumbers, select(y <= V(0), V(0), x))
PERIGEE_BINARY(TanhGrad, "tanh_grad", kFloats, (V(1) - y * y) * x)
PERIGEE_BINARY(SigmoidGrad, "sigmoid_grad", kFloats, (V(1) - y) * y * x)

PERIGEE_UNARY_WITH(slope, LeakyRelu, "leaky_relu", kFloats, select(x > V(0), x, x* V(slope)))
PERIGEE_FORMULA(Hardtanh, "hardtanh", 1, kFloats)
struct Hardtanh {
  double low, high;
  explicit constexpr Hardtanh(const double* params) : low(params[0]), high(params[1]) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    return select(x < V(low), V(low), select(x > V(high), V(high), x));
  }
};
PERIGEE_UNARY_WITH(lambda, Softshrink, "softshrink", kFloats,
                   select(x < V(-lambda), x + V(lambda), select(x <= V(lambda), V(0), x - V(lambda))))  // NaN stays
PERIGEE_UNARY_WITH(lambda, Hardshrink, "hardshrink", kFloats, select(abs(x) <= V(lambda), V(0), x))
PERIGEE_FORMULA(Huber, "huber", 1, kFloats)
struct Huber {
  double delta, slope, half;
  explicit constexpr Huber(const double* params)
      : delta(params[0]), slope(params[1]), half(slope == delta ? 0.5 : 0.5 * slope / delta) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    const V line = V(slope) * (abs(x) - V(0.5 * delta));
    return select(abs(x) > V(delta), line, V(half) * x * x);
  }
};
PERIGEE_FORMULA(Threshold, "threshold", 1, kFloats)
struct Threshold {
  double limit, value;
  explicit constexpr Threshold(const double* params) : limit(params[0]), value(params[1]) {}
  template <class V>
  PERIGEE_FORMULA_INLINE V operator()(V x) const {
    return select(x <= V(limit), V(value), x);
  }
};

}  // namespace PERIGEE_FORMULAS
