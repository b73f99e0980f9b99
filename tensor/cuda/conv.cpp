// Convolutions and their gradients.
#include "tensor/cuda/converted.h"
#include "tensor/cuda/convolve.h"
#include "tensor/cuda/kernels/epilogue_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/error.h"
#include "tensor/ops/conv_rules.h"

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

// The arrays of a convolution. One of them is the result.
struct Arrays {
  View x, w, y;
  View& result(ConvPart part) { return part == ConvPart::kForward ? y : part == ConvPart::kInput ? x : w; }
};

bool convolved(Stream& stream, const ConvShape& s, ConvPart part, Arrays v) {
  const Converted a(stream, part == ConvPart::kInput ? v.w : v.x, s.dtype);
  const Converted b(stream, part == ConvPart::kForward ? v.w : v.y, s.dtype);
  return convolve(stream, s, part, a.data(), b.data(), v.result(part).data);
}

// Halves that cuDNN cannot convolve go through float32.
bool convolved_by_float(Stream& stream, ConvShape s, ConvPart part, Arrays v) {
  s.dtype = DType::kFloat32;
  const View to = v.result(part);
  const Temporary wide(stream, s.dtype, to);
  v.result(part) = wide.view;
  if (!convolved(stream, s, part, v)) return false;
  convert_view(stream, wide.view, to);
  return true;
}

bool convolved_any(Stream& stream, const ConvShape& s, ConvPart part, const Arrays& v) {
  return convolved(stream, s, part, v) || (is_half(s.dtype) && convolved_by_float(stream, s, part, v));
}

// Replaces a contiguous array by a copy whose dims have another order.
class Reordered {
 public:
  Reordered(Stream& stream, View& v, Dims (*order)(Dims))
      : stream_(stream),
        type_{v.dtype(), v.type->device, order(v.shape())},
        strides_(order(contiguous_strides(v.shape()))),
        from_{&type_, &strides_, v.data},
        copy_(stream, v.dtype(), from_) {
    v = copy_.view;
  }
  Reordered(const Reordered&) = delete;
  void read() const { convert_view(stream_, from_, copy_.view); }
  void write() const { convert_view(stream_, copy_.view, from_); }

 private:
  Stream& stream_;
  const Type type_;
  const Dims strides_;
  const View from_;
  const Temporary copy_;
};

// Images have the channels last.
bool convolved_last(Stream& stream, const ConvShape& s, ConvPart part, Arrays v) {
  if (s.kernel == Three{1, 1, 1}) return convolved_any(stream, s, part, v);  // both orders are the same
  const Reordered w(stream, v.w, channels_last);
  if (part != ConvPart::kWeight) w.read();
  if (!convolved_any(stream, s, part, v)) return false;
  if (part == ConvPart::kWeight) w.write();
  return true;
}

// The same for what cuDNN can only convolve with the channels first.
bool convolved_first(Stream& stream, ConvShape s, ConvPart part, Arrays v) {
  s.last = false;
  const Reordered x(stream, v.x, channels_first), y(stream, v.y, channels_first);
  if (part != ConvPart::kInput) x.read();
  if (part != ConvPart::kForward) y.read();
  if (!convolved_any(stream, s, part, v)) return false;
  if (part == ConvPart::kInput) x.write();
  if (part == ConvPart::kForward) y.write();
  return true;
}

void run(const KernelArgs& args, const ConvShape& s, ConvPart part, Arrays v) {
  Stream& stream = stream_at(args.stream);
  const View& to = args.out[0];
  if (to.numel() == 0) return;
  if (v.x.numel() == 0 || v.w.numel() == 0 || v.y.numel() == 0) return fill_view(stream, to, 0);
  if (s.last ? convolved_last(stream, s, part, v) || convolved_first(stream, s, part, v)
             : convolved_any(stream, s, part, v))
    return;
  throw Error(fmt::format("{}: cuDNN has no algorithm for {} arrays of these shapes", args.op.name,
                          name_of(work_dtype(s.dtype))));
}

// The text of an activation of v. Its parameters are those of the op of its name.
std::string activation_text(const std::string& name) {
  if (name == "leaky_relu") return "apply<\"leaky_relu\">({{a.slope}}, v)";
  if (name == "gelu_tanh") return "apply<\"gelu\">({{1}}, v)";
  return name.empty() ? "v" : "apply<\"" + name + "\">({{0}}, v)";
}

template <bool kLast>
void finish(const KernelArgs& a, const std::string& activation, double slope) {
  const int64_t plane = kLast ? 1 : plane_of(a.out[0].shape(), a.in[1].rank() - 2);
  finish_product(stream_at(a.stream), a.out[0], a.in[2], a.in[1].size(0), plane, activation, slope);
}

template <bool kLast>
void run(const KernelArgs& a, ConvPart part, const Arrays& v) {
  const auto plain = [](const Dims& shape) { return kLast ? channels_first(shape) : shape; };
  ConvShape s = conv_shape(a, plain(v.x.shape()), v.w.shape(), plain(v.y.shape()));
  s.last = kLast;
  run(a, s, part, v);
}

template <bool kLast>
void conv(const KernelArgs& a) {
  run<kLast>(a, ConvPart::kForward, {a.in[0], a.in[1], a.out[0]});
  finish<kLast>(a, "", 0);
}

template <bool kLast>
void conv_act(const KernelArgs& a) {
  run<kLast>(a, ConvPart::kForward, {a.in[0], a.in[1], a.out[0]});
  finish<kLast>(a, a.attr<std::string>("activation"), a.attr<double>("slope"));
}

template <bool kLast>
void conv_by_input(const KernelArgs& a) {
  run<kLast>(a, ConvPart::kInput, {a.out[0], a.in[1], a.in[0]});
}
template <bool kLast>
void conv_by_weight(const KernelArgs& a) {
  run<kLast>(a, ConvPart::kWeight, {a.in[0], a.out[0], a.in[1]});
}

// Tensor cores, which float32 does not use, read images with the channels last: cuDNN reorders others in each call.
// They take 8 channels at once, so that groups of few channels have no use for them.
bool pays(const KernelArgs& a, const View& x, const View& y) {
  const DType t = a.out[0].dtype();
  const int64_t groups = a.attr<int64_t>("groups"), in = x.shape().back(), out = y.shape().back();
  const bool wide_groups = groups == 1 || (in / groups % 8 == 0 && out / groups % 8 == 0);
  return is_half(t) && a.in[0].dtype() == t && a.in[1].dtype() == t && wide_groups;
}
bool pays(const KernelArgs& a, bool) { return pays(a, a.in[0], a.out[0]); }
bool by_weight_pays(const KernelArgs& a, bool) { return pays(a, a.in[0], a.in[1]); }

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
  return {{"conv1d", conv<false>},
          {"conv2d", conv<false>},
          {"conv3d", conv<false>},
          {"conv_act", conv_act<false>},
          {"conv_last", conv<true>, kContiguousInputs, nullptr, pays},
          {"conv_act_last", conv_act<true>, kContiguousInputs, nullptr, pays},
          {"conv_by_input", conv_by_input<false>},
          {"conv_by_weight", conv_by_weight<false>},
          {"conv_by_input_last", conv_by_input<true>, kContiguousInputs, nullptr, pays},
          {"conv_by_weight_last", conv_by_weight<true>, kContiguousInputs, nullptr, by_weight_pays}};
}

}  // namespace pg::cuda
