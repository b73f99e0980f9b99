// Interpolation by hand-written kernels (kernels/sample.cuh).
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/sample_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

template <bool kBackward>
void resample(const KernelArgs& a) {
  const View &from = a.in[0], &to = a.out[0];
  if (to.numel() == 0) return;
  const int dim = a.dim("dim", from.rank());
  kernels::ResampleArgs args{from.data, to.data, to.numel(), from.size(dim), to.size(dim), 1, a.attr<double>("step")};
  if (kBackward) std::swap(args.in, args.out);
  for (int d = dim + 1; d < from.rank(); ++d) args.inner *= from.size(d);
  const std::string& kind = a.attr<std::string>("kind");
  const std::string types = sample_types(to.dtype(), kind);
  Stream& stream = stream_at(a.stream);
  launch(stream, family_kernel(stream, "sample", types, kBackward ? "resample_backward" : "resample"), args.count,
         &args);
}

}  // namespace

std::string sample_types(DType t, const std::string& kind) {
  const char* name = kind == "nearest"           ? "kNearest"
                     : kind == "nearest-exact"   ? "kExact"
                     : kind.starts_with("cubic") ? "kCubic"
                                                 : "kLinear";
  return fmt::format("using T = {};\n#define KIND {}\nconstexpr bool kCorners = {};\n", type_text(t), name,
                     kind.ends_with("corners"));
}

std::vector<KernelRow> sample_rows() { return {{"resample", resample<false>}, {"resample_backward", resample<true>}}; }

}  // namespace pg::cuda
