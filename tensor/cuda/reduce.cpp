// Reductions by hand-written kernels (kernels/reduce.cuh).
#include <algorithm>
#include <cmath>

#include "tensor/arguments.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/layout.h"
#include "tensor/cuda/reduction.h"
#include "tensor/error.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::ReduceArgs;

constexpr int64_t kShortRow = 64;       // elements of a total that one thread adds up
constexpr int64_t kManyOutputs = 4096;  // totals that keep the device busy with one thread each
constexpr int64_t kPart = 16 << 10;     // elements of a part, when there are few totals

// The reductions of tensor/tile.h's tile_reduces. The factor of kScale is that of a mean, that of kAll the count.
constexpr struct Row {
  const char *name, *op, *finish = "kPlain";
} kRows[] = {{"sum", "kSum"},           {"mean", "kSum", "kScale"}, {"sum_squares", "kSumSquares"},
             {"nansum", "kSumNumbers"}, {"prod", "kProd"},          {"amax", "kMax"},
             {"amin", "kMin"},          {"sum_to", "kSum"},         {"any", "kCount", "kAny"},
             {"all", "kCount", "kAll"}, {"count_nonzero", "kCount"}};

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

CUfunction kernel_of(Stream& stream, DType from, DType to, const Reduction& r, const char* name) {
  return family_kernel(stream, {"reduce", name, {r.op, r.finish}, dtypes_code({from, to})},
                       [&] { return reduce_types(from, to, r.op, r.finish); });
}

unsigned threads_for(int64_t count) {
  unsigned threads = 32;
  while (threads < kThreads && int64_t(threads) < count) threads *= 2;
  return threads;
}

void reduce(Stream& stream, const View& in, uint32_t mask, const View& out, const Reduction& r,
            const void* centers = nullptr) {
  if (out.numel() == 0) return;
  ReduceArgs args = args_of(in, mask);
  if (args.count == 0) return fill_view(stream, out, neutral(r));
  args.to = out.data;
  args.factor = r.factor;
  args.centers = static_cast<const double*>(centers);
  launch_reduction(stream, args, [&](const char* name) { return kernel_of(stream, in.dtype(), out.dtype(), r, name); });
}

void plain(const KernelArgs& a) {
  const uint32_t mask = dim_mask(a);
  reduce(stream_at(a.stream), a.in[0], mask, a.out[0], reduction_of(a.op.name, masked_numel(a.in[0], mask)));
}

// The mean squared distance from the mean, or its root.
template <bool kRoot>
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
  reduce(stream, in, mask, out, Reduction{"kDeviation", kRoot ? "kRoot" : "kScale", 1 / std::max(left, 0.0)},
         means.data());
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
  const auto kernel = [&](const char* name) { return kernel_of(stream, in.dtype(), in.dtype(), {op}, name); };
  if (args.count <= kShortRow || args.outputs >= kManyOutputs)
    return launch(stream, kernel("extreme_threads"), args.outputs, &args);
  launch_blocks(stream, kernel("extreme_blocks"), args.outputs, threads_for(args.count), &args);
}

template <bool kMax>
void arg_extreme(const KernelArgs& a) {
  extremes(a, kMax ? "kMax" : "kMin", nullptr, a.out[0]);
}
template <bool kMax>
void extreme(const KernelArgs& a) {
  if (a.out.size() == 2) return extremes(a, kMax ? "kMax" : "kMin", &a.out[0], a.out[1]);
  reduce(stream_at(a.stream), a.in[0], dim_mask(a), a.out[0], {kMax ? "kMax" : "kMin"});
}

}  // namespace

Reduction reduction_of(std::string_view op, int64_t count) {
  for (const Row& row : kRows) {
    if (op != row.name) continue;
    const std::string_view finish = row.finish;
    return {row.op, row.finish, finish == "kScale" ? 1 / double(count) : finish == "kAll" ? double(count) : 1.0};
  }
  throw Error(fmt::format("cuda: {} is no reduction of a body", op));
}

double neutral(const Reduction& r) {
  const std::string_view op = r.op, finish = r.finish;
  if (finish == "kScale") return 0.0 * r.factor;
  if (finish == "kAll") return 1;
  return op == "kProd" ? 1 : 0;
}

void launch_reduction(Stream& stream, kernels::ReduceArgs& args, FunctionRef<CUfunction(const char* name)> kernel) {
  args.parts = 1;
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
  void* const to = args.to;
  args.to = partial.data();
  launch_blocks(stream, kernel("reduce_blocks"), args.outputs * args.parts, kThreads, &args);
  args.from = partial.data();
  args.to = to;
  launch(stream, kernel("reduce_parts"), args.outputs, &args);
}

std::string reduce_types(DType from, DType to, const char* op, const char* finish) {
  return fmt::format("using T = {};\nusing Out = {};\n#define kOp {}\n#define kFinish {}\n", type_text(from),
                     type_text(to), op, finish);
}

std::vector<KernelRow> reduce_rows() {
  std::vector<KernelRow> rows = {
      {"var", var<false>, kStridedInputs},           {"std", var<true>, kStridedInputs},
      {"logsumexp", logsumexp, kStridedInputs},      {"max", extreme<true>, kStridedInputs},
      {"min", extreme<false>, kStridedInputs},       {"argmax", arg_extreme<true>, kStridedInputs},
      {"argmin", arg_extreme<false>, kStridedInputs}};
  for (const Row& row : kRows) rows.push_back({row.name, plain, kStridedInputs});
  rows.push_back({"sum_to", sum_to, kStridedInputs});  // has no dims
  return rows;
}

}  // namespace pg::cuda
