// Softmax by hand-written kernels (kernels/softmax.cuh).
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

constexpr int64_t kShortLine = 64;  // elements of a line that one thread computes

template <bool kLog>
void softmax(const KernelArgs& a) {
  const View &x = a.in[0], &y = a.out[0];
  if (x.numel() == 0) return;
  const int d = a.dim("dim", x.rank());
  kernels::LinesArgs args{x.data, y.data, 1, x.rank() ? x.size(d) : 1, 1};
  for (int k = 0; k < x.rank(); ++k)
    if (k != d) (k < d ? args.outer : args.inner) *= x.size(k);
  Stream& stream = stream_at(a.stream);
  const auto kernel = [&](const char* name) {
    return family_kernel(stream, {"softmax", name, {kLog ? "log" : ""}, dtypes_code({x.dtype()})}, [&] {
      return fmt::format("using T = {};\nconstexpr bool kLog = {};\n", type_text(x.dtype()), kLog);
    });
  };
  const int64_t lines = args.outer * args.inner;
  if (args.n <= kShortLine || args.inner >= 32) return launch(stream, kernel("softmax_threads"), lines, &args);
  const unsigned threads = args.n < kThreads ? 64 : kThreads;
  launch_blocks(stream, kernel("softmax_blocks"), lines, threads, &args);
}

}  // namespace

std::vector<KernelRow> softmax_rows() { return {{"softmax", softmax<false>}, {"log_softmax", softmax<true>}}; }

}  // namespace pg::cuda
