// Ops that write at positions given by index tensors and that are not needed by x[…] = value.
#include "tensor/ops/all.h"
#include "tensor/ops/index.h"
#include "tensor/ops/reduce_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

bool is(const AttrReader& c, const char* reduce) { return c.attr<std::string>("reduce") == reduce; }

// --- scatter_reduce ---

// The rule of scatter_reduce. Everything at the index has the shape of the index.
struct ScatterRule {
  Vjp& c;
  Var x, index, src, out;
  AttrValue dim, base;
  bool include_self;

  explicit ScatterRule(Vjp& rule)
      : c(rule),
        x(c.in(0)),
        index(c.in(1)),
        src(source()),
        out(c.out()),
        dim(c.raw("dim")),
        base(c.raw("index_base")),
        include_self(c.attr<bool>("include_self")) {}

  // The elements of src that are used, in the dtype of x.
  Var source() const {
    const Dims& shape = index.shape();
    const Var v = as_dtype(c.in(2), x.dtype());
    if (v.rank() == 0) return call<"expand">(v, {{"shape", ints(shape)}});
    if (v.shape() == shape) return v;
    const size_t rank = size_t(shape.size());
    return call<"slice">(
        v, {{"start", Ints(rank, 0)}, {"length", ints(shape)}, {"step", Ints(rank, 1)}, {"drop", Ints(rank, 0)}});
  }

  Var read(const Var& v) const { return call<"gather">(v, index, {{"dim", dim}, {"index_base", base}}); }
  Var sum(const Var& start, const Var& v) const {
    return call<"scatter_add">(start, index, v, {{"dim", dim}, {"index_base", base}});
  }
  Var product(const Var& start, const Var& v) const {
    return call<"scatter_reduce">(
        start, index, v,
        {{"dim", dim}, {"index_base", base}, {"reduce", std::string("prod")}, {"include_self", include_self}});
  }
  Var zeros() const { return call<"zeros_like">(x); }

  void set(const Var& dx, const Var& dsrc) {
    if (c.needs(0))
      c.set(0, include_self ? dx : call<"scatter">(dx, index, Var(0.0), {{"dim", dim}, {"index_base", base}}));
    if (c.needs(2)) c.set(2, spread_to_src(c, dsrc));
  }

  void mean() {
    const Var count = sum(include_self ? call<"ones_like">(x) : zeros(), Var(1.0));
    const Var share = c.dy() / call<"maximum">(count, Var(1.0));
    set(share, read(share));
  }

  // Elements equal to the extreme share the gradient evenly. As in PyTorch that of x counts even where it is not
  // included. None is equal to NaN: then all gradients of that element are NaN.
  void extreme() {
    const Var own = call<"eq">(x, out);
    const Var other = call<"eq">(src, read(out));
    const Var count = sum(as_dtype(own, x.dtype()), as_dtype(other, x.dtype()));
    const Var share = c.dy() / count, rest = zero_or_nan(count, x.dtype());
    set(call<"where">(own, share, rest), call<"where">(other, read(share), read(rest)));
  }

  // The product of the other factors: the result without the element where that is 0, else the result over it.
  void product_of_others() {
    const Var own = call<"where">(call<"eq">(x, Var(0.0)), Var(1.0), x);
    const Var dx = c.needs(0) ? c.dy() * product(own, src) / own : Var();
    if (!c.needs(2)) return set(dx, Var());
    const Var zero = call<"eq">(src, Var(0.0));
    const Var zero_count = read(sum(zeros(), as_dtype(zero, x.dtype())));
    const Var only_zero = call<"logical_and">(zero, call<"eq">(zero_count, Var(1.0)));
    const Var without = product(x, call<"where">(only_zero, Var(1.0), src));
    const Var other = read(c.dy() * out) / call<"where">(zero, Var(1.0), src);
    set(dx, call<"where">(only_zero, read(c.dy() * without), other));
  }
};

void vjp_scatter_reduce(Vjp& c) {
  ScatterRule rule(c);
  if (is(c, "sum")) return rule.set(c.dy(), rule.read(c.dy()));
  if (is(c, "mean")) return rule.mean();
  if (is(c, "prod")) return rule.product_of_others();
  rule.extreme();
}

// --- index_fill ---

void infer_index_fill(Infer& c) {
  if (!c.is_number(2) && c.inputs()[2].numel() != 1) c.bad_input(2, "a number or a tensor of one element");
  infer_index_write(c);
}

Var cleared_dy(Vjp& c) { return call_like<"index_fill">(c, {c.dy(), c.in(1), Var(0.0)}); }

// A position that the index names several times counts once.
Var grad_fill_value(Vjp& c) {
  const Var filled = call_like<"index_fill">(c, {call<"zeros_like">(c.dy()), c.in(1), Var(1.0)});
  return call<"where">(call<"ne">(filled, Var(0.0)), c.dy(), Var(0.0));
}

// --- put ---

void infer_put(Infer& c) {
  if (!c.is_number(2) && c.inputs()[2].numel() != c.inputs()[1].numel())
    c.bad_input(2, fmt::format("a number or as many elements as the index, {}", c.inputs()[1].numel()));
  check_written(c, 2, c.is_number(2) ? Dims() : c.shape(2));
  c.output(c.dtype(0), c.shape(0));
}

Var grad_put(Vjp& c) {
  if (c.attr<bool>("accumulate")) return c.dy();
  return call<"put">(c.dy(), c.in(1), Var(0.0), {{"index_base", c.raw("index_base")}});
}

Var grad_put_source(Vjp& c) {
  return reshaped(call<"take">(c.dy(), c.in(1), {{"index_base", c.raw("index_base")}}), c.input(2).shape());
}

// --- index_put ---

// The shape of the index tensors, inputs `first` to `last`, after broadcasting.
Dims joined_index(const Infer& c, size_t first, size_t last) {
  Dims joined;
  for (size_t i = first; i <= last; ++i)
    if (Dims next = joined; !broadcast(next, c.shape(i), &joined))
      c.bad_input(i, "a shape that broadcasts with the other indices, " + to_string(next));
  return joined;
}

void infer_flat_index(Infer& c) {
  if (c.count() == 0 || c.count() != c.attr<Ints>("sizes").size())
    c.bad_attr("sizes", fmt::format("{} sizes", c.count()));
  c.output(DType::kInt64, joined_index(c, 0, c.count() - 1));
}

// --- index_get ---

// The first of the dims of x that the indices are positions of; they follow each other.
int first_indexed(const AttrReader& c, const Dims& x, size_t indices) {
  const int first = c.dim("dim", x.size());
  if (indices == 0 || first + int(indices) > x.size())
    bad_argument(c.op().name, "indices", fmt::format("1 to {} tensors", x.size() - first), std::to_string(indices));
  return first;
}

// x with the dims that the indices are positions of joined to one.
Dims joined_shape(const Dims& x, int first, size_t indices) {
  Dims out = x;
  for (size_t k = 1; k < indices; ++k) {
    out[first] = times(out[first], out[first + 1]);
    out.erase(first + 1);
  }
  return out;
}

void infer_index_get(Infer& c) {
  const size_t indices = c.count() - 1;
  const int first = first_indexed(c, c.shape(0), indices);
  c.output(c.dtype(0), indexed_shape(joined_shape(c.shape(0), first, indices), first, joined_index(c, 1, indices)));
}

std::vector<Var> decompose_index_get(Rule& c) {
  const Dims& x = c.input(0).shape();
  const size_t indices = c.count() - 1;
  const int first = first_indexed(c, x, indices);
  const AttrValue base = c.raw("index_base");
  std::vector<Var> positions;
  Ints sizes;
  for (size_t k = 0; k < indices; ++k) {
    positions.push_back(c.in(k + 1));
    sizes.push_back(x[first + int(k)]);
  }
  const Var flat = call_list<"flat_index">(positions, {{"sizes", sizes}, {"index_base", base}});
  return {call<"index_select">(reshaped(c.in(0), joined_shape(x, first, indices)), flat,
                               {{"dim", user_dim(first)}, {"index_base", base}})};
}

// Whether the only index is a mask over the leading dims of x.
bool has_mask(const Value& index) { return index.dtype() == DType::kBool; }

Dims dims_from(const Dims& x, int first) {
  Dims out;
  for (int d = first; d < x.size(); ++d) out.push_back(x[d]);
  return out;
}

// Whether there is a row of values for each true element of the mask, and not one for all.
bool row_for_each(const Dims& values, const Dims& rest) { return values.size() == rest.size() + 1 && values[0] != 1; }

void infer_put_mask(Infer& c) {
  const Dims &x = c.shape(0), &mask = c.shape(1);
  bool fits = mask.size() <= x.size();
  for (int d = 0; fits && d < mask.size(); ++d) fits = mask[d] == x[d];
  if (!fits) c.bad_input(1, "a mask of the sizes of the leading dims of " + to_string(x));
  Dims region = dims_from(x, mask.size());
  if (!c.is_number(2) && row_for_each(c.shape(2), region)) region.insert(0, c.shape(2)[0]);
  check_written(c, 2, region);
  c.output(c.dtype(0), x);
}

void infer_index_put(Infer& c) {
  const size_t indices = c.count() - 2, last = c.count() - 1;
  if (indices == 0) bad_argument(c.op().name, "indices", "a table of at least one tensor", "none");
  if (indices == 1 && has_mask(c.inputs()[1])) return infer_put_mask(c);
  for (size_t i = 1; i <= indices; ++i)
    if (has_mask(c.inputs()[i])) c.bad_input(i, "index values, or one mask alone");
  if (int(indices) > c.rank(0))
    c.bad_input(1, fmt::format("at most {} tensors, one for each dim of x, not {}", c.rank(0), indices));
  Dims region = joined_index(c, 1, indices);
  for (int d = int(indices); d < c.rank(0); ++d) region.push_back(c.shape(0)[d]);
  check_written(c, last, region);
  c.output(c.dtype(0), c.shape(0));
}

// The gradient for values where the index is a mask.
Var grad_masked_values(Vjp& c) {
  const Dims &x = c.input(0).shape(), &values = c.input(2).shape();
  Dims wide = c.input(1).shape();
  const int own = wide.size();
  while (wide.size() < x.size()) wide.push_back(1);
  const Var mask = reshaped(c.in(1), wide);
  Dims rows = dims_from(x, own);
  if (row_for_each(values, rows)) {
    rows.insert(0, values[0]);
    return call<"masked_scatter_backward">(c.dy(), mask, {{"shape", ints(rows)}});
  }
  rows.insert(0, c.input(1).numel());
  while (rows.size() < values.size()) rows.insert(0, 1);
  return reshaped(call<"where">(mask, c.dy(), Var(0.0)), rows);
}

void vjp_index_put(Vjp& c) {
  const size_t indices = c.count() - 2, last = c.count() - 1;
  const AttrValue base = c.raw("index_base");
  if (c.needs(0)) {
    std::vector<Var> inputs = {c.dy()};
    for (size_t i = 1; i <= indices; ++i) inputs.push_back(c.in(i));
    inputs.push_back(Var(0.0));
    c.set(0, c.attr<bool>("accumulate") ? c.dy() : call_list<"index_put">(inputs, {{"index_base", base}}));
  }
  if (!c.needs(last)) return;
  if (has_mask(c.input(1))) return c.set(last, grad_masked_values(c));
  const Dims& x = c.input(0).shape();
  Ints sizes;
  Dims rows = {1};
  for (int d = 0; d < x.size(); ++d) {
    if (d < int(indices)) {
      sizes.push_back(x[d]);
      rows[0] = times(rows[0], x[d]);
    } else {
      rows.push_back(x[d]);
    }
  }
  std::vector<Var> positions;
  for (size_t i = 1; i <= indices; ++i) positions.push_back(c.in(i));
  const Var flat = call_list<"flat_index">(positions, {{"sizes", sizes}, {"index_base", base}});
  const Var grad = call<"index_select">(reshaped(c.dy(), rows), flat, {{"dim", int64_t(1)}, {"index_base", base}});
  Dims shape = grad.shape();
  while (shape.size() < c.input(last).rank()) shape.insert(0, 1);
  c.set(last, reshaped(grad, shape));
}

AttrDef accumulate_attr() {
  return {"accumulate", AttrKind::kBool, false, "add to the elements, else replace them; of several the last stays"};
}

std::vector<OpDef> scatter_rows() {
  return {
      {.name = "scatter_reduce",
       .doc =
           "x with the elements of src reduced into the positions that `index` names along `dim`: out[index[i][j]][j] "
           "is the sum, product, mean or extreme of itself (unless include_self is false) and all src[i][j] for it. "
           "Positions that the index does not name stay. Integer means round down. src has at least the sizes of "
           "index. Equal extremes share the gradient, as in PyTorch with that of x even where it is not included; that "
           "of "
           "a product is exact where factors are 0.",
       .example =
           "return pg.zeros(2):scatter_reduce(1, pg.tensor({1, 1, 2}, {dtype = \"int64\"}), pg.tensor({3, 5, 7}), "
           "\"amax\")",
       .inputs = {{"x", kNumeric}, {"index", kIntegral}, {"src", kNumeric}},
       .attrs = {index_dim_attr(),
                 {.name = "reduce",
                  .kind = AttrKind::kString,
                  .doc = "how elements for one position are joined",
                  .choices = {"sum", "prod", "mean", "amax", "amin"}},
                 {"include_self", AttrKind::kBool, true, "whether the element of x is one of those that are joined"},
                 index_base_attr()},
       .signature = "x dim index src reduce",
       .infer = infer_scatter,
       .vjp_all = vjp_scatter_reduce,
       .vjp_uses = "x index src out",
       .traits = kInPlace},
      {.name = "put",
       .doc = "x with source, a number or a tensor of as many elements as `index`, written at the positions `index` of "
              "the flattened x, or added there.",
       .example = "return pg.zeros(2, 2):put(pg.tensor({1, 4}, {dtype = \"int64\"}), pg.tensor({5, 6}))",
       .inputs = {{"x"}, {"index", kIntegral}, {"source"}},
       .attrs = {accumulate_attr(), index_base_attr()},
       .infer = infer_put,
       .vjp = {grad_put, nullptr, grad_put_source},
       .vjp_uses = "index",
       .traits = kInPlace | kWeakNumber},
  };
}

std::vector<OpDef> index_rows() {
  return {
      {.name = "index_copy",
       .doc = "x with the positions `index` of dim `dim` replaced by those of source, a number or a tensor that "
              "broadcasts to them. Of several values for one position the last stays.",
       .example = "return pg.zeros(3):index_copy(1, pg.tensor({1, 3}, {dtype = \"int64\"}), pg.tensor({5, 6}))",
       .inputs = {{"x"}, {"index", kIntegral}, {"source"}},
       .attrs = {index_dim_attr(), index_base_attr()},
       .signature = "x dim index source",
       .infer = infer_index_write,
       .vjp = {cleared_dy, nullptr, select_dy},
       .vjp_uses = "index",
       .traits = kInPlace | kWeakNumber},
      {.name = "index_fill",
       .doc = "x with `value`, a number or a tensor of one element, at the positions `index` of dim `dim`.",
       .example = "return pg.zeros(2, 3):index_fill(2, pg.tensor({1, 3}, {dtype = \"int64\"}), 7)",
       .inputs = {{"x"}, {"index", kIntegral}, {"value"}},
       .attrs = {index_dim_attr(), index_base_attr()},
       .signature = "x dim index value",
       .infer = infer_index_fill,
       .vjp = {cleared_dy, nullptr, grad_fill_value},
       .vjp_uses = "index",
       .traits = kInPlace | kWeakNumber},
      {.name = "index_put",
       .doc =
           "x with `values`, a number or a tensor, written at positions of its first dims, or added there. indices[k] "
           "has the positions in dim k. The indices broadcast together; values broadcasts to their shape followed by "
           "the other dims of x. A single bool tensor is a mask over the first dims of x; values then has one row for "
           "each of its true elements, or one row for all. x[{i, j}] = values writes so in place, and x[{i, j}] reads.",
       .example = "local i, j = pg.tensor({1, 2}, {dtype = \"int64\"}), pg.tensor({3, 1}, {dtype = \"int64\"})\n"
                  "return pg.zeros(2, 3):index_put({i, j}, pg.tensor({5, 6}))",
       .inputs = {{"x"}, {"indices", kIntegral | kBoolOnly, Arity::kList}, {"values"}},
       .attrs = {accumulate_attr(), index_base_attr()},
       .infer = infer_index_put,
       .vjp_all = vjp_index_put,
       .vjp_uses = "indices",
       .traits = kInPlace | kWeakNumber},
      {.name = "flat_index",
       .doc = "The positions in a flattened array of `sizes` of the elements that one index tensor for each dim names.",
       .inputs = {{"indices", kIntegral, Arity::kList}},
       .attrs = {{"sizes", AttrKind::kInts, {}, "the size of each dim"}, index_base_attr()},
       .infer = infer_flat_index,
       .traits = kHidden | kNoGrad},
      {.name = "index_get",
       .doc =
           "The elements that indices name, one tensor for each dim of x from `dim` on, as in x[{i, j}]. The dims of "
           "the indices, broadcast together, replace these dims.",
       .inputs = {{"x"}, {"indices", kIntegral, Arity::kList}},
       .attrs = {index_dim_attr(), index_base_attr()},
       .infer = infer_index_get,
       .decompose = decompose_index_get,
       .traits = kHidden | kIndexing},
  };
}

}  // namespace

void add_scatter_ops(Registry& r) {
  r.add(scatter_rows());
  r.add(index_rows());
}

}  // namespace pg
