// Kernels that copy, convert and fill, made of pointwise bodies with strided operands.
#include "tensor/cuda/kernels.h"
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

void to(const KernelArgs& a) {
  const View &in = a.in[0], &out = a.out[0];
  if (in.type->device == out.type->device) return convert_view(stream_of(a), in, out);
  if (in.dtype() == out.dtype()) return send(stream_of(a), in, out);
  const Scratch memory(stream_of(a), size_t(out.numel() * size_of(out.dtype())));
  Type type{out.dtype(), in.type->device, out.shape()};
  const View converted{&type, out.strides, memory.data()};
  convert_view(stream_of(a), in, converted);
  send(stream_of(a), converted, out);
}

// Copies input after input into its part of the result along a dim.
void cat(const KernelArgs& a) {
  const View& out = a.out[0];
  const int d = a.dim("dim", out.rank());
  int64_t at = 0;
  for (const View& in : a.in) {
    if (in.rank() != out.rank() || in.numel() == 0) continue;
    Placed part(out, in.shape(), *out.strides, at * (*out.strides)[d]);
    convert_view(stream_of(a), in, part.view);
    at += in.size(d);
  }
}

void stack(const KernelArgs& a) {
  const View& out = a.out[0];
  const int d = a.dim("dim", out.rank());
  Dims strides = *out.strides;
  const int64_t step = strides[d];
  strides.erase(d);
  for (size_t i = 0; i < a.in.size(); ++i) {
    Placed part(out, a.in[i].shape(), strides, int64_t(i) * step);
    convert_view(stream_of(a), a.in[i], part.view);
  }
}

void flip(const KernelArgs& a) {
  const View& in = a.in[0];
  Dims strides = *in.strides;
  int64_t offset = 0;
  if (in.numel() == 0) return;
  for (int64_t d : a.dims("dims", in.rank())) {
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
          {"cat", cat, kStridedInputs},
          {"stack", stack, kStridedInputs},
          {"flip", flip, kStridedInputs}};
}

}  // namespace pg::cuda
