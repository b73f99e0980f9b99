// Joins arrays along a dim. Small ones by one kernel (kernels/join.cuh), as the gates of a recurrent step are; large
// ones by a copy for each.
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/join_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/layout.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

constexpr int64_t kSmall = 1 << 20;  // elements for which launches cost more than the copies

// `parts`: arrays of which each row of the result has `sizes` elements. Returns false for arrays that one kernel does
// not serve.
bool join_small(Stream& stream, std::span<const View> parts, std::span<const int64_t> sizes, const View& out) {
  if (parts.size() > kernels::kMostParts || parts.size() < 2 || out.numel() > kSmall) return false;
  kernels::JoinArgs args = {};
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].dtype() != out.dtype() || !is_contiguous(parts[i].shape(), *parts[i].strides)) return false;
    args.part[i] = parts[i].data;
    args.end[i] = args.row += uint32_t(sizes[i]);
  }
  args.to = out.data;
  args.count = uint32_t(out.numel());
  if (args.count > 0)
    launch(stream, family_kernel(stream, "join", join_types(size_of(out.dtype())), "join"), args.count, &args);
  return true;
}

// Input after input into its part of the result along a dim.
void cat(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  const View& out = a.out[0];
  const int d = a.dim("dim", out.rank());
  const int64_t inner = (*out.strides)[d];
  std::vector<View> parts;
  std::vector<int64_t> sizes;
  for (const View& in : a.in)
    if (in.rank() == out.rank() && in.numel() > 0) parts.push_back(in), sizes.push_back(in.size(d) * inner);
  if (join_small(stream, parts, sizes, out)) return;
  int64_t at = 0;
  for (size_t i = 0; i < parts.size(); at += sizes[i++])
    convert_view(stream, parts[i], Placed(out, parts[i].shape(), *out.strides, at).view);
}

void stack(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  const View& out = a.out[0];
  const int d = a.dim("dim", out.rank());
  Dims strides = *out.strides;
  const int64_t step = strides[d];
  strides.erase(d);
  if (join_small(stream, a.in, std::vector<int64_t>(a.in.size(), step), out)) return;
  for (size_t i = 0; i < a.in.size(); ++i)
    convert_view(stream, a.in[i], Placed(out, a.in[i].shape(), strides, int64_t(i) * step).view);
}

}  // namespace

std::string join_types(int64_t bytes) { return fmt::format("using T = uint{}_t;\n", 8 * bytes); }

std::vector<KernelRow> join_rows() { return {{"cat", cat, kStridedInputs}, {"stack", stack, kStridedInputs}}; }

}  // namespace pg::cuda
