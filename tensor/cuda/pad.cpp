// pad and roll by hand-written kernels (kernels/pad.cuh).
#include <algorithm>

#include "tensor/arguments.h"
#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/pad_arguments.cuh"
#include "tensor/cuda/layout.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::PadArgs;
using kernels::PadDim;

// Appends a dim, or joins it with the one before it where both are copied whole.
void add_dim(PadArgs& a, const PadDim& dim) {
  PadDim* last = a.rank ? &a.dims[a.rank - 1] : nullptr;
  const auto whole = [](const PadDim& d) { return d.before == 0 && d.size == d.source; };
  if (last && whole(*last) && whole(dim) && last->stride == dim.size * dim.stride)
    *last = {last->size * dim.size, last->size * dim.size, 0, dim.stride};
  else
    a.dims[a.rank++] = dim;
}

// The dims of a padded array, and the offset of the first element of the source that it copies.
PadArgs pad_args(const KernelArgs& a, const View& source, const Dims& padded, int64_t* offset) {
  PadArgs args = {};
  for (int d = 0; d < source.rank(); ++d) {
    const PadRange range(a, d, source.rank(), source.size(d));
    const int64_t stride = (*source.strides)[d];
    *offset += range.first * stride;
    add_dim(args, {padded[d], range.end - range.first, range.before + range.first, stride});
  }
  args.count = numel(padded);
  return args;
}

void run(Stream& stream, const char* kernel, DType t, const std::string& mode, const PadArgs& args) {
  launch(stream, family_kernel(stream, "pad", pad_types(t, mode), kernel), args.count, &args);
}

void pad(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  int64_t offset = 0;
  PadArgs args = pad_args(a, in, out.shape(), &offset);
  args.from = in.as<char>() + offset * size_of(in.dtype());
  args.to = out.data;
  args.value = a.attr<double>("value");
  run(stream_at(a.stream), "pad", out.dtype(), a.attr<std::string>("mode"), args);
}

// The gradient of padding with a constant: the part of dy that is not padding.
void cut(const KernelArgs& a, Stream& stream, const View& dy, const View& out) {
  Dims part;
  int64_t from = 0, to = 0;
  for (int d = 0; d < out.rank(); ++d) {
    const int64_t before = PadRange(a, d, out.rank(), out.size(d)).before;
    const int64_t first = std::max<int64_t>(-before, 0), end = std::min(out.size(d), dy.size(d) - before);
    part.push_back(std::max<int64_t>(end - first, 0));
    to += first * (*out.strides)[d];
    from += (first + before) * (*dy.strides)[d];
  }
  if (!(part == out.shape())) fill_view(stream, out, 0);
  if (numel(part))
    convert_view(stream, Placed(dy, part, *dy.strides, from).view, Placed(out, part, *out.strides, to).view);
}

void pad_backward(const KernelArgs& a) {
  const View &dy = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  const std::string& mode = a.attr<std::string>("mode");
  if (mode == "constant") return cut(a, stream, dy, out);
  AtomicSums sums(stream, out);
  int64_t offset = 0;
  PadArgs args = pad_args(a, out, dy.shape(), &offset);
  args.from = dy.data;
  args.to = static_cast<double*>(sums.data()) + offset;
  if (args.count) run(stream, "pad_backward", dy.dtype(), mode, args);
  sums.finish();
}

// Elements move to the other end, as circular padding takes them.
void roll(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  Dims shape = in.shape(), before = roll_shifts(a, shape);
  if (a.attr<Ints>("dims").empty()) {
    const int64_t n = in.numel(), shift = a.attr<Ints>("shifts")[0] % n;
    shape = {n};
    before = {shift < 0 ? shift + n : shift};
  }
  PadArgs args = {};
  const Dims strides = contiguous_strides(shape);
  for (int d = 0; d < shape.size(); ++d) add_dim(args, {shape[d], shape[d], before[d], strides[d]});
  args.count = in.numel();
  args.from = in.data;
  args.to = out.data;
  run(stream_at(a.stream), "pad", out.dtype(), "circular", args);
}

}  // namespace

std::string pad_types(DType t, const std::string& mode) {
  const char* name = mode == "constant"    ? "kConstant"
                     : mode == "replicate" ? "kReplicate"
                     : mode == "reflect"   ? "kReflect"
                                           : "kCircular";
  return fmt::format("using T = {};\n#define MODE {}\n", type_text(t), name);
}

std::vector<KernelRow> pad_rows() {
  return {{"pad", pad, kStridedInputs}, {"pad_backward", pad_backward}, {"roll", roll}};
}

}  // namespace pg::cuda
