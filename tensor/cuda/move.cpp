// Kernels that copy, convert and fill, made of pointwise bodies with strided operands.
#include <algorithm>

#include "tensor/arguments.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/kernels/give_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/layout.h"
#include "tensor/error.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

Stream& stream_of(const KernelArgs& a) { return stream_at(a.stream); }

void zeros(const KernelArgs& a) { fill_view(stream_of(a), a.out[0], 0); }
void ones(const KernelArgs& a) { fill_view(stream_of(a), a.out[0], 1); }
void full(const KernelArgs& a) { fill_view(stream_of(a), a.out[0], a.attr<double>("value")); }
// Elements without a value still have to be valid for their dtype.
void leave(const KernelArgs& a) {
  if (a.out[0].dtype() == DType::kBool) zeros(a);
}

void copy(const KernelArgs& a) { convert_view(stream_of(a), a.in[0], a.out[0]); }

// The elements in the order of positions, in another shape.
void reshape(const KernelArgs& a) {
  const Placed out(a.out[0], a.in[0].shape());
  convert_view(stream_of(a), a.in[0], out.view);
}

// Copies to the memory of another device, or of the host.
void send(Stream& stream, const View& from, const View& to) {
  const size_t bytes = size_t(from.numel() * size_of(from.dtype()));
  if (bytes == 0) return;
  if (stream.capture) throw Error("to: a program on the device cannot copy to another device");
  const auto source = reinterpret_cast<CUdeviceptr>(from.data), target = reinterpret_cast<CUdeviceptr>(to.data);
  const Device device = to.type->device;
  if (device.is_cpu())
    driver().cuMemcpyDtoHAsync(to.data, source, bytes, stream.handle);
  else if (device.kind == from.type->device.kind)
    driver().cuMemcpyPeerAsync(target, gpu(device.index).context, source, gpu(stream.gpu.index).context, bytes,
                               stream.handle);
  else
    throw Error("to: no copies between these devices; go through \"cpu\"");
  stream.wait();
}

// Copies few numbers of the host to the device, as arguments of kernels: a program has them without the host's memory.
void give(const KernelArgs& a) {
  const View& out = a.out[0];
  const int64_t bytes = out.numel() * size_of(out.dtype());
  std::vector<uint8_t> converted(static_cast<size_t>(bytes));
  const Type type{out.dtype(), {}, out.shape()};
  View view{&type, out.strides, converted.data()};
  a.op.cpu_kernel.fn(KernelArgs{a.op, a.in, {&view, 1}, a.attrs, a.allocate});
  Stream& stream = stream_of(a);
  kernels::GiveArgs args = {};
  for (int64_t at = 0; at < bytes; at += args.count) {
    args.to = out.as<uint8_t>() + at;
    args.count = std::min<int64_t>(bytes - at, kernels::kMostBytes);
    std::copy_n(converted.data() + at, args.count, args.bytes);
    launch(stream, family_kernel(stream, "give", "", "give"), args.count, &args);
  }
}

void to(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (in.type->device.is_cpu()) return give(a);
  if (in.type->device == out.type->device) return convert_view(stream_of(a), in, out);
  if (in.dtype() == out.dtype()) return send(stream_of(a), in, out);
  const Scratch memory(stream_of(a), size_t(out.numel() * size_of(out.dtype())));
  Type type{out.dtype(), in.type->device, out.shape()};
  const View converted{&type, out.strides, memory.data()};
  convert_view(stream_of(a), in, converted);
  send(stream_of(a), converted, out);
}

void slice_backward(const KernelArgs& a) {
  const View& out = a.out[0];
  const Slice region(a, out);
  fill_view(stream_of(a), out, 0);
  convert_view(stream_of(a), a.in[0], Placed(out, region.shape, region.strides, region.offset).view);
}

void slice_assign(const KernelArgs& a) {
  const View &value = a.in[1], &out = a.out[0];
  const Slice region(a, out);
  if (out.data != a.in[0].data) convert_view(stream_of(a), a.in[0], out);
  if (numel(region.shape) == 0) return;
  const Placed to(out, region.shape, region.strides, region.offset);
  // Leading dims of size 1 of the value may be more than the region has.
  Dims shape = value.shape(), strides = *value.strides;
  while (shape.size() > region.shape.size()) shape.erase(0), strides.erase(0);
  const Placed from(value, shape, strides, 0);
  if (value.type->device.is_cpu()) return fill_view(stream_of(a), to.view, load_number(value.dtype(), value.data));
  convert_view(stream_of(a), from.view, to.view);
}

void diagonal_backward(const KernelArgs& a) {
  const View& out = a.out[0];
  const int rows = a.dim("dim1", out.rank()), columns = a.dim("dim2", out.rank());
  const int64_t offset = a.attr<int64_t>("offset");
  const Dims& all = *out.strides;
  fill_view(stream_of(a), out, 0);
  if (a.in[0].numel() == 0) return;
  Dims strides = all;
  strides.erase(std::max(rows, columns));
  strides.erase(std::min(rows, columns));
  strides.push_back(all[rows] + all[columns]);
  const int64_t at = offset < 0 ? -offset * all[rows] : offset * all[columns];
  convert_view(stream_of(a), a.in[0], Placed(out, a.in[0].shape(), strides, at).view);
}

void masked_fill(const KernelArgs& a) {
  const Placed value(a.in[2], {}, {}, 0);  // its one element may have more dims than the result
  const View in[] = {a.in[1], value.view, a.in[0]};
  run_pointwise("where", stream_of(a), in, a.out[0]);
}

// Parts of matrices and ranges (kernels/matrix.cuh).
void run_matrix(const KernelArgs& a, const char* name, kernels::MatrixArgs args) {
  const View& out = a.out[0];
  args.out = out.data;
  args.count = out.numel();
  const std::string types = fmt::format("using T = {};\n", type_text(out.dtype()));
  launch(stream_of(a), family_kernel(stream_of(a), "matrix", types, name), args.count, &args);
}

template <bool kLower>
void triangle(const KernelArgs& a) {
  const View& x = a.in[0];
  kernels::MatrixArgs args = {};
  args.x = x.data;
  args.rows = x.size(x.rank() - 2), args.columns = x.size(x.rank() - 1);
  args.diagonal = a.attr<int64_t>("diagonal");
  run_matrix(a, kLower ? "lower" : "upper", args);
}

// The upper triangle is the lower one of the matrix turned by 180 degrees, backwards.
template <bool kLower>
void triangle_indices(const KernelArgs& a) {
  const View& out = a.out[0];
  const int64_t rows = a.attr<int64_t>("row"), columns = a.attr<int64_t>("col"), offset = a.attr<int64_t>("offset");
  const int64_t diagonal = kLower ? offset : columns - rows - offset;
  kernels::TriangleArgs args = {};
  args.out = out.as<int64_t>();
  args.count = out.size(1);
  if (args.count == 0) return;
  args.first = std::max<int64_t>(-diagonal, 0);
  args.length = std::min(args.first + diagonal + 1, columns);
  args.columns = columns;
  args.growing_rows = std::clamp<int64_t>(columns - diagonal, args.first, rows) - args.first;
  const __int128 n = args.growing_rows;
  args.growing = int64_t(std::min<__int128>(n * args.length + n * (n - 1) / 2, args.count));
  args.base = a.attr<int64_t>("index_base");
  args.last_row = rows - 1;
  args.from_end = !kLower;
  const std::string types = fmt::format("using T = {};\n", type_text(DType::kInt64));
  launch(stream_of(a), family_kernel(stream_of(a), "matrix", types, "triangle_indices"), args.count, &args);
}

void eye(const KernelArgs& a) {
  kernels::MatrixArgs args = {};
  args.columns = a.out[0].size(1);
  run_matrix(a, "eye", args);
}

void range(const KernelArgs& a) {
  kernels::MatrixArgs args = {};
  args.start = a.attr<double>("start"), args.step = a.attr<double>("step");
  run_matrix(a, "range", args);
}

void linspace(const KernelArgs& a) {
  kernels::MatrixArgs args = {};
  const int64_t n = a.out[0].numel();
  args.start = a.attr<double>("start"), args.stop = a.attr<double>("stop");
  args.step = n > 1 ? (args.stop - args.start) / double(n - 1) : 0;
  run_matrix(a, "linspace", args);
}

void flip(const KernelArgs& a) {
  const View& in = a.in[0];
  Dims strides = *in.strides;
  int64_t offset = 0;
  if (in.numel() == 0) return;
  // A 0-dim tensor accepts dim 1, which it does not have. An empty list would mean all dims.
  const Dims dims = in.rank() && !a.attr<Ints>("dims").empty() ? a.dims("dims", in.rank()) : Dims();
  for (int64_t d : dims) {
    offset += strides[int(d)] * (in.size(int(d)) - 1);
    strides[int(d)] = -strides[int(d)];
  }
  convert_view(stream_of(a), Placed(in, in.shape(), strides, offset).view, a.out[0]);
}

}  // namespace

std::vector<KernelRow> move_rows() {
  return {{"zeros", zeros},
          {"ones", ones},
          {"full", full},
          {"empty", leave},
          {"zeros_like", zeros, kStridedInputs},
          {"ones_like", ones, kStridedInputs},
          {"full_like", full, kStridedInputs},
          {"empty_like", leave, kStridedInputs},
          {"contiguous", copy, kStridedInputs},
          {"clone", copy, kStridedInputs},
          {"to", to},
          {"reshape", reshape, kStridedInputs},
          {"reshape_to", reshape, kStridedInputs},
          {"reshape_as", reshape, kStridedInputs},
          {"flatten", reshape, kStridedInputs},
          {"flip", flip, kStridedInputs},
          {"slice_backward", slice_backward, kStridedInputs},
          {"slice_assign", slice_assign, kStridedInputs},
          {"diagonal_backward", diagonal_backward, kStridedInputs},
          {"masked_fill", masked_fill, kStridedInputs},
          {"tril", triangle<true>},
          {"triu", triangle<false>},
          {"eye", eye},
          {"tril_indices", triangle_indices<true>},
          {"triu_indices", triangle_indices<false>},
          {"range", range},
          {"linspace", linspace}};
}

}  // namespace pg::cuda
