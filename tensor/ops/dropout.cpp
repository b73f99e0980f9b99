// Dropout in its forms, and other ops that are random in training.
#include <cmath>

#include "tensor/ops/random_rules.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

const AttrDef kShare = {"p", AttrKind::kFloat, 0.5, "the share that is dropped", false, 0, 1};
const AttrDef kTraining = {"training", AttrKind::kBool, {}, "whether to drop; nil follows the mode", true};

void infer_same(Infer& c) { c.outputs.push_back(c.type(0)); }

bool acts(const AttrReader& c) { return c.attr<bool>("training") && c.attr<double>("p") > 0; }

bool view_dropout(ViewArgs& c) {
  if (acts(c)) return false;
  c.strides = c.input.strides;
  return true;
}

void infer_dropout(Infer& c) {
  if (c.has_attr("axes")) c.dims("axes", c.rank(0));
  infer_same(c);
}

// Ones with the sizes of x, but 1 along the 0-based dims from `first` on.
Var ones_before(const Rule& c, int first) {
  Type type = c.input(0).type();
  for (int d = first; d < type.shape.size(); ++d) type.shape[d] = 1;
  return c.wrap(c.context().interpreter->filled(c.context(), type, 1));
}

Var dropped(const Rule& c, const Var& x) { return call_like<"dropout">(c, {x}, {{"training", true}}); }

// --- Whole channels ---

template <int kDims>
void infer_channel_dropout(Infer& c) {
  if (c.rank(0) != kDims + 1 && c.rank(0) != kDims + 2)
    c.bad_input(0, fmt::format("{} or {} dims", kDims + 1, kDims + 2));
  infer_same(c);
}

// The spatial dims follow batch and channels, or only the channels. dropout2d takes 3 dims as batch, channels and
// positions, as in PyTorch.
template <int kDims>
std::vector<Var> decompose_channel_dropout(Rule& c) {
  const int rank = c.input(0).rank();
  Ints axes;
  for (int d = kDims == 2 || rank == kDims + 2 ? 2 : 1; d < rank; ++d) axes.push_back(user_dim(d));
  return {call_like<"dropout">(c, {c.in(0)}, {{"axes", axes}})};
}

template <int kDims>
OpDef channel_dropout(const char* name, const char* doc, const char* example) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kFloating}},
          .attrs = {kShare, kTraining, generator_attr()},
          .infer = infer_channel_dropout<kDims>,
          .decompose = decompose_channel_dropout<kDims>,
          .traits = kRandom};
}

// --- Alpha dropout ---

// Dropped elements become the limit of selu at -inf; a scale and a shift keep mean 0 and variance 1.
std::vector<Var> alpha_dropout(Rule& c, int shared_from) {
  constexpr double limit = 1.0507009873554804934 * 1.6732632423543772848;
  const double p = c.attr<double>("p");
  const Var x = c.in(0);
  if (!acts(c)) return {x};
  if (p == 1) return {x * 0.0};
  const double scale = 1 / std::sqrt((limit * limit * p + 1) * (1 - p)), shift = limit * scale * p;
  const Var kept = call<"ne">(dropped(c, ones_before(c, shared_from)), 0.0);
  return {call<"where">(kept, x * scale + shift, shift - limit * scale)};
}

std::vector<Var> decompose_alpha_dropout(Rule& c) { return alpha_dropout(c, c.input(0).rank()); }
std::vector<Var> decompose_feature_alpha_dropout(Rule& c) { return alpha_dropout(c, 2); }

// --- Others ---

void infer_rrelu(Infer& c) {
  if (c.attr<double>("lower") > c.attr<double>("upper")) c.bad_attr("lower", "at most `upper`");
  infer_same(c);
}

std::vector<Var> decompose_rrelu(Rule& c) {
  const double low = c.attr<double>("lower"), high = c.attr<double>("upper");
  const Var x = c.in(0);
  Var slope((low + high) / 2);
  if (c.attr<bool>("training")) slope = call<"rand_like">(x, {{"generator", c.raw("generator")}}) * (high - low) + low;
  return {call<"where">(call<"gt">(x, 0.0), x, x * slope)};
}

void infer_gumbel_softmax(Infer& c) {
  c.dim("dim", c.rank(0));
  if (!(c.attr<double>("tau") > 0)) c.bad_attr("tau", "a number above 0");
  infer_same(c);
}

// The noise -log(-log u) of a uniform u, which is kept above 0. The gradient of the hard form is that of the soft one.
std::vector<Var> decompose_gumbel_softmax(Rule& c) {
  const Var x = c.in(0);
  const double least = x.dtype() == DType::kFloat64 ? 0x1p-54 : 0x1p-25;
  const Var uniform = call<"maximum">(call<"rand_like">(x, {{"generator", c.raw("generator")}}), least);
  const Var noise = -call<"log">(-call<"log">(uniform));
  const Var soft = call<"softmax">((x + noise) / c.attr<double>("tau"), {{"dim", c.raw("dim")}});
  if (!c.attr<bool>("hard") || soft.numel() == 0) return {soft};
  const int d = c.dim("dim", x.rank());
  const Var winner = call<"argmax">(soft, {{"dim", c.raw("dim")}, {"keepdim", true}});
  const Var hot = as_dtype(call<"eq">(positions(c, x.value(), d, 1), winner), x.dtype());
  return {hot + (soft - call<"detach">(soft))};
}

std::vector<OpDef> dropout_rows() {
  return {
      {.name = "dropout",
       .doc =
           "In training each element is 0 with probability p, else x / (1 - p); otherwise x. `axes` lists dims along "
           "which all elements share one decision. Srivastava et al., Dropout, 2014.",
       .example = "return pg.ones(8):dropout(0.5, true)",
       .inputs = {{"x", kFloating}},
       .attrs = {kShare,
                 kTraining,
                 {"axes", AttrKind::kDims, {}, "dims along which elements are dropped together", true},
                 generator_attr()},
       .infer = infer_dropout,
       .view = view_dropout,
       .vjp = {[](Vjp& c) { return call_like<"dropout">(c, {c.dy()}); }},
       .vjp_uses = "",
       .traits = kRandom | kView},
      channel_dropout<1>(
          "dropout1d",
          "dropout of whole channels of x (batch, channels, length), or (channels, length). Tompson et al., "
          "Efficient object localization using convolutional networks, 2015.",
          "return pg.ones(2, 3, 4):dropout1d(0.5, true)"),
      channel_dropout<2>(
          "dropout2d",
          "dropout of whole channels of x (batch, channels, height, width); 3 dims are (batch, channels, "
          "length).",
          "return pg.ones(1, 3, 2, 2):dropout2d(0.5, true)"),
      channel_dropout<3>("dropout3d",
                         "dropout of whole channels of x (batch, channels, depth, height, width), or without batch.",
                         "return pg.ones(1, 3, 2, 2, 2):dropout3d(0.5, true)"),
      {.name = "alpha_dropout",
       .doc = "Dropout that keeps mean 0 and variance 1: in training elements become the negative limit of selu with "
              "probability p, and the result is scaled and shifted; otherwise x. Klambauer et al., Self-normalizing "
              "neural networks, 2017.",
       .example = "return pg.randn(8):alpha_dropout(0.5, true)",
       .inputs = {{"x", kFloating}},
       .attrs = {kShare, kTraining, generator_attr()},
       .infer = infer_same,
       .decompose = decompose_alpha_dropout,
       .traits = kRandom | kWidens},
      {.name = "feature_alpha_dropout",
       .doc = "alpha_dropout of whole channels of x (batch, channels, …).",
       .example = "return pg.randn(2, 3, 4):feature_alpha_dropout(0.5, true)",
       .inputs = {{"x", kFloating}},
       .attrs = {kShare, kTraining, generator_attr()},
       .infer =
           [](Infer& c) {
             if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims (batch, channels)");
             infer_same(c);
           },
       .decompose = decompose_feature_alpha_dropout,
       .traits = kRandom | kWidens},
  };
}

std::vector<OpDef> other_rows() {
  return {
      {.name = "rrelu",
       .doc = "x where it is positive, else x times a slope: in training a uniform random one from [lower, upper) for "
              "each element, otherwise their mean. Xu et al., Empirical evaluation of rectified activations in "
              "convolutional network, 2015.",
       .example = "return pg.tensor({-1, 2}):rrelu(0.1, 0.3)",
       .inputs = {{"x", kFloating, Arity::kOne, 0.2, 2}},
       .attrs = {{"lower", AttrKind::kFloat, 1.0 / 8, "the smallest slope"},
                 {"upper", AttrKind::kFloat, 1.0 / 3, "the limit of the slopes"},
                 {"training", AttrKind::kBool, {}, "whether slopes are random; nil follows the mode", true},
                 generator_attr()},
       .infer = infer_rrelu,
       .decompose = decompose_rrelu,
       .traits = kRandom | kWidens},
      {.name = "gumbel_softmax",
       .doc = "softmax((x + g) / tau) along dim with Gumbel noise g: a soft sample of the classes with logits x. hard "
              "gives the one-hot vector of the largest element, with the gradient of the soft sample. Jang et al., "
              "Categorical reparameterization with Gumbel-Softmax, 2017.",
       .example = "return pg.gumbel_softmax(pg.zeros(2, 3), {tau = 0.5, hard = true})",
       .inputs = {{"x", kFloating}},
       .attrs = {{"tau", AttrKind::kFloat, 1.0, "the temperature, above 0"},
                 {"hard", AttrKind::kBool, false, "give one-hot vectors"},
                 {"dim", AttrKind::kDim, int64_t(-1), "the dim of the classes"},
                 generator_attr()},
       .infer = infer_gumbel_softmax,
       .decompose = decompose_gumbel_softmax,
       .traits = kRandom | kWidens},
  };
}

}  // namespace

void add_dropout_ops(Registry& r) {
  r.add(dropout_rows());
  r.add(other_rows());
}

}  // namespace pg
