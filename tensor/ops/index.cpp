// Ops that read and write at positions given by index tensors. Index values count from `index_base`, which is 1 except
// in imported graphs. Negative values count from the end, except the labels of embedding and one_hot.
#include <algorithm>

#include "tensor/ops/index.h"
#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {

AttrDef index_base_attr() {
  return {"index_base", AttrKind::kInt, int64_t(1), "the number of the first position in index values", false, 0, 1};
}

void check_padding_row(const Infer& c) {
  if (!c.has_attr("padding_idx")) return;
  const int64_t rows = c.shape(1)[0], given = c.attr<int64_t>("padding_idx");
  if (given == 0 || given > rows || given < -rows)
    c.bad_attr("padding_idx", fmt::format("a row from 1 to {} or -{} to -1", rows, rows));
}

void check_written(const Infer& c, size_t i, const Dims& target) {
  const DType to = c.dtype(0);
  if (c.is_number(i)) {
    if (!is_float(to) && !holds(to, c.inputs()[i].number()))
      c.bad_input(i, fmt::format("a number that {} can hold", name_of(to)));
    return;
  }
  Dims joined, own = c.shape(i);
  while (own.size() > target.size() && own[0] == 1) own.erase(0);
  if (!broadcast(own, target, &joined) || !(joined == target))
    c.bad_input(i, "a number or a shape that broadcasts to " + to_string(target));
  if (is_float(c.dtype(i)) && !is_float(to)) c.bad_input(i, fmt::format("values that {} can hold", name_of(to)));
}

int some_dim(const Infer& c, size_t i) {
  if (c.rank(i) == 0) c.bad_input(i, "a tensor of at least 1 dim");
  return c.dim("dim", c.rank(i));
}

AttrDef index_dim_attr() { return {"dim", AttrKind::kDim, {}, "the dim that the index values are positions of"}; }

// Checks that the index has the rank of x and, except for dim d, at most its sizes.
static void check_index_inside(const Infer& c, int d) {
  const Dims &x = c.shape(0), &index = c.shape(1);
  bool fits = x.size() == index.size();
  for (int i = 0; fits && i < x.size(); ++i) fits = i == d || index[i] <= x[i];
  if (!fits)
    c.bad_input(1,
                fmt::format("{} dims like x and, but for dim {}, at most the sizes {}", x.size(), d + 1, to_string(x)));
}

void infer_scatter(Infer& c) {
  check_index_inside(c, some_dim(c, 0));
  if (!c.is_number(2) && c.rank(2) > 0) {
    bool fits = c.rank(2) == c.rank(1);
    for (int i = 0; fits && i < c.rank(1); ++i) fits = c.shape(1)[i] <= c.shape(2)[i];
    if (!fits) c.bad_input(2, "a number, or at least the sizes of the index, " + to_string(c.shape(1)));
    if (is_float(c.dtype(2)) && !is_float(c.dtype(0)))
      c.bad_input(2, fmt::format("values that {} can hold", name_of(c.dtype(0))));
  } else {
    check_written(c, 2, c.shape(1));
  }
  c.output(c.dtype(0), c.shape(0));
}

Var spread_to_src(const Vjp& c, const Var& grad) {
  const Dims &src = c.input(2).shape(), &index = c.input(1).shape();
  if (src == index || src.empty()) return grad;
  Ints widths;
  for (int i = src.size() - 1; i >= 0; --i) widths.insert(widths.end(), {0, src[i] - index[i]});
  return call<"pad">(grad, {{"pad", widths}});
}

Var grad_scattered(Vjp& c) { return spread_to_src(c, call_like<"gather">(c, {c.dy(), c.in(1)})); }

Dims indexed_shape(const Dims& x, int d, const Dims& index) {
  Dims out;
  for (int i = 0; i < d; ++i) out.push_back(x[i]);
  for (int64_t n : index) out.push_back(n);
  for (int i = d + 1; i < x.size(); ++i) out.push_back(x[i]);
  return out;
}

void infer_index_write(Infer& c) {
  const int d = some_dim(c, 0);
  check_written(c, 2, indexed_shape(c.shape(0), d, c.shape(1)));
  c.output(c.dtype(0), c.shape(0));
}

Var select_dy(Vjp& c) { return call_like<"index_select">(c, {c.dy(), c.in(1)}); }

namespace {

const AttrDef kDim = index_dim_attr();
const AttrDef kShape = {"shape", AttrKind::kInts, {}, "sizes of the result"};

void infer_gather(Infer& c) {
  check_index_inside(c, some_dim(c, 0));
  c.output(c.dtype(0), c.shape(1));
}

void infer_gather_backward(Infer& c) {
  const Dims shape{std::span<const int64_t>(c.attr<Ints>("shape"))};
  const int d = c.dim("dim", shape.size());
  bool fits = c.shape(0) == c.shape(1) && c.rank(0) == shape.size() && c.rank(0) > 0;
  for (int i = 0; fits && i < shape.size(); ++i) fits = i == d || c.shape(1)[i] <= shape[i];
  if (!fits) c.bad_input(0, "the shape of the index, inside " + to_string(shape));
  c.output(c.dtype(0), shape);
}

void infer_index_select(Infer& c) {
  const int d = some_dim(c, 0);
  c.output(c.dtype(0), indexed_shape(c.shape(0), d, c.shape(1)));
}

// dy has the dims of the index from dim `dim` on. The result has one dim of `size` instead.
void infer_index_select_backward(Infer& c) {
  const int64_t d = c.attr<int64_t>("dim") - 1;
  const Dims &dy = c.shape(0), &index = c.shape(1);
  if (d < 0 || d + index.size() > dy.size()) c.bad_attr("dim", "a dim from which the index fits");
  for (int i = 0; i < index.size(); ++i)
    if (dy[int(d) + i] != index[i])
      c.bad_input(0, fmt::format("the dims of the index, {}, from dim {} on", to_string(index), d + 1));
  Dims out;
  for (int i = 0; i < int(d); ++i) out.push_back(dy[i]);
  out.push_back(c.attr<int64_t>("size"));
  for (int i = int(d) + index.size(); i < dy.size(); ++i) out.push_back(dy[i]);
  c.output(c.dtype(0), out);
}

Var grad_index_select(Vjp& c) {
  const Dims& x = c.input(0).shape();
  const int d = c.dim("dim", x.size());
  return call_like<"index_select_backward">(c, {c.dy(), c.in(1)}, {{"dim", user_dim(d)}, {"size", x[d]}});
}

// Broadcasts the shapes of x and index against each other, except for dim d.
Dims along_shape(const AttrReader& c, const Dims& x, const Dims& index, int d, bool of_x) {
  Dims a = x, b = index, out;
  bool fits = x.size() == index.size();
  if (fits) {
    a[d] = b[d] = 1;
    fits = broadcast(a, b, &out);
  }
  if (!fits)
    bad_argument(c.op().name, "index",
                 fmt::format("a shape that broadcasts with {} but for dim {}", to_string(x), d + 1), to_string(index));
  out[d] = of_x ? x[d] : index[d];
  return out;
}

void infer_take_along(Infer& c) {
  if (!c.has_attr("dim")) return c.output(c.dtype(0), {c.inputs()[1].numel()});
  const int d = some_dim(c, 0);
  c.output(c.dtype(0), along_shape(c, c.shape(0), c.shape(1), d, false));
}

Var grad_take_along(Vjp& c) {
  const Dims &x = c.input(0).shape(), &index = c.input(1).shape();
  if (!c.has_attr("dim")) {
    const Var flat =
        call<"index_select_backward">(c.dy(), call<"reshape_to">(c.in(1), {{"shape", Ints{numel(index)}}}),
                                      {{"dim", int64_t(1)}, {"size", numel(x)}, {"index_base", c.raw("index_base")}});
    return call<"reshape_to">(flat, {{"shape", ints(x)}});
  }
  const int d = c.dim("dim", x.size());
  const Var wide = call<"expand">(c.in(1), {{"shape", ints(along_shape(c, x, index, d, false))}});
  return call_like<"gather_backward">(c, {c.dy(), wide},
                                      {{"dim", user_dim(d)}, {"shape", ints(along_shape(c, x, index, d, true))}});
}

void infer_pick(Infer& c) {
  const int d = some_dim(c, 0);
  Dims kept = c.shape(0), dropped = kept;
  kept[d] = 1;
  dropped.erase(d);
  if (!(c.shape(1) == kept) && !(c.shape(1) == dropped))
    c.bad_input(1, fmt::format("the shape of x without dim {}, {}", d + 1, to_string(dropped)));
  c.output(c.dtype(0), c.attr<bool>("keepdim") ? kept : dropped);
}

Var grad_pick(Vjp& c) {
  const Dims& x = c.input(0).shape();
  const int d = c.dim("dim", x.size());
  Dims one = x;
  one[d] = 1;
  return call<"gather_backward">(call<"reshape_to">(c.dy(), {{"shape", ints(one)}}),
                                 call<"reshape_to">(c.in(1), {{"shape", ints(one)}}),
                                 {{"dim", user_dim(d)}, {"shape", ints(x)}, {"index_base", c.raw("index_base")}});
}

void infer_embedding(Infer& c) {
  c.require_rank(1, 2);
  check_padding_row(c);
  Dims out = c.shape(0);
  out.push_back(c.shape(1)[1]);
  c.output(c.dtype(1), out);
}

Var grad_embedding(Vjp& c) {
  const Dims& weight = c.input(1).shape();
  const Var grad = call_like<"index_select_backward">(c, {c.dy(), c.in(0)}, {{"dim", int64_t(1)}, {"size", weight[0]}});
  if (!c.has_attr("padding_idx")) return grad;
  const int64_t given = c.attr<int64_t>("padding_idx"), row = given > 0 ? given - 1 : given + weight[0];
  return call<"slice_assign">(
      grad, Var(0.0),
      {{"start", Ints{row, 0}}, {"length", Ints{1, weight[1]}}, {"step", Ints{1, 1}}, {"drop", Ints{1, 0}}});
}

std::vector<OpDef> gather_rows() {
  return {
      {.name = "gather",
       .doc = "The elements of x at the positions that `index` names along `dim`: out[i][j] = x[index[i][j]][j] for "
              "dim 1. index has the rank of x and at most its sizes except in dim; the result has the shape of index.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):gather(2, pg.tensor({{1, 1}, {2, 1}}, {dtype = \"int64\"}))",
       .inputs = {{"x"}, {"index", kIntegral}},
       .attrs = {kDim, index_base_attr()},
       .signature = "x dim index",
       .infer = infer_gather,
       .vjp = {[](Vjp& c) {
                 return call_like<"gather_backward">(c, {c.dy(), c.in(1)}, {{"shape", ints(c.input(0).shape())}});
               },
               nullptr},
       .vjp_uses = "index"},
      {.name = "gather_backward",
       .doc = "Zeros of `shape` with each element of dy added where gather read it: the derivative of gather.",
       .inputs = {{"dy", kNumeric}, {"index", kIntegral}},
       .attrs = {kDim, kShape, index_base_attr()},
       .infer = infer_gather_backward,
       .vjp = {[](Vjp& c) {
                 return call_like<"gather">(c, {c.dy(), c.in(1)});
               },
               nullptr},
       .vjp_uses = "index",
       .traits = kHidden},
      {.name = "scatter",
       .doc = "x with src, a tensor or a number, written at the positions that `index` names along `dim`: "
              "out[index[i][j]][j] = src[i][j] for dim 1. Of several values for one element the last stays. src has at "
              "least the sizes of index.",
       .example = "return pg.zeros(3):scatter(1, pg.tensor({1, 3}, {dtype = \"int64\"}), 5)",
       .inputs = {{"x"}, {"index", kIntegral}, {"src"}},
       .attrs = {kDim, index_base_attr()},
       .signature = "x dim index src",
       .infer = infer_scatter,
       .vjp = {[](Vjp& c) {
                 return call_like<"scatter">(c, {c.dy(), c.in(1), Var(0.0)});
               },
               nullptr, grad_scattered},
       .vjp_uses = "index",
       .traits = kInPlace | kWeakNumber},
      {.name = "scatter_add",
       .doc = "x with src, a tensor or a number, added at the positions that `index` names along `dim`: "
              "out[index[i][j]][j] += src[i][j] for dim 1, in the order of src.",
       .example = "return pg.zeros(2):scatter_add(1, pg.tensor({1, 1}, {dtype = \"int64\"}), pg.ones(2))",
       .inputs = {{"x", kNumeric}, {"index", kIntegral}, {"src"}},
       .attrs = {kDim, index_base_attr()},
       .signature = "x dim index src",
       .infer = infer_scatter,
       .vjp = {[](Vjp& c) { return c.dy(); }, nullptr, grad_scattered},
       .vjp_uses = "index",
       .traits = kInPlace | kWeakNumber},
      {.name = "take_along_dim",
       .doc = "The elements of x at the positions that `index` names along `dim`, as argsort and argmax return them; "
              "the other sizes broadcast. Without dim both are flattened.",
       .example = "local x = pg.tensor({3, 1, 2}); return x:take_along_dim(x:argsort(), 1)",
       .inputs = {{"x"}, {"index", kIntegral}},
       .attrs = {{"dim", AttrKind::kDim, {}, "the dim that the index values are positions of", true},
                 index_base_attr()},
       .signature = "x index dim",
       .infer = infer_take_along,
       .vjp = {grad_take_along, nullptr},
       .vjp_uses = "index"},
      {.name = "take",
       .doc = "The elements of the flattened x at the positions `index`; the result has the shape of index.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):take(pg.tensor({4, 1}, {dtype = \"int64\"}))",
       .inputs = {{"x"}, {"index", kIntegral}},
       .attrs = {index_base_attr()},
       .infer = [](Infer& c) { c.output(c.dtype(0), c.shape(1)); },
       .vjp = {[](Vjp& c) {
                 const Dims& x = c.input(0).shape();
                 const Var flat = call_like<"index_select_backward">(c, {c.dy(), c.in(1)},
                                                                     {{"dim", int64_t(1)}, {"size", numel(x)}});
                 return call<"reshape_to">(flat, {{"shape", ints(x)}});
               },
               nullptr},
       .vjp_uses = "index",
       .traits = kPick},
      {.name = "pick",
       .doc = "One element along `dim` for each position of the other dims: out[i] = x[i][index[i]]. index has the "
              "shape of x without dim, or with size 1 there.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):pick(pg.tensor({2, 1}, {dtype = \"int64\"}))",
       .inputs = {{"x"}, {"index", kIntegral}},
       .attrs = {{"dim", AttrKind::kDim, int64_t(-1), "the dim that the index values are positions of"},
                 {"keepdim", AttrKind::kBool, false, "keep dim with size 1"},
                 index_base_attr()},
       .infer = infer_pick,
       .vjp = {grad_pick, nullptr},
       .vjp_uses = "index"},
  };
}

// one_hot without num_classes uses the largest label.
void complete_one_hot(Context& ctx, const OpDef& op, std::span<Value> inputs, Attrs& attrs) {
  AttrValue& classes = attrs[size_t(op.attr_index("num_classes"))];
  if (classes.index() != 0) return;
  if (!inputs[0].is_array() || !is_integer(inputs[0].dtype())) return;  // infer reports it
  const Var labels(ctx, inputs[0]);
  if (labels.numel() == 0) bad_argument(op.name, "num_classes", "a value where x is empty", "nil");
  const double largest = item(to_device(ctx, call<"amax">(labels).value().detached(), Device{}));
  const int64_t label = int64_t(std::clamp(largest, -double(kMostSize), double(kMostSize)));
  classes = std::max<int64_t>(1, plus(label, 1 - AttrReader(op, attrs).attr<int64_t>("index_base")));
}

std::vector<OpDef> select_rows() {
  return {
      {.name = "index_select",
       .doc =
           "The positions `index` of dim `dim`, in that order; the dims of index (1, or any number) replace that dim.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):index_select(1, pg.tensor({2, 2, 1}, {dtype = \"int64\"}))",
       .inputs = {{"x"}, {"index", kIntegral}},
       .attrs = {kDim, index_base_attr()},
       .signature = "x dim index",
       .infer = infer_index_select,
       .vjp = {grad_index_select, nullptr},
       .vjp_uses = "index",
       .traits = kPick},
      {.name = "index_select_backward",
       .doc = "Zeros with each slice of dy added where index_select read it: the derivative of index_select.",
       .inputs = {{"dy", kNumeric}, {"index", kIntegral}},
       .attrs = {{"dim", AttrKind::kInt, {}, "first dim of dy that belongs to the index"},
                 {"size", AttrKind::kInt, {}, "size of that dim in the result"},
                 index_base_attr()},
       .infer = infer_index_select_backward,
       .vjp = {select_dy, nullptr},
       .vjp_uses = "index",
       .traits = kHidden},
      {.name = "index_add",
       .doc = "x with alpha * source added at the positions `index` of dim `dim`, in the order of index. source is a "
              "number or a tensor that broadcasts to them.",
       .example = "return pg.zeros(2):index_add(1, pg.tensor({1, 1}, {dtype = \"int64\"}), pg.ones(2))",
       .inputs = {{"x", kNumeric}, {"index", kIntegral}, {"source"}},
       .attrs = {kDim, {"alpha", AttrKind::kFloat, 1.0, "factor of source"}, index_base_attr()},
       .signature = "x dim index source alpha",
       .infer =
           [](Infer& c) {
             infer_index_write(c);
             if (!is_float(c.dtype(0)) && !holds(c.dtype(0), c.attr<double>("alpha")))
               c.bad_attr("alpha", "a whole number");
           },
       .vjp = {[](Vjp& c) { return c.dy(); }, nullptr,
               [](Vjp& c) {
                 const double alpha = c.attr<double>("alpha");
                 return alpha == 1 ? select_dy(c) : select_dy(c) * Var(alpha);
               }},
       .vjp_uses = "index",
       .traits = kInPlace | kWeakNumber},
      {.name = "index_assign",
       .doc = "x with the positions `index` of dim `dim` replaced by `value`, a number or a tensor that broadcasts to "
              "them, as in x[{…, index}] = value. Of several values for one position the last stays.",
       .inputs = {{"x"}, {"index", kIntegral}, {"value"}},
       .attrs = {kDim, index_base_attr()},
       .infer = infer_index_write,
       .vjp = {[](Vjp& c) {
                 return call_like<"index_assign">(c, {c.dy(), c.in(1), Var(0.0)});
               },
               nullptr, select_dy},
       .vjp_uses = "index",
       .traits = kHidden | kInPlace | kWeakNumber | kIndexing},
      {.name = "embedding",
       .doc = "Rows of `weight` (2-dim) at the positions `indices`, whose shape the result has in front. Positions are "
              "labels: negative ones are errors. The gradient of row padding_idx is zero.",
       .example = "return pg.embedding(pg.tensor({2, 1}, {dtype = \"int64\"}), pg.tensor({{1, 2}, {3, 4}}))",
       .inputs = {{"indices", kIntegral}, {"weight"}},
       .attrs =
           {{"padding_idx", AttrKind::kInt, {}, "a row of weight (1-based or negative) that gets no gradient", true},
            index_base_attr()},
       .infer = infer_embedding,
       .vjp = {nullptr, grad_embedding},
       .vjp_uses = "indices",
       .traits = kPick},
      {.name = "one_hot",
       .doc = "int64 zeros with a 1 at position x of a new last dim of size num_classes, by default the largest of x "
              "(eagerly only, since the size then depends on values). The values of x are labels: negative ones are "
              "errors.",
       .example = "return pg.tensor({1, 3}, {dtype = \"int64\"}):one_hot(3)",
       .inputs = {{"x", kIntegral}},
       .attrs = {{"num_classes", AttrKind::kInt, {}, "size of the new dim", true, 1}, index_base_attr()},
       .infer =
           [](Infer& c) {
             if (!c.has_attr("num_classes")) c.bad_attr("num_classes", "a value");
             Dims out = c.shape(0);
             out.push_back(c.attr<int64_t>("num_classes"));
             c.output(DType::kInt64, out);
           },
       .traits = kNoGrad,
       .complete = complete_one_hot},
  };
}

}  // namespace

void add_index_ops(Registry& r) {
  r.add(gather_rows());
  r.add(select_rows());
  add_embedding_bag_ops(r);
  add_read_positions_op(r);
}

}  // namespace pg
