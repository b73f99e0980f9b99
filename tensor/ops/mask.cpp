// Ops that select elements by a bool tensor.
#include "tensor/ops/all.h"
#include "tensor/ops/index.h"
#include "tensor/rule.h"

namespace pg {
namespace {

Dims joined_shape(const Infer& c) {
  Dims out;
  if (!broadcast(c.shape(0), c.shape(1), &out)) c.bad_input(1, "a shape that broadcasts with " + to_string(c.shape(0)));
  return out;
}

void infer_masked_fill(Infer& c) {
  const Dims out = joined_shape(c);
  if (!c.is_number(2) && c.inputs()[2].numel() != 1) c.bad_input(2, "a number or a tensor of one element");
  check_written(c, 2, out);
  c.output(c.dtype(0), out);
}

// Returns the dims of `shape` that a mask over its leading dims does not cover.
Dims rest_of(const Infer& c, size_t mask_input, const Dims& shape) {
  const Dims& mask = c.shape(mask_input);
  bool fits = mask.size() <= shape.size();
  for (int i = 0; fits && i < mask.size(); ++i) fits = mask[i] == shape[i];
  if (!fits) c.bad_input(mask_input, "the sizes of the leading dims of " + to_string(shape));
  Dims rest;
  for (int i = mask.size(); i < shape.size(); ++i) rest.push_back(shape[i]);
  return rest;
}

void infer_mask_get(Infer& c) {
  Dims out = rest_of(c, 1, c.shape(0));
  out.insert(0, -1);
  c.output(c.dtype(0), out);
}

void infer_mask_get_backward(Infer& c) {
  const Dims shape{std::span<const int64_t>(c.attr<Ints>("shape"))};
  Dims piece = rest_of(c, 1, shape);
  piece.insert(0, c.rank(0) > 0 ? c.shape(0)[0] : -1);
  if (!(piece == c.shape(0))) c.bad_input(0, "the shape of the elements that the mask selects");
  c.output(c.dtype(0), shape);
}

// The value may have a leading dim for the number of true elements, which only the kernel can check.
void infer_mask_assign(Infer& c) {
  Dims target = rest_of(c, 1, c.shape(0));
  const bool counted = !c.is_number(2) && c.rank(2) == target.size() + 1;
  if (counted) target.insert(0, c.shape(2)[0]);
  check_written(c, 2, target);
  c.output(c.dtype(0), c.shape(0));
}

Var grad_mask_assign_value(Vjp& c) {
  const Dims& mask = c.input(1).shape();
  const Dims x = c.input(0).shape(), value = c.input(2).shape();
  if (value.size() == x.size() - mask.size() + 1 && value[0] != 1) return call<"mask_get">(c.dy(), c.in(1));
  const Var kept = call<"mask_assign">(c.dy(), call<"logical_not">(c.in(1)), Var(0.0));
  Ints rows = {numel(mask)};
  for (int i = mask.size(); i < x.size(); ++i) rows.push_back(x[i]);
  return call<"reshape_to">(kept, {{"shape", rows}});
}

Var grad_masked_select(Vjp& c) {
  Dims shape;
  broadcast(c.input(0).shape(), c.input(1).shape(), &shape);
  return call<"mask_get_backward">(c.dy(), call<"expand">(c.in(1), {{"shape", ints(shape)}}), {{"shape", ints(shape)}});
}

void infer_masked_scatter(Infer& c) {
  const Dims out = joined_shape(c);
  if (is_float(c.dtype(2)) && !is_float(c.dtype(0)))
    c.bad_input(2, fmt::format("values that {} can hold", name_of(c.dtype(0))));
  c.output(c.dtype(0), out);
}

void infer_masked_scatter_backward(Infer& c) {
  if (!(joined_shape(c) == c.shape(0))) c.bad_input(1, "a mask that broadcasts to " + to_string(c.shape(0)));
  c.output(c.dtype(0), Dims(std::span<const int64_t>(c.attr<Ints>("shape"))));
}

Var grad_masked_scatter_backward(Vjp& c) {
  const Value zeros = c.context().interpreter->filled(c.context(), c.input(0).type(), 0);
  return call<"masked_scatter">(c.wrap(zeros), c.in(1), c.dy());
}

std::vector<OpDef> scatter_rows() {
  return {
      {.name = "masked_scatter",
       .doc = "x with the elements of source, in row-major order, where mask is true. x and mask broadcast; source has "
              "at least as many elements as mask has true ones.",
       .example = "return pg.zeros(4):masked_scatter(pg.tensor({true, false, true, false}), pg.tensor({5, 6}))",
       .inputs = {{"x"}, {"mask", kBoolOnly}, {"source"}},
       .infer = infer_masked_scatter,
       .vjp = {[](Vjp& c) { return call<"masked_fill">(c.dy(), c.in(1), Var(0.0)); }, nullptr,
               [](Vjp& c) {
                 return call<"masked_scatter_backward">(c.dy(), c.in(1), {{"shape", ints(c.input(2).shape())}});
               }},
       .vjp_uses = "mask",
       .traits = kInPlace},
      {.name = "masked_scatter_backward",
       .doc = "The elements of dy where mask is true, in row-major order, then zeros, in a tensor of `shape`: the "
              "derivative of masked_scatter.",
       .inputs = {{"dy"}, {"mask", kBoolOnly}},
       .attrs = {{"shape", AttrKind::kInts, {}, "sizes of the result"}},
       .infer = infer_masked_scatter_backward,
       .vjp = {grad_masked_scatter_backward, nullptr},
       .vjp_uses = "mask",
       .traits = kHidden},
  };
}

void infer_nonzero(Infer& c) { c.output(DType::kInt64, {-1, c.rank(0)}); }

std::vector<OpDef> mask_rows() {
  return {
      {.name = "masked_fill",
       .doc = "x with `value`, a number or a tensor of one element, where mask is true. x and mask broadcast.",
       .example = "return pg.tensor({1, 2}):masked_fill(pg.tensor({true, false}), 0)",
       .inputs = {{"x"}, {"mask", kBoolOnly}, {"value"}},
       .infer = infer_masked_fill,
       .vjp = {[](Vjp& c) { return call<"masked_fill">(c.dy(), c.in(1), Var(0.0)); }, nullptr,
               [](Vjp& c) { return call<"masked_fill">(c.dy(), call<"logical_not">(c.in(1)), Var(0.0)); }},
       .vjp_uses = "mask",
       .traits = kWeakNumber},
      {.name = "masked_select",
       .doc = "The elements of x where mask is true, as a 1-dim tensor in row-major order. x and mask broadcast. The "
              "size depends on values: eager only.",
       .example = "local x = pg.tensor({1, -2, 3}); return x:masked_select(x:gt(0))",
       .inputs = {{"x"}, {"mask", kBoolOnly}},
       .infer =
           [](Infer& c) {
             joined_shape(c);
             c.output(c.dtype(0), {-1});
           },
       .vjp = {grad_masked_select, nullptr},
       .vjp_uses = "mask",
       .traits = kDynamicShape},
      {.name = "mask_get",
       .doc = "The positions of the leading dims of x where mask is true, as in x[mask]. The size depends on values: "
              "eager only.",
       .inputs = {{"x"}, {"mask", kBoolOnly}},
       .infer = infer_mask_get,
       .vjp = {[](Vjp& c) {
                 return call<"mask_get_backward">(c.dy(), c.in(1), {{"shape", ints(c.input(0).shape())}});
               },
               nullptr},
       .vjp_uses = "mask",
       .traits = kDynamicShape | kHidden},
      {.name = "mask_get_backward",
       .doc = "Zeros of `shape` with the rows of dy where mask is true: the derivative of mask_get.",
       .inputs = {{"dy"}, {"mask", kBoolOnly}},
       .attrs = {{"shape", AttrKind::kInts, {}, "sizes of the result"}},
       .infer = infer_mask_get_backward,
       .vjp = {[](Vjp& c) { return call<"mask_get">(c.dy(), c.in(1)); }, nullptr},
       .vjp_uses = "mask",
       .traits = kHidden},
      {.name = "mask_assign",
       .doc = "x with the positions of its leading dims where mask is true replaced by `value`: a number, a tensor "
              "that broadcasts to each of them, or one row for each, as in x[mask] = value.",
       .inputs = {{"x"}, {"mask", kBoolOnly}, {"value"}},
       .infer = infer_mask_assign,
       .vjp = {[](Vjp& c) { return call<"mask_assign">(c.dy(), c.in(1), Var(0.0)); }, nullptr, grad_mask_assign_value},
       .vjp_uses = "mask",
       .traits = kHidden | kInPlace | kWeakNumber | kIndexing},
      {.name = "nonzero",
       .doc = "The positions of the elements of x that are not zero, one row each in row-major order: an int64 tensor "
              "of shape (count, dims of x). The size depends on values: eager only.",
       .example = "return pg.tensor({{0, 1}, {2, 0}}):nonzero()",
       .inputs = {{"x"}},
       .attrs = {index_base_attr()},
       .infer = infer_nonzero,
       .traits = kDynamicShape | kNoGrad},
      {.name = "argwhere",
       .doc = "Another name of nonzero.",
       .example = "return pg.tensor({{0, 1}, {2, 0}}):argwhere()",
       .inputs = {{"x"}},
       .attrs = {index_base_attr()},
       .infer = infer_nonzero,
       .traits = kDynamicShape | kNoGrad},
  };
}

}  // namespace

void add_mask_ops(Registry& r) {
  r.add(mask_rows());
  r.add(scatter_rows());
}

}  // namespace pg
