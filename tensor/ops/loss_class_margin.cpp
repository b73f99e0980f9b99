// Losses that want the scores of the right classes to be larger than the others by a margin.
#include "tensor/ops/index.h"
#include "tensor/ops/loss_rules.h"

namespace pg {
namespace {

// x as (samples, classes).
Var rows_of(const Var& x) { return x.rank() == 1 ? reshaped(x, {1, x.shape()[0]}) : x; }

// Checks that x is (samples, classes) or (classes).
void require_scores(Infer& c) {
  if (c.rank(0) != 1 && c.rank(0) != 2) c.bad_input(0, "1 or 2 dims (samples, classes)");
  if (!is_integer(c.dtype(1))) c.bad_input(1, "labels of an integer dtype");
}

Dims samples_of(const Infer& c) { return c.rank(0) == 1 ? Dims{} : Dims{c.shape(0)[0]}; }

void infer_multi_margin(Infer& c) {
  require_scores(c);
  const Dims samples = samples_of(c), classes = {c.shape(0).back()};
  if (!(c.shape(1) == samples)) c.bad_input(1, "labels of shape " + to_string(samples));
  if (c.has(2) && !(c.shape(2) == classes)) c.bad_input(2, "shape " + to_string(classes));
  if (c.has(2) && c.dtype(2) != c.dtype(0)) c.bad_input(2, "the dtype of x");
  c.output(c.dtype(0), reduces(c) ? Dims{} : samples);
}

std::vector<Var> decompose_multi_margin(Rule& c) {
  const Var x = rows_of(c.in(0));
  const int64_t samples = x.shape()[0], classes = x.shape()[1], base = c.attr<int64_t>("index_base");
  const Var labels = reshaped(read_positions(c, c.in(1), "target", classes, base), {samples});
  const Var column = reshaped(labels, {samples, 1});
  const Var score = call<"gather">(x, column, {{"dim", int64_t(2)}, {"index_base", int64_t(0)}});
  Var over = above_zero(x - score + c.attr<double>("margin"));
  if (c.attr<int64_t>("p") == 2) over = call<"square">(over);
  const Var own = call<"eq">(positions(c, x.value(), 1, 0), column);
  Var loss = call<"sum">(call<"where">(own, 0.0, over), {{"dim", Ints{2}}}) / double(std::max<int64_t>(classes, 1));
  if (c.has(2)) loss = loss * call<"index_select">(c.in(2), labels, {{"dim", int64_t(1)}, {"index_base", int64_t(0)}});
  return {reduced(c, reduces(c) || c.in(0).rank() == 2 ? loss : reshaped(loss, {}))};
}

void infer_multilabel_margin(Infer& c) {
  require_scores(c);
  if (!(c.shape(1) == c.shape(0))) c.bad_input(1, "labels in the shape of x, " + to_string(c.shape(0)));
  c.output(c.dtype(0), reduces(c) ? Dims{} : samples_of(c));
}

// For all pairs of a label j and a class i of a sample, in (samples, labels, classes).
std::vector<Var> decompose_multilabel_margin(Rule& c) {
  const Var x = rows_of(c.in(0));
  const int64_t samples = x.shape()[0], classes = x.shape()[1], end = c.attr<int64_t>("index_base") - 1;
  const AttrList along = {{"dim", int64_t(2)}, {"index_base", int64_t(0)}};
  if (classes == 0) return {reduced(c, call<"sum">(c.in(0), {{"dim", Ints{-1}}}))};
  const Var given = rows_of(read_positions(c, c.in(1), "target", classes + 1, end));  // 0 ends, n is class n - 1
  const Var listed = call<"cumprod">(call<"gt">(given, 0.0), {{"dim", int64_t(2)}});
  const Var labels = call<"where">(call<"gt">(listed, 0.0), given - 1.0, 0.0);
  const Var right = call<"scatter_add">({call<"zeros_like">(given), labels, listed}, along);
  const Var score = reshaped(call<"gather">(x, labels, along), {samples, classes, 1});
  const Var over = above_zero(1.0 - score + reshaped(x, {samples, 1, classes}));
  const Var wrong = call<"logical_and">(call<"gt">(reshaped(listed, {samples, classes, 1}), 0.0),
                                        call<"eq">(reshaped(right, {samples, 1, classes}), 0.0));
  const Var loss = call<"sum">(call<"where">(wrong, over, 0.0), {{"dim", Ints{2, 3}}}) / double(classes);
  return {reduced(c, reduces(c) || c.in(0).rank() == 2 ? loss : reshaped(loss, {}))};
}

}  // namespace

void add_class_margin_losses(Registry& r) {
  const InputDef fx = {"x", kFloating, Arity::kOne, -2, 2, "scores (samples, classes), or (classes)"};
  const OpDef rows[] = {
      {.name = "multi_margin_loss",
       .doc =
           "The sum of max(0, margin - x[y] + x[i])^p over the classes i other than the label y, over the number of "
           "classes, times the weight of y; reduced. Labels are from 1 to the number of classes. Crammer and Singer, "
           "On the algorithmic implementation of multiclass kernel-based vector machines, 2001.",
       .example = "return pg.multi_margin_loss(pg.tensor({{0.1, 0.2, 0.9}}), pg.tensor({3}, {dtype = \"int64\"}))",
       .inputs = {fx,
                  {"target", kIntegral, Arity::kOne, 1, 3, "labels"},
                  {"weight", kFloating, Arity::kOptional, 0.5, 2, "a factor for each class"}},
       .attrs = {{"p", AttrKind::kInt, int64_t(1), "the exponent, 1 or 2", false, 1, 2},
                 {"margin", AttrKind::kFloat, 1.0, "the margin"},
                 kHow,
                 kBase},
       .signature = "x target p margin weight reduction index_base",
       .infer = infer_multi_margin,
       .decompose = decompose_multi_margin,
       .traits = kWidens},
      {.name = "multilabel_margin_loss",
       .doc =
           "The sum of max(0, 1 - x[y] + x[i]) over the labels y of a sample and the classes i that are none of them, "
           "over the number of classes; reduced. target has the shape of x: the labels of each sample, from 1 on, "
           "up to the first element that is index_base - 1. Takes memory for samples times the square of classes.",
       .example = "return pg.multilabel_margin_loss(pg.tensor({0.1, 0.2, 0.4}), pg.tensor({3, 0, 1}, {dtype = "
                  "\"int64\"}))",
       .inputs = {fx, {"target", kIntegral, Arity::kOne, 0, 3, "labels, then 0"}},
       .attrs = {kHow, kBase},
       .infer = infer_multilabel_margin,
       .decompose = decompose_multilabel_margin,
       .traits = kWidens},
  };
  r.add(rows);
}

}  // namespace pg
