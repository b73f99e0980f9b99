// Ops that return the same elements with another shape: views wherever the layout allows it.
#include <algorithm>

#include "tensor/ops/all.h"
#include "tensor/ops/like.h"
#include "tensor/rule.h"

namespace pg {
namespace {

void same_type(Infer& c) { c.output(c.dtype(0), c.shape(0)); }

// Computes the strides with which an array of `shape` and `strides` reads as `target`. Returns false when there are
// none.
bool view_strides(const Dims& shape, const Dims& strides, const Dims& target, Dims* out) {
  *out = contiguous_strides(target);
  if (numel(shape) == 0 || is_contiguous(shape, strides)) return true;
  int t = target.size() - 1;
  int64_t step = shape.size() ? strides.back() : 1, have = 1, want = 1;
  for (int d = shape.size() - 1; d >= 0; --d) {
    have *= shape[d];
    if (d > 0 && (shape[d - 1] == 1 || strides[d - 1] == have * step)) continue;
    while (t >= 0 && (want < have || target[t] == 1)) {
      (*out)[t] = want * step;
      want *= target[t--];
    }
    if (want != have) return false;
    if (d > 0) {
      step = strides[d - 1];
      have = want = 1;
    }
  }
  return t < 0;
}

bool view_reshape(ViewArgs& c) { return view_strides(c.input.type.shape, c.input.strides, c.out_shape, &c.strides); }

bool view_same(ViewArgs& c) {
  c.strides = c.input.strides;
  return true;
}

[[noreturn]] void bad_count(const Infer& c, const Dims& shape) {
  const Dims& x = c.shape(0);
  bad_argument(c.op().name, "shape", fmt::format("a shape of {} elements like {}", numel(x), to_string(x)),
               fmt::format("{} of {}", to_string(c.raw("shape")), numel(shape)));
}

// The target shape of reshape: 0 copies the dim at that position, one -1 gets the remaining elements.
Dims reshaped(const Infer& c) {
  const Dims& x = c.shape(0);
  Dims out;
  int infer_at = -1;
  int64_t left = 1, fixed = 1;  // elements of the dims that are not copied, and of the given dims
  const Ints& wanted = c.attr<Ints>("shape");
  for (int i = int(wanted.size()); i < x.size(); ++i) left *= x[i];
  for (size_t i = 0; i < wanted.size(); ++i) {
    const bool has_place = int(i) < x.size();
    if (wanted[i] == 0 && has_place) {
      out.push_back(x[int(i)]);
      continue;
    }
    if (has_place) left *= x[int(i)];
    if (wanted[i] < -1 || wanted[i] == 0 || (wanted[i] == -1 && infer_at >= 0))
      c.bad_attr("shape", "sizes, 0 to copy a dim of the input and at most one -1");
    if (wanted[i] == -1)
      infer_at = int(i);
    else
      fixed = times(fixed, wanted[i]);
    out.push_back(wanted[i]);
  }
  if (infer_at >= 0 && left % fixed == 0)
    out[infer_at] = left / fixed;
  else if (infer_at >= 0)
    bad_argument(c.op().name, "shape", fmt::format("a shape of {} elements like {}", numel(x), to_string(x)),
                 fmt::format("{}, and {} is no multiple of {}", to_string(c.raw("shape")), left, fixed));
  else if (checked_numel(c.op().name, out) != numel(x))
    bad_count(c, out);
  return out;
}

void infer_literal_shape(Infer& c) {
  Dims out;
  for (int64_t d : c.attr<Ints>("shape")) out.push_back(d);
  if (checked_numel(c.op().name, out) != numel(c.shape(0))) bad_count(c, out);
  c.output(c.dtype(0), out);
}

void infer_flatten(Infer& c) {
  const Dims& x = c.shape(0);
  const int from = c.dim("start_dim", x.size()), to = c.dim("end_dim", x.size());
  if (from > to) c.bad_attr("end_dim", "a dim that is not before start_dim");
  Dims out;
  if (x.empty()) out.push_back(1);
  for (int i = 0; i < x.size(); ++i) {
    if (i > from && i <= to)
      out[from] *= x[i];
    else
      out.push_back(x[i]);
  }
  c.output(c.dtype(0), out);
}

void infer_squeeze(Infer& c) {
  const Dims& x = c.shape(0);
  const Dims dims = c.dims("dim", x.size());
  Dims out;
  for (int d = 0; d < x.size(); ++d)
    if (x[d] != 1 || std::find(dims.begin(), dims.end(), d) == dims.end()) out.push_back(x[d]);
  c.output(c.dtype(0), out);
}

void infer_unsqueeze(Infer& c) {
  Dims out = c.shape(0);
  out.insert(c.dim("dim", out.size() + 1), 1);
  c.output(c.dtype(0), out);
}

// The order of dims of an op of the permute kind: output dim i is input dim order[i].
Dims identity_order(int rank) {
  Dims order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  return order;
}
Dims order_of_transpose(const AttrReader& c, int rank) {
  Dims order = identity_order(rank);
  if (rank > 0) std::swap(order[c.dim("dim0", rank)], order[c.dim("dim1", rank)]);
  return order;
}
Dims order_of_permute(const AttrReader& c, int rank) {
  const Dims order = c.attr<Ints>("dims").empty() && rank > 0 ? Dims() : c.dims("dims", rank);
  if (order.size() != rank)
    bad_argument(c.op().name, "dims", fmt::format("each of the {} dims once", rank), to_string(c.raw("dims")));
  return order;
}
Dims order_of_move(const AttrReader& c, int rank) {
  const Dims from = c.dims("source", rank), to = c.dims("destination", rank);
  if (from.size() != to.size())
    bad_argument(c.op().name, "destination", fmt::format("{} dims like source", from.size()),
                 to_string(c.raw("destination")));
  Dims order(rank, -1);
  for (int i = 0; i < from.size(); ++i) order[int(to[i])] = from[i];
  for (int d = 0, at = 0; d < rank; ++d) {
    if (std::find(from.begin(), from.end(), d) != from.end()) continue;
    while (order[at] >= 0) ++at;
    order[at] = d;
  }
  return order;
}
Dims order_of_t(const AttrReader&, int rank) {
  Dims order = identity_order(rank);
  std::reverse(order.begin(), order.end());
  return order;
}

using OrderFn = Dims (*)(const AttrReader&, int rank);
template <OrderFn order_of>
void infer_order(Infer& c) {
  const Dims order = order_of(c, c.rank(0));
  Dims out;
  for (int64_t d : order) out.push_back(c.shape(0)[int(d)]);
  c.output(c.dtype(0), out);
}
template <OrderFn order_of>
bool view_order(ViewArgs& c) {
  const Dims order = order_of(c, c.input.type.shape.size());
  for (int64_t d : order) c.strides.push_back(c.input.strides[int(d)]);
  return true;
}
template <OrderFn order_of>
Var grad_order(Vjp& c) {
  const Dims order = order_of(c, c.input(0).rank());
  Dims inverse = order;
  for (int i = 0; i < order.size(); ++i) inverse[int(order[i])] = i;
  return call<"permute">(c.dy(), {{"dims", user_dims(inverse)}});
}

Dims expanded(const Infer& c, const Dims& wanted, bool minus_keeps, auto&& bad) {
  const Dims& x = c.shape(0);
  const int extra = wanted.size() - x.size();
  if (extra < 0) bad();
  Dims out = wanted;
  for (int i = 0; i < wanted.size(); ++i) {
    if (wanted[i] == -1 && minus_keeps && i >= extra)
      out[i] = x[i - extra];
    else if (wanted[i] < 0 || (i >= extra && x[i - extra] != 1 && x[i - extra] != wanted[i]))
      bad();
  }
  return out;
}

void infer_expand(Infer& c) {
  const Dims wanted{std::span<const int64_t>(c.attr<Ints>("shape"))};
  auto bad = [&] {
    c.bad_attr("shape", fmt::format("a shape that {} expands to; -1 keeps a dim", to_string(c.shape(0))));
  };
  c.output(c.dtype(0), expanded(c, wanted, true, bad));
}

void infer_expand_as(Infer& c) {
  auto bad = [&] { c.bad_input(1, fmt::format("a shape that {} expands to", to_string(c.shape(0)))); };
  c.output(c.dtype(0), expanded(c, c.shape(1), false, bad));
}

bool view_expand(ViewArgs& c) {
  c.strides = broadcast_strides(c.input.type.shape, c.input.strides, c.out_shape);
  return true;
}

Var grad_reshape(Vjp& c) { return call<"reshape_to">(c.dy(), {{"shape", ints(c.input(0).shape())}}); }
Var grad_same(Vjp& c) { return c.dy(); }  // backward sums broadcast dims

const AttrDef kShape = {"shape", AttrKind::kInts, {}, "sizes of the result"};

// A view of x. The gradient of other inputs is absent.
OpDef viewing(OpDef row, ViewFn view, GradFn grad, Traits kind) {
  row.view = view;
  row.vjp.assign(row.inputs.size(), nullptr);
  row.vjp[0] = grad;
  row.vjp_uses = "";
  row.traits |= kView | kind;
  return row;
}
OpDef reshaping(OpDef row) { return viewing(std::move(row), view_reshape, grad_reshape, kReshape); }
OpDef expanding(OpDef row) { return viewing(std::move(row), view_expand, grad_same, kExpand); }
template <OrderFn order_of>
OpDef reordering(OpDef row) {
  if (!row.infer) row.infer = infer_order<order_of>;
  return viewing(std::move(row), view_order<order_of>, grad_order<order_of>, kPermute);
}

std::vector<OpDef> reshape_rows() {
  return {
      reshaping({.name = "reshape",
                 .doc = "The elements of x in the same order under another shape. In `shape` 0 copies the dim of x at "
                        "that place and one -1 is computed from the other sizes. A view where the strides of x allow "
                        "it. Shares no writes with x.",
                 .example = "return pg.range(1, 6):reshape{2, -1}",
                 .aliases = {"view"},
                 .inputs = {{"x"}},
                 .attrs = {kShape},
                 .infer = [](Infer& c) { c.output(c.dtype(0), reshaped(c)); }}),
      reshaping({.name = "reshape_to",
                 .doc = "reshape with every size taken literally.",
                 .inputs = {{"x"}},
                 .attrs = {kShape},
                 .infer = infer_literal_shape,
                 .traits = kHidden}),
      reshaping({.name = "reshape_as",
                 .doc = "x under the shape of `other`, which has as many elements.",
                 .example = "return pg.range(1, 6):reshape_as(pg.zeros(3, 2))",
                 .aliases = {"view_as"},
                 .inputs = {{"x"}, {"other"}},
                 .infer =
                     [](Infer& c) {
                       if (numel(c.shape(0)) != numel(c.shape(1)))
                         c.bad_input(1, "as many elements as " + to_string(c.shape(0)));
                       c.output(c.dtype(0), c.shape(1));
                     }}),
      reshaping({.name = "flatten",
                 .doc = "Joins the dims from start_dim to end_dim into one. A 0-dim tensor gives one dim of size 1.",
                 .example = "return pg.zeros(2, 3, 4):flatten(2)",
                 .inputs = {{"x"}},
                 .attrs = {{"start_dim", AttrKind::kDim, int64_t(1), "first dim to join"},
                           {"end_dim", AttrKind::kDim, int64_t(-1), "last dim to join"}},
                 .infer = infer_flatten}),
      reshaping({.name = "squeeze",
                 .doc = "x without its dims of size 1, or without those among `dim` that have size 1.",
                 .example = "return pg.zeros(1, 3, 1):squeeze(1)",
                 .inputs = {{"x"}},
                 .attrs = {{"dim", AttrKind::kDims, {}, "dims to drop where their size is 1; all by default", true}},
                 .infer = infer_squeeze}),
      reshaping({.name = "unsqueeze",
                 .doc = "x with a new dim of size 1 that becomes dim `dim` of the result.",
                 .example = "return pg.range(1, 3):unsqueeze(1)",
                 .inputs = {{"x"}},
                 .attrs = {{"dim", AttrKind::kDim, {}, "position of the new dim in the result"}},
                 .infer = infer_unsqueeze}),
      {.name = "contiguous",
       .doc = "x itself when it is contiguous (row-major, without gaps), else a contiguous copy.",
       .example = "return pg.range(1, 6):reshape{2, 3}:t():contiguous()",
       .inputs = {{"x"}},
       .infer = same_type,
       .view =
           [](ViewArgs& c) {
             c.strides = c.input.strides;
             return c.input.contiguous;
           },
       .vjp = {grad_same},
       .vjp_uses = "",
       .traits = kView | kCopies},
      {.name = "detach",
       .doc = "The values of x as a constant: no gradient flows through.",
       .example = "return pg.ones(2):detach()",
       .inputs = {{"x"}},
       .infer = same_type,
       .view = view_same,
       .traits = kView | kNoGrad | kExpand},
  };
}

std::vector<OpDef> order_rows() {
  const OpDef moveaxis = reordering<order_of_move>(
      {.name = "moveaxis",
       .doc = "x with the dims `source` moved to the positions `destination`; the others keep their order. A view.",
       .example = "return pg.zeros(2, 3, 4):moveaxis(1, 3)",
       .inputs = {{"x"}},
       .attrs = {{"source", AttrKind::kDims, {}, "dims of x to move"},
                 {"destination", AttrKind::kDims, {}, "where they go in the result"}}});
  return {
      reordering<order_of_transpose>(
          {.name = "transpose",
           .doc = "x with two dims exchanged. A view.",
           .example = "return pg.zeros(2, 3, 4):transpose(1, 3)",
           .aliases = {"swapaxes", "swapdims"},
           .inputs = {{"x"}},
           .attrs = {{"dim0", AttrKind::kDim, {}, "one dim"}, {"dim1", AttrKind::kDim, {}, "the other"}}}),
      reordering<order_of_t>({.name = "t",
                              .doc = "The transpose of a matrix; tensors of 0 or 1 dims come back as they are. A view.",
                              .example = "return pg.tensor({{1, 2}, {3, 4}}):t()",
                              .inputs = {{"x"}},
                              .infer =
                                  [](Infer& c) {
                                    if (c.rank(0) > 2)
                                      c.bad_input(0, "at most 2 dims (transpose and permute take more)");
                                    infer_order<order_of_t>(c);
                                  }}),
      reordering<order_of_permute>(
          {.name = "permute",
           .doc = "x with its dims in the given order: dim i of the result is dim dims[i] of x. A view.",
           .example = "return pg.zeros(2, 3, 4):permute{3, 1, 2}",
           .inputs = {{"x"}},
           .attrs = {{"dims", AttrKind::kDims, {}, "every dim once"}}}),
      moveaxis,
      like(moveaxis, "movedim", "Another name of moveaxis.", "return pg.zeros(2, 3, 4):movedim(1, 3)"),
  };
}

std::vector<OpDef> expand_rows() {
  const OpDef expand =
      expanding({.name = "expand",
                 .doc = "x with dims of size 1 repeated, and new leading dims, up to `shape`; -1 keeps a dim. A view.",
                 .example = "return pg.tensor({{1}, {2}}):expand{2, 3}",
                 .inputs = {{"x"}},
                 .attrs = {kShape},
                 .infer = infer_expand});
  return {
      expand,
      like(expand, "broadcast_to", "x broadcast to `shape`; -1 keeps a dim. A view.",
           "return pg.tensor({1, 2}):broadcast_to{3, 2}"),
      expanding({.name = "expand_as",
                 .doc = "x expanded to the shape of `other`. A view.",
                 .example = "return pg.tensor({1, 2}):expand_as(pg.zeros(3, 2))",
                 .inputs = {{"x"}, {"other"}},
                 .infer = infer_expand_as}),
  };
}

}  // namespace

void add_shape_ops(Registry& r) {
  r.add(reshape_rows());
  r.add(order_rows());
  r.add(expand_rows());
}

}  // namespace pg
