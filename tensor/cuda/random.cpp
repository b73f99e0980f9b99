// Random ops by hand-written kernels (kernels/random.cuh).
#include <cmath>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::RandomArgs;

void run(const KernelArgs& a, const char* name, RandomArgs args) {
  const View& out = a.out[0];
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

void rand(const KernelArgs& a) { run(a, "uniform", {}); }
void randn(const KernelArgs& a) { run(a, "normal", {}); }

void randint(const KernelArgs& a) {
  RandomArgs args = {};
  args.low = a.attr<int64_t>("low");
  args.range = int64_t(uint64_t(a.attr<int64_t>("high") - args.low) + 1);
  run(a, "integers", args);
}

}  // namespace

std::vector<KernelRow> random_rows() {
  return {{"rand", rand},
          {"randn", randn},
          {"rand_like", rand, kStridedInputs},
          {"randn_like", randn, kStridedInputs},
          {"randint", randint}};
}

}  // namespace pg::cuda
