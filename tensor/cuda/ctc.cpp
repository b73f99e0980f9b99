// ctc_loss by hand-written kernels (kernels/ctc.cuh). Lengths and labels that are not allowed are reported late.
#include <algorithm>

#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/ctc_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

enum Input { kLogProbs, kTargets, kSteps, kLabels, kDirections };

using kernels::CtcArgs;

void set_reports(const KernelArgs& a, CtcArgs& args) {
  const auto report = [&](const char* argument, std::string expected, const char* got) {
    Refusal r = refusal(a, argument, std::move(expected), got);
    r.name = "ctc_loss";
    return report_number(r);
  };
  const char* at = "{number} at position {at}";
  args.bad_steps = report("input_lengths", fmt::format("whole numbers from 0 to {}", args.steps), at);
  args.bad_labels = report("target_lengths", fmt::format("whole numbers from 0 to {}", args.width), at);
  args.bad_sum =
      report("target_lengths", fmt::format("lengths that sum to the {} labels", args.width), "a sum of {value}");
  args.bad_target =
      report("targets", fmt::format("labels from 1 to {} other than blank {}", args.classes, args.blank + 1), at);
}

CtcArgs args_of(const KernelArgs& a) {
  const View &x = a.in[kLogProbs], &targets = a.in[kTargets];
  CtcArgs args = {};
  args.steps = x.size(0), args.batch = x.rank() == 2 ? 1 : x.size(1), args.classes = x.size(x.rank() - 1);
  args.width = targets.size(targets.rank() - 1);
  args.blank = a.attr<int64_t>("blank") - 1;
  args.rows = targets.rank() == 2;
  args.zero_infinity = a.attr<bool>("zero_infinity");
  args.fault = stream_at(a.stream).fault->get();
  set_reports(a, args);
  return args;
}

// Runs a kernel with all operands in one dtype. `kept`: rows of forward variables that it needs.
void run(const KernelArgs& a, const char* name, CtcArgs args, int directions, int64_t kept) {
  if (args.batch == 0) return;
  Stream& stream = stream_at(a.stream);
  const View& out = a.out[0];
  const DType t = out.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Converted x(stream, a.in[kLogProbs], t), targets(stream, a.in[kTargets], DType::kFloat64),
      steps(stream, a.in[kSteps], DType::kFloat64), labels(stream, a.in[kLabels], DType::kFloat64);
  args.x = x.data();
  args.targets = static_cast<const double*>(targets.data());
  args.input_lengths = static_cast<const double*>(steps.data());
  args.target_lengths = static_cast<const double*>(labels.data());
  std::vector<std::unique_ptr<Converted>> moved;
  for (int k = 0; k < directions; ++k)
    args.directions[k] =
        moved.emplace_back(std::make_unique<Converted>(stream, a.in[size_t(kDirections + k)], t))->data();
  const Temporary result(stream, t, out);
  args.out = result.view.data;
  const int64_t states = 2 * (args.rows ? args.batch * args.width : args.width) + args.batch;
  const size_t row = size_t(states) * 8 * (1 + (size_t(1) << directions));
  args.kept = std::max<int64_t>(kept, 1);
  const Scratch forward(stream, row * size_t(args.kept)), backward(stream, row * 2);
  args.forward = forward.data(), args.backward = backward.data();
  const Type type{DType::kFloat64, out.type->device, {args.batch * args.classes}};
  const Dims strides = {1};
  const Scratch posterior(stream, size_t(type.shape[0]) * 8);
  args.posterior = static_cast<double*>(posterior.data());
  fill_view(stream, {&type, &strides, posterior.data()}, 0);
  launch_blocks(stream, family_kernel(stream, "ctc", ctc_types(t, directions), name), args.batch, 128, &args);
  convert_view(stream, result.view, out);
}

void ctc_paths(const KernelArgs& a) { run(a, "ctc_paths", args_of(a), 0, 2); }

void ctc_slope(const KernelArgs& a) {
  const CtcArgs args = args_of(a);
  const auto given = std::count_if(a.in.begin() + kDirections, a.in.end(), [](const View& v) { return bool(v); });
  run(a, "ctc_slope", args, int(given), args.steps);
}

}  // namespace

std::string ctc_types(DType t, int directions) {
  return fmt::format("using T = {};\nconstexpr int kDirections = {};\n", type_text(t), directions);
}

std::vector<KernelRow> ctc_rows() { return {{"ctc_paths", ctc_paths}, {"ctc_slope", ctc_slope}}; }

}  // namespace pg::cuda
