// Pooling, unfold and fold by hand-written kernels (kernels/pool.cuh).
#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/pool_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/cuda/windows.h"
#include "tensor/ops/conv_rules.h"

namespace pg::cuda {
namespace {

using kernels::MovePoolArgs;
using kernels::PoolArgs;

// Windows over the last `dims` dims of `in`. Without an attribute for the step it is the size of the window.
PoolArgs window_args(const KernelArgs& a, const Dims& in, int dims) {
  const Three size = last_three(in, dims, 1), kernel = spatial_attr(a, "kernel_size", dims, 1);
  const Three stride = a.has_attr("stride") ? spatial_attr(a, "stride", dims, 1) : kernel;
  const Three padding = spatial_attr(a, "padding", dims, 0);
  const bool spreads = a.op.attr_index("dilation") >= 0;
  const Three dilation = spreads ? spatial_attr(a, "dilation", dims, 1) : Three{1, 1, 1};
  PoolArgs args = {};
  args.x = a.in[0].data;
  args.y = a.out[0].data;
  args.count = a.out[0].numel();
  args.channels = 1;
  for (size_t d = 0; d < 3; ++d) args.axis[d] = {size[d], 1, kernel[d], stride[d], padding[d], dilation[d]};
  return args;
}

PoolArgs pool_args(const KernelArgs& a, const Dims& in, const Dims& out, int dims) {
  PoolArgs args = window_args(a, in, dims);
  const Three windows = last_three(out, dims, 1);
  for (size_t d = 0; d < 3; ++d) args.axis[d].out = windows[d];
  return args;
}

void run(const KernelArgs& a, const char* kernel, const PoolArgs& args) {
  if (args.count == 0) return;
  Stream& stream = stream_at(a.stream);
  const std::string types = pool_types(a.out[0].dtype(), std::max(args.count, a.in[0].numel()));
  launch(stream, family_kernel(stream, "pool", types, kernel), args.count, &args);
}

void max_pool(const KernelArgs& a) {
  PoolArgs args = pool_args(a, a.in[0].shape(), a.out[0].shape(), int(a.attr<Ints>("kernel_size").size()));
  args.index = a.out[1].as<int32_t>();
  run(a, "max_pool", args);
}

// Of images (N, spatial..., C).
PoolArgs pool_args_last(const KernelArgs& a) {
  PoolArgs args = pool_args(a, channels_first(a.in[0].shape()), channels_first(a.out[0].shape()), a.in[0].rank() - 2);
  args.channels = a.in[0].shape().back();
  return args;
}

void max_pool_last(const KernelArgs& a) {
  PoolArgs args = pool_args_last(a);
  args.index = a.out[1].as<int32_t>();
  run(a, "max_pool", args);
}

void set_divisor(const KernelArgs& a, PoolArgs& args) {
  args.counts_padding = a.attr<bool>("count_include_pad");
  if (a.has_attr("divisor_override")) args.divisor = a.attr<int64_t>("divisor_override");
}

template <int kDims>
void avg_pool(const KernelArgs& a) {
  PoolArgs args = pool_args(a, a.in[0].shape(), a.out[0].shape(), kDims);
  set_divisor(a, args);
  run(a, "avg_pool", args);
}

void avg_pool_last(const KernelArgs& a) {
  PoolArgs args = pool_args_last(a);
  set_divisor(a, args);
  run(a, "avg_pool", args);
}

void avg_pool_backward(const KernelArgs& a) {
  PoolArgs args = pool_args(a, a.out[0].shape(), a.in[0].shape(), int(a.attr<Ints>("size").size()));
  set_divisor(a, args);
  run(a, "avg_pool_backward", args);
}

// `image`: the shape of the array whose planes the positions count in, and `places` that of the index, both with the
// channels before the planes.
void move(const KernelArgs& a, const char* kernel, const Dims& image, const Dims& places, int dims, int64_t channels,
          void* to) {
  const View& index = a.in[1];
  if (index.numel() == 0) return;
  Stream& stream = stream_at(a.stream);
  Refusal refusal;
  refusal.op = &a.op;
  refusal.input = 1;
  refusal.place = a.place;
  refusal.argument = a.op.inputs[1].name;
  refusal.size = plane_of(image, dims);
  refusal.base = 0;
  refusal.shape = index.shape();
  const MovePoolArgs args = {
      a.in[0].data,           to,       index.as<const int32_t>(), index.numel(),         refusal.size,
      plane_of(places, dims), channels, stream.fault->get(),       report_number(refusal)};
  launch(stream, family_kernel(stream, "pool", pool_types(a.in[0].dtype(), args.count), kernel), args.count, &args);
}

void max_pool_take(const KernelArgs& a) {
  move(a, "max_pool_take", a.in[0].shape(), a.in[1].shape(), int(a.attr<int64_t>("dims")), 1, a.out[0].data);
}

template <bool kLast>
void max_pool_backward(const KernelArgs& a) {
  const View &out = a.out[0], &index = a.in[1];
  if (out.numel() == 0) return;
  AtomicSums sums(stream_at(a.stream), out);
  const int dims = int(a.attr<Ints>("size").size());
  if (kLast)
    move(a, "max_pool_backward", channels_first(out.shape()), channels_first(index.shape()), dims, out.shape().back(),
         sums.data());
  else
    move(a, "max_pool_backward", out.shape(), index.shape(), dims, 1, sums.data());
  sums.finish();
}

template <bool kFold>
void unfold(const KernelArgs& a) {
  const View& image = kFold ? a.out[0] : a.in[0];
  PoolArgs args = window_args(a, image.shape(), 2);
  for (kernels::WindowAxis& d : args.axis)
    d.out = (d.in + 2 * d.padding - d.dilation * (d.kernel - 1) - 1) / d.stride + 1;
  run(a, kFold ? "fold" : "unfold", args);
}

}  // namespace

std::string pool_types(DType t, int64_t elements) {
  return fmt::format("using T = {};\nusing I = {};\n", type_text(t), elements > INT32_MAX ? "int64_t" : "int32_t");
}

std::vector<KernelRow> pool_rows() {
  return {{"max_pool", max_pool},
          {"max_pool_backward", max_pool_backward<false>},
          {"max_pool_backward_last", max_pool_backward<true>},
          {"max_pool_take", max_pool_take},
          {"max_pool_last", max_pool_last},
          {"avg_pool_last", avg_pool_last},
          {"avg_pool1d", avg_pool<1>},
          {"avg_pool2d", avg_pool<2>},
          {"avg_pool3d", avg_pool<3>},
          {"avg_pool_backward", avg_pool_backward},
          {"unfold", unfold<false>},
          {"fold", unfold<true>}};
}

}  // namespace pg::cuda
