// Normalization by hand-written kernels (kernels/norm.cuh).
#include <algorithm>
#include <cmath>

#include "tensor/cuda/converted.h"
#include "tensor/cuda/kernels/norm_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::BatchStatisticsArgs;
using kernels::ChannelArgs;
using kernels::RowNormArgs;

constexpr int64_t kPart = 4096;  // elements of a part of a channel

DType stat_type(const View& x) { return x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32; }

CUfunction kernel(Stream& stream, const NormTypes& t, const char* name) {
  return family_kernel(stream, {"norm", name, {t.wide ? "wide" : ""}, dtypes_code({t.x, t.dy, t.out, t.mean, t.var})},
                       [&] { return norm_types(t); });
}

// --- Rows ---

struct Rows {
  Rows(const KernelArgs& a, size_t weight_input)
      : stream(stream_at(a.stream)), weight(stream, a.in[weight_input], stat_type(a.in[0])) {
    args.n = 1;
    for (int64_t d : a.attr<Ints>("normalized_shape")) args.n *= d;
    args.rows = args.n ? a.in[0].numel() / args.n : 0;
    args.x = a.in[0].data;
    args.out = a.out[0].data;
    args.weight = weight.data();
    args.centered = a.attr<bool>("centered");
  }
  void launch(const NormTypes& types, const char* name) const {
    unsigned threads = 32;
    while (threads < kThreads && 2 * int64_t(threads) < args.n) threads *= 2;
    launch_blocks(stream, kernel(stream, types, name), args.rows, threads, &args);
  }
  Stream& stream;
  const Converted weight;
  RowNormArgs args = {};
};

void row_norm(const KernelArgs& a) {
  Rows rows(a, 1);
  if (a.in[0].numel() == 0) {
    for (const View& v : {a.out[1], a.out[2]})
      if (v.numel()) fill_view(rows.stream, v, NAN);
    return;
  }
  const Converted bias(rows.stream, a.in[2], stat_type(a.in[0]));
  rows.args.bias = bias.data();
  rows.args.mean = a.out[1].data;
  rows.args.rstd = a.out[2].data;
  rows.args.eps = a.attr<double>("eps");
  rows.launch({a.in[0].dtype()}, "row_norm");
}

void row_norm_dx(const KernelArgs& a) {
  Rows rows(a, 4);
  rows.args.mean = a.in[1].data;
  rows.args.rstd = a.in[2].data;
  rows.args.dy = a.in[3].data;
  rows.launch({a.in[0].dtype(), a.in[3].dtype()}, "row_norm_dx");
}

// --- Channels ---

struct Channels {
  Channels(const KernelArgs& a, int64_t batch, int64_t channels, int64_t positions)
      : stream(stream_at(a.stream)), types{a.in[0].dtype()} {
    args.x = a.in[0].data;
    args.out = a.out[0].data;
    args.count = a.in[0].numel();
    args.batch = args.count ? batch : 0;
    args.channels = channels;
    args.positions = positions;
    args.width = positions < 32 ? 32 : 1;
    types.wide = args.count > INT32_MAX;
  }
  explicit Channels(const KernelArgs& a)
      : Channels(a, a.in[0].size(0), a.in[0].size(1), plane_positions(a.in[0].shape())) {}

  static int64_t plane_positions(const Dims& shape) {
    int64_t n = 1;
    for (int d = 2; d < shape.size(); ++d) n *= shape[d];
    return n;
  }
  int64_t per_channel() const { return args.batch * args.positions; }
  int64_t blocks() const { return (args.channels + args.width - 1) / args.width; }
  void choose_parts() {
    const int64_t count = per_channel(), most = std::max<int64_t>(8 * stream.gpu.multiprocessors / blocks(), 1);
    const int64_t parts = std::clamp<int64_t>(count / kPart, 1, most), length = (count + parts - 1) / parts;
    args.parts = (count + length - 1) / length;  // the last one is not empty
  }
  void launch_elements(const char* name) const { launch(stream, kernel(stream, types, name), args.count, &args); }
  // Runs a kernel of one block for each part of some channels.
  void launch_parts(const char* name) const {
    launch_blocks(stream, kernel(stream, types, name), blocks() * args.parts, kThreads, &args);
  }
  size_t partial_bytes() const { return size_t(args.parts * args.channels) * 16; }

  Stream& stream;
  ChannelArgs args = {};
  NormTypes types;
};

void apply(Channels& c, const void* mean, const void* rstd, const View& weight, const View& bias) {
  const DType t = c.types.x == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const Converted w(c.stream, weight, t), b(c.stream, bias, t);
  c.args.mean = mean;
  c.args.rstd = rstd;
  c.args.weight = w.data();
  c.args.bias = b.data();
  if (c.args.count) c.launch_elements("channel_apply");
}

void batch_norm_train(const KernelArgs& a) {
  Channels c(a);
  if (c.args.channels == 0) return;
  const double n = double(c.per_channel()), correction = a.attr<double>("running_var_correction");
  BatchStatisticsArgs s = {};
  s.mean = a.out[1].data, s.rstd = a.out[2].data;
  s.channels = c.args.channels, s.count = c.per_channel();
  s.eps = a.attr<double>("eps");
  s.keep = n > 0 ? a.attr<double>("momentum") : 1;
  s.unbias = n > correction ? n / (n - correction) : 1;
  if (a.in[1]) {
    s.running_mean = a.in[1].data, s.running_var = a.in[2].data;
    s.new_mean = a.out[3].data, s.new_var = a.out[4].data;
    c.types.mean = a.in[1].dtype(), c.types.var = a.in[2].dtype();
  }
  if (n > 0) c.choose_parts();
  const Scratch partial(c.stream, c.partial_bytes());
  s.partial = c.args.partial = partial.data();
  s.parts = c.args.parts;
  if (n > 0) c.launch_parts("channel_moments");
  launch(c.stream, kernel(c.stream, c.types, "batch_statistics"), s.channels, &s);
  apply(c, s.mean, s.rstd, a.in[3], a.in[4]);
}

void batch_norm_apply(const KernelArgs& a) {
  Channels c(a);
  apply(c, a.in[1].data, a.in[2].data, a.in[3], a.in[4]);
}

void scale_shift(const KernelArgs& a) {
  Channels c(a);
  apply(c, nullptr, nullptr, a.in[1], a.in[2]);
}

void add_sums(const KernelArgs& a, Channels& c) {
  if (c.args.channels == 0) return;
  if (c.per_channel() == 0)
    for (const View& v : a.out) fill_view(c.stream, v, 0);
  if (c.per_channel() == 0) return;
  c.args.rstd = a.in[2].data;
  c.args.dy = a.in[3].data;
  c.args.out2 = a.out[1].data;
  c.types.dy = a.in[3].dtype();
  c.types.out = a.out[0].dtype();
  c.choose_parts();
  const Scratch partial(c.stream, c.partial_bytes());
  c.args.partial = partial.data();
  c.launch_parts("channel_sums");
  launch(c.stream, kernel(c.stream, c.types, "channel_totals"), c.args.channels, &c.args);
}

void batch_norm_sums(const KernelArgs& a) {
  Channels c(a);
  c.args.mean = a.in[1].data;
  add_sums(a, c);
}

// The rows are the batch, and each element of a row is a channel.
void row_norm_dw(const KernelArgs& a) {
  const int64_t n = a.out[0].numel();
  Channels c(a, n ? a.in[0].numel() / n : 0, n, 1);
  c.args.by_batch = true;
  c.args.mean = a.attr<bool>("centered") ? a.in[1].data : nullptr;
  add_sums(a, c);
}

void batch_norm_dx(const KernelArgs& a) {
  Channels c(a);
  if (c.args.count == 0) return;
  const Converted weight(c.stream, a.in[6], stat_type(a.in[0]));
  c.args.mean = a.in[1].data;
  c.args.rstd = a.in[2].data;
  c.args.dy = a.in[3].data;
  c.args.dweight = a.in[4].data;
  c.args.dbias = a.in[5].data;
  c.args.weight = weight.data();
  c.types.dy = a.in[3].dtype();
  c.launch_elements("channel_dx");
}

}  // namespace

std::string norm_types(const NormTypes& t) {
  return fmt::format(
      "using T = {};\nusing D = {};\nusing Out = {};\nusing Mean = {};\nusing Var = {};\nusing I = {};\n",
      type_text(t.x), type_text(t.dy), type_text(t.out), type_text(t.mean), type_text(t.var),
      t.wide ? "int64_t" : "int32_t");
}

std::vector<KernelRow> norm_rows() {
  return {{"row_norm", row_norm},
          {"row_norm_dx", row_norm_dx},
          {"row_norm_dw", row_norm_dw},
          {"batch_norm_train", batch_norm_train},
          {"batch_norm_apply", batch_norm_apply},
          {"batch_norm_sums", batch_norm_sums},
          {"batch_norm_dx", batch_norm_dx},
          {"scale_shift", scale_shift}};
}

}  // namespace pg::cuda
