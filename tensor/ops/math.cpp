// Elementary functions of one tensor.
#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {
namespace {

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402;
constexpr double kTwoOverSqrtPi = 1.12837916709551257390;

Var no_gradient(Vjp&) { return Var(); }

struct Domain {
  double low = -2, high = 2;
};

// For functions with float results; integers are promoted to float32.
OpDef function(const char* name, const char* doc, const char* example, GradFn vjp, const char* uses, Domain domain = {},
               EpilogueFn epilogue = nullptr) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kAnyDType, Arity::kOne, domain.low, domain.high}},
          .result = Result::kFloat,
          .vjp = {vjp},
          .vjp_uses = uses,
          .traits = kPointwise,
          .epilogue = epilogue};
}

// For functions that keep integer dtypes; bool is refused.
OpDef keeping(const char* name, const char* doc, const char* example, GradFn vjp, const char* uses, Domain domain = {},
              uint32_t traits = kIdempotent) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kNumeric, Arity::kOne, domain.low, domain.high}},
          .result = Result::kSame,
          .vjp = {vjp},
          .vjp_uses = uses,
          .traits = kPointwise | traits};
}

// For derivatives of several steps from a rounded result.
OpDef widening(OpDef op) {
  op.traits |= kWidens;
  return op;
}

}  // namespace

static void add_simple(Registry& r) {
  static const OpDef kRows[] = {
      also({"negative"}, keeping(
                             "neg", "-x. Bool is refused.", "return pg.tensor({1, -2}):neg()",
                             [](Vjp& c) { return -c.dy(); }, "", {}, kInvolution)),
      also({"absolute"},
           keeping("abs", "The absolute value. The gradient at 0 is 0.", "return pg.tensor({1, -2}):abs()",
                   [](Vjp& c) { return c.dy() * call<"sign">(c.in(0)); }, "x", {0.2, 2})),
      keeping("sign", "-1, 0 or 1; 0 for NaN. The gradient is zero.", "return pg.tensor({3, 0, -2}):sign()",
              no_gradient, "", {0.2, 2}),
      keeping(
          "square", "x * x.", "return pg.tensor({3, -2}):square()", [](Vjp& c) { return c.dy() * c.in(0) * 2.0; }, "x",
          {}, 0),
      keeping("floor", "The largest whole number not above x. The gradient is zero.",
              "return pg.tensor({1.5, -1.5}):floor()", no_gradient, "", {0.1, 0.9}),
      keeping("ceil", "The smallest whole number not below x. The gradient is zero.",
              "return pg.tensor({1.5, -1.5}):ceil()", no_gradient, "", {0.1, 0.9}),
      keeping("round", "The nearest whole number, halves to the even one. The gradient is zero.",
              "return pg.tensor({0.5, 1.5, -1.2}):round()", no_gradient, "", {0.6, 1.4}),
      also({"fix"}, keeping("trunc", "x without its fraction. The gradient is zero.",
                            "return pg.tensor({1.5, -1.5}):trunc()", no_gradient, "", {0.1, 0.9})),
      function("sqrt", "The square root; NaN below 0. Integers give float32.", "return pg.tensor({1, 4}):sqrt()",
               [](Vjp& c) { return c.dy() / (c.out() * 2.0); }, "out", {0.2, 3}),
      widening(function("rsqrt", "1 / sqrt(x). Integers give float32.", "return pg.tensor({1, 4}):rsqrt()",
                        [](Vjp& c) { return c.dy() * (c.out() * c.out() * c.out()) * -0.5; }, "out", {0.2, 3})),
      widening(function("reciprocal", "1 / x. Integers give float32.", "return pg.tensor({1, 4}):reciprocal()",
                        [](Vjp& c) { return -c.dy() * (c.out() * c.out()); }, "out", {0.3, 3})),
  };
  r.add(kRows);
}

static void add_exponentials(Registry& r) {
  static const OpDef kRows[] = {
      function(
          "exp", "e to the power x.", "return pg.tensor({0, 1}):exp()", [](Vjp& c) { return c.dy() * c.out(); }, "out"),
      widening(function(
          "exp2", "2 to the power x.", "return pg.tensor({0, 3}):exp2()",
          [](Vjp& c) { return c.dy() * c.out() * kLn2; }, "out")),
      widening(function(
          "expm1", "exp(x) - 1, accurate near 0.", "return pg.tensor({0, 1e-6}):expm1()",
          [](Vjp& c) { return c.dy() * (c.out() + 1.0); }, "out")),
      function("log", "The natural logarithm; -inf at 0, NaN below.", "return pg.tensor({1, 10}):log()",
               [](Vjp& c) { return c.dy() / c.in(0); }, "x", {0.1, 3}),
      function("log2", "The logarithm to base 2.", "return pg.tensor({1, 8}):log2()",
               [](Vjp& c) { return c.dy() / (c.in(0) * kLn2); }, "x", {0.1, 3}),
      function("log10", "The logarithm to base 10.", "return pg.tensor({1, 1000}):log10()",
               [](Vjp& c) { return c.dy() / (c.in(0) * kLn10); }, "x", {0.1, 3}),
      function("log1p", "log(1 + x), accurate near 0.", "return pg.tensor({0, 1e-6}):log1p()",
               [](Vjp& c) { return c.dy() / (c.in(0) + 1.0); }, "x", {-0.8, 3}),
  };
  r.add(kRows);
}

static void add_trigonometry(Registry& r) {
  static const OpDef kRows[] = {
      function(
          "sin", "The sine of x in radians.", "return pg.tensor({0, 1}):sin()",
          [](Vjp& c) { return c.dy() * call<"cos">(c.in(0)); }, "x"),
      function(
          "cos", "The cosine of x in radians.", "return pg.tensor({0, 1}):cos()",
          [](Vjp& c) { return -c.dy() * call<"sin">(c.in(0)); }, "x"),
      widening(function("tan", "The tangent of x in radians.", "return pg.tensor({0, 1}):tan()",
                        [](Vjp& c) { return c.dy() * (c.out() * c.out() + 1.0); }, "out", {-1.2, 1.2})),
      also({"arcsin"},
           function("asin", "The angle in -pi/2..pi/2 whose sine is x; NaN outside -1..1.",
                    "return pg.tensor({0, 1}):asin()",
                    [](Vjp& c) { return c.dy() * call<"rsqrt">(1.0 - c.in(0) * c.in(0)); }, "x", {-0.8, 0.8})),
      also({"arccos"},
           function("acos", "The angle in 0..pi whose cosine is x; NaN outside -1..1.",
                    "return pg.tensor({0, 1}):acos()",
                    [](Vjp& c) { return -c.dy() * call<"rsqrt">(1.0 - c.in(0) * c.in(0)); }, "x", {-0.8, 0.8})),
      also({"arctan"}, function(
                           "atan", "The angle in -pi/2..pi/2 whose tangent is x.", "return pg.tensor({0, 1}):atan()",
                           [](Vjp& c) { return c.dy() / (c.in(0) * c.in(0) + 1.0); }, "x")),
      function(
          "sinh", "The hyperbolic sine.", "return pg.tensor({0, 1}):sinh()",
          [](Vjp& c) { return c.dy() * call<"cosh">(c.in(0)); }, "x"),
      function(
          "cosh", "The hyperbolic cosine.", "return pg.tensor({0, 1}):cosh()",
          [](Vjp& c) { return c.dy() * call<"sinh">(c.in(0)); }, "x"),
      function(
          "tanh", "The hyperbolic tangent.", "return pg.tensor({0, 1}):tanh()",
          [](Vjp& c) { return call<"tanh_grad">(c.dy(), c.out()); }, "out", {},
          [](const AttrReader&) { return Epilogue{"tanh"}; }),
      also({"arcsinh"}, function(
                            "asinh", "The inverse of sinh.", "return pg.tensor({0, 1}):asinh()",
                            [](Vjp& c) { return c.dy() * call<"rsqrt">(c.in(0) * c.in(0) + 1.0); }, "x")),
      also({"arccosh"},
           function("acosh", "The inverse of cosh; NaN below 1.", "return pg.tensor({1, 2}):acosh()",
                    [](Vjp& c) { return c.dy() * call<"rsqrt">(c.in(0) * c.in(0) - 1.0); }, "x", {1.2, 3})),
      also({"arctanh"},
           function("atanh", "The inverse of tanh; NaN outside -1..1.", "return pg.tensor({0, 0.5}):atanh()",
                    [](Vjp& c) { return c.dy() / (1.0 - c.in(0) * c.in(0)); }, "x", {-0.8, 0.8})),
      {.name = "tanh_grad",
       .doc = "dy (1 - y^2), the derivative of tanh from its output.",
       .inputs = {{"dy"}, {"y"}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return call<"tanh_grad">(c.dy(), c.in(1)); },
               [](Vjp& c) { return c.dy() * c.in(0) * c.in(1) * -2.0; }},
       .vjp_uses = "dy y",
       .traits = kPointwise | kHidden | kWidens},
  };
  r.add(kRows);
}

static void add_special(Registry& r) {
  static const OpDef kRows[] = {
      function(
          "erf", "The error function.", "return pg.tensor({0, 1}):erf()",
          [](Vjp& c) { return c.dy() * call<"exp">(-(c.in(0) * c.in(0))) * kTwoOverSqrtPi; }, "x"),
      function(
          "erfc", "1 - erf(x), accurate for large x.", "return pg.tensor({0, 3}):erfc()",
          [](Vjp& c) { return c.dy() * call<"exp">(-(c.in(0) * c.in(0))) * -kTwoOverSqrtPi; }, "x"),
      widening(function(
          "erfinv",
          "The inverse of erf; infinities at -1 and 1, NaN beyond. Starts from M. Giles, Approximating the erfinv "
          "function, 2011.",
          "return pg.tensor({0, 0.5}):erfinv()",
          [](Vjp& c) { return c.dy() * call<"exp">(c.out() * c.out()) * (1 / kTwoOverSqrtPi); }, "out", {-0.8, 0.8})),
      function("lgamma", "The logarithm of the absolute value of the gamma function.",
               "return pg.tensor({1, 5}):lgamma()", [](Vjp& c) { return c.dy() * call<"digamma">(c.in(0)); }, "x",
               {0.3, 4}),
      function("digamma", "The derivative of lgamma (Abramowitz and Stegun, 6.3).",
               "return pg.tensor({1, 5}):digamma()",
               [](Vjp& c) {
                 return c.dy() * call<"polygamma">(c.in(0), {{"n", int64_t(1)}});
               },
               "x", {0.3, 4}),
      {.name = "polygamma",
       .doc = "The n-th derivative of digamma (Abramowitz and Stegun, 6.4).",
       .example = "return pg.tensor({1, 5}):polygamma(1)",
       .inputs = {{"x", kAnyDType, Arity::kOne, 0.5, 4}},
       .attrs = {{.name = "n",
                  .kind = AttrKind::kInt,
                  .fallback = int64_t(1),
                  .doc = "which derivative",
                  .min = 0,
                  .max = 100}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) {
         return c.dy() * call<"polygamma">(c.in(0), {{"n", c.attr<int64_t>("n") + 1}});
       }},
       .vjp_uses = "x",
       .traits = kPointwise},
  };
  r.add(kRows);
}

void add_math_ops(Registry& r) {
  add_simple(r);
  add_exponentials(r);
  add_trigonometry(r);
  add_special(r);
}

}  // namespace pg
