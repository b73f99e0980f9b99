// Kernels of convolutions, their gradients, and pooling of images (N, spatial..., C).
#include "tensor/cpu/conv/arguments.h"
#include "tensor/cpu/conv/conv_last.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/conv_unfolded.h"
#include "tensor/cpu/gemm/prepared.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"

namespace pg {
namespace {

using namespace cpu::conv_arguments;

cpu::ConvShape shape_of(const KernelArgs& args) {
  return conv_shape(args, channels_first(args.in[0].shape()), args.in[1].shape(), channels_first(args.out[0].shape()));
}

// Whether there are kernels for the dtype, which all arguments have.
bool has_kernel(const KernelArgs& args) {
  const DType type = args.out[0].dtype();
  return all_of_type(type, args) && cpu::has_primitives(type);
}

std::unique_ptr<const PreparedKernel> prepare(const KernelArgs& args, uint32_t) {
  const bool empty = args.in[0].numel() == 0 || args.in[1].numel() == 0 || args.out[0].numel() == 0;
  if (!has_kernel(args) || empty) return nullptr;
  return cpu::prepare_conv_last(args.out[0].dtype(), shape_of(args), bool(args.in[2]), cpu::Finish(args));
}

// Runs a kernel prepared for this call, so that the bits are those of a plan. Without one: a convolution with the
// channels first, between copies.
void convolve(const KernelArgs& args) {
  const cpu::ConvShape s = shape_of(args);
  if (const auto prepared = prepare(args, 0)) {
    const Ref<Buffer> scratch = Buffer::allocate({}, Bytes(prepared->scratch_bytes));
    return prepared->run(args.in, args.out, scratch->data, nullptr);
  }
  const bool activates = args.op.attr_index("activation") >= 0, relu = activates && cpu::asks_relu(args);
  compute<3>(args, [&]<class T>(const T* x, const T* w, const T* bias, T* y) {
    cpu::WorkVector<T> plain_x(size_t(args.in[0].numel())), plain_y(size_t(args.out[0].numel()));
    cpu::copy_transposed(sizeof(T), s.n, s.in_plane(), s.ic, x, plain_x.data());
    cpu::conv_forward<T>(s, plain_x.data(), w, bias, relu, plain_y.data());
    cpu::copy_transposed(sizeof(T), s.n, s.oc, s.out_plane(), plain_y.data(), y);
  });
  if (activates && !relu) cpu::Activation{args}(args.out[0]);
}

// The library has no kernel for some convolutions with groups. For bfloat16 no other algorithm has this layout.
bool pays(const KernelArgs& args, bool reorders) {
  if (!has_kernel(args)) return false;
  const cpu::ConvShape s = shape_of(args);
  return cpu::conv_forward_prefers_channels_last(s, reorders) &&
         ((s.groups == 1 && args.out[0].dtype() == DType::kFloat32) ||
          cpu::ConvLast::make(args.out[0].dtype(), s, bool(args.in[2])));
}

cpu::ConvShape shape_of_by_input(const KernelArgs& args) {
  return conv_shape(args, channels_first(args.out[0].shape()), args.in[1].shape(), channels_first(args.in[0].shape()));
}
cpu::ConvShape shape_of_by_weight(const KernelArgs& args) {
  return conv_shape(args, channels_first(args.in[0].shape()), args.out[0].shape(), channels_first(args.in[1].shape()));
}

// The gradients are oneDNN's for bfloat16, and others between copies.
bool has_gradients(const KernelArgs& args) {
  return all_of_type(DType::kBFloat16, args) && cpu::has_primitives(DType::kBFloat16);
}

void conv_by_input(const KernelArgs& args) {
  const cpu::ConvShape s = shape_of_by_input(args);
  if (s.macs() > 0 && has_gradients(args) &&
      cpu::primitive_backward_data<BFloat16, true>(s, args.in[0].as<BFloat16>(), args.in[1].as<BFloat16>(),
                                                   args.out[0].as<BFloat16>()))
    return;
  compute<2>(args, [&]<class T>(const T* dy, const T* w, T* dx) {
    cpu::WorkVector<T> plain_dy(size_t(args.in[0].numel())), plain_dx(size_t(args.out[0].numel()));
    cpu::copy_transposed(sizeof(T), s.n, s.out_plane(), s.oc, dy, plain_dy.data());
    cpu::conv_backward_data<T>(s, plain_dy.data(), w, plain_dx.data());
    cpu::copy_transposed(sizeof(T), s.n, s.ic, s.in_plane(), plain_dx.data(), dx);
  });
}

void conv_by_weight(const KernelArgs& args) {
  const cpu::ConvShape s = shape_of_by_weight(args);
  if (s.macs() > 0 && has_gradients(args)) {
    const auto *x = args.in[0].as<BFloat16>(), *dy = args.in[1].as<BFloat16>();
    if (cpu::prefers_unfolded(s)) return cpu::unfolded_backward_weights(s, true, x, dy, args.out[0].as<BFloat16>());
    Output<float> dw(args.out[0], DType::kFloat32);
    if (cpu::primitive_backward_weights<BFloat16, true>(s, x, dy, dw.data())) return dw.finish();
  }
  compute<2>(args, [&]<class T>(const T* x, const T* dy, T* dw) {
    cpu::WorkVector<T> plain_x(size_t(args.in[0].numel())), plain_dy(size_t(args.in[1].numel()));
    cpu::copy_transposed(sizeof(T), s.n, s.in_plane(), s.ic, x, plain_x.data());
    cpu::copy_transposed(sizeof(T), s.n, s.out_plane(), s.oc, dy, plain_dy.data());
    cpu::conv_backward_weights<T>(s, plain_x.data(), plain_dy.data(), dw);
  });
}

// The library has right and fast kernels of bfloat16 for these only.
bool gradient_pays(const KernelArgs& args, const cpu::ConvShape& s) {
  const bool dilates = s.dilation != std::array<int64_t, 3>{1, 1, 1};
  return has_gradients(args) && (s.groups == 1 || (cpu::is_depthwise(s) && !dilates));
}
bool by_input_pays(const KernelArgs& args, bool reorders) {
  const cpu::ConvShape s = shape_of_by_input(args);
  return gradient_pays(args, s) && (!reorders || cpu::prefers_primitive(s, cpu::ConvPart::kInputGradient));
}
bool by_weight_pays(const KernelArgs& args, bool) { return gradient_pays(args, shape_of_by_weight(args)); }

cpu::PoolShape pool_shape_of(const KernelArgs& args) {
  const View &x = args.in[0], &y = args.out[0];
  return pool_shape(args, channels_first(x.shape()), channels_first(y.shape()), x.rank() - 2);
}
int64_t channels_of(const KernelArgs& args) { return args.in[0].shape().back(); }

// Calls f(TypeTag<H>) for the floating dtype of an array.
template <class F>
void visit_floating(DType type, const F& f) {
  if (type == DType::kFloat64) return f(TypeTag<double>{});
  if (type == DType::kFloat32) return f(TypeTag<float>{});
  type == DType::kFloat16 ? f(TypeTag<Half>{}) : f(TypeTag<BFloat16>{});
}

void max_pool_last(const KernelArgs& args) {
  visit_floating(args.out[0].dtype(), [&]<class H>(TypeTag<H>) {
    cpu::max_pool_last(pool_shape_of(args), channels_of(args), args.in[0].as<const H>(), args.out[0].as<H>(),
                       args.out[1].as<int32_t>());
  });
}

void max_pool_backward_last(const KernelArgs& args) {
  const View &dy = args.in[0], &dx = args.out[0];
  const int64_t images = dx.size(0), channels = channels_of(args), all = images * channels;
  if (dx.numel() == 0) return;
  const int64_t in_plane = dx.numel() / all, out_plane = dy.numel() / all;
  const int32_t* index = checked_places(args, all, in_plane, out_plane);
  visit_floating(dx.dtype(), [&]<class H>(TypeTag<H>) {
    cpu::max_pool_backward_last(images, channels, in_plane, out_plane, dy.as<const H>(), index, dx.as<H>());
  });
}

void avg_pool_last(const KernelArgs& args) {
  const cpu::PoolShape s = pool_shape_of(args);
  compute<1>(args, [&](const auto* x, auto* y) { cpu::avg_pool_last(s, channels_of(args), divisor(args), x, y); });
}

}  // namespace

void add_channels_last_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"conv_last", convolve, kContiguousInputs, prepare, pays},
      {"conv_act_last", convolve, kContiguousInputs, prepare, pays},
      {"conv_by_input_last", conv_by_input, kContiguousInputs, nullptr, by_input_pays},
      {"conv_by_weight_last", conv_by_weight, kContiguousInputs, nullptr, by_weight_pays},
      {"max_pool_last", max_pool_last},
      {"max_pool_backward_last", max_pool_backward_last},
      {"avg_pool_last", avg_pool_last},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
