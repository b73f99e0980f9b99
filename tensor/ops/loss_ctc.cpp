// Connectionist temporal classification.
#include "tensor/ops/loss_rules.h"

namespace pg {
namespace {

constexpr int kMaxDirections = 4;

enum Input { kLogProbs, kTargets, kSteps, kLabels, kDirections };

const AttrDef kBlank = {"blank", AttrKind::kInt, int64_t(1), "the class of the blank", false, 1};
const AttrDef kZeroInfinity = {"zero_infinity", AttrKind::kBool, false,
                               "0 instead of infinity, with a gradient of 0, where no path is long enough"};

std::vector<InputDef> ctc_inputs() {
  return {
      {"log_probs", kFloating, Arity::kOne, -3, 0, "log-probabilities (steps, batch, classes), or (steps, classes)"},
      {"targets", kNumeric, Arity::kOne, 2, 3, "labels (batch, length), or the labels of all samples in a row"},
      {"input_lengths", kNumeric, Arity::kOptional, 1, 2, "steps of each sample; all without"},
      {"target_lengths", kNumeric, Arity::kOptional, 0, 1, "labels of each sample; all without"}};
}

// The shape of one value per sample.
Dims sample_dims(const Infer& c) { return c.rank(kLogProbs) == 2 ? Dims{} : Dims{c.shape(kLogProbs)[1]}; }

void check_lengths(Infer& c, size_t i) {
  const Dims samples = sample_dims(c);
  if (!c.has(i) || c.shape(i) == samples || (samples.empty() && c.shape(i) == Dims{1})) return;
  c.bad_input(i, samples.empty() ? "one length" : fmt::format("one length for each of the {} samples", samples[0]));
}

void check_ctc(Infer& c) {
  const Dims& x = c.shape(kLogProbs);
  if (x.size() != 2 && x.size() != 3) c.bad_input(kLogProbs, "2 or 3 dims (steps, batch, classes)");
  const int64_t batch = x.size() == 2 ? 1 : x[1];
  const Dims& targets = c.shape(kTargets);
  const bool rows = x.size() == 3 && targets.size() == 2 && targets[0] == batch;
  if (!rows && targets.size() != 1)
    c.bad_input(kTargets, x.size() == 2 ? "1 dim" : fmt::format("{} rows of labels, or 1 dim", batch));
  if (!rows && batch != 1 && !c.has(kLabels)) c.bad_input(kLabels, "the number of labels of each sample");
  check_lengths(c, kSteps);
  check_lengths(c, kLabels);
  if (c.attr<int64_t>("blank") > x.back()) c.bad_attr("blank", fmt::format("a class from 1 to {}", x.back()));
}

void infer_paths(Infer& c) {
  check_ctc(c);
  c.output(c.dtype(kLogProbs), sample_dims(c));
}

void infer_ctc_loss(Infer& c) {
  check_ctc(c);
  c.output(c.dtype(kLogProbs), reduces(c) ? Dims{} : sample_dims(c));
}

void infer_slope(Infer& c) {
  check_ctc(c);
  for (size_t i = kDirections; i < c.count(); ++i)
    if (c.has(i) && !(c.type(i) == c.type(kLogProbs))) c.bad_input(i, "the type of log_probs");
  c.output(c.dtype(kLogProbs), c.shape(kLogProbs));
}

Var slope(const Rule& c, std::span<const Var> inputs) {
  return call_list<"ctc_slope">(inputs, {{"blank", c.raw("blank")}, {"zero_infinity", c.raw("zero_infinity")}});
}

std::vector<Var> all_inputs(const Rule& c) {
  std::vector<Var> out;
  for (size_t i = 0; i < c.count(); ++i) out.push_back(c.in(i));
  return out;
}

Var grad_paths(Vjp& c) {
  const Var dy = call<"unsqueeze">(c.dy(), {{"dim", int64_t(-1)}});
  return dy * slope(c, all_inputs(c));
}

// The derivative of order k + 1 is linear and symmetric in its k directions. So for a direction it is itself with dy in
// that place, and for log_probs the next derivative with dy as one more direction.
void vjp_slope(Vjp& c) {
  std::vector<Var> inputs = all_inputs(c);
  size_t next = kDirections;
  for (; next < inputs.size() && c.has(next); ++next) {
    if (!c.needs(next)) continue;
    std::vector<Var> other = inputs;
    other[next] = c.dy();
    c.set(next, slope(c, other));
  }
  if (!c.needs(kLogProbs)) return;
  if (next == inputs.size())
    bad_argument("ctc_loss", "log_probs", fmt::format("a derivative of order {} or less", kMaxDirections + 1),
                 std::to_string(kMaxDirections + 2));
  inputs[next] = c.dy();
  c.set(kLogProbs, slope(c, inputs));
}

std::vector<Var> decompose_ctc(Rule& c) {
  const Var x = c.in(kLogProbs);
  const Var loss = call<"ctc_paths">({x, c.in(kTargets), c.in(kSteps), c.in(kLabels)},
                                     {{"blank", c.raw("blank")}, {"zero_infinity", c.raw("zero_infinity")}});
  if (c.attr<std::string>("reduction") != "mean") return {reduced(c, loss)};
  const int64_t all = c.in(kTargets).shape().back();
  if (!c.has(kLabels)) return {call<"mean">(loss / double(std::max<int64_t>(all, 1)))};
  const Var lengths = reshaped(as_dtype(c.in(kLabels), x.dtype()), loss.shape());
  return {call<"mean">(loss / call<"maximum">(lengths, 1.0))};
}

std::vector<InputDef> with_directions(std::vector<InputDef> inputs) {
  for (const char* name : {"direction1", "direction2", "direction3", "direction4"})
    inputs.push_back({name, kFloating, Arity::kOptional});
  return inputs;
}

}  // namespace

void add_ctc_loss(Registry& r) {
  constexpr const char* kValues = "log_probs targets input_lengths target_lengths";
  const OpDef rows[] = {
      {.name = "ctc_loss",
       .doc =
           "-log of the probability that the steps spell the labels, with each label repeated any number of times and "
           "any number of blanks between labels. Classes count from 1. log_probs come from log_softmax; the gradient "
           "is for such input, as PyTorch's. mean divides each loss by its number of labels first. Graves et al., "
           "Connectionist temporal classification, 2006.",
       .example = "local x = pg.zeros(4, 1, 3):log_softmax()  -- 4 steps, 1 sample, 3 classes\n"
                  "return pg.ctc_loss(x, pg.tensor({{2, 3}}, {dtype = \"int64\"}))",
       .inputs = ctc_inputs(),
       .attrs = {kBlank, kHow, kZeroInfinity},
       .infer = infer_ctc_loss,
       .decompose = decompose_ctc,
       .traits = kWidens},
      {.name = "ctc_paths",
       .doc = "ctc_loss of each sample.",
       .inputs = ctc_inputs(),
       .attrs = {kBlank, kZeroInfinity},
       .infer = infer_paths,
       .vjp = {grad_paths, nullptr, nullptr, nullptr},
       .vjp_uses = kValues,
       .traits = kHidden},
      {.name = "ctc_slope",
       .doc = "The derivative of the sum of ctc_paths for log_probs, differentiated once more along each direction.",
       .inputs = with_directions(ctc_inputs()),
       .attrs = {kBlank, kZeroInfinity},
       .infer = infer_slope,
       .vjp_all = vjp_slope,
       .traits = kHidden},
  };
  r.add(rows);
}

}  // namespace pg
