// Elementwise activations.
#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {
namespace {

constexpr double kSeluScale = 1.0507009873554804934193349852946, kSeluAlpha = 1.6732632423543772848170429916717;

OpDef activation(const char* name, const char* doc, const char* example, std::vector<AttrDef> attrs, GradFn vjp,
                 const char* uses, double low = 0.2, double high = 2, EpilogueFn epilogue = nullptr) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kAnyDType, Arity::kOne, low, high}},
          .attrs = std::move(attrs),
          .result = Result::kFloat,
          .vjp = {vjp},
          .vjp_uses = uses,
          .traits = kPointwise,
          .epilogue = epilogue};
}

// A derivative from the op's input, and its own by that input.
OpDef derivative(const char* name, const char* doc, std::vector<AttrDef> attrs, GradFn by_dy, GradFn by_x) {
  return {.name = name,
          .doc = doc,
          .inputs = {{"dy"}, {"x"}},
          .attrs = std::move(attrs),
          .result = Result::kFloat,
          .vjp = {by_dy, by_x},
          .vjp_uses = "dy x",
          .traits = kPointwise | kHidden | kWidens};
}

AttrDef number(const char* name, double fallback, const char* doc) {
  return {.name = name, .kind = AttrKind::kFloat, .fallback = fallback, .doc = doc};
}

// With `min` the bounds are checked, so NaN is refused.
AttrDef number_from(const char* name, double fallback, const char* doc, double min) {
  AttrDef def = number(name, fallback, doc);
  def.min = min;
  return def;
}

// The type rule of the functions here, for ops that check their attributes.
void infer_float_function(Infer& c) { c.output(float_result(c.dtype(0)), c.shape(0)); }

void infer_hardtanh(Infer& c) {
  const double low = c.attr<double>("min_val");
  if (c.attr<double>("max_val") < low) c.bad_attr("max_val", fmt::format("at least min_val, {}", low));
  infer_float_function(c);
}

void infer_celu(Infer& c) {
  if (c.attr<double>("alpha") == 0) c.bad_attr("alpha", "a number other than 0");
  infer_float_function(c);
}

OpDef checked(OpDef op, InferFn infer) {
  op.infer = infer;
  return op;
}

Var positive(Vjp& c) { return call<"gt">(c.in(0), 0.0); }
Var negative(Vjp& c) { return call<"le">(c.in(0), 0.0); }  // not NaN: its gradient is that of a positive number

// exp(min(x, 0) / scale). out + alpha would lose the digits of small derivatives.
Var exp_of_negative(Vjp& c, double scale) {
  const Var x = call<"minimum">(c.in(0), 0.0);
  return call<"exp">(scale == 1 ? x : x / scale);
}

// dy where low < x < high.
Var inside(Vjp& c, double low, double high) {
  const Var mask = call<"logical_and">(call<"gt">(c.in(0), low), call<"lt">(c.in(0), high));
  return call<"where">(mask, c.dy(), 0.0);
}

// dy where low < x < high, and where x is NaN.
Var unless_outside(Vjp& c, double low, double high) {
  const Var mask = call<"logical_or">(call<"le">(c.in(0), low), call<"ge">(c.in(0), high));
  return call<"where">(mask, 0.0, c.dy());
}

Var gelu_grad(Vjp& c) { return call<"gelu_grad">(c.dy(), c.in(0), {{"approximate", c.raw("approximate")}}); }
Var silu_grad(Vjp& c) { return call<"silu_grad">(c.dy(), c.in(0)); }

Var silu_curve(Vjp& c) {
  const Var x = c.in(1), s = call<"logistic">(x);
  return c.dy() * c.in(0) * (s * call<"logistic">(-x) * (x * (1.0 - s * 2.0) + 2.0));
}

// Beyond the bounds of x it is 0 in every dtype.
Var gelu_curve(Vjp& c) {
  const Var x = call<"clamp">(c.in(1), -40.0, 40.0), x2 = x * x;
  if (c.attr<std::string>("approximate") == "none")
    return c.dy() * c.in(0) * (call<"exp">(x2 * -0.5) * 0.39894228040143267794 * (2.0 - x2));
  constexpr double k = 2 * 0.79788456080286535588, cubic = 0.044715;
  const Var u = x * (x2 * cubic + 1.0) * k, s = call<"sigmoid">(u), rise = s * call<"sigmoid">(-u),
            slope = (x2 * (3 * cubic) + 1.0) * k;
  return c.dy() * c.in(0) * (rise * (slope * 2.0 + x * (slope * slope * (1.0 - s * 2.0) + x * (6 * cubic * k))));
}

Var mish_grad(Vjp& c) {
  const Var t = call<"tanh">(call<"softplus">(c.in(0)));
  return c.dy() * (t + c.in(0) * (1.0 - t * t) * call<"logistic">(c.in(0)));
}

// The slope is the float nearest to 1/6 in every dtype, as in PyTorch.
Var hardsigmoid_grad(Vjp& c) { return inside(c, -3, 3) * double(1.0f / 6.0f); }

Var hardswish_grad(Vjp& c) {
  const Var x = c.in(0);
  const Var middle = call<"where">(call<"gt">(x, -3.0), c.dy() * (x / 3.0 + 0.5), 0.0);
  return call<"where">(call<"lt">(x, 3.0), middle, c.dy());
}

Var softplus_grad(Vjp& c) {
  const Var scaled = c.in(0) * c.attr<double>("beta");
  return call<"where">(call<"gt">(scaled, c.attr<double>("threshold")), c.dy(), c.dy() * call<"logistic">(scaled));
}

void infer_prelu(Infer& c) {
  const int64_t weights = numel(c.shape(1));
  const int64_t channels = c.rank(0) >= 2 ? c.shape(0)[1] : 1;
  if (c.rank(1) > 1 || (weights != 1 && weights != channels))
    c.bad_input(1, fmt::format("one weight or one for each of the {} channels", channels));
  c.output(promote(c.dtype(0), c.dtype(1)), c.shape(0));
}

std::vector<Var> decompose_prelu(Rule& c) {
  Var w = c.in(1);
  const int rank = c.input(0).rank();
  if (rank >= 2 && w.numel() != 1) {
    for (int d = 2; d < rank; ++d) w = call<"unsqueeze">(w, {{"dim", int64_t(-1)}});
  } else if (w.rank() > 0) {
    w = call<"reshape">(w, {{"shape", Ints{}}});
  }
  return {call<"scale_below">(c.in(0), w)};
}

}  // namespace

static void add_rectifiers(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "relu",
       .doc = "max(x, 0). Keeps integer dtypes; NaN stays. The gradient at 0 is 0.",
       .example = "return pg.tensor({-1, 2}):relu()",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.2, 2}},
       .result = Result::kSame,
       .vjp = {[](Vjp& c) { return call<"relu_grad">(c.dy(), c.out()); }},
       .vjp_uses = "out",
       .traits = kPointwise | kIdempotent | kCheap,
       .epilogue = [](const AttrReader&) { return Epilogue{"relu"}; }},
      {.name = "relu_grad",
       .doc = "dy where y is positive or NaN, else 0: the derivative of relu from its output.",
       .inputs = {{"dy", kNumeric}, {"y", kNumeric, Arity::kOne, 0.2, 2}},
       .vjp = {[](Vjp& c) { return call<"relu_grad">(c.dy(), c.in(1)); }, [](Vjp&) { return Var(); }},
       .vjp_uses = "y",
       .traits = kPointwise | kHidden},
      {.name = "relu6",
       .doc = "min(max(x, 0), 6). Keeps integer dtypes.",
       .example = "return pg.tensor({-1, 2, 8}):relu6()",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.2, 2}},
       .result = Result::kSame,
       .vjp = {[](Vjp& c) { return unless_outside(c, 0, 6); }},
       .vjp_uses = "x",
       .traits = kPointwise | kIdempotent,
       .epilogue = [](const AttrReader&) { return Epilogue{"relu6"}; }},
      activation(
          "leaky_relu", "x where it is positive, else negative_slope x.", "return pg.tensor({-1, 2}):leaky_relu(0.1)",
          {number("negative_slope", 0.01, "the factor below 0")},
          [](Vjp& c) { return call<"where">(positive(c), c.dy(), c.dy() * c.attr<double>("negative_slope")); }, "x",
          0.2, 2,
          [](const AttrReader& c) {
            return Epilogue{"leaky_relu", c.attr<double>("negative_slope")};
          }),
      {.name = "prelu",
       .doc = "x where it is positive, else weight x: one weight for all, or one per channel (dim 2). He et al., "
              "Delving deep into rectifiers, 2015.",
       .example = "return pg.prelu(pg.tensor({{-1, 2}}), pg.tensor({0.1, 0.2}))",
       .inputs = {{"x", kFloating, Arity::kOne, 0.2, 2}, {"weight", kFloating}},
       .infer = infer_prelu,
       .decompose = decompose_prelu},
      {.name = "scale_below",
       .doc = "x where it is positive, else x y, with broadcasting.",
       .inputs = {{"x", kFloating, Arity::kOne, 0.2, 2}, {"y", kFloating}},
       .vjp = {[](Vjp& c) { return call<"where">(positive(c), c.dy(), c.dy() * c.in(1)); },
               [](Vjp& c) { return call<"where">(positive(c), 0.0, c.dy() * c.in(0)); }},
       .vjp_uses = "x y",
       .traits = kPointwise | kHidden},
      activation(
          "elu",
          "x where it is positive, else alpha (exp(x) - 1). Clevert et al., Fast and accurate deep network learning "
          "by exponential linear units, 2015.",
          "return pg.tensor({-1, 2}):elu()", {number("alpha", 1, "minus the limit at -inf")},
          [](Vjp& c) {
            return call<"where">(negative(c), c.dy() * exp_of_negative(c, 1) * c.attr<double>("alpha"), c.dy());
          },
          "x"),
      checked(activation(
                  "celu",
                  "x where it is positive, else alpha (exp(x / alpha) - 1), which has a continuous derivative. Barron, "
                  "Continuously differentiable exponential linear units, 2017.",
                  "return pg.tensor({-1, 2}):celu(0.5)", {number("alpha", 1, "minus the limit at -inf, not 0")},
                  [](Vjp& c) {
                    return call<"where">(negative(c), c.dy() * exp_of_negative(c, c.attr<double>("alpha")), c.dy());
                  },
                  "x"),
              infer_celu),
      activation(
          "selu",
          "The scaled exponential linear unit that keeps mean and variance. Klambauer et al., Self-normalizing "
          "neural networks, 2017.",
          "return pg.tensor({-1, 2}):selu()", {},
          [](Vjp& c) {
            const Var below = c.dy() * exp_of_negative(c, 1) * (kSeluScale * kSeluAlpha);
            return call<"where">(negative(c), below, c.dy() * kSeluScale);
          },
          "x"),
      checked(
          activation(
              "hardtanh", "x limited to [min_val, max_val].", "return pg.tensor({-3, 0.5}):hardtanh()",
              {number("min_val", -1, "the lower limit"), number("max_val", 1, "the upper limit, not below min_val")},
              [](Vjp& c) { return unless_outside(c, c.attr<double>("min_val"), c.attr<double>("max_val")); }, "x", -0.9,
              0.9),
          infer_hardtanh),
      activation(
          "softshrink", "x moved towards 0 by lambda, and 0 where |x| is at most lambda.",
          "return pg.tensor({-2, 0.3, 2}):softshrink()", {number_from("lambda", 0.5, "what is taken off |x|", 0)},
          [](Vjp& c) {
            const double lambda = c.attr<double>("lambda");
            const Var dead = call<"le">(call<"abs">(c.in(0)), lambda);
            return call<"where">(dead, 0.0, c.dy());
          },
          "x", 0.7, 2),
      activation(
          "hardshrink", "x, and 0 where |x| is at most lambda.", "return pg.tensor({-2, 0.3, 2}):hardshrink()",
          {number("lambda", 0.5, "the largest |x| that becomes 0")},
          [](Vjp& c) {
            const Var dead = call<"le">(call<"abs">(c.in(0)), c.attr<double>("lambda"));
            return call<"where">(dead, 0.0, c.dy());
          },
          "x", 0.7, 2),
      activation(
          "threshold", "x where it is above threshold, else value.", "return pg.tensor({-1, 0.5, 2}):threshold(1, -5)",
          {{.name = "threshold", .kind = AttrKind::kFloat, .doc = "the limit"},
           {.name = "value", .kind = AttrKind::kFloat, .doc = "what replaces the elements up to the limit"}},
          [](Vjp& c) { return call<"where">(call<"le">(c.in(0), c.attr<double>("threshold")), 0.0, c.dy()); }, "x"),
      {.name = "tanhshrink",
       .doc = "x - tanh(x), accurate near 0.",
       .example = "return pg.tensor({-2, 0, 2}):tanhshrink()",
       .inputs = {{"x", kFloating}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() * call<"square">(call<"tanh">(c.in(0))); }},
       .vjp_uses = "x",
       .traits = kPointwise},
      activation("hardsigmoid", "min(max(x + 3, 0), 6) / 6.", "return pg.tensor({-4, 0, 4}):hardsigmoid()", {},
                 hardsigmoid_grad, "x"),
      activation("hardswish", "x min(max(x + 3, 0), 6) / 6. Howard et al., Searching for MobileNetV3, 2019.",
                 "return pg.tensor({-4, 0, 4}):hardswish()", {}, hardswish_grad, "x"),
  };
  r.add(kRows);
}

static void add_smooth(Registry& r) {
  static const AttrDef approximate = {.name = "approximate",
                                      .kind = AttrKind::kString,
                                      .fallback = std::string("none"),
                                      .doc = "exact, or by tanh",
                                      .choices = {"none", "tanh"}};
  static const OpDef kRows[] = {
      activation(
          "sigmoid", "1 / (1 + exp(-x)).", "return pg.tensor({0, 1}):sigmoid()", {},
          [](Vjp& c) { return call<"sigmoid_grad">(c.dy(), c.out()); }, "out", -2, 2,
          [](const AttrReader&) { return Epilogue{"sigmoid"}; }),
      {.name = "sigmoid_grad",
       .doc = "dy y (1 - y), the derivative of sigmoid from its output.",
       .inputs = {{"dy"}, {"y"}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return call<"sigmoid_grad">(c.dy(), c.in(1)); },
               [](Vjp& c) { return c.dy() * c.in(0) * (1.0 - c.in(1) * 2.0); }},
       .vjp_uses = "dy y",
       .traits = kPointwise | kHidden | kWidens},
      {.name = "logistic",
       .doc = "sigmoid with derivatives from its argument: they keep their digits on both sides. sigmoid's own, from "
              "its result, lose them where that is near 1.",
       .inputs = {{"x"}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() * call<"logistic">(c.in(0)) * call<"logistic">(-c.in(0)); }},
       .vjp_uses = "x",
       .decompose = [](Rule& c) -> std::vector<Var> { return {call<"sigmoid">(c.in(0))}; },
       .traits = kPointwise | kHidden},
      activation(
          "logsigmoid", "log(sigmoid(x)) without underflow.", "return pg.tensor({0, -100}):logsigmoid()", {},
          [](Vjp& c) { return c.dy() * call<"logistic">(-c.in(0)); }, "x", -2, 2),
      activation("silu", "x sigmoid(x), also known as swish. Elfwing et al., Sigmoid-weighted linear units, 2017.",
                 "return pg.tensor({0, 1}):silu()", {}, silu_grad, "x", -2, 2,
                 [](const AttrReader&) { return Epilogue{"silu"}; }),
      derivative(
          "silu_grad", "dy times the derivative of silu at x.", {},
          [](Vjp& c) { return call<"silu_grad">(c.dy(), c.in(1)); }, silu_curve),
      activation("mish",
                 "x tanh(softplus(x)). Misra, Mish: a self regularized non-monotonic activation function, 2019.",
                 "return pg.tensor({0, 1}):mish()", {}, mish_grad, "x", -2, 2),
      activation(
          "gelu",
          "x times the normal distribution function of x, or its tanh form. Hendrycks and Gimpel, Gaussian error "
          "linear units, 2016.",
          "return pg.tensor({0, 1}):gelu{approximate = 'tanh'}", {approximate}, gelu_grad, "x", -2, 2,
          [](const AttrReader& c) {
            return Epilogue{c.attr<std::string>("approximate") == "tanh" ? "gelu_tanh" : "gelu"};
          }),
      derivative(
          "gelu_grad", "dy times the derivative of gelu at x.", {approximate},
          [](Vjp& c) {
            return call<"gelu_grad">(c.dy(), c.in(1), {{"approximate", c.raw("approximate")}});
          },
          gelu_curve),
      activation("softplus", "log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.",
                 "return pg.tensor({0, 1}):softplus()",
                 {number("beta", 1, "the sharpness"), number("threshold", 20, "where it becomes linear")},
                 softplus_grad, "x", -2, 2),
      activation(
          "softsign", "x / (1 + |x|).", "return pg.tensor({0, 1}):softsign()", {},
          [](Vjp& c) { return c.dy() / call<"square">(call<"abs">(c.in(0)) + 1.0); }, "x"),
  };
  r.add(kRows);
}

void add_activation_ops(Registry& r) {
  add_rectifiers(r);
  add_smooth(r);
}

}  // namespace pg
