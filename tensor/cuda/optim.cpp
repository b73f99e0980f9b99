// Updates of optimizers: one launch for up to kMostParams parameters of the same dtypes (kernels/optim.cuh).
#include <algorithm>
#include <limits>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/error.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::UpdateArgs;
using kernels::UpdateParam;

enum class Rule : uint8_t { kSgd, kMomentum, kNag, kAdam, kAdamW };
constexpr const char* kRuleNames[] = {"kSgd", "kMomentum", "kNag", "kAdam", "kAdamW"};

template <class List>
double nth(const List& list, size_t i) {
  return double(list[list.size() == 1 ? 0 : i]);
}

UpdateArgs args_of(const KernelArgs& a, Rule rule) {
  UpdateArgs args = {};
  if (const View& given = a.in.back()) {
    args.rates = given.as<const double>();
    args.columns = given.size(1);
    args.cycles = given.size(0) == 5;
  }
  args.rescale = a.attr<double>("rescale_grad");
  args.clip = a.has_attr("clip_gradient") ? a.attr<double>("clip_gradient") : std::numeric_limits<double>::infinity();
  if (rule == Rule::kMomentum || rule == Rule::kNag) args.momentum = a.attr<double>("momentum");
  if (rule < Rule::kAdam) return args;
  args.beta1 = a.attr<double>("beta1");
  args.beta2 = a.attr<double>("beta2");
  args.epsilon = a.attr<double>("epsilon");
  return args;
}

template <Rule rule, size_t states>
void update(const KernelArgs& a) {
  const size_t count = (a.in.size() - 1) / (2 + states);
  Stream& stream = stream_at(a.stream);
  UpdateArgs args = args_of(a, rule);
  const auto dtype = [&](size_t i, size_t k) { return a.in[k * count + i].dtype(); };
  const auto code_of = [&](size_t i) { return dtypes_code({dtype(i, 0), dtype(i, 1), dtype(i, states ? 2 : 0)}); };
  // Updates the parameters in `args`, of which i is one.
  const auto flush = [&](size_t i) {
    int64_t most = 0;
    for (int k = 0; k < args.params; ++k) most = std::max(most, args.param[k].count);
    const auto types = [&] {
      return fmt::format("using T = {};\nusing G = {};\nusing M = {};\n#define kRule {}\n", type_text(dtype(i, 0)),
                         type_text(dtype(i, 1)), type_text(dtype(i, states ? 2 : 0)), kRuleNames[int(rule)]);
    };
    const KernelKey key{"optim", "update", {kRuleNames[int(rule)]}, code_of(i)};
    if (most > 0) launch(stream, family_kernel(stream, key, types), most, &args);
    args.params = 0;
  };
  for (size_t i = 0; i < count; ++i) {
    const bool full = args.params == kernels::kMostParams;
    if (i > 0 && (full || code_of(i) != code_of(i - 1))) flush(i - 1);
    UpdateParam& p = args.param[args.params++];
    p = {};
    for (size_t k = 0; k < 2 + states; ++k) p.in[k] = a.in[k * count + i].data;
    for (size_t k = 0; k < 1 + states; ++k) p.out[k] = a.out[k * count + i].data;
    p.count = a.in[i].numel();
    p.number = int64_t(i);
    if (args.rates) continue;
    p.lr = nth(a.attr<Floats>("lr"), i);
    p.wd = nth(a.attr<Floats>("wd"), i);
    if (rule >= Rule::kAdam) p.t = nth(a.attr<Ints>("t"), i);
  }
  if (args.params > 0) flush(count - 1);
}

}  // namespace

std::vector<KernelRow> optim_rows() {
  return {{"sgd_update", update<Rule::kSgd, 0>},
          {"sgd_momentum_update", update<Rule::kMomentum, 1>},
          {"nag_update", update<Rule::kNag, 1>},
          {"adam_update", update<Rule::kAdam, 2>},
          {"adamw_update", update<Rule::kAdamW, 2>}};
}

}  // namespace pg::cuda
