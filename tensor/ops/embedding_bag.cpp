// Sums, means and maxima of bags of embeddings.
#include "tensor/ops/index.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

constexpr uint16_t kBags = 1 << int(DType::kInt64);
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

// The number of the bag of each index, from 0 on. Indices that are padding belong to bag `count`, which is dropped.
Var bag_numbers(const Rule& c, const Var& indices, int64_t count) {
  const int64_t length = indices.numel();
  Var bags;
  if (c.in(0).rank() == 2) {
    Value list = make_array(Type{DType::kInt64, {}, {length}});
    for (int64_t i = 0; i < length; ++i) static_cast<int64_t*>(list.array().data())[i] = i / c.in(0).shape()[1];
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

Var zeros_of(const Rule& c, Dims shape) {
  const Type type = {c.in(1).dtype(), c.in(1).value().device(), std::move(shape)};
  return c.wrap(c.context().interpreter->filled(c.context(), type, 0));
}

Var added_up(const Rule& c, const Var& bags, const Var& rows, int64_t count) {
  Dims shape = rows.shape();
  shape[0] = count + 1;
  const Var all = call<"index_add">(zeros_of(c, shape), bags, rows, {{"dim", int64_t(1)}, {"index_base", int64_t(0)}});
  return call<"narrow">(all, {{"dim", int64_t(1)}, {"start", int64_t(1)}, {"length", count}});
}

Var largest(const Rule& c, const Var& bags, const Var& rows, int64_t count) {
  if (rows.shape()[0] == 0) return added_up(c, bags, rows, count);
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
  Var rows = call<"embedding">(indices, c.in(1), {{"index_base", int64_t(0)}});
  if (c.has(3)) rows = rows * reshaped(c.in(3), {indices.numel(), 1});
  if (c.in(0).rank() == 2 && indices.numel() > 0 && !c.has_attr("padding_idx") && mode != "max") {  // bags of one size
    const int64_t size = c.in(0).shape()[1];
    const Var sum = call<"sum">(reshaped(rows, {count, size, rows.shape()[1]}), {{"dim", Ints{2}}});
    return {mode == "sum" ? sum : sum / double(size)};
  }
  const Var bags = bag_numbers(c, indices, count);
  if (mode == "max") return {largest(c, bags, rows, count)};
  const Var sum = added_up(c, bags, rows, count);
  if (mode == "sum") return {sum};
  const Type ones = {rows.dtype(), rows.value().device(), {indices.numel(), 1}};
  const Var sizes = added_up(c, bags, c.wrap(c.context().interpreter->filled(c.context(), ones, 1)), count);
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
      {.name = "bag_numbers",
       .doc = "The number of the bag of each of `length` positions, from 0 on, when bags start at `offsets`.",
       .example = "return 0",
       .inputs = {{"offsets", kIntegral}},
       .attrs = {kLength, kLast, index_base_attr()},
       .infer = infer_bag_numbers,
       .traits = kHidden | kNoGrad},
      {.name = "bag_argmax",
       .doc = "For each bag and column the position of the largest element among the rows of x in that bag; -1 for an "
              "empty bag. Rows whose bag number is out of range do not count.",
       .example = "return 0",
       .inputs = {{"x", uint16_t(1 << int(DType::kFloat32) | 1 << int(DType::kFloat64))}, {"bag", kBags}},
       .attrs = {kCount},
       .infer = infer_bag_argmax,
       .traits = kHidden | kNoGrad},
  };
  r.add(rows);
}

}  // namespace pg
