// Kernels of convolutions and pooling. They turn views and attributes into calls on plain arrays.
#include <algorithm>

#include "tensor/cpu/conv/arguments.h"
#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/conv/conv_choice.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/conv_unfolded.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/conv/pool.h"
#include "tensor/cpu/gemm/prepared.h"
#include "tensor/cpu/register.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu::conv_arguments;

// Whether the library computes the part in bfloat16.
bool in_bfloat16(const KernelArgs& args, const cpu::ConvShape& s, cpu::ConvPart part) {
  return all_of_type(DType::kBFloat16, args) && cpu::has_primitives(DType::kBFloat16) &&
         cpu::prefers_primitive(s, part) && !cpu::widening_pays(s, part);
}

void convolve(const KernelArgs& args, bool relu) {
  const cpu::ConvShape s = conv_shape(args, args.in[0].shape(), args.in[1].shape(), args.out[0].shape());
  if (in_bfloat16(args, s, cpu::ConvPart::kForward)) {
    const Input<float> bias(args.in[2], DType::kFloat32);
    const auto *x = args.in[0].as<BFloat16>(), *w = args.in[1].as<BFloat16>();
    if (cpu::primitive_forward(s, x, w, bias.data(), relu, args.out[0].as<BFloat16>())) return;
  }
  compute<3>(args, [&](const auto* x, const auto* w, const auto* bias, auto* y) {
    cpu::conv_forward(s, x, w, bias, relu, y);
  });
}

void conv(const KernelArgs& args) { convolve(args, false); }

void conv_act(const KernelArgs& args) {
  const bool relu = cpu::asks_relu(args);
  convolve(args, relu);
  if (!relu) cpu::Activation{args}(args.out[0]);
}

std::unique_ptr<const PreparedKernel> prepare_conv(const KernelArgs& args, uint32_t lasting) {
  const DType type = args.out[0].dtype();
  if (!all_float32(args) && !all_of_type(DType::kBFloat16, args)) return nullptr;
  return cpu::prepare_conv(type, conv_shape(args, args.in[0].shape(), args.in[1].shape(), args.out[0].shape()),
                           bool(args.in[2]), lasting & 2, cpu::Finish(args));
}

std::unique_ptr<const PreparedKernel> prepare_conv_by_input(const KernelArgs& args, uint32_t) {
  if (!all_float32(args)) return nullptr;
  return cpu::prepare_conv_gradient(conv_shape(args, args.out[0].shape(), args.in[1].shape(), args.in[0].shape()),
                                    cpu::ConvPart::kInputGradient);
}

std::unique_ptr<const PreparedKernel> prepare_conv_by_weight(const KernelArgs& args, uint32_t) {
  if (!all_float32(args)) return nullptr;
  return cpu::prepare_conv_gradient(conv_shape(args, args.in[0].shape(), args.out[0].shape(), args.in[1].shape()),
                                    cpu::ConvPart::kWeightGradient);
}

void conv_by_input(const KernelArgs& args) {
  const cpu::ConvShape s = conv_shape(args, args.out[0].shape(), args.in[1].shape(), args.in[0].shape());
  if (in_bfloat16(args, s, cpu::ConvPart::kInputGradient) &&
      cpu::primitive_backward_data(s, args.in[0].as<BFloat16>(), args.in[1].as<BFloat16>(), args.out[0].as<BFloat16>()))
    return;
  compute<2>(args, [&](const auto* dy, const auto* w, auto* dx) { cpu::conv_backward_data(s, dy, w, dx); });
}

void conv_by_weight(const KernelArgs& args) {
  const cpu::ConvShape s = conv_shape(args, args.in[0].shape(), args.out[0].shape(), args.in[1].shape());
  if (in_bfloat16(args, s, cpu::ConvPart::kWeightGradient)) {
    const auto *x = args.in[0].as<BFloat16>(), *dy = args.in[1].as<BFloat16>();
    if (cpu::prefers_unfolded(s)) return cpu::unfolded_backward_weights(s, false, x, dy, args.out[0].as<BFloat16>());
    Output<float> dw(args.out[0], DType::kFloat32);
    if (cpu::primitive_backward_weights(s, x, dy, dw.data())) return dw.finish();
  }
  compute<2>(args, [&](const auto* x, const auto* dy, auto* dw) { cpu::conv_backward_weights(s, x, dy, dw); });
}

void max_pool(const KernelArgs& args) {
  const cpu::PoolShape s =
      pool_shape(args, args.in[0].shape(), args.out[0].shape(), int(args.attr<Ints>("kernel_size").size()));
  compute<1>(args, [&](const auto* x, auto* y) { cpu::max_pool_forward(s, x, y, args.out[1].as<int32_t>()); });
}

int64_t plane_of(const View& v, int dims) {
  int64_t n = 1;
  for (int d = v.rank() - dims; d < v.rank(); ++d) n *= v.size(d);
  return n;
}
int64_t planes_of(const View& v, int dims) {
  int64_t n = 1;
  for (int d = 0; d + dims < v.rank(); ++d) n *= v.size(d);
  return n;
}

void max_pool_backward(const KernelArgs& args) {
  const int dims = int(args.attr<Ints>("size").size());
  const int64_t plane = plane_of(args.out[0], dims), places_in_plane = plane_of(args.in[0], dims);
  const int32_t* places = checked_places(args, planes_of(args.in[1], dims), plane, places_in_plane);
  compute<1>(args, [&](const auto* dy, auto* dx) {
    cpu::max_pool_backward(planes_of(args.out[0], dims), plane, places_in_plane, dy, places, dx);
  });
}

void max_pool_take(const KernelArgs& args) {
  const int dims = int(args.attr<int64_t>("dims"));
  const int64_t plane = plane_of(args.in[0], dims), places_in_plane = plane_of(args.out[0], dims);
  const int32_t* places = checked_places(args, planes_of(args.in[1], dims), plane, places_in_plane);
  compute<1>(args, [&](const auto* x, auto* y) {
    cpu::max_pool_take(planes_of(args.in[0], dims), plane, places_in_plane, x, places, y);
  });
}

template <int kDims>
void avg_pool(const KernelArgs& args) {
  const cpu::PoolShape s = pool_shape(args, args.in[0].shape(), args.out[0].shape(), kDims);
  compute<1>(args, [&](const auto* x, auto* y) { cpu::avg_pool_forward(s, divisor(args), x, y); });
}

void avg_pool_backward(const KernelArgs& args) {
  const cpu::PoolShape s =
      pool_shape(args, args.out[0].shape(), args.in[0].shape(), int(args.attr<Ints>("size").size()));
  compute<1>(args, [&](const auto* dy, auto* dx) { cpu::avg_pool_backward(s, divisor(args), dy, dx); });
}

}  // namespace

void add_conv_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"conv1d", conv, kHasWeight, prepare_conv},
      {"conv2d", conv, kHasWeight, prepare_conv},
      {"conv3d", conv, kHasWeight, prepare_conv},
      {"conv_act", conv_act, kHasWeight, prepare_conv},
      {"conv_by_input", conv_by_input, kContiguousInputs, prepare_conv_by_input},
      {"conv_by_weight", conv_by_weight, kContiguousInputs, prepare_conv_by_weight},
      {"max_pool", max_pool},
      {"max_pool_backward", max_pool_backward},
      {"max_pool_take", max_pool_take},
      {"avg_pool1d", avg_pool<1>},
      {"avg_pool2d", avg_pool<2>},
      {"avg_pool3d", avg_pool<3>},
      {"avg_pool_backward", avg_pool_backward},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
