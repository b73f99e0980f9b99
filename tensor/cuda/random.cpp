// Random ops by hand-written kernels (kernels/random.cuh).
#include <cmath>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/launch.h"
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
  const std::string types = fmt::format("using T = {};\n", type_text(out.dtype()));
  launch(stream, family_kernel(stream, "random", types, name), args.count / 4 + 1, &args);
}

void rand(const KernelArgs& a) { run(a, "uniform", {}, a.out[0]); }
void randn(const KernelArgs& a) { run(a, "normal", {}, a.out[0]); }

void randint(const KernelArgs& a) {
  RandomArgs args = {};
  args.low = a.attr<int64_t>("low");
  args.range = int64_t(uint64_t(a.attr<int64_t>("high") - args.low) + 1);
  run(a, "integers", args, a.out[0]);
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

std::vector<KernelRow> random_rows() {
  return {{"rand", rand},
          {"randn", randn},
          {"rand_like", rand, kStridedInputs},
          {"randn_like", randn, kStridedInputs},
          {"randint", randint},
          {"dropout", dropout}};
}

}  // namespace pg::cuda
