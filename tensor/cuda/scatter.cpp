// Writes at index values by hand-written kernels (kernels/scatter.cuh). An index value out of range is reported late.
#include "tensor/cuda/converted.h"
#include "tensor/cuda/index.h"
#include "tensor/cuda/kernels/scatter_arguments.cuh"
#include "tensor/cuda/variants.h"
#include "tensor/op.h"

namespace pg::cuda {
namespace {

using kernels::ScatterArgs;

ScatterArgs args_of(const Index& index, const void* values, const View& out, const Along& along) {
  ScatterArgs args = {};
  args.from = values;
  args.to = out.data;
  args.count = numel(along.shape);
  args.step = along.step;
  args.index = index.args;
  args.rank = along.shape.size();
  for (int d = 0; d < args.rank; ++d)
    args.dims[d] = {along.shape[d], along.values[d], along.array[d], along.index[d], 0, 0};
  return args;
}

void run(Stream& stream, const std::string& types, const char* name, const ScatterArgs& args) {
  launch(stream, family_kernel(stream, "scatter", types, name), args.count, &args);
}

// Adds values, which are contiguous in the dtype of the output unless `along` says otherwise. 16-bit floats are summed
// in float32.
void add_at(const KernelArgs& a, const Index& index, const void* values, const Along& along, double alpha = 1) {
  const View& out = a.out[0];
  Stream& stream = stream_at(a.stream);
  std::optional<Temporary> wide;
  if (is_float(out.dtype()) && size_of(out.dtype()) == 2) {
    wide.emplace(stream, DType::kFloat32, out);
    convert_view(stream, out, wide->view);
  }
  ScatterArgs args = args_of(index, values, wide ? wide->view : out, along);
  args.alpha = alpha;
  run(stream, scatter_types(out.dtype(), index.dtype, DType::kInt32), "scatter_add", args);
  if (wide) convert_view(stream, wide->view, out);
}

// The order in which writes count, where several may go to one place.
struct Order {
  Dims number, place;  // strides
  int64_t step, places;
};
// Lines are written as wholes: a place is a position along the indexed dim.
Order order_of_lines(const Along& along) { return {{0, 1, 0}, {0, 0, 0}, 1, along.size}; }
Order order_of_elements(const Along& along, const View& out) {
  return {contiguous_strides(along.shape), along.array, along.step, out.numel()};
}

// Writes values. Of several for one place the last stays.
void set_at(const KernelArgs& a, const Index& index, const void* values, const Along& along, const Order& order) {
  const View& out = a.out[0];
  Stream& stream = stream_at(a.stream);
  ScatterArgs args = args_of(index, values, out, along);
  const DType number = args.count <= INT32_MAX ? DType::kInt32 : DType::kInt64;
  const std::string types = scatter_types(moved(out.dtype()), index.dtype, number);
  // The elements of the index that differ in number.
  ScatterArgs numbered = args;
  numbered.count = args.count > 0;
  for (int d = 0; d < args.rank; ++d) {
    args.dims[d].number = numbered.dims[d].number = order.number[d];
    args.dims[d].last = numbered.dims[d].last = order.place[d];
    if (order.number[d] == 0) numbered.dims[d].size = 1;
    numbered.count *= numbered.dims[d].size;
  }
  if (numbered.count <= 1) return run(stream, types, "scatter_set", args);
  const Scratch last(stream, size_t(order.places * size_of(number)));
  const Type type{number, out.type->device, {order.places}};
  const Dims strides = {1};
  fill_view(stream, {&type, &strides, last.data()}, -1);
  args.last = numbered.last = last.data();
  args.last_step = numbered.last_step = order.step;
  run(stream, types, "scatter_last", numbered);
  run(stream, types, "scatter_set", args);
}

// The result starts as a copy of x.
void copy_x(const KernelArgs& a) {
  if (a.out[0].data != a.in[0].data) convert_view(stream_at(a.stream), a.in[0], a.out[0]);
}

void gather_backward(const KernelArgs& a) {
  const View &dy = a.in[0], &index = a.in[1], &out = a.out[0];
  const int d = a.dim("dim", out.rank());
  const int64_t size = out.rank() ? out.size(d) : 1;
  fill_view(stream_at(a.stream), out, 0);
  add_at(a, index_of(a, 1, size, true), dy.data,
         along_dim(index.shape(), d, *out.strides, *index.strides, *dy.strides, size));
}

void index_select_backward(const KernelArgs& a) {
  const View& out = a.out[0];
  const Along along = along_lines(out.shape(), int(a.attr<int64_t>("dim")) - 1, a.in[1].numel());
  fill_view(stream_at(a.stream), out, 0);
  add_at(a, index_of(a, 1, along.size, true), a.in[0].data, along);
}

// The value of a write at positions of a dim is broadcast to x with the dims of the index in place of that dim.
template <class F>
void index_write(const KernelArgs& a, F write) {
  const View &out = a.out[0], &index = a.in[1];
  const int d = a.dim("dim", out.rank());
  Dims shape;
  for (int k = 0; k < d; ++k) shape.push_back(out.size(k));
  for (int64_t n : index.shape()) shape.push_back(n);
  for (int k = d + 1; k < out.rank(); ++k) shape.push_back(out.size(k));
  const Spread values(stream_at(a.stream), a.in[2], out.dtype(), shape);
  const Along along = along_lines(out.shape(), d, index.numel());
  copy_x(a);
  write(index_of(a, 1, along.size, true), values.data(), along);
}
void index_add(const KernelArgs& a) {
  index_write(a, [&](const Index& index, const void* values, const Along& along) {
    add_at(a, index, values, along, a.attr<double>("alpha"));
  });
}
void index_assign(const KernelArgs& a) {
  index_write(a, [&](const Index& index, const void* values, const Along& along) {
    set_at(a, index, values, along, order_of_lines(along));
  });
}

// Source elements with the shape of the index, or one for all.
Along along_index(const KernelArgs& a) {
  const View &index = a.in[1], &out = a.out[0], &source = a.in[2];
  const int d = a.dim("dim", out.rank());
  return along_dim(index.shape(), d, *out.strides, *index.strides,
                   source.rank() == 0 ? Dims(index.rank(), 0) : *source.strides, out.size(d));
}
template <bool kAdd>
void scatter(const KernelArgs& a) {
  const Converted source(stream_at(a.stream), a.in[2], a.out[0].dtype());
  const Along along = along_index(a);
  const Index index = index_of(a, 1, along.size, true);
  copy_x(a);
  kAdd ? add_at(a, index, source.data(), along)
       : set_at(a, index, source.data(), along, order_of_elements(along, a.out[0]));
}

// Writes n rows at positions of the rows of the output.
void put_at(const KernelArgs& a, const Index& index, const void* values, const Along& along) {
  copy_x(a);
  a.attr<bool>("accumulate") ? add_at(a, index, values, along) : set_at(a, index, values, along, order_of_lines(along));
}

void put(const KernelArgs& a) {
  const View &index = a.in[1], &source = a.in[2], &out = a.out[0];
  const Along along = along_lines({out.numel()}, 0, index.numel());
  const Spread values(stream_at(a.stream), source, out.dtype(),
                      source.numel() == index.numel() ? source.shape() : index.shape());
  put_at(a, index_of(a, 1, along.size, true), values.data(), along);
}

void index_put(const KernelArgs& a) {
  if (a.in[1].dtype() == DType::kBool) return write_masked(a, "values", a.attr<bool>("accumulate"));
  const View &x = a.in[0], &out = a.out[0];
  Stream& stream = stream_at(a.stream);
  const int indices = int(a.in.size()) - 2;
  Type type{DType::kInt64, x.type->device, {}};
  for (int i = 1; i <= indices; ++i) {
    const Dims before = type.shape;
    broadcast(before, a.in[size_t(i)].shape(), &type.shape);
  }
  const Dims strides = contiguous_strides(type.shape);
  const Scratch positions(stream, size_t(numel(type.shape)) * 8);
  flat_positions(a, 1, {x.shape().begin(), size_t(indices)}, 0, {&type, &strides, positions.data()});
  Dims region = type.shape, rows = {1};
  for (int d = 0; d < x.rank(); ++d) {
    if (d < indices)
      rows[0] *= x.size(d);
    else
      region.push_back(x.size(d)), rows.push_back(x.size(d));
  }
  const Spread values(stream, a.in.back(), out.dtype(), region);
  // flat_positions has reported what is refused.
  const Index index{{positions.data(), 0, rows[0], 0, 0, stream.fault->get()}, DType::kInt64};
  put_at(a, index, values.data(), along_lines(rows, 0, numel(type.shape)));
}

// Elements are joined in numbers of 64 bits.
void scatter_reduce(const KernelArgs& a) {
  const View &x = a.in[0], &index = a.in[1], &out = a.out[0];
  const std::string& how = a.attr<std::string>("reduce");
  const bool self = a.attr<bool>("include_self");
  Stream& stream = stream_at(a.stream);
  if (index.numel() == 0) return copy_x(a);
  const Temporary sums(stream, is_float(out.dtype()) ? DType::kFloat64 : DType::kInt64, out);
  const Converted source(stream, a.in[2], out.dtype());
  const Along along = along_index(a);
  ScatterArgs args = args_of(index_of(a, 1, along.size, true), source.data(), sums.view, along);
  args.reduce = how == "prod"   ? kernels::kReduceProduct
                : how == "amax" ? kernels::kReduceLargest
                : how == "amin" ? kernels::kReduceSmallest
                                : kernels::kReduceSum;
  const std::string types = scatter_types(out.dtype(), index.dtype(), DType::kInt32);
  convert_view(stream, x, sums.view);
  if (!self) run(stream, types, "reduce_clear", args);
  std::optional<Temporary> counts;
  if (how == "mean") {
    args.counts = counts.emplace(stream, DType::kInt64, out).view.as<int64_t>();
    fill_view(stream, counts->view, self);
  }
  run(stream, types, "reduce_into", args);
  args.from = sums.view.data;
  args.to = out.data;
  args.count = out.numel();
  run(stream, types, "reduce_finish", args);
}

}  // namespace

std::string scatter_types(DType element, DType index, DType number) {
  return index_types(element, index) + fmt::format("using W = {};\n", type_text(number));
}

std::vector<KernelRow> scatter_rows() {
  return {{"gather_backward", gather_backward},
          {"index_select_backward", index_select_backward},
          {"index_add", index_add},
          {"index_assign", index_assign},
          {"index_copy", index_assign},
          {"index_fill", index_assign},
          {"scatter_add", scatter<true>},
          {"scatter", scatter<false>},
          {"put", put},
          {"index_put", index_put},
          {"scatter_reduce", scatter_reduce}};
}

}  // namespace pg::cuda
