// Fused optimizer updates for lists of parameters. The ops are pure; pg.NAME_(…) assigns the results to weights and
// states and reuses their buffers.
#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {
namespace {

bool is_double(DType t) { return t == DType::kFloat64; }

void infer_update(Infer& c) {
  const size_t lists = c.op().inputs.size() - 1, count = (c.count() - 1) / lists;
  for (const char* name : {"lr", "wd"}) {
    const size_t n = c.attr<Floats>(name).size();
    if (n != 1 && n != count) c.bad_attr(name, fmt::format("a number, or one for each of the {} weights", count));
  }
  const Ints& t = c.attr<Ints>("t");
  if (t.size() != 1 && t.size() != count)
    c.bad_attr("t", fmt::format("a number, or one for each of the {} weights", count));
  for (int64_t n : t)
    if (n < 1) c.bad_attr("t", "a number of updates from 1 on");
  if (const size_t at = c.count() - 1; c.has(at)) {
    const bool fits = c.rank(at) == 2 && (c.shape(at)[0] == 4 || c.shape(at)[0] == 5) &&
                      (c.shape(at)[1] == 1 || c.shape(at)[1] == int64_t(count));
    if (!fits) c.bad_input(at, fmt::format("shape 4x1 or 4x{0}, or 5x1 or 5x{0} with a row of momenta", count));
  }
  for (size_t k = 0; k < lists; ++k)
    for (size_t i = 0; i < count; ++i) {
      const size_t at = k * count + i;
      if (!(c.shape(at) == c.shape(i))) c.bad_input(at, "shape " + to_string(c.shape(i)) + " of its weight");
      if (is_double(c.dtype(at)) != is_double(c.dtype(i)))
        c.bad_input(at, "float64 together with a float64 weight only");
    }
  for (size_t k = 0; k < lists; ++k)
    for (size_t i = 0; k != 1 && i < count; ++i) c.output(c.dtype(k * count + i), c.shape(i));
}

const InputDef kWeights = {"weights", kFloating, Arity::kList, -2, 2, "the parameters"};
const InputDef kGrads = {"grads", kFloating, Arity::kList, -2, 2, "a gradient for each"};
const AttrDef kLr = {"lr", AttrKind::kFloats, {}, "learning rate, one for all or one for each weight"};
const AttrDef kWd = {"wd", AttrKind::kFloats, Floats{0.0}, "weight decay, one for all or one for each weight"};
const AttrDef kRescale = {"rescale_grad", AttrKind::kFloat, 1.0, "factor on the gradients"};
const AttrDef kClip = {
    "clip_gradient", AttrKind::kFloat, {}, "bound on the size of each element of a rescaled gradient", true, 0};
const AttrDef kCount = {"t", AttrKind::kInts, Ints{1},
                        "number of updates, this one included; one for all or one for each weight"};
const AttrDef kMomentum = {"momentum", AttrKind::kFloat, 0.9, "share of the last step that is kept"};
const AttrDef kBeta1 = {"beta1", AttrKind::kFloat, 0.9, "share of the mean that is kept", false, 0, 1};
const AttrDef kBeta2 = {"beta2", AttrKind::kFloat, 0.999, "share of the mean square that is kept", false, 0, 1};
const AttrDef kEpsilon = {"epsilon", AttrKind::kFloat, 1e-8, "added to the root", false, 0};

const InputDef kRates = {"rates",
                         1 << int(DType::kFloat64),
                         Arity::kOptional,
                         0.1,
                         0.9,
                         "lr, wd, t and rescale_grad in its rows, one column for all or one for each weight; instead "
                         "of the attributes. A fifth "
                         "row replaces momentum or beta1"};

InputDef state(const char* name, const char* doc) { return {name, kFloating, Arity::kList, 0.5, 2, doc}; }

OpDef update_row(const char* name, const char* doc, const char* example, std::vector<InputDef> states,
                 std::vector<AttrDef> own) {
  OpDef row = {.name = name, .doc = doc, .example = example, .inputs = {kWeights, kGrads}};
  row.attrs = {kLr, kWd, kRescale, kClip, kCount};
  row.in_place = {0};
  for (InputDef& s : states) {
    row.in_place.push_back(int(row.inputs.size()));
    row.inputs.push_back(s);
  }
  row.inputs.push_back(kRates);
  for (AttrDef& a : own) row.attrs.push_back(a);
  row.outputs = {"results"};
  row.infer = infer_update;
  row.traits = kInPlace | kNoGrad | kFunctionOnly | kListOutput;
  return row;
}

}  // namespace

void add_optim_ops(Registry& r) {
  const InputDef momentum = state("moms", "the last step of each weight");
  const InputDef mean = state("means", "running mean of each gradient"),
                 var = state("vars", "running mean square of each gradient");
  const OpDef rows[] = {
      update_row(
          "sgd_update",
          "w - lr (g + wd w), with g the rescaled, clipped gradient, for all weights at once; returns the new weights.",
          "local w, g = pg.tensor({1, 2}), pg.tensor({1, 1})\nreturn pg.sgd_update({w}, {g}, {lr = 0.1})[1]", {}, {}),
      update_row("sgd_momentum_update",
                 "m = momentum m - lr (g + wd w); w + m. Answers the new weights, then the new moms. g is the "
                 "rescaled, clipped gradient.",
                 "local w, g, m = pg.tensor({1, 2}), pg.tensor({1, 1}), pg.zeros(2)\n"
                 "return pg.sgd_momentum_update({w}, {g}, {m}, {lr = 0.1})[1]",
                 {momentum}, {kMomentum}),
      update_row("nag_update",
                 "m = momentum m - lr (g + wd w); w + momentum m - lr (g + wd w) (Nesterov 1983). Answers the new "
                 "weights, then the new "
                 "moms. g is the rescaled, clipped gradient.",
                 "local w, g, m = pg.tensor({1, 2}), pg.tensor({1, 1}), pg.zeros(2)\n"
                 "return pg.nag_update({w}, {g}, {m}, {lr = 0.1})[1]",
                 {momentum}, {kMomentum}),
      update_row("adam_update",
                 "Adam (Kingma, Ba 2014) with MXNet's epsilon: g = clip(rescale_grad g + wd w), m = beta1 m + (1 - "
                 "beta1) g, v = beta2 v + "
                 "(1 - beta2) g^2, w - lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon). Answers the new "
                 "weights, means, vars.",
                 "local w, g, m, v = pg.tensor({1, 2}), pg.tensor({1, 1}), pg.zeros(2), pg.zeros(2)\n"
                 "return pg.adam_update({w}, {g}, {m}, {v}, {lr = 0.1})[1]",
                 {mean, var}, {kBeta1, kBeta2, kEpsilon}),
      update_row("adamw_update",
                 "AdamW (Loshchilov, Hutter 2019) as PyTorch's: w (1 - lr wd) - lr / (1 - beta1^t) m / (sqrt(v / (1 - "
                 "beta2^t)) + epsilon) with "
                 "Adam's m and v of the rescaled, clipped gradient. Answers the new weights, means, vars.",
                 "local w, g, m, v = pg.tensor({1, 2}), pg.tensor({1, 1}), pg.zeros(2), pg.zeros(2)\n"
                 "return pg.adamw_update({w}, {g}, {m}, {v}, {lr = 0.1, wd = 0.01})[1]",
                 {mean, var}, {kBeta1, kBeta2, kEpsilon}),
  };
  r.add(rows);
}

}  // namespace pg
