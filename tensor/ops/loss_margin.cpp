// Losses that want a distance or a score to be on one side of a margin.
#include "tensor/ops/loss_rules.h"

namespace pg {
namespace {

AttrDef margin_attr(double fallback) { return {"margin", AttrKind::kFloat, fallback, "the margin"}; }

Var is_not(const Var& t, double label) { return call<"ne">(t, label); }

std::vector<Var> decompose_hinge_embedding(Rule& c) {
  const Var x = c.in(0), t = labels_of(c);
  const Var alike = call<"where">(is_not(t, -1), x, 0.0);
  const Var apart = call<"where">(is_not(t, 1), above_zero(c.attr<double>("margin") - x), 0.0);
  return {reduced(c, alike + apart)};
}

std::vector<Var> decompose_margin_ranking(Rule& c) {
  return {reduced(c, above_zero(c.in(2) * (c.in(1) - c.in(0)) + c.attr<double>("margin")))};
}

// --- Distances over the last dim ---

// Checks that inputs 0 to count - 1 broadcast. Returns their shape without the last dim.
Dims pairs_of(Infer& c, size_t count) {
  Dims shape = c.shape(0);
  for (size_t i = 0; i < count; ++i) {
    Dims joined;
    if (c.rank(i) < 1) c.bad_input(i, "at least 1 dim: the features");
    if (!broadcast(shape, c.shape(i), &joined)) c.bad_input(i, "a shape that broadcasts with " + to_string(shape));
    shape = joined;
  }
  shape.pop_back();
  return shape;
}

void infer_triplet(Infer& c) {
  const Dims shape = pairs_of(c, 3);
  c.output(promote(promote(c.dtype(0), c.dtype(1)), c.dtype(2)), reduces(c) ? Dims{} : shape);
}

std::vector<Var> decompose_triplet(Rule& c) {
  const double eps = c.attr<double>("eps");
  const auto distance = [&](size_t i, size_t j) {
    return call<"norm">(c.in(i)-c.in(j) + eps, {{"p", c.raw("p")}, {"dim", Ints{-1}}});
  };
  Var far = distance(0, 2);
  if (c.attr<bool>("swap")) far = call<"minimum">(far, distance(1, 2));
  return {reduced(c, above_zero(distance(0, 1) - far + c.attr<double>("margin")))};
}

void infer_cosine_embedding(Infer& c) {
  Dims shape = pairs_of(c, 2), joined;
  if (!broadcast(shape, c.shape(2), &joined) || !(joined == shape))
    c.bad_input(2, "one label a pair, " + to_string(shape));
  c.output(promote(c.dtype(0), c.dtype(1)), reduces(c) ? Dims{} : shape);
}

// The squared lengths get 1e-12 more, as in PyTorch.
std::vector<Var> decompose_cosine_embedding(Rule& c) {
  const auto dot = [&](size_t i, size_t j) { return call<"sum">(c.in(i)*c.in(j), {{"dim", Ints{-1}}}); };
  const Var lengths = call<"sqrt">((dot(0, 0) + 1e-12) * (dot(1, 1) + 1e-12));
  const Var cosine = dot(0, 1) / lengths, t = c.in(2);
  const Var alike = call<"where">(is_not(t, 1), 0.0, 1.0 - cosine);
  const Var apart = call<"where">(is_not(t, -1), 0.0, above_zero(cosine - c.attr<double>("margin")));
  return {reduced(c, alike + apart)};
}

}  // namespace

void add_margin_losses(Registry& r) {
  const InputDef fx = {"x", kFloating}, sign = {"target", kNumeric, Arity::kOne, -2, 2, "1 or -1"};
  const OpDef rows[] = {
      {.name = "hinge_embedding_loss",
       .doc = "x where target is 1, max(0, margin - x) where it is -1, reduced; for distances x. target has the shape "
              "of x, "
              "but for dims of size 1.",
       .example = "return pg.hinge_embedding_loss(pg.tensor({0.5, 0.2}), pg.tensor({1, -1}))",
       .inputs = {fx, sign},
       .attrs = {margin_attr(1), kHow},
       .infer = infer_labelled,
       .decompose = decompose_hinge_embedding,
       .traits = kWidens},
      {.name = "margin_ranking_loss",
       .doc =
           "max(0, -target (x1 - x2) + margin), reduced: 0 where x1 is larger than x2 by the margin and target is 1, "
           "or smaller and target is -1.",
       .example = "return pg.margin_ranking_loss(pg.tensor({1, 2}), pg.tensor({3, 1}), pg.tensor({1, 1}))",
       .inputs = {{"x1", kFloating}, {"x2", kFloating}, sign},
       .attrs = {margin_attr(0), kHow},
       .infer = infer_elementwise,
       .decompose = decompose_margin_ranking,
       .traits = kWidens},
      {.name = "triplet_margin_loss",
       .doc =
           "max(0, d(anchor, positive) - d(anchor, negative) + margin), reduced, with the p-norm d of the "
           "differences plus eps over the last dim. swap takes d(positive, negative) where that is smaller. Balntas "
           "et al., Learning local feature descriptors with triplets and shallow convolutional neural networks, 2016.",
       .example = "return pg.triplet_margin_loss(pg.zeros(2, 3), pg.ones(2, 3), pg.ones(2, 3) * 2)",
       .inputs = {{"anchor", kFloating}, {"positive", kFloating}, {"negative", kFloating}},
       .attrs = {margin_attr(1),
                 {"p", AttrKind::kFloat, 2.0, "the order of the norm", false, 0},
                 {"eps", AttrKind::kFloat, 1e-6, "added to the differences"},
                 {"swap", AttrKind::kBool, false, "use the smaller distance to negative"},
                 kHow},
       .infer = infer_triplet,
       .decompose = decompose_triplet,
       .traits = kWidens},
      {.name = "cosine_embedding_loss",
       .doc = "1 - cos(x1, x2) where target is 1, max(0, cos(x1, x2) - margin) where it is -1, reduced; the cosine is "
              "over the last dim.",
       .example = "return pg.cosine_embedding_loss(pg.tensor({{1, 0}}), pg.tensor({{1, 1}}), pg.tensor({1}))",
       .inputs = {{"x1", kFloating}, {"x2", kFloating}, sign},
       .attrs = {margin_attr(0), kHow},
       .infer = infer_cosine_embedding,
       .decompose = decompose_cosine_embedding,
       .traits = kWidens},
  };
  r.add(rows);
}

}  // namespace pg
