// Kernels of convolutions, pooling and resampling. They turn views and attributes into calls on plain arrays.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "tensor/cpu/conv/arguments.h"
#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/conv/conv_choice.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/conv_unfolded.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/reduce/lines.h"
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

// The input elements that one output element is made of, and their weights.
struct Tap {
  int count;
  int64_t from[4];
  double weight[4];
};

// Keys, Cubic convolution interpolation for digital image processing, 1981, with a = -0.75; the ends are repeated.
Tap cubic_tap(double at, int64_t in) {
  constexpr double a = -0.75;
  const auto near = [](double u) { return ((a + 2) * u - (a + 3)) * u * u + 1; };
  const auto far = [](double u) { return a * u * (1 - u) * (1 - u); };  // for the distance 1 + u
  at = std::clamp(at, -2.0, double(in) + 1);
  const double start = std::floor(at), t = at - start;
  Tap out{4, {}, {far(t), near(t), near(1 - t), far(1 - t)}};
  for (int k = 0; k < 4; ++k) out.from[k] = std::clamp<int64_t>(int64_t(start) + k - 1, 0, in - 1);
  return out;
}

Tap linear_tap(double at, int64_t in) {
  const int64_t i = std::clamp<int64_t>(int64_t(at), 0, in - 1);
  const double share = std::clamp(at - double(i), 0.0, 1.0);
  return {share == 0 ? 1 : 2, {i, std::min(i + 1, in - 1)}, {1 - share, share}};
}

std::vector<Tap> taps(const std::string& kind, int64_t in, int64_t out, double step) {
  const bool nearest = kind == "nearest", exact = kind == "nearest-exact", cubic = kind.starts_with("cubic");
  const bool corners = kind.ends_with("corners");
  std::vector<Tap> list;
  for (int64_t o = 0; o < out; ++o) {
    if (nearest || exact) {
      // Rounded to single precision, as in PyTorch, so that a product that should be a whole number is one.
      const float at = float((double(o) + (exact ? 0.5 : 0)) * step);
      list.push_back({1, {std::clamp<int64_t>(int64_t(std::min(at, 1e18f)), 0, in - 1)}, {1}});
      continue;
    }
    const double at = corners ? double(o) * step : (double(o) + 0.5) * step - 0.5;
    if (cubic)
      list.push_back(cubic_tap(at, in));
    else
      list.push_back(linear_tap(std::max(0.0, at), in));
  }
  return list;
}

template <class T>
T sum_of_tap(const Tap& t, const T* x) {
  const T first = x[t.from[0]];
  if (t.count == 1) return first;
  const T two = T(t.weight[0]) * first + T(t.weight[1]) * x[t.from[1]];
  return t.count == 2 ? two : two + T(t.weight[2]) * x[t.from[2]] + T(t.weight[3]) * x[t.from[3]];
}

// to = the sum of the elements of a tap, for `n` neighbours of each.
template <class T>
void gather_tap(const Tap& t, const T* x, int64_t n, T* to) {
  if (n == 1) {
    *to = sum_of_tap(t, x);
    return;
  }
  const T *a = x + t.from[0] * n, *b = x + t.from[1] * n, *c = x + t.from[2] * n, *d = x + t.from[3] * n;
  const T u = T(t.weight[0]), v = T(t.weight[1]), w = T(t.weight[2]), z = T(t.weight[3]);
  if (t.count == 1) return void(std::copy_n(a, n, to));
  if (t.count == 2)
    for (int64_t i = 0; i < n; ++i) to[i] = u * a[i] + v * b[i];
  else
    for (int64_t i = 0; i < n; ++i) to[i] = u * a[i] + v * b[i] + w * c[i] + z * d[i];
}

template <class T>
void scatter_tap(const Tap& t, const T* x, int64_t n, T* to) {
  for (int k = 0; k < t.count; ++k) {
    T* y = to + t.from[k] * n;
    const T weight = T(t.weight[k]);
    for (int64_t i = 0; i < n; ++i) y[i] += weight * x[i];
  }
}

// The same for a line of taps of one element each, at these positions.
template <class T>
void gather_line(std::span<const int32_t> places, const T* x, T* to) {
  for (size_t o = 0; o < places.size(); ++o) to[o] = x[places[o]];
}
template <class T>
void scatter_line(std::span<const int32_t> places, const T* x, T* to) {
  int32_t at = places[0];
  T sum = to[at];
  for (size_t o = 0; o < places.size(); ++o) {
    if (places[o] != at) {
      to[at] = sum;
      sum = to[at = places[o]];
    }
    sum += x[o];
  }
  to[at] = sum;
}

// Resizes the middle one of three dims. The backward form adds every output element to its inputs.
template <bool kBackward>
void resample(const KernelArgs& args) {
  const View &from = args.in[0], &to = args.out[0];
  const int dim = args.dim("dim", from.rank());
  const View &small = kBackward ? to : from, &large = kBackward ? from : to;  // input and output of the op
  if (to.numel() == 0) return;
  const cpu::Lines lines(from.shape(), dim);
  const int64_t outer = lines.outer, inner = lines.inner;
  const int64_t in = small.size(dim), out = large.size(dim);
  const std::vector<Tap> list = taps(args.attr<std::string>("kind"), in, out, args.attr<double>("step"));
  std::vector<int32_t> places;  // empty unless elements of a line are copied
  if (inner == 1 && in < (int64_t(1) << 31) && std::ranges::all_of(list, [](const Tap& t) { return t.count == 1; }))
    for (const Tap& t : list) places.push_back(int32_t(t.from[0]));
  compute<1>(args, [&]<class T>(const T* source, T* result) {
    if (kBackward) std::fill_n(result, to.numel(), T(0));
    const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, out * inner));
    parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
      Poller poll;
      for (int64_t q = begin; q < end; ++q) {
        const T* x = source + q * (kBackward ? out : in) * inner;
        T* y = result + q * (kBackward ? in : out) * inner;
        if (!places.empty()) {
          in_polled_blocks(out, 1 << 20, [&](int64_t first, int64_t last) {
            const std::span<const int32_t> part(places.data() + first, size_t(last - first));
            kBackward ? scatter_line(part, x + first, y) : gather_line(part, x, y + first);
          });
          poll(out);
          continue;
        }
        for (int64_t o = 0; o < out; ++o, poll(inner)) {
          if (kBackward)
            scatter_tap(list[size_t(o)], x + o * inner, inner, y);
          else
            gather_tap(list[size_t(o)], x, inner, y + o * inner);
        }
      }
    });
  });
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
      {"resample", resample<false>},
      {"resample_backward", resample<true>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
