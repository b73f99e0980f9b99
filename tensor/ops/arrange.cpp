// Ops that turn, flatten, align and join tensors, made of those of shape.cpp and join.cpp.
#include <algorithm>

#include "tensor/ops/all.h"
#include "tensor/ops/reduce_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

void same_type(Infer& c) { c.output(c.dtype(0), c.shape(0)); }

// --- flips and turns ---

template <int kDim>
void infer_flip(Infer& c) {
  if (c.rank(0) < kDim) c.bad_input(0, fmt::format("at least {} dim{}", kDim, kDim > 1 ? "s" : ""));
  same_type(c);
}

template <int kDim>
std::vector<Var> decompose_flip(Rule& c) {
  return {call<"flip">(c.in(0), {{"dims", Ints{kDim}}})};
}

// Returns the dims of the plane that rot90 turns.
Dims plane_of(const AttrReader& c, int rank) {
  const Dims plane = c.attr<Ints>("dims").size() == 2 ? c.dims("dims", rank) : Dims();
  if (plane.size() != 2) bad_argument(c.op().name, "dims", "two different dims", to_string(c.raw("dims")));
  return plane;
}

int64_t quarter_turns(const AttrReader& c) { return ((c.attr<int64_t>("k") % 4) + 4) % 4; }

void infer_rot90(Infer& c) {
  if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims");
  const Dims plane = plane_of(c, c.rank(0));
  Dims out = c.shape(0);
  if (quarter_turns(c) % 2) std::swap(out[int(plane[0])], out[int(plane[1])]);
  c.output(c.dtype(0), out);
}

std::vector<Var> decompose_rot90(Rule& c) {
  const Ints plane = user_dims(plane_of(c, c.input(0).rank()));
  const auto flipped = [&](const Ints& dims) { return call<"flip">(c.in(0), {{"dims", dims}}); };
  const int64_t turns = quarter_turns(c);
  if (turns == 0) return {c.in(0)};
  if (turns == 2) return {flipped(plane)};
  return {call<"transpose">(flipped({plane[turns == 1 ? 1 : 0]}), {{"dim0", plane[0]}, {"dim1", plane[1]}})};
}

std::vector<OpDef> turn_rows() {
  return {
      {.name = "fliplr",
       .doc = "x in reverse order along dim 2.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):fliplr()",
       .inputs = {{"x"}},
       .infer = infer_flip<2>,
       .decompose = decompose_flip<2>},
      {.name = "flipud",
       .doc = "x in reverse order along dim 1.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):flipud()",
       .inputs = {{"x"}},
       .infer = infer_flip<1>,
       .decompose = decompose_flip<1>},
      {.name = "rot90",
       .doc = "x turned by k quarters in the plane of two dims, from the first towards the second; a negative k turns "
              "back.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):rot90()",
       .inputs = {{"x"}},
       .attrs = {{"k", AttrKind::kInt, int64_t(1), "how many quarters"},
                 {"dims", AttrKind::kDims, Ints{1, 2}, "the two dims of the plane"}},
       .infer = infer_rot90,
       .decompose = decompose_rot90},
  };
}

// --- number of dims ---

// The shape of x with at least kRank dims, as torch.atleast_3d places them: n is 1 x n x 1, and m x n is m x n x 1.
template <int kRank>
Dims at_least(const Dims& x) {
  Dims out = x;
  if (kRank == 3 && out.size() == 2) out.push_back(1);
  if (kRank == 3 && out.size() == 1) out.push_back(1);
  while (out.size() < kRank) out.insert(0, 1);
  return out;
}

template <int kRank>
OpDef at_least_row(const char* name, const char* doc, const char* example) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x"}},
          .infer = [](Infer& c) { c.output(c.dtype(0), at_least<kRank>(c.shape(0))); },
          .decompose = [](Rule& c) -> std::vector<Var> {
            return {reshaped(c.in(0), at_least<kRank>(c.input(0).shape()))};
          }};
}

std::vector<OpDef> rank_rows() {
  return {
      at_least_row<1>("atleast_1d", "x, or a tensor of one element if x is 0-dim.", "return pg.tensor(5):atleast_1d()"),
      at_least_row<2>("atleast_2d", "x with leading dims of size 1 up to 2 dims.",
                      "return pg.tensor({1, 2}):atleast_2d()"),
      at_least_row<3>(
          "atleast_3d",
          "x with dims of size 1 up to 3 dims: n elements become 1 x n x 1, a matrix m x n becomes m x n x 1.",
          "return pg.tensor({1, 2}):atleast_3d()"),
      {.name = "ravel",
       .doc = "The elements of x in row-major order in one dim. A view where the strides of x allow it.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):ravel()",
       .inputs = {{"x"}},
       .infer = [](Infer& c) { c.output(c.dtype(0), {c.inputs()[0].numel()}); },
       .decompose = [](Rule& c) -> std::vector<Var> { return {reshaped(c.in(0), {c.input(0).numel()})}; }},
  };
}

// --- several tensors ---

void require_some(const Infer& c) {
  if (c.count() == 0) bad_argument(c.op().name, c.op().inputs[0].name, "at least one tensor", "none");
}

Dims joined_shape(std::span<const Value> inputs, size_t* misfit = nullptr) {
  Dims joined;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (const Dims before = joined; !broadcast(before, inputs[i].shape(), &joined)) {
      *misfit = i;
      return before;
    }
  return joined;
}

void infer_broadcast_tensors(Infer& c) {
  require_some(c);
  size_t misfit = c.count();
  const Dims joined = joined_shape(c.inputs(), &misfit);
  if (misfit < c.count()) c.bad_input(misfit, "a shape that broadcasts with " + to_string(joined));
  for (size_t i = 0; i < c.count(); ++i) c.output(c.dtype(i), joined);
}

std::vector<Var> decompose_broadcast_tensors(Rule& c) {
  std::vector<Value> inputs;
  for (size_t i = 0; i < c.count(); ++i) inputs.push_back(c.input(i));
  const Ints shape = ints(joined_shape(inputs));
  std::vector<Var> out;
  for (size_t i = 0; i < c.count(); ++i) out.push_back(call<"expand">(c.in(i), {{"shape", shape}}));
  return out;
}

// Returns the dim of the grid that input i of meshgrid varies along.
int grid_dim(const AttrReader& c, size_t i, size_t count) {
  const bool swapped = c.attr<std::string>("indexing") == "xy" && count > 1 && i < 2;
  return int(swapped ? 1 - i : i);
}

template <class Source>
Dims grid_shape(const Source& c, std::span<const Value> inputs) {
  Dims out(int(inputs.size()), 1);
  for (size_t i = 0; i < inputs.size(); ++i) out[grid_dim(c, i, inputs.size())] = inputs[i].numel();
  return out;
}

void infer_meshgrid(Infer& c) {
  require_some(c);
  if (c.count() > size_t(kMaxRank)) c.bad_input(0, fmt::format("at most {} tensors", kMaxRank));
  for (size_t i = 0; i < c.count(); ++i)
    if (c.rank(i) > 1) c.bad_input(i, "0 or 1 dims");
  const Dims shape = grid_shape(c, c.inputs());
  for (size_t i = 0; i < c.count(); ++i) c.output(c.dtype(i), shape);
}

std::vector<Var> decompose_meshgrid(Rule& c) {
  std::vector<Value> inputs;
  for (size_t i = 0; i < c.count(); ++i) inputs.push_back(c.input(i));
  const Dims shape = grid_shape(c, inputs);
  std::vector<Var> out;
  for (size_t i = 0; i < c.count(); ++i) {
    Dims line(shape.size(), 1);
    line[grid_dim(c, i, c.count())] = c.input(i).numel();
    out.push_back(call<"expand">(reshaped(c.in(i), line), {{"shape", ints(shape)}}));
  }
  return out;
}

void infer_block_diag(Infer& c) {
  require_some(c);
  DType t = c.dtype(0);
  Dims out = {0, 0};
  for (size_t i = 0; i < c.count(); ++i) {
    if (c.rank(i) > 2) c.bad_input(i, "at most 2 dims");
    const Dims block = at_least<2>(c.shape(i));
    for (int d = 0; d < 2; ++d) out[d] = plus(out[d], block[d]);
    t = promote(t, c.dtype(i));
  }
  c.output(t, out);
}

// Every block becomes rows of the whole width.
std::vector<Var> decompose_block_diag(Rule& c) {
  int64_t width = 0, at = 0;
  for (size_t i = 0; i < c.count(); ++i) width += at_least<2>(c.input(i).shape())[1];
  std::vector<Var> rows;
  for (size_t i = 0; i < c.count(); ++i) {
    const Var block = reshaped(c.in(i), at_least<2>(c.input(i).shape()));
    const int64_t own = block.shape()[1];
    rows.push_back(call<"pad">(block, {{"pad", Ints{at, width - at - own}}}));
    at += own;
  }
  return {call_list<"cat">(rows)};
}

std::vector<OpDef> list_rows() {
  return {
      {.name = "broadcast_tensors",
       .doc = "The tensors expanded to the shape that they broadcast to. An array table.",
       .example = "return pg.broadcast_tensors(pg.ones(2, 1), pg.ones(3))",
       .inputs = {{"tensors", kAnyDType, Arity::kList}},
       .outputs = {"expanded"},
       .infer = infer_broadcast_tensors,
       .decompose = decompose_broadcast_tensors,
       .traits = kFunctionOnly | kListOutput},
      {.name = "meshgrid",
       .doc =
           "The coordinates of the points of a grid: for each tensor of 0 or 1 dims one of the shape of the grid, with "
           "its elements along its own dim. With indexing \"xy\" the first two dims are exchanged. An array table.",
       .example = "return pg.meshgrid(pg.tensor({1, 2}), pg.tensor({3, 4, 5}))",
       .inputs = {{"tensors", kAnyDType, Arity::kList}},
       .attrs = {{.name = "indexing",
                  .kind = AttrKind::kString,
                  .fallback = std::string("ij"),
                  .doc = "the order of the dims: that of the tensors, or the second tensor first",
                  .choices = {"ij", "xy"}}},
       .outputs = {"grids"},
       .infer = infer_meshgrid,
       .decompose = decompose_meshgrid,
       .traits = kFunctionOnly | kListOutput},
      {.name = "block_diag",
       .doc =
           "A matrix with the tensors, of at most 2 dims, as blocks on its diagonal and zeros elsewhere. Vectors are "
           "rows. dtypes promote.",
       .example = "return pg.block_diag(pg.ones(2, 2), pg.tensor({3, 4}))",
       .inputs = {{"tensors", kAnyDType, Arity::kList}},
       .infer = infer_block_diag,
       .decompose = decompose_block_diag,
       .traits = kFunctionOnly},
  };
}

// --- diff ---

// Input i, 1 or 2, goes before or after x.
void check_end(Infer& c, size_t i, int d) {
  if (!c.has(i)) return;
  Dims fits = c.rank(i) == c.rank(0) ? c.shape(i) : Dims();
  if (!fits.empty()) fits[d] = c.shape(0)[d];
  if (!(fits == c.shape(0)))
    c.bad_input(i, fmt::format("the sizes of x {} but for dim {}", to_string(c.shape(0)), d + 1));
}

void infer_diff(Infer& c) {
  if (c.rank(0) == 0) c.bad_input(0, "at least 1 dim");
  const int d = c.dim("dim", c.rank(0));
  const int64_t n = c.attr<int64_t>("n");
  DType t = c.dtype(0);
  Dims out = c.shape(0);
  for (size_t i = 1; i < 3; ++i) {
    check_end(c, i, d);
    if (!c.has(i) || n == 0) continue;
    out[d] = plus(out[d], c.shape(i)[d]);
    t = promote(t, c.dtype(i));
  }
  out[d] = std::max<int64_t>(0, out[d] - n);
  c.output(t, out);
}

std::vector<Var> decompose_diff(Rule& c) {
  const int d = c.dim("dim", c.input(0).rank());
  const int64_t n = c.attr<int64_t>("n");
  if (n == 0) return {c.in(0)};
  std::vector<Var> parts;
  for (size_t i : {size_t(1), size_t(0), size_t(2)})
    if (c.has(i)) parts.push_back(c.in(i));
  Var x = parts.size() == 1 ? parts[0] : call_list<"cat">(parts, {{"dim", user_dim(d)}});
  for (int64_t k = std::min(n, x.shape()[d]); k > 0; --k) {
    const int64_t left = x.shape()[d] - 1;
    const auto part = [&](int64_t start) {
      return call<"narrow">(x, {{"dim", user_dim(d)}, {"start", start}, {"length", left}});
    };
    x = x.dtype() == DType::kBool ? call<"logical_xor">(part(2), part(1)) : part(2) - part(1);
  }
  return {x};
}

std::vector<OpDef> diff_rows() {
  return {
      {.name = "diff",
       .doc =
           "The differences of neighbors along `dim`, n times, after joining `prepend` and `append` to x. Of bools it "
           "is whether they differ.",
       .example = "return pg.tensor({1, 4, 9, 16}):diff()",
       .inputs = {{"x"}, {"prepend", kAnyDType, Arity::kOptional}, {"append", kAnyDType, Arity::kOptional}},
       .attrs = {{"n", AttrKind::kInt, int64_t(1), "how often", false, 0},
                 {"dim", AttrKind::kDim, int64_t(-1), "the dim of the neighbors"}},
       .signature = "x n dim prepend append",
       .infer = infer_diff,
       .decompose = decompose_diff,
       .traits = kWidens},
  };
}

}  // namespace

void add_arrange_ops(Registry& r) {
  r.add(turn_rows());
  r.add(rank_rows());
  r.add(list_rows());
  r.add(diff_rows());
}

}  // namespace pg
