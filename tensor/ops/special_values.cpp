// Pointwise ops about NaN, infinities and zero, and division, divisors and shifts of integers.
#include <cmath>
#include <limits>

#include "tensor/ops/all.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

Var no_gradient(Vjp&) { return Var(); }

double largest(DType t) {
  if (t == DType::kFloat16) return 65504;
  if (t == DType::kBFloat16) return 0x1.fep127;
  return t == DType::kFloat32 ? double(std::numeric_limits<float>::max()) : std::numeric_limits<double>::max();
}

std::vector<Var> decompose_nan_to_num(Rule& c) {
  const Var x = c.in(0);
  if (!x.value().is_number() && !is_float(x.dtype())) return {x};
  const double most = largest(x.value().is_number() ? DType::kFloat32 : x.dtype());
  const double high = c.has_attr("posinf") ? c.attr<double>("posinf") : most;
  const double low = c.has_attr("neginf") ? c.attr<double>("neginf") : -most;
  return {call<"replace_special">(x, {{"nan", c.raw("nan")}, {"posinf", high}, {"neginf", low}})};
}

// Operands of isclose: float32 for half precision, float64 for integers and bool, which hold their differences.
Var for_difference(const Var& v) {
  if (v.value().is_number()) return v;
  if (!is_float(v.dtype())) return as_dtype(v, DType::kFloat64);
  return size_of(v.dtype()) == 2 ? as_dtype(v, DType::kFloat32) : v;
}

Var magnitude(const Var& v) {
  return v.value().is_number() ? Var(*v.context(), Value(std::fabs(v.value().number()))) : call<"abs">(v);
}

std::vector<Var> decompose_isclose(Rule& c) {
  const Var x = for_difference(c.in(0)), y = for_difference(c.in(1));
  const Var difference = magnitude(x - y);
  const Var allowed = magnitude(y * c.attr<double>("rtol")) + c.attr<double>("atol");
  const Var near = call<"logical_and">(call<"isfinite">(difference), call<"le">(difference, allowed));
  const Var close = call<"logical_or">(call<"eq">(x, y), near);
  if (!c.attr<bool>("equal_nan")) return {close};
  return {call<"logical_or">(close, call<"logical_and">(call<"isnan">(x), call<"isnan">(y)))};
}

// A number if v is one: an array would be on the host.
Var is_nan(const Var& v) {
  if (!v.value().is_number()) return call<"isnan">(v);
  return Var(*v.context(), Value(std::isnan(v.value().number()) ? 1.0 : 0.0));
}

// The operand that fmax or fmin selects gets the cotangent; equal operands share it. A number is selected beside NaN,
// and the first of two NaNs.
template <OpName wins>
Var first_share(Vjp& c) {
  const Var x = c.in(0), y = c.in(1), first = call<"logical_or">(call<wins>(x, y), is_nan(y));
  return call<"where">(call<"eq">(x, y), c.dy() * 0.5, call<"where">(first, c.dy(), 0.0));
}
template <OpName wins>
Var second_share(Vjp& c) {
  const Var x = c.in(0), y = c.in(1), first = call<"logical_or">(call<wins>(x, y), is_nan(y));
  return call<"where">(call<"eq">(x, y), c.dy() * 0.5, call<"where">(first, 0.0, c.dy()));
}

OpDef ignoring_nan(const char* name, const char* doc, const char* example, std::vector<GradFn> vjp) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kNumeric}, {"y", kNumeric}},
          .vjp = vjp,
          .vjp_uses = "x y",
          .traits = kPointwise};
}

// Gradients that are 0 where a factor is not finite replace an operand of that factor, not the product: so they are 0
// as functions of dy too (jvp), and their own gradients are finite.

// 1 / (x (1 - x)), 0 where x was limited, and NaN where the result is.
Var vjp_logit(Vjp& c) {
  const Var x = c.in(0);
  const double eps = c.has_attr("eps") ? c.attr<double>("eps") : 0;
  const Var outside = call<"logical_or">(call<"lt">(x, eps), call<"gt">(x, 1 - eps));
  const double limited = c.has_attr("eps") ? std::numeric_limits<double>::infinity() : kNan;
  return c.dy() / call<"where">(outside, limited, x * (1.0 - x));
}

// dy log(y), and 0 where x is 0 and log(y) is not finite.
Var grad_xlogy(Vjp& c) {
  const Var y = c.in(1), zero = call<"eq">(c.in(0), 0.0);
  if (!y.value().is_number())
    return call<"xlogy">(c.dy(), call<"where">(call<"logical_and">(zero, call<"le">(y, 0.0)), 1.0, y));
  return call<"xlogy">(c.dy(), y.value().number() <= 0 ? call<"where">(zero, 1.0, y) : y);
}

OpDef on_integers(const char* name, const char* doc, const char* example, uint32_t traits = 0) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kIntegral}, {"y", kIntegral}},
          .result = Result::kInteger,
          .traits = kPointwise | kNoGrad | traits};
}

}  // namespace

static void add_special_values(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "nan_to_num",
       .doc = "x with other numbers for NaN and the infinities. Integers and bools come back as they are. The gradient "
              "of a replaced element is 0.",
       .example = "return pg.tensor({0 / 0, 1, -math.huge}):nan_to_num()",
       .inputs = {{"x"}},
       .attrs = {{"nan", AttrKind::kFloat, 0.0, "for NaN"},
                 {"posinf", AttrKind::kFloat, {}, "for infinity; by default the largest number of the dtype", true},
                 {"neginf", AttrKind::kFloat, {}, "for -infinity; by default the least number of the dtype", true}},
       .decompose = decompose_nan_to_num,
       .traits = kPointwise},
      {.name = "replace_special",
       .doc = "x with other numbers for NaN and the infinities.",
       .inputs = {{"x", kFloating}},
       .attrs = {{"nan", AttrKind::kFloat, 0.0, "for NaN"},
                 {"posinf", AttrKind::kFloat, 0.0, "for infinity"},
                 {"neginf", AttrKind::kFloat, 0.0, "for -infinity"}},
       .result = Result::kSame,
       .vjp = {[](Vjp& c) { return call<"where">(call<"isfinite">(c.in(0)), c.dy(), 0.0); }},
       .vjp_uses = "x",
       .traits = kPointwise | kHidden},
      {.name = "isclose",
       .doc =
           "True where x equals y or |x - y| is at most atol + rtol |y|, with broadcasting. Integers are compared in "
           "float64, half precision in float32.",
       .example = "return pg.tensor({1, 2}):isclose(pg.tensor({1 + 1e-7, 3}))",
       .inputs = {{"x"}, {"y"}},
       .attrs = {{"rtol", AttrKind::kFloat, 1e-5, "tolerance as a share of |y|", false, 0},
                 {"atol", AttrKind::kFloat, 1e-8, "absolute tolerance", false, 0},
                 {"equal_nan", AttrKind::kBool, false, "NaN is close to NaN"}},
       .result = Result::kBool,
       .decompose = decompose_isclose,
       .traits = kPointwise | kNoGrad},
      ignoring_nan("fmax",
                   "The larger of x and y, with broadcasting; NaN only where both are. Where they are equal each gets "
                   "half of the gradient.",
                   "return pg.fmax(pg.tensor({0 / 0, 4}), 2)", {first_share<"gt">, second_share<"gt">}),
      ignoring_nan("fmin",
                   "The smaller of x and y, with broadcasting; NaN only where both are. Where they are equal each gets "
                   "half of the gradient.",
                   "return pg.fmin(pg.tensor({0 / 0, 4}), 2)", {first_share<"lt">, second_share<"lt">}),
      {.name = "heaviside",
       .doc = "The step function: 0 where x is below 0 or NaN, 1 where it is above, `values` where it is 0, with "
              "broadcasting. x gets no gradient.",
       .example = "return pg.tensor({-1, 0, 2}):heaviside(0.5)",
       .inputs = {{"x", kNumeric}, {"values", kNumeric}},
       .vjp = {no_gradient, [](Vjp& c) { return call<"where">(call<"eq">(c.in(0), 0.0), c.dy(), 0.0); }},
       .vjp_uses = "x",
       .traits = kPointwise},
      {.name = "frac",
       .doc = "x - trunc(x), the fraction with the sign of x; NaN for infinities.",
       .example = "return pg.tensor({1.5, -1.25}):frac()",
       .inputs = {{"x", kFloating, Arity::kOne, 0.1, 0.9}},
       .result = Result::kSame,
       .vjp = {[](Vjp& c) { return c.dy(); }},
       .vjp_uses = "",
       .traits = kPointwise},
      {.name = "logit",
       .doc = "log(x / (1 - x)), the inverse of sigmoid; NaN outside 0 to 1. With eps x is first limited to eps..1 - "
              "eps. Integers give float32.",
       .example = "return pg.tensor({0.25, 0.5}):logit()",
       .inputs = {{"x", kAnyDType, Arity::kOne, 0.1, 0.9}},
       .attrs = {{"eps", AttrKind::kFloat, {}, "distance that x keeps from 0 and 1", true, 0, 0.5}},
       .result = Result::kFloat,
       .vjp = {vjp_logit},
       .vjp_uses = "x",
       .traits = kPointwise | kWidens},
      {.name = "xlogy",
       .doc = "x log(y), with broadcasting; 0 where x is 0 unless y is NaN. Integers give float32.",
       .example = "return pg.xlogy(pg.tensor({0, 2}), pg.tensor({0, 3}))",
       .inputs = {{"x"}, {"y", kAnyDType, Arity::kOne, 0.2, 3}},
       .result = Result::kFloat,
       .vjp = {grad_xlogy, [](Vjp& c) { return c.dy() * (c.in(0) / c.in(1)); }},
       .vjp_uses = "x y",
       .traits = kPointwise | kWidens},
  };
  r.add(kRows);
}

static void add_integer_ops(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "trunc_divide",
       .doc =
           "x / y rounded towards zero, with broadcasting; div with rounding_mode = \"trunc\". Keeps integer dtypes; "
           "an integer divisor of 0 is an error. The gradient is zero.",
       .example = "return pg.trunc_divide(pg.tensor({-7, 7}), 2)",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.1, 0.4}, {"y", kNumeric, Arity::kOne, 0.6, 2}},
       .vjp = {no_gradient, no_gradient},
       .vjp_uses = "",
       .traits = kPointwise | kRefuses},
      on_integers("gcd", "The greatest common divisor of integers, not negative, with broadcasting; 0 for 0 and 0.",
                  "return pg.tensor({12, 18}, {dtype = 'int32'}):gcd(8)", kCommutative),
      on_integers("lcm", "The least common multiple of integers, with broadcasting; 0 where one is 0. Wraps around.",
                  "return pg.tensor({4, 6}, {dtype = 'int32'}):lcm(10)", kCommutative),
      on_integers("bitwise_left_shift",
                  "The bits of x shifted left by y places, with broadcasting; 0 where y is negative or not below the "
                  "number of bits.",
                  "return pg.tensor({3}, {dtype = 'int32'}):bitwise_left_shift(2)"),
      on_integers("bitwise_right_shift",
                  "The bits of x shifted right by y places with copies of the sign, with broadcasting; nothing but the "
                  "sign is left where y is negative or not below the number of bits.",
                  "return pg.tensor({-12}, {dtype = 'int32'}):bitwise_right_shift(2)"),
  };
  r.add(kRows);
}

void add_special_value_ops(Registry& r) {
  add_special_values(r);
  add_integer_ops(r);
}

}  // namespace pg
