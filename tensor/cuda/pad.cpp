// pad and roll by hand-written kernels (kernels/pad.cuh).
#include <algorithm>

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

// The attribute `pad` as widths before the first element of each dim.
Dims widths_before(const KernelArgs& a, int rank) {
  const Ints& pad = a.attr<Ints>("pad");
  Dims before(rank, 0);
  for (int d = 0; d < rank; ++d)
    if (const size_t i = size_t(rank - 1 - d) * 2; i < pad.size()) before[d] = pad[i];
  return before;
}

PadArgs pad_args(const View& source, const Dims& padded, const Dims& before) {
  PadArgs args = {};
  for (int d = 0; d < source.rank(); ++d) add_dim(args, {padded[d], source.size(d), before[d], (*source.strides)[d]});
  args.count = numel(padded);
  return args;
}

void run(Stream& stream, const char* kernel, DType t, const std::string& mode, const PadArgs& args) {
  launch(stream, family_kernel(stream, "pad", pad_types(t, mode), kernel), args.count, &args);
}

void pad(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  PadArgs args = pad_args(in, out.shape(), widths_before(a, in.rank()));
  args.from = in.data;
  args.to = out.data;
  args.value = a.attr<double>("value");
  run(stream_at(a.stream), "pad", out.dtype(), a.attr<std::string>("mode"), args);
}

// The gradient of padding with a constant: the part of dy that is not padding.
void cut(Stream& stream, const View& dy, const View& out, const Dims& before) {
  Dims part;
  int64_t from = 0, to = 0;
  for (int d = 0; d < out.rank(); ++d) {
    const int64_t first = std::max<int64_t>(-before[d], 0), end = std::min(out.size(d), dy.size(d) - before[d]);
    part.push_back(std::max<int64_t>(end - first, 0));
    to += first * (*out.strides)[d];
    from += (first + before[d]) * (*dy.strides)[d];
  }
  if (!(part == out.shape())) fill_view(stream, out, 0);
  if (numel(part))
    convert_view(stream, Placed(dy, part, *dy.strides, from).view, Placed(out, part, *out.strides, to).view);
}

void pad_backward(const KernelArgs& a) {
  const View &dy = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  const Dims before = widths_before(a, out.rank());
  const std::string& mode = a.attr<std::string>("mode");
  if (mode == "constant") return cut(stream, dy, out, before);
  AtomicSums sums(stream, out);
  PadArgs args = pad_args(out, dy.shape(), before);
  args.from = dy.data;
  args.to = sums.data();
  if (args.count) run(stream, "pad_backward", dy.dtype(), mode, args);
  sums.finish();
}

// Elements move to the other end, as circular padding takes them.
void roll(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  const Ints& shifts = a.attr<Ints>("shifts");
  const auto wrapped = [](int64_t shift, int64_t n) { return (shift % n + n) % n; };
  Dims shape = in.shape(), before(in.rank(), 0);
  if (in.rank() && !a.attr<Ints>("dims").empty()) {
    const Dims dims = a.dims("dims", in.rank());
    for (int i = 0; i < dims.size(); ++i) before[int(dims[i])] = wrapped(shifts[size_t(i)], in.size(int(dims[i])));
  } else {
    shape = {in.numel()};
    before = {shifts.empty() ? 0 : wrapped(shifts[0], in.numel())};
  }
  const Placed flat(in, shape);
  PadArgs args = pad_args(flat.view, shape, before);
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
