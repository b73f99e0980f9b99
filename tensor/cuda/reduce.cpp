// Reductions by hand-written kernels (kernels/reduce.cuh).
#include <algorithm>
#include <cmath>

#include "tensor/arguments.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/layout.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::ReduceArgs;

constexpr int64_t kShortRow = 64;       // elements of a total that one thread adds up
constexpr int64_t kManyOutputs = 4096;  // totals that keep the device busy with one thread each
constexpr int64_t kPart = 16 << 10;     // elements of a part, when there are few totals

struct Reduction {
  const char *op, *finish = "kPlain";
  double factor = 1;
};

// Appends the dims of `in` that are (not) in the mask, with adjacent ones joined where their strides allow.
int32_t add_dims(const View& in, uint32_t mask, bool reduced, kernels::Dim* dims) {
  int32_t count = 0;
  for (int d = 0; d < in.rank(); ++d) {
    if (bool(mask >> d & 1) != reduced || in.size(d) == 1) continue;
    const int64_t size = in.size(d), stride = (*in.strides)[d];
    if (count > 0 && dims[count - 1].stride == size * stride)
      dims[count - 1] = {dims[count - 1].size * size, stride, 0};
    else
      dims[count++] = {size, stride, 0};
  }
  return count;
}

ReduceArgs args_of(const View& in, uint32_t mask) {
  ReduceArgs args = {};
  args.from = in.data;
  args.count = masked_numel(in, mask);
  args.parts = 1;
  args.outputs = args.count ? in.numel() / args.count : 0;
  args.kept = add_dims(in, mask, false, args.dims);
  args.reduced = add_dims(in, mask, true, args.dims + args.kept);
  return args;
}

std::string types_of(DType from, DType to, const Reduction& r) { return reduce_types(from, to, r.op, r.finish); }

unsigned threads_for(int64_t count) {
  unsigned threads = 32;
  while (threads < kThreads && int64_t(threads) < count) threads *= 2;
  return threads;
}

// The total of no element.
double neutral(const Reduction& r) {
  const std::string_view op = r.op, finish = r.finish;
  if (finish == "kScale") return 0.0 * r.factor;
  if (finish == "kAll") return 1;
  return op == "kProd" ? 1 : 0;
}

void reduce(Stream& stream, const View& in, uint32_t mask, const View& out, const Reduction& r,
            const void* centers = nullptr) {
  if (out.numel() == 0) return;
  ReduceArgs args = args_of(in, mask);
  if (args.count == 0) return fill_view(stream, out, neutral(r));
  args.to = out.data;
  args.factor = r.factor;
  args.centers = static_cast<const double*>(centers);
  const std::string types = types_of(in.dtype(), out.dtype(), r);
  const auto kernel = [&](const char* name) { return family_kernel(stream, "reduce", types, name); };
  if (args.count <= kShortRow || args.outputs >= kManyOutputs)
    return launch(stream, kernel("reduce_threads"), args.outputs, &args);
  const int64_t most = std::max<int64_t>(4 * stream.gpu.multiprocessors / args.outputs, 1);
  args.parts = std::clamp<int64_t>(args.count / kPart, 1, most);
  // The last part may not be empty.
  args.parts =
      (args.count + (args.count + args.parts - 1) / args.parts - 1) / ((args.count + args.parts - 1) / args.parts);
  if (args.parts == 1)
    return launch_blocks(stream, kernel("reduce_blocks"), args.outputs, threads_for(args.count), &args);
  const Scratch partial(stream, size_t(args.outputs * args.parts) * 8);
  args.to = partial.data();
  launch_blocks(stream, kernel("reduce_blocks"), args.outputs * args.parts, kThreads, &args);
  args.from = partial.data();
  args.to = out.data;
  launch(stream, kernel("reduce_parts"), args.outputs, &args);
}

#define ROW(...) \
  [](const KernelArgs& a) { reduce(stream_at(a.stream), a.in[0], dim_mask(a), a.out[0], Reduction{__VA_ARGS__}); }

// The mean squared distance from the mean.
void var(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  const View &in = a.in[0], &out = a.out[0];
  const uint32_t mask = dim_mask(a);
  const auto n = double(masked_numel(in, mask));
  const double left = n - a.attr<double>("correction");
  if (out.numel() == 0) return;
  if (n == 0) return fill_view(stream, out, NAN);
  const Scratch means(stream, size_t(out.numel()) * sizeof(double));
  const Type type{DType::kFloat64, out.type->device, out.shape()};
  reduce(stream, in, mask, {&type, out.strides, means.data()}, Reduction{"kSum", "kScale", 1 / n});
  reduce(stream, in, mask, out, Reduction{"kDeviation", "kScale", 1 / std::max(left, 0.0)}, means.data());
}

// log(sum(exp(x - top))) + top.
void logsumexp(const KernelArgs& a) {
  Stream& stream = stream_at(a.stream);
  const View &in = a.in[0], &out = a.out[0];
  const uint32_t mask = dim_mask(a);
  if (out.numel() == 0) return;
  if (in.numel() == 0) return fill_view(stream, out, -INFINITY);
  const Scratch tops(stream, size_t(out.numel()) * sizeof(double));
  const Type type{DType::kFloat64, out.type->device, out.shape()};
  reduce(stream, in, mask, {&type, out.strides, tops.data()}, Reduction{"kMax"});
  reduce(stream, in, mask, out, Reduction{"kExp", "kLog"}, tops.data());
}

double count_of(const KernelArgs& a) { return double(masked_numel(a.in[0], dim_mask(a))); }

void sum_to(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  const int lead = in.rank() - out.rank();
  uint32_t mask = 0;
  for (int d = 0; d < in.rank(); ++d)
    if (d < lead || (out.size(d - lead) == 1 && in.size(d) != 1)) mask |= 1u << d;
  // With one element per output, copies the elements unchanged: 0 + -0 would be 0.
  if (masked_numel(in, mask) == 1)
    return convert_view(stream_at(a.stream),
                        Placed(
                            in, out.shape(),
                            [&] {
                              Dims strides = *in.strides;
                              for (int i = 0; i < lead; ++i) strides.erase(0);
                              return strides;
                            }(),
                            0)
                            .view,
                        out);
  reduce(stream_at(a.stream), in, mask, out, Reduction{"kSum"});
}

void extremes(const KernelArgs& a, const char* op, const View* values, const View& indices) {
  const View& in = a.in[0];
  const uint32_t mask = a.has_attr("dim") ? 1u << a.dim("dim", in.rank()) : (1u << in.rank()) - 1;
  ReduceArgs args = args_of(in, mask);
  args.to = values ? values->data : nullptr;
  args.indices = indices.data;
  args.base = a.attr<int64_t>("index_base");
  Stream& stream = stream_at(a.stream);
  const std::string types = types_of(in.dtype(), in.dtype(), Reduction{op});
  if (args.count <= kShortRow || args.outputs >= kManyOutputs)
    return launch(stream, family_kernel(stream, "reduce", types, "extreme_threads"), args.outputs, &args);
  launch_blocks(stream, family_kernel(stream, "reduce", types, "extreme_blocks"), args.outputs, threads_for(args.count),
                &args);
}

template <bool kMax>
void arg_extreme(const KernelArgs& a) {
  extremes(a, kMax ? "kMax" : "kMin", nullptr, a.out[0]);
}
template <bool kMax>
void extreme(const KernelArgs& a) {
  const char* op = kMax ? "kMax" : "kMin";
  if (a.out.size() == 2) return extremes(a, op, &a.out[0], a.out[1]);
  reduce(stream_at(a.stream), a.in[0], dim_mask(a), a.out[0], Reduction{op});
}

}  // namespace

std::string reduce_types(DType from, DType to, const char* op, const char* finish) {
  return fmt::format("using T = {};\nusing Out = {};\n#define kOp {}\n#define kFinish {}\n", type_text(from),
                     type_text(to), op, finish);
}

std::vector<KernelRow> reduce_rows() {
  return {{"sum", ROW("kSum"), kStridedInputs},
          {"mean", ROW("kSum", "kScale", 1 / count_of(a)), kStridedInputs},
          {"sum_squares", ROW("kSumSquares"), kStridedInputs},
          {"var", var, kStridedInputs},
          {"logsumexp", logsumexp, kStridedInputs},
          {"prod", ROW("kProd"), kStridedInputs},
          {"amax", ROW("kMax"), kStridedInputs},
          {"amin", ROW("kMin"), kStridedInputs},
          {"count_nonzero", ROW("kCount"), kStridedInputs},
          {"any", ROW("kCount", "kAny"), kStridedInputs},
          {"all", ROW("kCount", "kAll", count_of(a)), kStridedInputs},
          {"sum_to", sum_to, kStridedInputs},
          {"max", extreme<true>, kStridedInputs},
          {"min", extreme<false>, kStridedInputs},
          {"argmax", arg_extreme<true>, kStridedInputs},
          {"argmin", arg_extreme<false>, kStridedInputs}};
}

}  // namespace pg::cuda
