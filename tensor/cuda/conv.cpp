// Convolutions and their gradients.
#include "tensor/cuda/converted.h"
#include "tensor/cuda/convolve.h"
#include "tensor/cuda/kernels/epilogue_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/error.h"

namespace pg::cuda {
namespace {

ConvShape conv_shape(const KernelArgs& a, const Dims& x, const Dims& w, const Dims& y) {
  const int dims = w.size() - 2;
  ConvShape s;
  s.dtype = a.out[0].dtype();
  s.volume = dims == 3;
  s.n = x.size() == dims + 2 ? x[0] : 1;
  s.in_channels = x[x.size() - dims - 1];
  s.out_channels = w[0];
  s.groups = a.attr<int64_t>("groups");
  s.in = last_three(x, dims, 1);
  s.kernel = last_three(w, dims, 1);
  s.out = last_three(y, dims, 1);
  s.stride = spatial_attr(a, "stride", dims, 1);
  s.padding = spatial_attr(a, "padding", dims, 0);
  s.dilation = spatial_attr(a, "dilation", dims, 1);
  return s;
}

bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }

bool convolved(Stream& stream, const ConvShape& s, ConvPart part, const View& a, const View& b, const View& to) {
  const Converted first(stream, a, s.dtype), second(stream, b, s.dtype);
  return convolve(stream, s, part, first.data(), second.data(), to.data);
}

void run(const KernelArgs& args, ConvShape s, ConvPart part, const View& a, const View& b) {
  Stream& stream = stream_at(args.stream);
  const View& to = args.out[0];
  if (to.numel() == 0) return;
  if (a.numel() == 0 || b.numel() == 0) return fill_view(stream, to, 0);
  if (convolved(stream, s, part, a, b, to)) return;
  if (is_half(s.dtype)) {
    s.dtype = DType::kFloat32;
    const Temporary wide(stream, s.dtype, to);
    if (convolved(stream, s, part, a, b, wide.view)) return convert_view(stream, wide.view, to);
  }
  throw Error(fmt::format("{}: cuDNN has no algorithm for {} arrays of these shapes", args.op.name, name_of(s.dtype)));
}

// The text of an activation of v. Its parameters are those of the op of its name.
std::string activation_text(const std::string& name) {
  if (name == "leaky_relu") return "apply<\"leaky_relu\">({{a.slope}}, v)";
  if (name == "gelu_tanh") return "apply<\"gelu\">({{1}}, v)";
  return name.empty() ? "v" : "apply<\"" + name + "\">({{0}}, v)";
}

void finish(const KernelArgs& a, const std::string& activation, double slope) {
  const int dims = a.in[1].rank() - 2;
  finish_product(stream_at(a.stream), a.out[0], a.in[2], a.in[1].size(0), plane_of(a.out[0].shape(), dims), activation,
                 slope);
}

void forward(const KernelArgs& a) {
  run(a, conv_shape(a, a.in[0].shape(), a.in[1].shape(), a.out[0].shape()), ConvPart::kForward, a.in[0], a.in[1]);
}

void conv(const KernelArgs& a) {
  forward(a);
  finish(a, "", 0);
}

void conv_act(const KernelArgs& a) {
  forward(a);
  finish(a, a.attr<std::string>("activation"), a.attr<double>("slope"));
}

void conv_by_input(const KernelArgs& a) {
  const View &dy = a.in[0], &w = a.in[1];
  run(a, conv_shape(a, a.out[0].shape(), w.shape(), dy.shape()), ConvPart::kInput, w, dy);
}

void conv_by_weight(const KernelArgs& a) {
  const View &x = a.in[0], &dy = a.in[1];
  run(a, conv_shape(a, x.shape(), a.out[0].shape(), dy.shape()), ConvPart::kWeight, x, dy);
}

}  // namespace

void finish_product(Stream& stream, const View& y, const View& bias, int64_t channels, int64_t plane,
                    const std::string& activation, double slope) {
  if (y.numel() == 0 || (!bias && activation.empty())) return;
  const kernels::EpilogueArgs args = {y.data, bias ? bias.data : nullptr, y.numel(), channels, plane, slope};
  const std::string types = epilogue_types(y.dtype(), bias ? bias.dtype() : y.dtype(), activation);
  launch(stream, family_kernel(stream, "epilogue", types, "epilogue"), args.count, &args);
}

std::string epilogue_types(DType y, DType bias, const std::string& activation) {
  return fmt::format("using T = {};\nusing Bias = {};\n#define ACTIVATED(v) {}\n", type_text(y), type_text(bias),
                     activation_text(activation));
}

std::vector<KernelRow> conv_rows() {
  return {{"conv1d", conv},
          {"conv2d", conv},
          {"conv3d", conv},
          {"conv_act", conv_act},
          {"conv_by_input", conv_by_input},
          {"conv_by_weight", conv_by_weight}};
}

}  // namespace pg::cuda
