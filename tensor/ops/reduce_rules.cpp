#include "tensor/ops/reduce_rules.h"

#include <limits>

namespace pg {

Dims reduced_dims(const AttrReader& c, int rank) {
  const auto* one = std::get_if<int64_t>(&c.raw("dim"));
  const Dims dims = one ? Dims{dim_index(c.op().name, "dim", *one, rank)} : c.dims("dim", rank);
  return rank == 0 ? Dims() : dims;  // a 0-dim tensor accepts dim 1, which it does not have
}

Dims reduced_shape(const Infer& c) { return reduced_shape(c, c.shape(0)); }

Dims reduced_shape(const AttrReader& c, const Dims& shape) {
  const Dims dims = reduced_dims(c, shape.size());
  const bool keep = c.attr<bool>("keepdim");
  Dims out;
  for (int d = 0; d < shape.size(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (!reduced)
      out.push_back(shape[d]);
    else if (keep)
      out.push_back(1);
  }
  return out;
}

double reduced_count(const AttrReader& c, const Dims& shape) {
  double n = 1;
  for (int64_t d : reduced_dims(c, shape.size())) n *= double(shape[int(d)]);
  return n;
}

Var restore_dims(const Vjp& c, const Var& v, size_t i) {
  if (c.attr<bool>("keepdim")) return v;
  const Dims full = c.in(i).shape();
  Dims shape = full;
  for (int64_t d : reduced_dims(c, full.size())) shape[int(d)] = 1;
  return reshaped(v, shape);
}

Var spread(const Vjp& c, const Var& v) {
  return call<"expand">(restore_dims(c, v, 0), {{"shape", ints(c.in(0).shape())}});
}

Var drop_dims(const AttrReader& c, const Var& v) {
  const Dims dims = reduced_dims(c, v.rank());
  Dims shape;
  for (int d = 0; d < v.rank(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) shape.push_back(v.shape()[d]);
  return reshaped(v, shape);
}

Var reshaped(const Var& v, const Dims& shape) {
  return v.shape() == shape ? v : call<"reshape_to">(v, {{"shape", ints(shape)}});
}

Var as_dtype(const Var& v, DType t) { return v.dtype() == t ? v : call<"to">(v, {{"dtype", t}}); }

Var shifted(const Var& v, int d, int by, double fill) {
  if (v.rank() == 0) return reshaped(shifted(reshaped(v, Dims{1}), 0, by, fill), Dims());
  const int64_t n = v.shape()[d];
  if (n == 0) return v;
  const Var rest = call<"narrow">(v, {{"dim", user_dim(d)}, {"start", int64_t(by > 0 ? 1 : 2)}, {"length", n - 1}});
  Ints widths(size_t(v.rank() - d) * 2, 0);
  widths[widths.size() - (by > 0 ? 2 : 1)] = 1;
  return call<"pad">(rest, {{"pad", widths}, {"value", fill}});
}

Var positions(const Rule& c, const Value& like, int d, int base) {
  const int64_t n = like.rank() ? like.shape()[d] : 1;
  Dims shape(like.rank(), 1);
  if (like.rank()) shape[d] = n;
  Value list = make_array(Type{DType::kInt64, {}, shape});
  for (int64_t i = 0; i < n; ++i) static_cast<int64_t*>(list.array().data())[i] = base + i;
  return c.wrap(to_device(c.context(), list, like.device()));
}

void require_elements(Infer& c) {
  if (c.has_attr("dim")) {
    for (int64_t d : reduced_dims(c, c.rank(0)))
      if (c.shape(0)[int(d)] == 0) c.bad_input(0, "at least one element in the reduced dims");
  } else if (numel(c.shape(0)) == 0) {
    c.bad_input(0, "at least one element");
  }
}

void infer_extreme_pair(Infer& c) {
  require_elements(c);
  c.output(c.dtype(0), reduced_shape(c));
  if (c.has_attr("dim")) c.output(DType::kInt64, c.outputs[0].shape);
}

Var zero_or_nan(const Var& count, DType dtype) {
  return as_dtype(call<"where">(call<"eq">(count, Var(0.0)), Var(std::numeric_limits<double>::quiet_NaN()), Var(0.0)),
                  dtype);
}

// The elements equal to the extreme of all, or those that are NaN, share the gradient evenly.
Var vjp_extreme_pair(Vjp& c) {
  const Var dy = c.dy(0);
  if (!c.has_attr("dim")) {
    const Var tied = call<"logical_or">(call<"eq">(c.in(0), c.out(0)), call<"isnan">(c.in(0)));
    return call<"where">(tied, dy / call<"sum">(tied), Var(0.0));
  }
  const int rank = c.in(0).rank(), d = c.dim("dim", rank);
  const Var places = positions(c, c.in(0).value(), d, int(c.attr<int64_t>("index_base")));
  return call<"where">(call<"eq">(places, restore_dims(c, c.out(1), 0)), restore_dims(c, dy, 0), Var(0.0));
}

std::vector<Var> expand_unbiased(Expansion& c) {
  Attrs attrs = c.attrs();
  attrs[size_t(c.op().attr_index("correction"))] = c.option<bool>("unbiased") ? 1.0 : 0.0;
  const Var x[] = {c.in(0)};
  return c.apply_op(x, attrs);
}

AttrDef unbiased_option() { return {"unbiased", AttrKind::kBool, {}, "true: correction 1; false: correction 0", true}; }

}  // namespace pg
