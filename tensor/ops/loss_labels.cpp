// Losses of labels: cross_entropy and nll_loss, whose fused forms also return what their derivatives need.
#include "tensor/ops/loss_rules.h"

namespace pg {
namespace {

const AttrDef kIgnore = {"ignore_index", AttrKind::kInt, int64_t(-100), "label of samples that do not count"};
const AttrDef kSmoothing = {
    "label_smoothing", AttrKind::kFloat, 0.0, "share of the target spread evenly over all classes", false, 0, 1};
const InputDef kClassWeight = {"weight", kFloating, Arity::kOptional, 0.5, 2, "a factor for each class"};

// The dim of the classes: dim 2, or dim 1 if it is the only one.
int class_dim(int rank) { return rank > 1 ? 1 : 0; }

Dims sample_shape(const Dims& shape) {
  Dims out = shape;
  out.erase(class_dim(shape.size()));
  return out;
}

Var with_class_dim(const Var& v, int rank) {
  Dims shape = v.shape();
  shape.insert(class_dim(rank), 1);
  return reshaped(v, shape);
}

void check_labels(Infer& c) {
  if (c.rank(0) == 0) c.bad_input(0, "at least 1 dim: the classes");
  if (!is_integer(c.dtype(1))) c.bad_input(1, "labels of an integer dtype");
  const Dims samples = sample_shape(c.shape(0));
  if (!(c.shape(1) == samples)) c.bad_input(1, "labels of shape " + to_string(samples));
  const Dims classes = {c.shape(0)[class_dim(c.rank(0))]};
  if (!c.has(2)) return;
  if (!(c.shape(2) == classes)) c.bad_input(2, "shape " + to_string(classes));
  if ((c.dtype(2) == DType::kFloat64) != (c.dtype(0) == DType::kFloat64)) c.bad_input(2, "the dtype of x");
}

void infer_nll(Infer& c) {
  check_labels(c);
  c.output(c.dtype(0), reduces(c) ? Dims{} : c.shape(1));
}

void infer_nll_fused(Infer& c) {
  infer_nll(c);
  c.output(stat_dtype(c.dtype(0)), {});
}

void infer_cross_entropy_fused(Infer& c) {
  infer_nll(c);
  c.output(stat_dtype(c.dtype(0)), c.shape(1));
  c.output(stat_dtype(c.dtype(0)), {});
  c.output(stat_dtype(c.dtype(0)), c.shape(1));
}

void infer_cross_entropy(Infer& c) {
  if (!is_float(c.dtype(1))) return infer_nll(c);
  if (c.rank(0) == 0) c.bad_input(0, "at least 1 dim: the classes");
  if (!(c.shape(1) == c.shape(0)))
    c.bad_input(1,
                fmt::format("labels of an integer dtype, to which labels:long() converts, or probabilities of shape {}",
                            to_string(c.shape(0))));
  if (c.has(2) && !(c.shape(2) == Dims{c.shape(0)[class_dim(c.rank(0))]})) c.bad_input(2, "one element a class");
  c.output(promote(c.dtype(0), c.dtype(1)), reduces(c) ? Dims{} : sample_shape(c.shape(0)));
}

Var by_class(const Var& weight, int rank) {  // reshapes (C) to the rank of x
  Dims shape(rank, 1);
  shape[class_dim(rank)] = weight.shape()[0];
  return reshaped(weight, shape);
}

std::vector<Var> cross_entropy_of_probabilities(Rule& c) {
  const Var x = c.in(0);
  const int d = class_dim(x.rank());
  const double smoothing = c.attr<double>("label_smoothing");
  Var t = c.in(1);
  if (smoothing > 0) t = t * Var(1 - smoothing) + Var(smoothing / double(std::max<int64_t>(x.shape()[d], 1)));
  if (c.has(2)) t = t * by_class(c.in(2), x.rank());
  const Var loss = -call<"sum">(t * call<"log_softmax">(x, {{"dim", user_dim(d)}}), {{"dim", Ints{user_dim(d)}}});
  return {reduced(c, loss)};
}

std::vector<Var> decompose_cross_entropy(Rule& c) {
  if (is_float(c.input(1).dtype())) return cross_entropy_of_probabilities(c);
  return {call_like<"cross_entropy_fused">(c, {c.in(0), c.in(1), c.in(2)})};
}

std::vector<Var> decompose_nll_loss(Rule& c) { return {call_like<"nll_fused">(c, {c.in(0), c.in(1), c.in(2)})}; }

// The factor of the gradient of each sample. If no sample counts, all gradients are 0 times this factor, so the mean's
// divisor of 0 becomes 1.
Var sample_scale(Vjp& c, size_t norm) {
  if (c.attr<std::string>("reduction") != "mean") return c.dy(0);
  const Var n = c.out(norm);
  return c.dy(0) / call<"where">(call<"eq">(n, Var(0.0)), Var(1.0), n);
}

void vjp_nll(Vjp& c) {
  if (!c.needs(0) || !c.has_dy(0)) return;
  c.set(0, call_like<"nll_dx">(c, {c.in(1), c.in(2), sample_scale(c, 1)}, {{"shape", ints(c.in(0).shape())}}));
}

// Checks labels, the input `weight` and the scale of each sample, for logits of `shape` and `dtype`.
void check_label_derivative(Infer& c, const Dims& shape, DType dtype, size_t labels, size_t scale) {
  const size_t weight = labels + 1;
  if (!is_integer(c.dtype(labels))) c.bad_input(labels, "labels of an integer dtype");
  if (shape.empty() || !(c.shape(labels) == sample_shape(shape)))
    c.bad_input(labels, "a label for each sample of " + to_string(shape));
  if (c.has(weight) && !(c.shape(weight) == Dims{shape[class_dim(shape.size())]}))
    c.bad_input(weight, "one element a class");
  if (c.has(weight) && (c.dtype(weight) == DType::kFloat64) != (dtype == DType::kFloat64))
    c.bad_input(weight, "the dtype of the logits");
  if (c.rank(scale) != 0 && !(c.shape(scale) == c.shape(labels))) c.bad_input(scale, "one element, or one a label");
}

void infer_cross_entropy_dx(Infer& c) {
  check_label_derivative(c, c.shape(0), c.dtype(0), 1, 5);
  for (size_t i : {3, 4})
    if (!(c.shape(i) == c.shape(1)) || c.dtype(i) != stat_dtype(c.dtype(0)))
      c.bad_input(i, fmt::format("{} {}", name_of(stat_dtype(c.dtype(0))), to_string(c.shape(1))));
  if (stat_dtype(c.dtype(5)) != stat_dtype(c.dtype(0))) c.bad_input(5, "the dtype of x");
  c.output(c.dtype(0), c.shape(0));
}

void infer_nll_dx(Infer& c) {
  const Dims shape{std::span<const int64_t>(c.attr<Ints>("shape"))};
  check_label_derivative(c, shape, c.dtype(2), 0, 2);
  c.output(c.dtype(2), shape);
}

// nll_dx is linear in the scale. Its transpose reads the same positions.
void vjp_nll_dx(Vjp& c) {
  if (!c.needs(2)) return;
  c.set(2, call_like<"nll_fused">(c, {c.dy(), c.in(0), c.in(1)}, {{"reduction", std::string("none")}}));
}

// exp(x - lse - rest). The rest is a constant for derivatives: its change is part of that of lse.
Var shares_of_classes(const Var& x, const Var& lse, const Var& rest) {
  const int rank = x.rank();
  return call<"exp">(x - with_class_dim(lse, rank) - with_class_dim(call<"detach">(rest), rank));
}

void vjp_cross_entropy(Vjp& c) {
  if (!c.needs(0)) return;
  Var dx;
  if (c.has_dy(0))
    dx = call_like<"cross_entropy_dx">(c, {c.in(0), c.in(1), c.in(2), c.out(1), c.out(3), sample_scale(c, 2)});
  if (c.has_dy(1)) {
    const Var part = with_class_dim(c.dy(1), c.in(0).rank()) * shares_of_classes(c.in(0), c.out(1), c.out(3));
    dx = dx.defined() ? dx + part : part;
  }
  c.set(0, dx);
}

// The factor per sample: the weight of its class, 0 for ignored samples.
Var label_weights(const Rule& c, const Var& target, const Var& weight, const Var& like) {
  const Var minus = call<"expand">(call<"sum">(like) * Var(0.0) - Var(1.0), {{"shape", ints(like.shape())}});
  return call_like<"nll_fused">(c, {call<"detach">(minus), target, weight}, {{"reduction", std::string("none")}});
}

// scale (a exp(x - lse - rest) - (1 - s) w[t] [class = t] - v s w / C) with a = (1 - s) w[t] + v s sum(w) / C, where s
// is the smoothing and v is 0 for ignored samples.
std::vector<Var> decompose_cross_entropy_dx(Rule& c) {
  const Var x = c.in(0), target = c.in(1), weight = c.in(2), scale = c.in(5);
  const int rank = x.rank();
  const double s = c.attr<double>("label_smoothing"), classes = double(x.shape()[class_dim(rank)]);
  const Var zeros = call<"zeros_like">(x);
  const Var picked = label_weights(c, target, weight, zeros);
  Var a = picked * Var(1 - s), even;
  if (s > 0) {
    const Var valid = label_weights(c, target, Var(), zeros);
    even = valid * Var(s / classes);
    a = a + (c.has(2) ? even * call<"sum">(weight) : even * Var(classes));
  }
  Var dx = with_class_dim(scale * a, rank) * shares_of_classes(x, c.in(3), c.in(4));
  dx = dx + call_like<"nll_dx">(c, {target, weight, scale * Var(1 - s)}, {{"shape", ints(x.shape())}});
  if (s > 0) {
    const Var spread = with_class_dim(scale * even, rank);
    dx = dx - (c.has(2) ? spread * by_class(weight, rank) : spread);
  }
  return {as_dtype(dx, x.dtype())};
}

}  // namespace

void add_label_losses(Registry& r) {
  const InputDef fx = {"x", kFloating}, label = {"target", kAnyDType, Arity::kOne, -2, 2, "labels"};
  const OpDef rows[] = {
      {.name = "cross_entropy",
       .doc = "The cross entropy of logits x, with classes along dim 2 (dim 1 of a 1-D x), and labels from 1 to C or "
              "equal to ignore_index, or probabilities of the shape of x. mean divides by the sum of the weights of "
              "the labels that count; if there are none, it is NaN, and its gradient is 0.",
       .example = "return pg.cross_entropy(pg.tensor({{1, 2, 3}, {1, 0, 0}}), pg.tensor({3, 1}, {dtype = \"int64\"}))",
       .inputs = {fx, {"target", kAnyDType, Arity::kOne, 0.1, 0.9, "labels or probabilities"}, kClassWeight},
       .attrs = {kHow, kIgnore, kSmoothing, kBase},
       .signature = "x target weight ignore_index reduction label_smoothing index_base",
       .infer = infer_cross_entropy,
       .decompose = decompose_cross_entropy,
       .traits = kWidens},
      {.name = "nll_loss",
       .doc = "-x at the label of each sample times the weight of its class, for log-probabilities x with classes "
              "along dim 2. Labels and reductions as in cross_entropy.",
       .example = "return pg.nll_loss(pg.tensor({{-1, -2}, {-3, -0.1}}), pg.tensor({1, 2}, {dtype = \"int64\"}))",
       .inputs = {fx, label, kClassWeight},
       .attrs = {kHow, kIgnore, kBase},
       .signature = "x target weight ignore_index reduction index_base",
       .infer = infer_nll,
       .decompose = decompose_nll_loss,
       .traits = kWidens},
      {.name = "nll_fused",
       .doc = "nll_loss and the divisor of its mean.",
       .inputs = {fx, label, kClassWeight},
       .attrs = {kHow, kIgnore, kBase},
       .outputs = {"out", "norm"},
       .infer = infer_nll_fused,
       .vjp_all = vjp_nll,
       .vjp_uses = "target weight norm",
       .traits = kHidden},
      {.name = "nll_dx",
       .doc = "Zeros of `shape` with -scale times the weight of its class at the label of each sample.",
       .inputs = {label, kClassWeight, {"scale", kFloating}},
       .attrs = {{"shape", AttrKind::kInts, {}, "the shape of the logits"}, kIgnore, kBase},
       .infer = infer_nll_dx,
       .vjp_all = vjp_nll_dx,
       .vjp_uses = "target weight",
       .traits = kHidden},
      {.name = "cross_entropy_fused",
       .doc = "cross_entropy of labels, the logsumexp of each sample, the divisor of the mean, and what is missing "
              "from the logsumexp because it is rounded.",
       .inputs = {fx, label, kClassWeight},
       .attrs = {kHow, kIgnore, kSmoothing, kBase},
       .outputs = {"out", "lse", "norm", "rest"},
       .infer = infer_cross_entropy_fused,
       .vjp_all = vjp_cross_entropy,
       .vjp_uses = "x target weight lse norm rest",
       .traits = kHidden},
      {.name = "cross_entropy_dx",
       .doc = "The derivative of cross_entropy for x, from the logsumexp of each sample.",
       .inputs = {fx, label, kClassWeight, {"lse", kFloating}, {"rest", kFloating}, {"scale", kFloating}},
       .attrs = {kIgnore, kSmoothing, kBase},
       .infer = infer_cross_entropy_dx,
       .decompose = decompose_cross_entropy_dx,
       .traits = kHidden},
  };
  r.add(rows);
}

}  // namespace pg
