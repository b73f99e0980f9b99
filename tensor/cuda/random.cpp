// Random ops by hand-written kernels (kernels/random.cuh).
#include <cmath>

#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/random_arguments.cuh"
#include "tensor/cuda/scan.h"
#include "tensor/cuda/sort.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::RandomArgs;

void run(const KernelArgs& a, const char* name, RandomArgs args, const View& out) {
  const RandomKey& key = a.attr<RandomKey>("generator");
  args.out = out.data;
  args.count = out.numel();
  args.seed = int64_t(key.seed);
  args.tick = int64_t(key.tick);
  if (args.count == 0) return;
  Stream& stream = stream_at(a.stream);
  const auto types = [&] { return random_types(out.dtype()); };
  launch(stream, family_kernel(stream, {"random", name, {}, dtypes_code({out.dtype()})}, types), args.count / 4 + 1,
         &args);
}

void rand(const KernelArgs& a) { run(a, "uniform", {}, a.out[0]); }
void randn(const KernelArgs& a) { run(a, "normal", {}, a.out[0]); }

void randint(const KernelArgs& a) {
  RandomArgs args = {};
  args.low = a.attr<int64_t>("low");
  args.range = int64_t(uint64_t(a.attr<int64_t>("high") - args.low) + 1);
  run(a, "integers", args, a.out[0]);
}

void bernoulli(const KernelArgs& a) {
  RandomArgs args = {};
  if (a.has_attr("probability"))
    args.p = a.attr<double>("probability");
  else
    args.x = a.in[0].data;
  args.fault = stream_at(a.stream).fault->get();
  args.report = report_number(refusal(a, "p", "probabilities from 0 to 1", "{number} at element {at}"));
  run(a, "bernoulli", args, a.out[0]);
}

void randperm(const KernelArgs& a) {
  constexpr int kRounds = 8;  // between two looks at whether swaps are left
  const View& out = a.out[0];
  const int64_t n = out.numel();
  if (n == 0) return;
  Stream& stream = stream_at(a.stream);
  const Temporary numbers(stream, DType::kInt64, out);
  const Scratch memory(stream, size_t(2 * n + 1) * 8);
  const RandomKey& key = a.attr<RandomKey>("generator");
  kernels::ShuffleArgs args = {};
  args.numbers = numbers.view.as<int64_t>();
  args.partners = static_cast<int64_t*>(memory.data());
  args.claims = args.partners + n;
  args.unfinished = args.claims + n;
  args.count = n, args.base = a.attr<int64_t>("index_base");
  args.seed = int64_t(key.seed), args.tick = int64_t(key.tick);
  const auto step = [&](const char* name) {
    launch(stream, family_kernel(stream, "random", random_types(DType::kFloat64), name), n, &args);
  };
  step("shuffle_start");
  int64_t unfinished = 0;
  do {
    for (int i = 0; i < kRounds; ++i, ++args.round) step("shuffle_claim"), step("shuffle_swap");
    read_back(stream, &unfinished, args.unfinished, sizeof unfinished);
  } while (unfinished == args.round - 1);
  convert_view(stream, numbers.view, out);
}

void multinomial(const KernelArgs& a) {
  const View &p = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  const RandomKey& key = a.attr<RandomKey>("generator");
  const Converted weights(stream, p, DType::kFloat64);
  const Temporary sums(stream, DType::kFloat64, p);
  kernels::DrawArgs args = {};
  args.weights = static_cast<const double*>(weights.data());
  args.sums = sums.view.as<double>();
  args.out = out.as<int64_t>();
  args.choices = p.size(p.rank() - 1), args.rows = p.numel() / args.choices;
  args.draws = a.attr<int64_t>("n"), args.base = a.attr<int64_t>("index_base");
  args.seed = int64_t(key.seed), args.tick = int64_t(key.tick);
  args.replacement = a.attr<bool>("replacement");
  args.fault = stream.fault->get();
  args.bad_weight = report_number(refusal(a, "p", "finite weights of at least 0", "{number} at element {at}"));
  args.few_weights = report_number(refusal(
      a, "p", fmt::format("at least {} weights above 0 in a row", args.replacement ? 1 : args.draws), "{value}"));
  const auto kernel = [&](const char* name) {
    return family_kernel(stream, "random", random_types(DType::kFloat64), name);
  };
  launch_blocks(stream, kernel("draw_check"), args.rows, kThreads, &args);
  args.count = args.rows * (args.replacement ? args.draws : args.choices);
  if (!args.replacement) {
    launch(stream, kernel("draw_keys"), args.count, &args);
    return sort_lines(stream, sums.view.data, DType::kFloat64, Lines(p.shape(), p.rank() - 1), false, args.draws,
                      args.base, {nullptr, out.data});
  }
  running_sums(stream, {sums.view.type, sums.view.strides, const_cast<double*>(args.weights)}, sums.view);
  launch(stream, kernel("draw_again"), args.count, &args);
}

// With `axes`, a mask of size 1 along them is drawn and multiplied with x.
void dropout(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const double p = a.attr<double>("p");
  RandomArgs args = {};
  args.range = int64_t(std::ceil(p * 0x1p32));
  args.scale = p < 1 ? 1 / (1 - p) : 0;
  args.x = x.data;
  if (out.numel() == 0) return;
  if (!a.has_attr("axes") || a.attr<Ints>("axes").empty()) return run(a, "drop", args, out);
  Dims shape = out.rank() == 0 ? Dims{1} : out.shape();
  for (int64_t d : a.dims("axes", out.rank())) shape[int(d)] = 1;
  Stream& stream = stream_at(a.stream);
  const Scratch memory(stream, size_t(numel(shape)) * sizeof(double));
  const Type type{DType::kFloat64, out.type->device, shape};
  const Dims strides = contiguous_strides(shape);
  args.x = nullptr;
  const View mask{&type, &strides, memory.data()}, in[] = {x, mask};
  run(a, "drop", args, mask);
  run_pointwise("mul", stream, in, out);
}

}  // namespace

std::string random_types(DType t) { return fmt::format("using T = {};\n", type_text(t)); }

std::vector<KernelRow> random_rows() {
  return {{"rand", rand},
          {"randn", randn},
          {"rand_like", rand, kStridedInputs},
          {"randn_like", randn, kStridedInputs},
          {"randint", randint},
          {"bernoulli", bernoulli},
          {"randperm", randperm},
          {"multinomial", multinomial},
          {"dropout", dropout}};
}

}  // namespace pg::cuda
