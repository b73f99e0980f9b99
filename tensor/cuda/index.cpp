// Reads at index values by hand-written kernels (kernels/index.cuh). An index value out of range is reported late.
#include "tensor/cuda/index.h"

#include "tensor/arguments.h"
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/flat_arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::PickArgs;

void pick(const KernelArgs& a, size_t x, size_t index, const Along& along, bool negative) {
  const View& out = a.out[0];
  PickArgs args = {};
  args.x = a.in[x].data;
  args.out = out.data;
  args.count = out.numel();
  args.step = along.step;
  args.index = index_of(a, index, along.size, negative).args;
  args.rank = along.shape.size();
  for (int d = 0; d < args.rank; ++d) args.dims[d] = {along.shape[d], along.array[d], along.index[d]};
  Stream& stream = stream_at(a.stream);
  launch(stream, family_kernel(stream, "index", index_types(moved(out.dtype()), a.in[index].dtype()), "pick"),
         args.count, &args);
}

void gather(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1];
  const int d = a.dim("dim", x.rank());
  pick(a, 0, 1, along_dim(index.shape(), d, *x.strides, *index.strides, {}, x.rank() ? x.size(d) : 1), true);
}

void take_along(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  if (!a.has_attr("dim")) return pick(a, 0, 1, along_lines({x.numel()}, 0, index.numel()), true);
  const int d = a.dim("dim", x.rank());
  Dims shape = x.shape();
  shape[d] = 1;
  Dims strides = broadcast_strides(shape, *x.strides, out.shape());
  strides[d] = (*x.strides)[d];
  pick(a, 0, 1,
       along_dim(out.shape(), d, strides, broadcast_strides(index.shape(), *index.strides, out.shape()), {}, x.size(d)),
       true);
}

void pick_one(const KernelArgs& a) {
  const View& x = a.in[0];
  const int d = a.dim("dim", x.rank());
  Dims shape = x.shape();
  shape[d] = 1;
  pick(a, 0, 1, along_dim(shape, d, *x.strides, contiguous_strides(shape), {}, x.size(d)), true);
}

void index_select(const KernelArgs& a) {
  const View& x = a.in[0];
  pick(a, 0, 1, along_lines(x.shape(), a.dim("dim", x.rank()), a.in[1].numel()), true);
}
void take(const KernelArgs& a) { pick(a, 0, 1, along_lines({a.in[0].numel()}, 0, a.in[1].numel()), true); }
void embedding(const KernelArgs& a) { pick(a, 1, 0, along_lines(a.in[1].shape(), 0, a.in[0].numel()), false); }

void one_hot(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  fill_view(stream, out, 0);
  PickArgs args = {};
  args.out = out.data;
  args.count = x.numel();
  args.index = index_of(a, 0, out.size(out.rank() - 1), false).args;
  launch(stream, family_kernel(stream, "index", index_types(DType::kInt64, x.dtype()), "one_hot"), args.count, &args);
}

kernels::FlatArgs flat_args(const View& out, std::span<const int64_t> sizes) {
  kernels::FlatArgs args = {};
  args.out = out.as<int64_t>();
  args.count = out.numel();
  args.inputs = int32_t(sizes.size());
  args.rank = out.rank();
  for (int d = 0; d < out.rank(); ++d) args.sizes[d] = out.size(d);
  return args;
}

void set_index(kernels::FlatArgs& args, size_t k, const View& index, const Index& values, const Dims& shape) {
  args.index[k] = values.args;
  args.bytes[k] = index.dtype() == DType::kUInt8 ? 0 : size_of(index.dtype());
  const Dims strides = broadcast_strides(index.shape(), *index.strides, shape);
  for (int d = 0; d < shape.size(); ++d) args.strides[k][d] = strides[d];
}

void run_flat(Stream& stream, const kernels::FlatArgs& args) {
  launch(stream, family_kernel(stream, "flat", "", "flat_positions"), args.count, &args);
}

void flat_index(const KernelArgs& a) {
  flat_positions(a, 0, a.attr<Ints>("sizes"), a.attr<int64_t>("index_base"), a.out[0]);
}

void read_positions(const KernelArgs& a) {
  const View &index = a.in[0], &out = a.out[0];
  const int64_t size = a.attr<int64_t>("size");
  Refusal r = refusal_of(a, 0, size, false);
  r.name = a.attr<std::string>("op");
  r.argument = a.attr<std::string>("argument");
  Index values = index_of(a, 0, size, false);
  values.args.number = report_number(r);
  kernels::FlatArgs args = flat_args(out, {&size, 1});
  set_index(args, 0, index, values, out.shape());
  run_flat(stream_at(a.stream), args);
}

// Reports values that are no positions, for calls that read and write nothing and so look at none.
void check_values(const KernelArgs& a, const Index& values, const View& index) {
  Stream& stream = stream_at(a.stream);
  const Scratch positions(stream, size_t(index.numel()) * sizeof(int64_t));
  const Type type{DType::kInt64, a.out[0].type->device, index.shape()};
  const Dims strides = contiguous_strides(index.shape());
  kernels::FlatArgs args = flat_args({&type, &strides, positions.data()}, {&values.args.size, 1});
  set_index(args, 0, index, values, index.shape());
  run_flat(stream, args);
}

}  // namespace

Along along_lines(const Dims& shape, int d, int64_t count) {
  int64_t outer = 1, inner = 1;
  for (int k = 0; k < shape.size(); ++k) (k < d ? outer : inner) *= k == d ? 1 : shape[k];
  const int64_t n = shape.empty() ? 1 : shape[d];
  return {{outer, count, inner}, {n * inner, 0, 1}, {0, 1, 0}, {count * inner, inner, 1}, inner, n};
}

Along along_dim(const Dims& shape, int d, const Dims& array, const Dims& index, const Dims& values, int64_t size) {
  Along a{shape, array, index, values, array.empty() ? 1 : array[d], size};
  if (!a.array.empty()) a.array[d] = 0;
  return a;
}

Refusal refusal_of(const KernelArgs& a, size_t input, int64_t size, bool negative) {
  Refusal r;
  r.op = &a.op;
  r.input = input;
  r.place = a.place;
  r.argument = definition_of(a, input).name;
  r.detail = place_in_list(a, input);
  r.negative = negative;
  r.size = size;
  r.base = a.attr<int64_t>("index_base");
  r.shape = a.in[input].shape();
  return r;
}

Index index_of(const KernelArgs& a, size_t input, int64_t size, bool negative) {
  const Refusal r = refusal_of(a, input, size, negative);
  const View& index = a.in[input];
  const Index values = {{index.data, r.base, size, negative, report_number(r), stream_at(a.stream).fault->get()},
                        index.dtype()};
  if (a.out[0].numel() == 0 && index.numel() > 0) check_values(a, values, index);
  return values;
}

void flat_positions(const KernelArgs& a, size_t first, std::span<const int64_t> sizes, int64_t base, const View& out) {
  kernels::FlatArgs args = flat_args(out, sizes);
  args.base = base;
  for (size_t k = 0; k < sizes.size(); ++k)
    set_index(args, k, a.in[first + k], index_of(a, first + k, sizes[k], true), out.shape());
  run_flat(stream_at(a.stream), args);
}

std::string index_types(DType element, DType index) {
  return fmt::format("using T = {};\nusing I = {};\n", type_text(element), type_text(index));
}

std::vector<KernelRow> index_rows() {
  return {{"gather", gather},
          {"take_along_dim", take_along},
          {"pick", pick_one},
          {"index_select", index_select},
          {"take", take},
          {"embedding", embedding},
          {"one_hot", one_hot},
          {"flat_index", flat_index},
          {"read_positions", read_positions}};
}

}  // namespace pg::cuda
