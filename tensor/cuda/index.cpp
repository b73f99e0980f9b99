// Index ops by hand-written kernels (kernels/index.cuh). An index value out of range is reported late.
#include "tensor/cuda/kernels.h"
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/cuda/layout.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::IndexArgs;
using kernels::PickArgs;
using kernels::ScatterArgs;

// What a call reads or writes: the shape of the values, and the strides of the array (0 along the indexed dim), of the
// index and of the values.
struct Along {
  Dims shape, array, index, values;
  int64_t step, size;  // of the indexed dim
};

// A contiguous array as outer x n x inner with an index of `count` values for n.
Along lines(const Dims& shape, int d, int64_t count) {
  int64_t outer = 1, inner = 1;
  for (int k = 0; k < shape.size(); ++k) (k < d ? outer : inner) *= k == d ? 1 : shape[k];
  const int64_t n = shape.empty() ? 1 : shape[d];
  return {{outer, count, inner}, {n * inner, 0, 1}, {0, 1, 0}, {count * inner, inner, 1}, inner, n};
}

// An index with the dims of the array.
Along along(const Dims& shape, int d, const Dims& array, const Dims& index, const Dims& values, int64_t size) {
  Along a{shape, array, index, values, array.empty() ? 1 : array[d], size};
  if (!a.array.empty()) a.array[d] = 0;
  return a;
}

IndexArgs index_args(const KernelArgs& a, size_t input, int64_t size, bool negative) {
  const View& index = a.in[input];
  Refusal r;
  r.op = &a.op;
  r.input = input;
  r.place = a.place;
  r.argument = a.op.inputs[size_t(std::min(input, a.op.inputs.size() - 1))].name;
  r.negative = negative;
  r.size = size;
  r.base = a.attr<int64_t>("index_base");
  r.shape = index.shape();
  return {index.data, r.base, size, negative, report_number(r), stream_at(a.stream).fault->get()};
}

std::string types_of(DType element, DType index) {
  return fmt::format("using T = {};\nusing I = {};\n", type_text(element), type_text(index));
}

// Elements that are only moved are those of an integer of their size.
DType moved(DType t) {
  constexpr DType kBySize[] = {DType::kUInt8, DType::kFloat16, DType::kInt32, DType::kInt64};
  return kBySize[size_of(t) == 1 ? 0 : size_of(t) == 2 ? 1 : size_of(t) == 4 ? 2 : 3];
}

void pick(const KernelArgs& a, size_t x, size_t index, const Along& along, bool negative) {
  const View& out = a.out[0];
  PickArgs args = {};
  args.x = a.in[x].data;
  args.out = out.data;
  args.count = out.numel();
  args.step = along.step;
  args.index = index_args(a, index, along.size, negative);
  args.rank = along.shape.size();
  for (int d = 0; d < args.rank; ++d) args.dims[d] = {along.shape[d], along.array[d], along.index[d]};
  Stream& stream = stream_at(a.stream);
  launch(stream, family_kernel(stream, "index", types_of(moved(out.dtype()), a.in[index].dtype()), "pick"), args.count,
         &args);
}

// Adds values to, or sets, the elements of the output. `values` is contiguous in the dtype of the output unless `along`
// says otherwise.
void scatter(const KernelArgs& a, const void* values, const Along& along, bool adds, double alpha = 1) {
  const View& out = a.out[0];
  ScatterArgs args = {};
  args.from = values;
  args.to = out.data;
  args.count = numel(along.shape);
  args.step = along.step;
  args.alpha = alpha;
  args.index = index_args(a, 1, along.size, true);
  args.rank = along.shape.size();
  for (int d = 0; d < args.rank; ++d) {
    args.dims[d] = {along.shape[d], along.array[d], along.index[d]};
    args.from_strides[d] = along.values[d];
  }
  Stream& stream = stream_at(a.stream);
  const DType element = adds ? out.dtype() : moved(out.dtype());
  launch(stream,
         family_kernel(stream, "index", types_of(element, a.in[1].dtype()), adds ? "scatter_add" : "scatter_set"),
         args.count, &args);
}

void gather(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1];
  const int d = a.dim("dim", x.rank());
  pick(a, 0, 1, along(index.shape(), d, *x.strides, *index.strides, {}, x.rank() ? x.size(d) : 1), true);
}

void take_along(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  if (!a.has_attr("dim")) return pick(a, 0, 1, lines({x.numel()}, 0, index.numel()), true);
  const int d = a.dim("dim", x.rank());
  Dims shape = x.shape();
  shape[d] = 1;
  Dims strides = broadcast_strides(shape, *x.strides, out.shape());
  strides[d] = (*x.strides)[d];
  pick(a, 0, 1,
       along(out.shape(), d, strides, broadcast_strides(index.shape(), *index.strides, out.shape()), {}, x.size(d)),
       true);
}

void pick_one(const KernelArgs& a) {
  const View& x = a.in[0];
  const int d = a.dim("dim", x.rank());
  Dims shape = x.shape();
  shape[d] = 1;
  pick(a, 0, 1, along(shape, d, *x.strides, contiguous_strides(shape), {}, x.size(d)), true);
}

void index_select(const KernelArgs& a) {
  const View& x = a.in[0];
  pick(a, 0, 1, lines(x.shape(), a.dim("dim", x.rank()), a.in[1].numel()), true);
}
void take(const KernelArgs& a) { pick(a, 0, 1, lines({a.in[0].numel()}, 0, a.in[1].numel()), true); }
void embedding(const KernelArgs& a) { pick(a, 1, 0, lines(a.in[1].shape(), 0, a.in[0].numel()), false); }

void gather_backward(const KernelArgs& a) {
  const View &dy = a.in[0], &index = a.in[1], &out = a.out[0];
  const int d = a.dim("dim", out.rank());
  fill_view(stream_at(a.stream), out, 0);
  scatter(a, dy.data, along(index.shape(), d, *out.strides, *index.strides, *dy.strides, out.rank() ? out.size(d) : 1),
          true);
}

void index_select_backward(const KernelArgs& a) {
  const View& out = a.out[0];
  fill_view(stream_at(a.stream), out, 0);
  scatter(a, a.in[0].data, lines(out.shape(), int(a.attr<int64_t>("dim")) - 1, a.in[1].numel()), true);
}

// The source of `count` positions of dim d of x, broadcast and converted, and the result as a copy of x.
template <class F>
void with_source(const KernelArgs& a, const Dims& shape, F run) {
  const View &x = a.in[0], &source = a.in[2], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  if (out.data != x.data) convert_view(stream, x, out);
  const Scratch memory(stream, size_t(numel(shape) * size_of(out.dtype())));
  const Type type{out.dtype(), out.type->device, shape};
  const Dims strides = contiguous_strides(shape), from = broadcast_strides(source.shape(), *source.strides, shape);
  const Type source_type{source.dtype(), source.type->device, shape};
  convert_view(stream, {&source_type, &from, source.data}, {&type, &strides, memory.data()});
  run(memory.data(), strides);
}

void index_write(const KernelArgs& a, bool adds, double alpha) {
  const View& out = a.out[0];
  const int d = a.dim("dim", out.rank());
  Dims shape = out.shape();
  if (shape.empty())
    shape = {a.in[1].numel()};
  else
    shape[d] = a.in[1].numel();
  with_source(a, shape, [&](const void* values, const Dims&) {
    scatter(a, values, lines(out.shape(), d, a.in[1].numel()), adds, alpha);
  });
}
void index_add(const KernelArgs& a) { index_write(a, true, a.attr<double>("alpha")); }

template <bool kAdd>
void scatter_along(const KernelArgs& a) {
  const View &index = a.in[1], &out = a.out[0], &source = a.in[2];
  const int d = a.dim("dim", out.rank());
  Stream& stream = stream_at(a.stream);
  if (out.data != a.in[0].data) convert_view(stream, a.in[0], out);
  const Dims strides = contiguous_strides(index.shape());
  const Scratch memory(stream, size_t(index.numel() * size_of(out.dtype())));
  const Type type{out.dtype(), out.type->device, index.shape()};
  const Type part{source.dtype(), source.type->device, index.shape()};
  const Dims from = source.rank() == 0 ? Dims(index.rank(), 0) : *source.strides;
  convert_view(stream, {&part, &from, source.data}, {&type, &strides, memory.data()});
  scatter(a, memory.data(),
          along(index.shape(), d, *out.strides, *index.strides, strides, out.rank() ? out.size(d) : 1), kAdd);
}

void one_hot(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  fill_view(stream, out, 0);
  PickArgs args = {};
  args.out = out.data;
  args.count = x.numel();
  args.index = index_args(a, 0, out.size(out.rank() - 1), false);
  launch(stream, family_kernel(stream, "index", types_of(DType::kInt64, x.dtype()), "one_hot"), args.count, &args);
}

}  // namespace

std::vector<KernelRow> index_rows() {
  return {{"gather", gather},
          {"take_along_dim", take_along},
          {"pick", pick_one},
          {"index_select", index_select},
          {"take", take},
          {"embedding", embedding},
          {"gather_backward", gather_backward},
          {"index_select_backward", index_select_backward},
          {"index_add", index_add},
          {"scatter_add", scatter_along<true>},
          {"scatter", scatter_along<false>},
          {"one_hot", one_hot}};
}

}  // namespace pg::cuda
