// Losses that are negative log-likelihoods of a distribution.
#include <cmath>

#include "tensor/ops/loss_rules.h"

namespace pg {

bool reduces(const AttrReader& c) { return c.attr<std::string>("reduction") != "none"; }

Var reduced(const Rule& c, const Var& loss) {
  const std::string& how = c.attr<std::string>("reduction");
  return how == "none" ? loss : how == "sum" ? call<"sum">(loss) : call<"mean">(loss);
}

void infer_elementwise(Infer& c) {
  Dims shape = c.shape(0);
  DType t = c.dtype(0);
  for (size_t i = 1; i < c.count(); ++i) {
    if (!c.has(i)) continue;
    Dims joined;
    if (!broadcast(shape, c.shape(i), &joined)) c.bad_input(i, "a shape that broadcasts with " + to_string(shape));
    shape = joined;
    t = promote(t, c.dtype(i));
  }
  c.output(float_result(t), reduces(c) ? Dims{} : shape);
}

static Dims without_ones(const Dims& shape) {
  Dims out;
  for (int64_t n : shape)
    if (n != 1) out.push_back(n);
  return out;
}

void infer_labelled(Infer& c) {
  const Dims& x = c.shape(0);
  if (!(without_ones(c.shape(1)) == without_ones(x))) c.bad_input(1, "the shape of x, " + to_string(x));
  DType t = promote(c.dtype(0), c.dtype(1));
  for (size_t i = 2; i < c.count(); ++i) {
    if (!c.has(i)) continue;
    Dims joined;
    if (!broadcast(x, c.shape(i), &joined) || !(joined == x))
      c.bad_input(i, "a shape that broadcasts to that of x, " + to_string(x));
    t = promote(t, c.dtype(i));
  }
  c.output(float_result(t), reduces(c) ? Dims{} : x);
}

Var labels_of(const Rule& c) {
  return c.input(1).shape() == c.input(0).shape() ? c.in(1) : reshaped(c.in(1), c.input(0).shape());
}

Var above_zero(const Var& v) { return call<"clamp">(v, Var(0.0)); }

namespace {

constexpr double kTwoPi = 6.283185307179586476925;

const AttrDef kFull = {"full", AttrKind::kBool, false, "add the terms that do not depend on x"};

AttrDef eps_attr(double fallback, const char* doc) { return {"eps", AttrKind::kFloat, fallback, doc, false, 0}; }

// t log t - t + log(2 pi t) / 2, Stirling's approximation of log t!, for t above 1.
Var log_factorial(const Var& t) {
  const Var large = call<"gt">(t, 1.0), safe = call<"where">(large, t, 2.0);
  const Var log = call<"log">(safe);
  return call<"where">(large, safe * log - safe + (log + std::log(kTwoPi)) * 0.5, 0.0);
}

std::vector<Var> decompose_poisson(Rule& c) {
  const Var x = c.in(0), t = c.in(1);
  Var loss = c.attr<bool>("log_input") ? call<"exp">(x) - t * x : x - t * call<"log">(x + c.attr<double>("eps"));
  if (c.attr<bool>("full")) loss = loss + log_factorial(as_dtype(t, float_result(t.dtype())));
  return {reduced(c, loss)};
}

// The shape of var in broadcasting: a size of 1 is added when only the last dim is missing.
Dims variance_shape(const Dims& x, const Dims& var) {
  Dims out = var;
  if (var.size() + 1 != x.size()) return out;
  for (int d = 0; d < var.size(); ++d)
    if (var[d] != x[d]) return out;
  out.push_back(1);
  return out;
}

void infer_gaussian(Infer& c) {
  Dims shape, joined;
  if (!broadcast(c.shape(0), c.shape(1), &shape)) c.bad_input(1, "a shape that broadcasts with x");
  if (!broadcast(shape, variance_shape(shape, c.shape(2)), &joined) || !(joined == shape))
    c.bad_input(2, fmt::format("a shape that expands to {}, or lacks only its last dim", to_string(shape)));
  c.output(promote(promote(c.dtype(0), c.dtype(1)), c.dtype(2)), reduces(c) ? Dims{} : shape);
}

// var is limited to at least eps, but its gradient is not, as in PyTorch.
std::vector<Var> decompose_gaussian(Rule& c) {
  const Var given = c.in(2), least(c.attr<double>("eps"));
  call<"assert">(
      call<"logical_not">(call<"lt">(given, 0.0)),
      {{"message", std::string("gaussian_nll_loss: bad argument 'var' (expected variances of at least 0, got "
                               "a negative one)")}});
  Dims shape;
  broadcast(c.in(0).shape(), c.in(1).shape(), &shape);
  Var var = given + call<"detach">(call<"maximum">(given, least) - given);
  var = reshaped(var, variance_shape(shape, given.shape()));
  Var loss = (call<"log">(var) + call<"square">(c.in(0) - c.in(1)) / var) * 0.5;
  if (c.attr<bool>("full")) loss = loss + 0.5 * std::log(kTwoPi);
  return {reduced(c, loss)};
}

std::vector<Var> decompose_soft_margin(Rule& c) { return {reduced(c, -call<"logsigmoid">(c.in(0) * labels_of(c)))}; }

void infer_multilabel_soft_margin(Infer& c) {
  if (c.rank(0) < 1) c.bad_input(0, "at least 1 dim: the classes");
  if (!(c.shape(1) == c.shape(0))) c.bad_input(1, "the shape of x, " + to_string(c.shape(0)));
  Dims out = c.shape(0), joined;
  if (c.has(2) && (!broadcast(out, c.shape(2), &joined) || !(joined == out)))
    c.bad_input(2, "a shape that expands to " + to_string(out));
  out.pop_back();
  c.output(c.dtype(0), reduces(c) ? Dims{} : out);
}

std::vector<Var> decompose_multilabel_soft_margin(Rule& c) {
  const Var x = c.in(0), t = as_dtype(c.in(1), x.dtype());
  Var loss = call<"logistic_loss">(x, t);
  if (c.has(2)) loss = loss * as_dtype(c.in(2), x.dtype());
  return {reduced(c, call<"mean">(loss, {{"dim", Ints{-1}}}))};
}

}  // namespace

void add_likelihood_losses(Registry& r) {
  const InputDef fx = {"x", kFloating};
  const OpDef rows[] = {
      {.name = "poisson_nll_loss",
       .doc =
           "exp(x) - target x, the negative log-likelihood of counts with Poisson distributions of logarithmic rates "
           "x, reduced; x - target log(x + eps) for rates x, with log_input = false. full adds Stirling's "
           "approximation of log(target!) for targets above 1.",
       .example = "return pg.poisson_nll_loss(pg.tensor({0, 1}), pg.tensor({1, 3}))",
       .inputs = {{"x", kFloating, Arity::kOne, 0.2, 2}, {"target", kNumeric, Arity::kOne, 1.5, 4}},
       .attrs = {{"log_input", AttrKind::kBool, true, "x holds logarithms of rates"},
                 kFull,
                 eps_attr(1e-8, "added to x before the logarithm"),
                 kHow},
       .infer = infer_elementwise,
       .decompose = decompose_poisson,
       .traits = kWidens},
      {.name = "gaussian_nll_loss",
       .doc =
           "(log(var) + (x - target)^2 / var) / 2, the negative log-likelihood of normal distributions with means x "
           "and variances var, reduced; full adds log(2 pi) / 2. var is limited to at least eps. It broadcasts to x, "
           "and may lack the last dim. A negative one is an error. Nix and Weigend, Estimating the mean and variance "
           "of the target probability distribution, 1994.",
       .example = "return pg.gaussian_nll_loss(pg.tensor({1, 2}), pg.tensor({1, 4}), pg.tensor({1, 2}))",
       .inputs = {fx, {"target", kFloating}, {"var", kFloating, Arity::kOne, 0.5, 2}},
       .attrs = {kFull, eps_attr(1e-6, "the smallest variance"), kHow},
       .infer = infer_gaussian,
       .decompose = decompose_gaussian,
       .traits = kWidens | kNumberOk},
      {.name = "soft_margin_loss",
       .doc =
           "log(1 + exp(-target x)) for targets 1 and -1, reduced. target has the shape of x, but for dims of size 1.",
       .example = "return pg.soft_margin_loss(pg.tensor({0.5, 2}), pg.tensor({1, -1}))",
       .inputs = {fx, {"target", kNumeric}},
       .attrs = {kHow},
       .infer = infer_labelled,
       .decompose = decompose_soft_margin,
       .traits = kWidens},
      {.name = "multilabel_soft_margin_loss",
       .doc = "The mean over the classes, the last dim, of binary_cross_entropy_with_logits of x and target, reduced. "
              "weight has a factor for each class.",
       .example = "return pg.multilabel_soft_margin_loss(pg.tensor({{0.5, -1}}), pg.tensor({{1, 0}}))",
       .inputs = {fx,
                  {"target", kAnyDType, Arity::kOne, 0, 1, "0 or 1"},
                  {"weight", kFloating, Arity::kOptional, 0.5, 2, "a factor for each class"}},
       .attrs = {kHow},
       .infer = infer_multilabel_soft_margin,
       .decompose = decompose_multilabel_soft_margin,
       .traits = kWidens},
  };
  r.add(rows);
}

}  // namespace pg
