// Arithmetic, comparisons, logic and selection, per element.
#include <cmath>

#include "tensor/ops/all.h"
#include "tensor/ops/like.h"
#include "tensor/rule.h"

namespace pg {
namespace {

Var no_gradient(Vjp&) { return Var(); }

Var pass(Vjp& c) { return c.dy(); }

bool is_number(const Var& v, double number) { return v.value().is_number() && v.value().number() == number; }

Var log_of(const Var& x) {
  if (!x.value().is_number()) return call<"log">(x);
  return Var(*x.context(), Value(std::log(x.value().number())));
}

// Gradients that are 0 where a factor is not finite replace an operand of that factor, not the product: so they are 0
// as functions of dy too (jvp), and their own gradients are finite.

// d x^y / dx = y x^(y - 1). It is 0 for y = 0, even at x = 0.
Var pow_base_grad(Vjp& c) {
  const Var x = c.in(0), y = c.in(1);
  if (is_number(y, 0)) return Var();
  if (is_number(y, 1)) return c.dy();
  if (is_number(y, 2)) return c.dy() * x * 2.0;
  const Var less = y.value().is_number() ? y - 1.0 : call<"where">(call<"eq">(y, 0.0), 0.0, y - 1.0);
  return c.dy() * (y * call<"pow">(x, less));
}

// d x^y / dy = x^y log(x). It is 0 at x = 0 for y >= 0.
Var pow_exponent_grad(Vjp& c) {
  const Var x = c.in(0), y = c.in(1);
  if (x.value().is_number()) {
    const Var slope = x.value().number() == 0 ? call<"where">(call<"ge">(y, 0.0), 0.0, log_of(x)) : log_of(x);
    return c.dy() * c.out() * slope;
  }
  const Var flat = call<"logical_and">(call<"eq">(x, 0.0), call<"ge">(y, 0.0));
  return c.dy() * c.out() * log_of(call<"where">(flat, 1.0, x));
}

// The operand that maximum or minimum selects gets the cotangent; equal operands share it. Where one is NaN neither
// loses: both get all of it, as in PyTorch.
Var unless_lost(Vjp& c, const Var& loses) {
  return call<"where">(loses, 0.0, call<"where">(call<"eq">(c.in(0), c.in(1)), c.dy() * 0.5, c.dy()));
}

// NaN, in x or a bound, lies inside of bounds that are tensors, and outside of those that are numbers, as in PyTorch.
Var clamp_grad(Vjp& c) {
  const Var x = c.in(0);
  Var grad = c.dy();
  const auto is_tensor = [&](size_t i) { return !c.in(i).value().is_number(); };
  if (c.has(1))
    grad = is_tensor(1) ? call<"where">(call<"lt">(x, c.in(1)), 0.0, grad)
                        : call<"where">(call<"ge">(x, c.in(1)), grad, 0.0);
  if (c.has(2))
    grad = is_tensor(2) ? call<"where">(call<"gt">(x, c.in(2)), 0.0, grad)
                        : call<"where">(call<"le">(x, c.in(2)), grad, 0.0);
  return grad;
}
// The bound that x exceeds gets the cotangent. Beside NaN the only bound gets it, and neither of two.
Var clamp_min_grad(Vjp& c) {
  if (!c.has(2)) return call<"where">(call<"ge">(c.in(0), c.in(1)), 0.0, c.dy());
  const Var below = call<"logical_and">(call<"lt">(c.in(0), c.in(1)), call<"lt">(c.in(1), c.in(2)));
  return call<"where">(below, c.dy(), 0.0);
}
Var clamp_max_grad(Vjp& c) {
  if (!c.has(1)) return call<"where">(call<"le">(c.in(0), c.in(2)), 0.0, c.dy());
  const Var above = call<"logical_or">(call<"gt">(c.in(0), c.in(2)), call<"lt">(c.in(2), c.in(1)));
  return call<"where">(above, c.dy(), 0.0);
}

// v / (x^2 + y^2) of the inputs x and y, which are scaled so that their squares neither underflow nor overflow; 0 where
// both are 0. The result does not depend on the scale, so no gradient flows to it.
Var over_squares(Vjp& c, const Var& v) {
  // The larger of |x| and |y|. One may be a number, of which abs would make a tensor on the CPU.
  const Var size = call<"maximum">(call<"maximum">(c.in(0), c.in(1)), -call<"minimum">(c.in(0), c.in(1)));
  const Var plain = call<"logical_or">(call<"eq">(size, 0.0), call<"isinf">(size));
  const Var scale = call<"detach">(call<"where">(plain, 1.0, size));
  const Var x = c.in(0) / scale, y = c.in(1) / scale, norm = x * x + y * y;
  return v / scale / call<"where">(call<"eq">(norm, 0.0), 1.0, norm) / scale;
}

const AttrDef kAlpha = {"alpha", AttrKind::kFloat, {}, "y is multiplied by it first", true};
const AttrDef kRounding = {.name = "rounding_mode",
                           .kind = AttrKind::kString,
                           .doc = "round the quotient towards zero or down, which keeps integer dtypes",
                           .optional = true,
                           .choices = {"trunc", "floor"}};

std::vector<Var> expand_alpha(Expansion& c) {
  const double alpha = c.option<double>("alpha");
  const Var in[] = {c.in(0), alpha == 1 ? c.in(1) : c.in(1) * alpha};
  return c.apply_op(in);
}

std::vector<Var> expand_rounding(Expansion& c) {
  if (c.option<std::string>("rounding_mode") == "trunc") return {call<"trunc_divide">(c.in(0), c.in(1))};
  return {call<"floor_divide">(c.in(0), c.in(1))};
}

OpDef comparison(const char* name, const char* doc, const char* example, uint32_t traits = 0) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x"}, {"y"}},
          .result = Result::kBool,
          .traits = kPointwise | kNoGrad | traits};
}

OpDef bitwise(const char* name, const char* doc, const char* example) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kIntegral | kBoolOnly}, {"y", kIntegral | kBoolOnly}},
          .result = Result::kInteger,
          .traits = kPointwise | kNoGrad | kCommutative};
}

}  // namespace

static void add_arithmetic(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "add",
       .doc = "x + y, with broadcasting; with alpha x + alpha y. For bools it is the logical or; integers wrap around.",
       .example = "return pg.add(pg.tensor({1, 2}), 3)",
       .inputs = {{"x"}, {"y"}},
       .options = {kAlpha},
       .vjp = {pass, pass},
       .vjp_uses = "",
       .expand = expand_alpha,
       .traits = kPointwise | kCommutative | kCheap},
      {.name = "sub",
       .doc = "x - y, with broadcasting; with alpha x - alpha y. Bool tensors are refused, except beside a number.",
       .example = "return pg.sub(pg.tensor({1, 2}), 3)",
       .aliases = {"subtract"},
       .inputs = {{"x", kNumeric}, {"y", kNumeric}},
       .options = {kAlpha},
       .vjp = {pass, [](Vjp& c) { return -c.dy(); }},
       .vjp_uses = "",
       .expand = expand_alpha,
       .traits = kPointwise},
      {.name = "mul",
       .doc = "x * y, with broadcasting. For bools it is the logical and; integers wrap around.",
       .example = "return pg.mul(pg.tensor({1, 2}), 3)",
       .aliases = {"multiply"},
       .inputs = {{"x"}, {"y"}},
       .vjp = {[](Vjp& c) { return c.dy() * c.in(1); }, [](Vjp& c) { return c.dy() * c.in(0); }},
       .vjp_uses = "x y",
       .traits = kPointwise | kCommutative},
      {.name = "div",
       .doc = "x / y, with broadcasting. Integers give float32, or keep their dtype with rounding_mode.",
       .example = "return pg.div(pg.tensor({1, 2}), 3)",
       .aliases = {"divide", "true_divide"},
       .inputs = {{"x"}, {"y", kAnyDType, Arity::kOne, 0.5, 2}},
       .options = {kRounding},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() / c.in(1); }, [](Vjp& c) { return -c.dy() * c.out() / c.in(1); }},
       .vjp_uses = "y out",
       .expand = expand_rounding,
       .traits = kPointwise},
      {.name = "floor_divide",
       .doc = "The largest whole number not above x / y, with broadcasting. Keeps integer dtypes; an integer divisor "
              "of 0 is an error. The gradient is zero.",
       .example = "return pg.floor_divide(pg.tensor({-7, 7}), 2)",
       .inputs = {{"x", kNumeric}, {"y", kNumeric, Arity::kOne, 0.5, 2}},
       .vjp = {no_gradient, no_gradient},
       .vjp_uses = "",
       .traits = kPointwise | kRefuses},
      {.name = "remainder",
       .doc = "x - floor(x / y) * y, with the sign of y, like Lua's %. Keeps integer dtypes; an integer divisor of 0 "
              "is an error.",
       .example = "return pg.remainder(pg.tensor({-7, 7}), 3)",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.1, 0.4}, {"y", kNumeric, Arity::kOne, 0.6, 2}},
       .vjp = {pass, [](Vjp& c) { return -c.dy() * call<"floor_divide">(c.in(0), c.in(1)); }},
       .vjp_uses = "x y",
       .traits = kPointwise | kRefuses},
      {.name = "fmod",
       .doc = "The remainder of x / y with the sign of x, like C's fmod. Keeps integer dtypes; an integer divisor of 0 "
              "is an error.",
       .example = "return pg.fmod(pg.tensor({-7, 7}), 3)",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.1, 0.4}, {"y", kNumeric, Arity::kOne, 0.6, 2}},
       .vjp = {pass, [](Vjp& c) { return -c.dy() * call<"trunc">(c.in(0) / c.in(1)); }},
       .vjp_uses = "x y",
       .traits = kPointwise | kRefuses},
      {.name = "pow",
       .doc = "x to the power y, with broadcasting. Bool tensors are refused, except beside a number; integers keep "
              "their dtype, and a negative exponent of an integer tensor is an error.",
       .example = "return pg.pow(pg.tensor({1, 2, 3}), 2)",
       .aliases = {"power"},
       .inputs = {{"x", kNumeric, Arity::kOne, 0.5, 2}, {"y", kNumeric}},
       .vjp = {pow_base_grad, pow_exponent_grad},
       .vjp_uses = "x y out",
       .traits = kPointwise | kWidens | kRefuses},
      {.name = "maximum",
       .doc =
           "The larger of x and y, with broadcasting; NaN wins. Where they are equal each gets half of the gradient, "
           "and where one is NaN each gets all of it.",
       .example = "return pg.maximum(pg.tensor({1, 4}), 2)",
       .inputs = {{"x"}, {"y"}},
       .vjp = {[](Vjp& c) { return unless_lost(c, call<"lt">(c.in(0), c.in(1))); },
               [](Vjp& c) { return unless_lost(c, call<"gt">(c.in(0), c.in(1))); }},
       .vjp_uses = "x y",
       .traits = kPointwise},
      {.name = "minimum",
       .doc =
           "The smaller of x and y, with broadcasting; NaN wins. Where they are equal each gets half of the gradient, "
           "and where one is NaN each gets all of it.",
       .example = "return pg.minimum(pg.tensor({1, 4}), 2)",
       .inputs = {{"x"}, {"y"}},
       .vjp = {[](Vjp& c) { return unless_lost(c, call<"gt">(c.in(0), c.in(1))); },
               [](Vjp& c) { return unless_lost(c, call<"lt">(c.in(0), c.in(1))); }},
       .vjp_uses = "x y",
       .traits = kPointwise},
      {.name = "atan2",
       .doc = "The angle of the point (y, x) in -pi..pi, with broadcasting. Note the order: pg.atan2(y, x).",
       .example = "return pg.atan2(pg.tensor({1, -1}), pg.tensor({1, 1}))",
       .aliases = {"arctan2"},
       .inputs = {{"y", kAnyDType, Arity::kOne, 0.2, 2}, {"x", kAnyDType, Arity::kOne, 0.2, 2}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() * over_squares(c, c.in(1)); },
               [](Vjp& c) { return -c.dy() * over_squares(c, c.in(0)); }},
       .vjp_uses = "y x",
       .traits = kPointwise | kWidens},
      {.name = "hypot",
       .doc = "sqrt(x^2 + y^2) without overflow on the way, with broadcasting.",
       .example = "return pg.hypot(pg.tensor({3, 5}), pg.tensor({4, 12}))",
       .inputs = {{"x", kAnyDType, Arity::kOne, 0.2, 2}, {"y", kAnyDType, Arity::kOne, 0.2, 2}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() * (c.in(0) / c.out()); },
               [](Vjp& c) { return c.dy() * (c.in(1) / c.out()); }},
       .vjp_uses = "x y out",
       .traits = kPointwise | kWidens | kCommutative},
      {.name = "copysign",
       .doc = "The magnitude of x with the sign of y, with broadcasting.",
       .example = "return pg.copysign(pg.tensor({1, 2}), pg.tensor({-1, 1}))",
       .inputs = {{"x", kAnyDType, Arity::kOne, 0.2, 2}, {"y", kAnyDType, Arity::kOne, 0.2, 2}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() * (c.out() / call<"where">(call<"eq">(c.in(0), 0.0), 1.0, c.in(0))); },
               no_gradient},
       .vjp_uses = "x out",
       .traits = kPointwise},
      {.name = "logaddexp",
       .doc = "log(exp(x) + exp(y)) without overflow, with broadcasting.",
       .example = "return pg.logaddexp(pg.tensor({1000}), pg.tensor({1000}))",
       .inputs = {{"x"}, {"y"}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() * call<"sigmoid">(c.in(0) - c.in(1)); },
               [](Vjp& c) { return c.dy() * call<"sigmoid">(c.in(1) - c.in(0)); }},
       .vjp_uses = "x y",
       .traits = kPointwise | kWidens},
  };
  r.add(kRows);
}

static void add_comparisons(Registry& r) {
  const OpDef is_nan = {.name = "isnan",
                        .doc = "True where x is NaN; never for integers.",
                        .example = "return pg.tensor({1, 0 / 0}):isnan()",
                        .inputs = {{"x"}},
                        .result = Result::kBool,
                        .traits = kPointwise | kNoGrad};
  const OpDef rows[] = {
      comparison("eq",
                 "True where x equals y, with broadcasting. Lua's own == is identity: false for a tensor and a number.",
                 "return pg.tensor({1, 2}):eq(2)", kCommutative),
      also({"not_equal"},
           comparison("ne", "True where x differs from y, with broadcasting; NaN differs from everything.",
                      "return pg.tensor({1, 2}):ne(2)", kCommutative)),
      also({"less"},
           comparison("lt", "True where x is less than y, with broadcasting.", "return pg.tensor({1, 2}):lt(2)")),
      also({"less_equal"},
           comparison("le", "True where x is at most y, with broadcasting.", "return pg.tensor({1, 2}):le(1)")),
      also({"greater"},
           comparison("gt", "True where x is greater than y, with broadcasting.", "return pg.tensor({1, 2}):gt(1)")),
      also({"greater_equal"},
           comparison("ge", "True where x is at least y, with broadcasting.", "return pg.tensor({1, 2}):ge(2)")),
      comparison("logical_and", "True where both x and y are nonzero, with broadcasting.",
                 "return pg.tensor({true, false}):logical_and(pg.tensor({true, true}))", kCommutative),
      comparison("logical_or", "True where x or y is nonzero, with broadcasting.",
                 "return pg.tensor({true, false}):logical_or(pg.tensor({false, false}))", kCommutative),
      comparison("logical_xor", "True where exactly one of x and y is nonzero, with broadcasting.",
                 "return pg.tensor({true, false}):logical_xor(pg.tensor({true, true}))", kCommutative),
      {.name = "logical_not",
       .doc = "True where x is zero or false.",
       .example = "return pg.tensor({true, false}):logical_not()",
       .inputs = {{"x"}},
       .result = Result::kBool,
       .traits = kPointwise | kNoGrad | kInvolution},
      is_nan,
      like(is_nan, "isinf", "True where x is an infinity; never for integers.",
           "return pg.tensor({1, math.huge}):isinf()"),
      like(is_nan, "isfinite", "True where x is neither NaN nor an infinity; always for integers.",
           "return pg.tensor({1, math.huge}):isfinite()"),
      bitwise("bitwise_and", "The bitwise and of integers or bools, with broadcasting.",
              "return pg.tensor({6}, {dtype = 'int32'}):bitwise_and(3)"),
      bitwise("bitwise_or", "The bitwise or of integers or bools, with broadcasting.",
              "return pg.tensor({6}, {dtype = 'int32'}):bitwise_or(3)"),
      bitwise("bitwise_xor", "The bitwise exclusive or of integers or bools, with broadcasting.",
              "return pg.tensor({6}, {dtype = 'int32'}):bitwise_xor(3)"),
      {.name = "bitwise_not",
       .doc = "All bits of integers flipped; the logical not of bools.",
       .example = "return pg.tensor({6}, {dtype = 'int32'}):bitwise_not()",
       .inputs = {{"x", kIntegral | kBoolOnly}},
       .result = Result::kInteger,
       .traits = kPointwise | kNoGrad | kInvolution},
  };
  r.add(rows);
}

static void add_selection(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "where",
       .doc = "x where the bool condition is true, else y, with broadcasting of all three. The condition gets no "
              "gradient.",
       .example = "local x = pg.tensor({-1, 2}) return pg.where(x:gt(0), x, 0)",
       .inputs = {{"condition", kBoolOnly}, {"x"}, {"y"}},
       .vjp = {nullptr, [](Vjp& c) { return call<"where">(c.in(0), c.dy(), 0.0); },
               [](Vjp& c) { return call<"where">(c.in(0), 0.0, c.dy()); }},
       .vjp_uses = "condition",
       .traits = kPointwise},
      {.name = "lerp",
       .doc = "x + weight (y - x), exact at both ends, with broadcasting.",
       .example = "return pg.lerp(pg.tensor({0, 10}), pg.tensor({10, 20}), 0.5)",
       .inputs = {{"x"}, {"y"}, {"weight", kAnyDType, Arity::kOne, 0, 1}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() * (1.0 - c.in(2)); }, [](Vjp& c) { return c.dy() * c.in(2); },
               [](Vjp& c) { return c.dy() * (c.in(1) - c.in(0)); }},
       .vjp_uses = "x y weight",
       .traits = kPointwise | kWidens},
      {.name = "clamp",
       .doc = "x limited to [min, max]; either bound may be nil, a number or a tensor, with broadcasting. NaN stays "
              "NaN, and max wins where min is above it. The gradient passes inside the closed interval.",
       .example = "return pg.tensor({-2, 0.5, 3}):clamp(-1, 1)",
       .aliases = {"clip"},
       .inputs = {{"x", kNumeric},
                  {"min", kNumeric, Arity::kOptional, -1.5, -0.5},
                  {"max", kNumeric, Arity::kOptional, 0.5, 1.5}},
       .vjp = {clamp_grad, clamp_min_grad, clamp_max_grad},
       .vjp_uses = "x min max",
       .traits = kPointwise},
  };
  r.add(kRows);
}

void add_pointwise_ops(Registry& r) {
  add_arithmetic(r);
  add_comparisons(r);
  add_selection(r);
}

}  // namespace pg
