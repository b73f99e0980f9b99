// Losses of elements, which are compositions. The files loss_*.cpp have the others.
#include <cmath>

#include "tensor/ops/all.h"
#include "tensor/ops/loss_rules.h"

namespace pg {
namespace {

Var difference(const Rule& c) { return as_dtype(c.in(0), float_result(c.in(0).dtype())) - c.in(1); }

// The weighted losses, reduced; the mean divides by the sum of the weights.
std::vector<Var> weighted(const Rule& c, const Var& loss) {
  if (!c.has(2)) return {reduced(c, loss)};
  const Var total = loss * c.in(2);
  if (c.attr<std::string>("reduction") != "mean") return {reduced(c, total)};
  return {call<"sum">(total) / call<"sum">(call<"expand">(c.in(2), {{"shape", ints(total.shape())}}))};
}

std::vector<Var> decompose_mse(Rule& c) { return weighted(c, call<"square">(difference(c))); }
std::vector<Var> decompose_l1(Rule& c) { return weighted(c, call<"abs">(difference(c))); }

Var huber(const Var& x, double delta, double slope) { return call<"huber">(x, {{"delta", delta}, {"slope", slope}}); }
Var huber_grad(Vjp& c) {
  const double delta = c.attr<double>("delta"), slope = c.attr<double>("slope");
  return c.dy() * call<"clamp">(slope == delta ? c.in(0) : c.in(0) * (slope / delta), -slope, slope);
}

std::vector<Var> decompose_huber(Rule& c) {
  const double delta = c.attr<double>("delta");
  Var loss = huber(difference(c), delta, delta);
  if (c.has(2)) loss = loss * c.in(2);
  return {reduced(c, loss)};
}

// Without the square where 1 / beta is too large for the dtype that computes.
std::vector<Var> decompose_smooth_l1(Rule& c) {
  const double beta = c.attr<double>("beta");
  const Var d = difference(c);
  const bool bends = std::isfinite(d.dtype() == DType::kFloat64 ? 1 / beta : float(1 / beta));
  return {reduced(c, bends ? huber(d, beta, 1) : call<"abs">(d))};
}

// p t log(1 + exp(-x)) + (1 - t) log(1 + exp(x)), where p is the weight of positives, which may be absent. Both
// logarithms are log(1 + exp(-|x|)), one of them with |x| added. No term is negative, so nothing cancels.
std::vector<Var> decompose_logistic_loss(Rule& c) {
  const Var x = c.in(0), size = call<"abs">(x), small = call<"logsigmoid">(size);
  const Var yes = c.has(2) ? c.in(2) * c.in(1) : c.in(1), no = 1.0 - c.in(1);
  const Var large = call<"where">(call<"gt">(x, 0.0), no, yes) * size;
  return {large - (c.has(2) ? small * (yes + no) : small)};
}

// sigmoid(x) - t with both of its tails.
Var logistic_loss_grad(Vjp& c) {
  const Var x = c.in(0), t = c.in(1), rise = call<"logistic">(x), fall = call<"logistic">(-x);
  return c.dy() * ((1.0 - t) * rise - (c.has(2) ? c.in(2) * t : t) * fall);
}
Var logistic_loss_target_grad(Vjp& c) {
  const Var x = c.in(0);
  if (!c.has(2)) return -c.dy() * x;
  return c.dy() * (call<"logsigmoid">(-x) - c.in(2) * call<"logsigmoid">(x));
}
Var logistic_loss_weight_grad(Vjp& c) { return -c.dy() * c.in(1) * call<"logsigmoid">(c.in(0)); }

std::vector<Var> decompose_bce_logits(Rule& c) {
  Var loss = call<"logistic_loss">(c.in(0), labels_of(c), c.has(3) ? c.in(3) : Var());
  if (c.has(2)) loss = loss * c.in(2);
  return {reduced(c, loss)};
}

void require_probabilities(const Rule& c, size_t i) {
  call_all<"check_probabilities">({c.in(i)},
                                  {{"op", std::string(c.op().name)}, {"input", std::string(c.op().inputs[i].name)}});
}

// Logarithms are limited to at least -100, as in PyTorch.
Var limited(const Var& logarithm) { return call<"maximum">(logarithm, Var(-100.0)); }

std::vector<Var> decompose_probability_loss(Rule& c) {
  const Var x = c.in(0), t = c.in(1);
  return {-(t * limited(call<"log">(x))) - (1.0 - t) * limited(call<"log1p">(-x))};
}
// The slope stays finite at 0 and 1, as in PyTorch.
Var probability_loss_grad(Vjp& c) {
  const Var x = c.in(0);
  return c.dy() * ((x - c.in(1)) / call<"maximum">(x * (1.0 - x), 1e-12));
}
Var probability_loss_target_grad(Vjp& c) {
  const Var x = c.in(0);
  return c.dy() * (limited(call<"log1p">(-x)) - limited(call<"log">(x)));
}

std::vector<Var> decompose_bce(Rule& c) {
  require_probabilities(c, 0);
  require_probabilities(c, 1);
  Var loss = call<"probability_loss">(c.in(0), labels_of(c));
  if (c.has(2)) loss = loss * c.in(2);
  return {reduced(c, loss)};
}

// t (log t - x), which is 0 where t is 0.
std::vector<Var> decompose_kl_div(Rule& c) {
  const Var x = c.in(0), t = c.in(1);
  Var loss;
  if (c.attr<bool>("log_target")) {
    loss = call<"exp">(t) * (t - x);
  } else {
    const Var some = call<"gt">(t, Var(0.0)), safe = call<"where">(some, t, Var(1.0));
    loss = call<"where">(some, t * call<"log">(safe), Var(0.0)) - t * x;
  }
  if (c.attr<std::string>("reduction") != "batchmean") return {reduced(c, loss)};
  const double batch = loss.rank() ? double(loss.shape()[0]) : 1;
  return {call<"sum">(loss) / Var(batch)};
}

}  // namespace

void add_loss_ops(Registry& r) {
  const InputDef x = {"x", kNumeric}, y = {"target", kNumeric};
  const InputDef fx = {"x", kFloating};
  const InputDef factor = {"weight", kFloating, Arity::kOptional, 0.5, 2, "a factor for each element"};
  AttrDef kl_reduction = kHow;
  kl_reduction.choices = {"none", "mean", "sum", "batchmean"};
  const OpDef rows[] = {
      {.name = "mse_loss",
       .doc = "The squared difference of x and target, reduced. With weight the mean divides by the sum of weight.",
       .example = "return pg.mse_loss(pg.tensor({1, 2}), pg.tensor({1, 4}))",
       .inputs = {x, y, factor},
       .attrs = {kHow},
       .signature = "x target reduction weight",
       .infer = infer_elementwise,
       .decompose = decompose_mse,
       .traits = kWidens},
      {.name = "l1_loss",
       .doc = "The size of the difference of x and target, reduced. With weight the mean divides by the sum of weight.",
       .example = "return pg.l1_loss(pg.tensor({1, 2}), pg.tensor({1, 4}))",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.5, 2}, {"target", kNumeric, Arity::kOne, -2, 0}, factor},
       .attrs = {kHow},
       .signature = "x target reduction weight",
       .infer = infer_elementwise,
       .decompose = decompose_l1,
       .traits = kWidens},
      {.name = "huber_loss",
       .doc =
           "d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - target (Huber 1964), times weight, "
           "reduced.",
       .example = "return pg.huber_loss(pg.tensor({1, 2}), pg.tensor({1, 4}))",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.5, 0.9}, {"target", kNumeric, Arity::kOne, 0.1, 0.4}, factor},
       .attrs = {kHow, {"delta", AttrKind::kFloat, 1.0, "where the square ends", false, 1e-30}},
       .signature = "x target reduction delta weight",
       .infer = infer_elementwise,
       .decompose = decompose_huber,
       .traits = kWidens},
      {.name = "smooth_l1_loss",
       .doc = "d^2 / (2 beta) where |d| <= beta, else |d| - beta / 2, with d = x - target, reduced.",
       .example = "return pg.smooth_l1_loss(pg.tensor({1, 2}), pg.tensor({1, 4}))",
       .inputs = {{"x", kNumeric, Arity::kOne, 0.5, 0.9}, {"target", kNumeric, Arity::kOne, 0.1, 0.4}},
       .attrs = {kHow, {"beta", AttrKind::kFloat, 1.0, "where the square ends", false, 0}},
       .infer = infer_elementwise,
       .decompose = decompose_smooth_l1,
       .traits = kWidens},
      {.name = "huber",
       .doc = "slope / delta x^2 / 2 where |x| <= delta, else slope (|x| - delta / 2).",
       .inputs = {{"x", kAnyDType, Arity::kOne, 0.2, 0.9}},
       .attrs = {{"delta", AttrKind::kFloat, 1.0, "where the lines begin"},
                 {"slope", AttrKind::kFloat, 1.0, "of the lines"}},
       .result = Result::kFloat,
       .vjp = {huber_grad},
       .vjp_uses = "x",
       .traits = kPointwise | kHidden},
      {.name = "binary_cross_entropy_with_logits",
       .doc = "-(p t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) times weight, reduced, without overflow; p is "
              "pos_weight. target has the shape of x, but for dims of size 1; the factors broadcast to x.",
       .example = "return pg.binary_cross_entropy_with_logits(pg.tensor({0, 2}), pg.tensor({1, 0}))",
       .inputs = {fx,
                  {"target", kFloating, Arity::kOne, 0, 1},
                  factor,
                  {"pos_weight", kFloating, Arity::kOptional, 0.5, 2, "a factor for the positive part"}},
       .attrs = {kHow},
       .signature = "x target weight reduction pos_weight",
       .infer = infer_labelled,
       .decompose = decompose_bce_logits,
       .traits = kWidens},
      {.name = "binary_cross_entropy",
       .doc = "-(t log(x) + (1 - t) log(1 - x)) times weight, reduced; logarithms are at least -100. Elements of x and "
              "of the target t outside of 0 to 1 are an error. target has the shape of x, but for dims of size 1; "
              "weight broadcasts to x.",
       .example = "return pg.binary_cross_entropy(pg.tensor({0.5, 0.9}), pg.tensor({1, 0}))",
       .inputs = {{"x", kFloating, Arity::kOne, 0.1, 0.9}, {"target", kFloating, Arity::kOne, 0, 1}, factor},
       .attrs = {kHow},
       .infer = infer_labelled,
       .decompose = decompose_bce,
       .traits = kWidens},
      {.name = "logistic_loss",
       .doc = "binary_cross_entropy_with_logits of each element.",
       .inputs = {fx,
                  {"target", kFloating, Arity::kOne, 0, 1},
                  {"pos_weight", kFloating, Arity::kOptional, 0.5, 2, "a factor for the positive part"}},
       .result = Result::kFloat,
       .vjp = {logistic_loss_grad, logistic_loss_target_grad, logistic_loss_weight_grad},
       .vjp_uses = "x target pos_weight",
       .decompose = decompose_logistic_loss,
       .traits = kPointwise | kHidden | kWidens},
      {.name = "probability_loss",
       .doc = "binary_cross_entropy of each element.",
       .inputs = {{"x", kFloating, Arity::kOne, 0.1, 0.9}, {"target", kFloating, Arity::kOne, 0, 1}},
       .result = Result::kFloat,
       .vjp = {probability_loss_grad, probability_loss_target_grad},
       .vjp_uses = "x target",
       .decompose = decompose_probability_loss,
       .traits = kPointwise | kHidden | kWidens},
      {.name = "kl_div",
       .doc = "t (log t - x) of log-probabilities x and probabilities t (their logarithms with log_target), reduced; "
              "batchmean divides the sum by the size of dim 1.",
       .example = "return pg.kl_div(pg.tensor({0.5, 0.5}):log(), pg.tensor({0.25, 0.75}), {reduction = \"sum\"})",
       .inputs = {{"x", kFloating}, {"target", kFloating, Arity::kOne, 0.1, 0.9}},
       .attrs = {kl_reduction, {"log_target", AttrKind::kBool, false, "whether target holds logarithms"}},
       .infer = infer_elementwise,
       .decompose = decompose_kl_div,
       .traits = kWidens},
  };
  r.add(rows);
  add_label_losses(r);
  add_likelihood_losses(r);
  add_margin_losses(r);
  add_class_margin_losses(r);
  add_ctc_loss(r);
}

}  // namespace pg
