// Joining tensors along a dim that the name says, and splitting a dim.
#include "tensor/ops/all.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

// How an op sees its tensors: with at least so many dims, and joined along dim `dim` (0-based).
struct Joining {
  int rank, dim;
};

// hstack joins lines along their only dim, and others along dim 2.
Joining joining_h(int rank) { return {1, rank < 2 ? 0 : 1}; }
Joining joining_v(int) { return {2, 0}; }
Joining joining_d(int) { return {3, 2}; }
using JoiningFn = Joining (*)(int rank);

// A line is a row of a matrix; a matrix is the only layer of 3 dims.
Dims raised(const Dims& shape, int rank) {
  Dims out = shape;
  if (out.empty()) out.push_back(1);
  if (out.size() < rank && out.size() == 1) out.insert(0, 1);
  while (out.size() < rank) out.push_back(1);
  return out;
}

template <JoiningFn joining_of>
void infer_joined(Infer& c) {
  if (c.count() == 0) bad_argument(c.op().name, "tensors", "at least one tensor", "none");
  const Joining how = joining_of(c.rank(0));
  Dims out = raised(c.shape(0), how.rank);
  DType dtype = c.dtype(0);
  for (size_t i = 1; i < c.count(); ++i) {
    Dims shape = raised(c.shape(i), how.rank);
    dtype = promote(dtype, c.dtype(i));
    if (shape.size() != out.size()) c.bad_input(i, fmt::format("as many dims as the first, {}", to_string(c.shape(0))));
    const int64_t size = shape[how.dim];
    shape[how.dim] = out[how.dim];
    if (!(shape == out))
      c.bad_input(i, fmt::format("sizes like the first but for dim {}, {}", how.dim + 1, to_string(c.shape(0))));
    out[how.dim] = plus(out[how.dim], size);
  }
  c.output(dtype, out);
}

template <JoiningFn joining_of>
std::vector<Var> decompose_joined(Rule& c) {
  const Joining how = joining_of(c.input(0).rank());
  std::vector<Var> parts;
  for (size_t i = 0; i < c.count(); ++i) parts.push_back(reshaped(c.in(i), raised(c.input(i).shape(), how.rank)));
  return {call_list<"cat">(parts, {{"dim", user_dim(how.dim)}})};
}

template <JoiningFn joining_of>
OpDef joined(const char* name, const char* doc, const char* example, std::vector<Alias> aliases = {}) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .aliases = std::move(aliases),
          .inputs = {{"tensors", kAnyDType, Arity::kList}},
          .infer = infer_joined<joining_of>,
          .decompose = decompose_joined<joining_of>};
}

// The sizes of unflatten in place of dim `d` of x, with -1 computed.
Dims unflattened(const AttrReader& c, const Dims& x) {
  const char* op = c.op().name;
  if (x.empty()) bad_argument(op, "x", "at least 1 dim", "0 dims");
  const int d = c.dim("dim", x.size());
  const Ints& sizes = c.attr<Ints>("sizes");
  int64_t product = 1;
  int computed = 0;
  for (int64_t n : sizes) {
    if (n < -1 || (n == -1 && computed++))
      bad_argument(op, "sizes", "sizes and at most one -1", to_string(c.raw("sizes")));
    if (n != -1) product = times(product, n);
  }
  const bool fits = computed ? product > 0 && x[d] % product == 0 : product == x[d];
  if (sizes.empty() || !fits)
    bad_argument(op, "sizes", fmt::format("sizes with the product {}, that of dim {}", x[d], d + 1),
                 to_string(c.raw("sizes")));
  Dims out = x;
  out.erase(d);
  for (size_t i = 0; i < sizes.size(); ++i) out.insert(d + int(i), sizes[i] == -1 ? x[d] / product : sizes[i]);
  return out;
}

}  // namespace

void add_stack_ops(Registry& r) {
  static const OpDef kRows[] = {
      joined<joining_h>("hstack",
                        "The tensors beside each other: joined along dim 2, or along their only dim; 0-dim tensors "
                        "count as lines of one. dtypes promote.",
                        "return pg.hstack{pg.tensor({1, 2}), pg.tensor({3})}"),
      joined<joining_v>("vstack",
                        "The tensors below each other: joined along dim 1; tensors of fewer than 2 dims count as rows. "
                        "dtypes promote.",
                        "return pg.vstack{pg.tensor({1, 2}), pg.tensor({3, 4})}", {"row_stack"}),
      joined<joining_d>("dstack",
                        "The tensors behind each other: joined along dim 3; lines count as rows, and matrices of shape "
                        "(m, n) as (m, n, 1). dtypes promote.",
                        "return pg.dstack{pg.tensor({1, 2}), pg.tensor({3, 4})}"),
      {.name = "unflatten",
       .doc = "x with dim `dim` split into dims of the given sizes, one of which may be -1 and is computed.",
       .example = "return pg.range(1, 6):unflatten(1, {2, -1})",
       .inputs = {{"x"}},
       .attrs = {{"dim", AttrKind::kDim, {}, "the dim to split"}, {"sizes", AttrKind::kInts, {}, "what it becomes"}},
       .infer = [](Infer& c) { c.output(c.dtype(0), unflattened(c, c.shape(0))); },
       .decompose = [](Rule& c) { return std::vector<Var>{reshaped(c.in(0), unflattened(c, c.input(0).shape()))}; }},
  };
  r.add(kRows);
}

}  // namespace pg
