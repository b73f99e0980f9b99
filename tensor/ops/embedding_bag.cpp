// Sums, means and maxima of bags of embeddings.
#include <algorithm>

#include "tensor/ops/index.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

constexpr uint16_t kBags = 1 << int(DType::kInt64);
constexpr uint16_t kComputed = 1 << int(DType::kFloat32) | 1 << int(DType::kFloat64);
const AttrDef kLast = {"include_last_offset", AttrKind::kBool, false, "offsets ends with the end of the last bag"};
const AttrDef kLength = {"length", AttrKind::kInt, {}, "number of positions", false, 0};
const AttrDef kCount = {"bags", AttrKind::kInt, {}, "number of bags", false, 0};

void infer_bag_numbers(Infer& c) {
  c.require_rank(0, 1);
  if (c.attr<bool>("include_last_offset") && c.shape(0)[0] == 0) c.bad_input(0, "at least 1 offset");
  c.output(DType::kInt64, {c.attr<int64_t>("length")});
}

void infer_bag_argmax(Infer& c) {
  c.require_rank(0, 2);
  if (!(c.shape(1) == Dims{c.shape(0)[0]})) c.bad_input(1, "one bag a row");
  c.output(DType::kInt64, {c.attr<int64_t>("bags"), c.shape(0)[1]});
}

int64_t bag_count(const AttrReader& c, const Dims& indices, const Value& offsets) {
  if (indices.size() == 2) return indices[0];
  return offsets.shape()[0] - (c.attr<bool>("include_last_offset") ? 1 : 0);
}

void check_bags(Infer& c) {
  if (c.rank(0) != 1 && c.rank(0) != 2) c.bad_input(0, "1 dim, or 2 dims: bags of one length");
  if (c.rank(0) == 2 && c.has(2)) c.bad_input(2, "none where each row of indices is a bag");
  if (c.rank(0) == 2) return;
  if (!c.has(2)) c.bad_input(0, "2 dims: bags of one length; or 1 dim and offsets");
  c.require_rank(2, 1);
  if (c.attr<bool>("include_last_offset") && c.shape(2)[0] == 0) c.bad_input(2, "at least 1 offset");
}

void infer_embedding_bag(Infer& c) {
  check_bags(c);
  c.require_rank(1, 2);
  if (c.has(3)) {
    if (!(c.shape(3) == c.shape(0))) c.bad_input(3, "the shape of indices, " + to_string(c.shape(0)));
    if (c.dtype(3) != c.dtype(1)) c.bad_input(3, "the dtype of weight");
    if (c.attr<std::string>("mode") != "sum") c.bad_attr("mode", "sum where per_sample_weights is given");
  }
  check_padding_row(c);
  c.output(c.dtype(1), {bag_count(c, c.shape(0), c.inputs()[2]), c.shape(1)[1]});
}

// --- sum_rows ---

Var zeros(const Rule& c, const Var& like, Dims shape) {
  const Type type = {like.dtype(), like.value().device(), std::move(shape)};
  return c.wrap(c.context().interpreter->filled(c.context(), type, 0));
}

void infer_sum_rows(Infer& c) {
  c.require_rank(0, 2);
  c.require_rank(1, 1);
  for (size_t i : {size_t(2), size_t(3)})
    if (c.has(i) && !(c.shape(i) == c.shape(1))) c.bad_input(i, "the shape of from, " + to_string(c.shape(1)));
  if (c.has(3) && c.dtype(3) != c.dtype(0)) c.bad_input(3, "the dtype of x");
  c.output(c.dtype(0), {c.attr<int64_t>("count"), c.shape(0)[1]});
}

Var sum_rows(const Var& x, const Var& from, const Var& to, const Var& factor, int64_t count) {
  return call<"sum_rows">({x, from, to, factor}, {{"count", count}});
}

// The rows of x at `places`, with zeros for places outside.
Var picked_rows(const Rule& c, const Var& x, const Var& places) {
  const int64_t rows = x.shape()[0], count = places.numel();
  if (rows == 0) return zeros(c, x, {count, x.shape()[1]});
  const AttrList base = {{"index_base", int64_t(0)}};
  const Var inside = call<"logical_and">(call<"ge">(places, 0.0), call<"lt">(places, double(rows)));
  const Var picked = call<"embedding">(call<"clamp">(places, 0.0, double(rows - 1)), x, base);
  return call<"where">(reshaped(inside, {count, 1}), picked, 0.0);
}

std::vector<Var> decompose_sum_rows(Rule& c) {
  const Var x = c.in(0), to = c.in(2);
  const int64_t count = c.attr<int64_t>("count");
  Var rows = picked_rows(c, x, c.in(1));
  if (c.has(3)) rows = rows * reshaped(c.in(3), {to.numel(), 1});
  const Var outside = call<"logical_or">(call<"lt">(to, 0.0), call<"gt">(to, double(count)));
  const Var all = call<"index_add">(zeros(c, x, {count + 1, x.shape()[1]}), call<"where">(outside, double(count), to),
                                    rows, {{"dim", int64_t(1)}, {"index_base", int64_t(0)}});
  return {call<"narrow">(all, {{"dim", int64_t(1)}, {"start", int64_t(1)}, {"length", count}})};
}

Var grad_summed_rows(Vjp& c) { return sum_rows(c.dy(), c.in(2), c.in(1), c.in(3), c.input(0).shape()[0]); }
Var grad_row_factors(Vjp& c) {
  return call<"sum">(picked_rows(c, c.dy(), c.in(2)) * picked_rows(c, c.in(0), c.in(1)), {{"dim", Ints{2}}});
}

// --- embedding_bag ---

// The number of the bag of each index, from 0 on. Indices that are padding belong to bag `count`, which is dropped.
Var bag_numbers(const Rule& c, const Var& indices, int64_t count) {
  const int64_t length = indices.numel();
  Var bags;
  if (c.in(0).rank() == 2) {
    Value list = make_array(Type{DType::kInt64, {}, {length}});
    const int64_t size = c.in(0).shape()[1];
    for (int64_t b = 0; b < count && size > 0; ++b)
      std::fill_n(static_cast<int64_t*>(list.array().data()) + b * size, size, b);
    bags = c.wrap(to_device(c.context(), list, indices.value().device()));
  } else {
    bags = call<"bag_numbers">(c.in(2), {{"length", length},
                                         {"include_last_offset", c.raw("include_last_offset")},
                                         {"index_base", c.raw("index_base")}});
  }
  if (!c.has_attr("padding_idx")) return bags;
  const int64_t given = c.attr<int64_t>("padding_idx"), rows = c.in(1).shape()[0];
  const int64_t padding = given > 0 ? given - 1 : given + rows;
  return call<"where">(call<"eq">(indices, double(padding)), double(count), bags);
}

Var largest(const Var& bags, const Var& rows, int64_t count) {
  const Var index = call<"bag_argmax">(call<"detach">(rows), bags, {{"bags", count}});
  const Var picked =
      call<"gather">(rows, call<"maximum">(index, 0.0), {{"dim", int64_t(1)}, {"index_base", int64_t(0)}});
  return call<"where">(call<"ge">(index, 0.0), picked, 0.0);
}

std::vector<Var> decompose_embedding_bag(Rule& c) {
  const int64_t base = c.attr<int64_t>("index_base");
  const Var indices = reshaped(read_positions(c, c.in(0), "indices", c.in(1).shape()[0], base), {c.in(0).numel()});
  const int64_t count = bag_count(c, c.in(0).shape(), c.input(2));
  const std::string& mode = c.attr<std::string>("mode");
  const Var bags = bag_numbers(c, indices, count);
  if (mode == "max" && indices.numel() > 0) {
    const Var rows = call<"embedding">(indices, c.in(1), {{"index_base", int64_t(0)}});
    return {largest(bags, rows, count)};
  }
  const Var sum = sum_rows(c.in(1), indices, bags, c.has(3) ? reshaped(c.in(3), {indices.numel()}) : Var(), count);
  if (mode != "mean") return {sum};
  if (c.in(0).rank() == 2 && !c.has_attr("padding_idx"))
    return {sum / double(std::max<int64_t>(c.in(0).shape()[1], 1))};
  const Type one = {sum.dtype(), sum.value().device(), {1, 1}};
  const Var ones = c.wrap(c.context().interpreter->filled(c.context(), one, 1));
  const Var sizes = sum_rows(ones, call<"zeros_like">(bags), bags, Var(), count);
  return {sum / call<"maximum">(sizes, 1.0)};
}

}  // namespace

void add_embedding_bag_ops(Registry& r) {
  const OpDef rows[] = {
      {.name = "embedding_bag",
       .doc =
           "The mean, sum or max of the rows of `weight` at the positions in each bag, in the shape (bags, columns). "
           "Each row of 2-dim `indices` is a bag. In 1-dim indices a bag starts at each of `offsets`, which are "
           "positions from index_base on, in order. The rows of bag i have the factors per_sample_weights (sum "
           "only). An empty bag gives 0. Positions that equal padding_idx do not count.",
       .example = "local i = pg.tensor({1, 3, 2}, {dtype = \"int64\"})\n"
                  "return pg.embedding_bag(i, pg.eye(3), pg.tensor({1, 3}, {dtype = \"int64\"}), {mode = \"sum\"})",
       .inputs = {{"indices", kIntegral},
                  {"weight", kFloating},
                  {"offsets", kIntegral, Arity::kOptional},
                  {"per_sample_weights", kFloating, Arity::kOptional}},
       .attrs = {{"mode",
                  AttrKind::kString,
                  std::string("mean"),
                  "how the rows of a bag join",
                  false,
                  0,
                  0,
                  {"mean", "sum", "max"}},
                 kLast,
                 {"padding_idx", AttrKind::kInt, {}, "a row of weight (1-based or negative) that does not count", true},
                 index_base_attr()},
       .signature = "indices weight offsets mode per_sample_weights include_last_offset padding_idx index_base",
       .infer = infer_embedding_bag,
       .decompose = decompose_embedding_bag,
       .traits = kWidens},
      {.name = "sum_rows",
       .doc =
           "Row i of the result is the sum of the rows of x at the positions `from` whose element of `to` is i, with "
           "the factors `factor` if given. Positions count from 0; those outside are skipped.",
       .inputs = {{"x", kComputed}, {"from", kBags}, {"to", kBags}, {"factor", kComputed, Arity::kOptional}},
       .attrs = {{"count", AttrKind::kInt, {}, "rows of the result", false, 0}},
       .infer = infer_sum_rows,
       .vjp = {grad_summed_rows, nullptr, nullptr, grad_row_factors},
       .decompose = decompose_sum_rows,
       .traits = kHidden},
      {.name = "bag_numbers",
       .doc = "The number of the bag of each of `length` positions, from 0 on, when bags start at `offsets`.",
       .inputs = {{"offsets", kIntegral}},
       .attrs = {kLength, kLast, index_base_attr()},
       .infer = infer_bag_numbers,
       .traits = kHidden | kNoGrad},
      {.name = "bag_argmax",
       .doc = "For each bag and column the position of the largest element among the rows of x in that bag; -1 for an "
              "empty bag. Rows whose bag number is out of range do not count.",
       .inputs = {{"x", kComputed}, {"bag", kBags}},
       .attrs = {kCount},
       .infer = infer_bag_argmax,
       .traits = kHidden | kNoGrad},
  };
  r.add(rows);
}

}  // namespace pg
