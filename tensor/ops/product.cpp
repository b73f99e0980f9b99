// Products of tensors other than those of linalg.cpp: over chosen dims, of vectors, and per element.
#include <algorithm>

#include "tensor/ops/all.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/ops/reduce_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

DType promoted(const Infer& c) {
  DType t = c.dtype(0);
  for (size_t i = 1; i < c.count(); ++i) t = promote(t, c.dtype(i));
  return t;
}

// --- tensordot, inner, trace ---

// The dims that tensordot sums over, 0-based: contracted[0] of a with contracted[1] of b.
struct Contraction {
  Dims dims[2];

  Contraction(const AttrReader& c, const Dims& a, const Dims& b) {
    const Ints& first = c.attr<Ints>("dims");
    if (c.has_attr("dims_b")) {
      if (first.size() != c.attr<Ints>("dims_b").size())
        bad_argument(c.op().name, "dims_b", fmt::format("{} dims like dims", first.size()), to_string(c.raw("dims_b")));
      if (!first.empty()) dims[0] = listed(c, "dims", a), dims[1] = listed(c, "dims_b", b);
      return;
    }
    const int64_t most = std::min(a.size(), b.size());
    if (first.size() != 1 || first[0] < 0 || first[0] > most)
      bad_argument(c.op().name, "dims", fmt::format("a count from 0 to {}, or two lists of dims", most),
                   to_string(c.raw("dims")));
    for (int i = 0; i < int(first[0]); ++i) {
      dims[0].push_back(a.size() - first[0] + i);
      dims[1].push_back(i);
    }
  }

  // Returns the dims of `shape` that are not summed over.
  Dims free(int side, const Dims& shape) const {
    Dims out;
    for (int d = 0; d < shape.size(); ++d)
      if (std::find(dims[side].begin(), dims[side].end(), d) == dims[side].end()) out.push_back(d);
    return out;
  }

 private:
  static Dims listed(const AttrReader& c, const char* name, const Dims& shape) {
    if (shape.empty()) bad_argument(c.op().name, name, "no dims of a 0-dim tensor", to_string(c.raw(name)));
    return c.dims(name, shape.size());
  }
};

void infer_tensordot(Infer& c) {
  const Dims &a = c.shape(0), &b = c.shape(1);
  const Contraction over(c, a, b);
  for (int i = 0; i < over.dims[0].size(); ++i) {
    const int64_t n = a[int(over.dims[0][i])], m = b[int(over.dims[1][i])];
    if (n != m && n != 1 && m != 1)
      c.bad_input(1, fmt::format("size {} in dim {} to go with dim {} of a {}", n, over.dims[1][i] + 1,
                                 over.dims[0][i] + 1, to_string(a)));
  }
  const Dims rows = over.free(0, a), columns = over.free(1, b);
  if (rows.size() + columns.size() > kMaxRank) c.bad_input(1, fmt::format("a result of at most {} dims", kMaxRank));
  Dims out;
  for (int64_t d : rows) out.push_back(a[int(d)]);
  for (int64_t d : columns) out.push_back(b[int(d)]);
  c.output(promoted(c), out);
}

// Sums v over those of `dims` that have size 1 in the other operand, which broadcasts there.
Var without_broadcast(const Var& v, const Dims& dims, const Dims& other, const Dims& other_dims) {
  Ints longer;
  for (int i = 0; i < dims.size(); ++i)
    if (other[int(other_dims[i])] == 1 && v.shape()[int(dims[i])] != 1) longer.push_back(user_dim(int(dims[i])));
  return longer.empty() ? v : as_dtype(call<"sum">(v, {{"dim", longer}, {"keepdim", true}}), v.dtype());
}

// Returns v as a matrix whose rows (or columns) are the `kept` dims.
Var as_matrix(const Var& v, const Dims& rows, const Dims& columns) {
  Dims order = rows, shape = {1, 1};
  for (int64_t d : columns) order.push_back(d);
  for (int64_t d : rows) shape[0] = times(shape[0], v.shape()[int(d)]);
  for (int64_t d : columns) shape[1] = times(shape[1], v.shape()[int(d)]);
  return with_shape(order.empty() ? v : call<"permute">(v, {{"dims", user_dims(order)}}), shape);
}

std::vector<Var> decompose_tensordot(Rule& c) {
  const Dims &a = c.input(0).shape(), &b = c.input(1).shape();
  const Contraction over(c, a, b);
  const Var left = without_broadcast(c.in(0), over.dims[0], b, over.dims[1]);
  const Var right = without_broadcast(c.in(1), over.dims[1], a, over.dims[0]);
  const Dims rows = over.free(0, a), columns = over.free(1, b);
  Dims out;
  for (int64_t d : rows) out.push_back(a[int(d)]);
  for (int64_t d : columns) out.push_back(b[int(d)]);
  const Var product = call<"matmul">(as_matrix(left, rows, over.dims[0]), as_matrix(right, over.dims[1], columns));
  return {with_shape(product, out)};
}

void infer_inner(Infer& c) {
  Dims x = c.shape(0), y = c.shape(1);
  if (!x.empty() && !y.empty()) {
    if (x.back() != y.back())
      c.bad_input(1, fmt::format("{} elements in the last dim to go with x {}", x.back(), to_string(x)));
    x.pop_back();
    y.pop_back();
  }
  if (x.size() + y.size() > kMaxRank) c.bad_input(1, fmt::format("a result of at most {} dims", kMaxRank));
  for (int64_t n : y) x.push_back(n);
  c.output(promoted(c), x);
}

std::vector<Var> decompose_inner(Rule& c) {
  const int x = c.input(0).rank(), y = c.input(1).rank();
  if (x == 0 || y == 0) return {c.in(0) * c.in(1)};
  return {call<"tensordot">(c.in(0), c.in(1), {{"dims", Ints{x}}, {"dims_b", Ints{y}}})};
}

void infer_trace(Infer& c) {
  c.require_rank(0, 2);
  c.output(is_float(c.dtype(0)) ? c.dtype(0) : DType::kInt64, {});
}

std::vector<OpDef> contraction_rows() {
  return {
      {.name = "tensordot",
       .doc =
           "The sum of products over dims of a and of b: over the last dims of a and the first of b if `dims` is their "
           "count, else over the listed dims of a with those of b, as in pg.tensordot(a, b, {{1, 3}, {2, 1}}). The "
           "result has the other dims of a, then those of b.",
       .example = "return pg.tensordot(pg.ones(2, 3, 4), pg.ones(4, 3), {{2, 3}, {2, 1}})",
       .inputs = {{"a", kNumeric}, {"b", kNumeric}},
       .attrs = {{"dims", AttrKind::kDims, Ints{2}, "how many dims to sum over, or the dims of a"},
                 {"dims_b", AttrKind::kDims, {}, "the dims of b, as many as dims has", true}},
       .infer = infer_tensordot,
       .decompose = decompose_tensordot},
      {.name = "inner",
       .doc = "The sums of products over the last dims of x and y; the product where one of them is 0-dim.",
       .example = "return pg.inner(pg.tensor({1, 2, 3}), pg.tensor({0, 2, 1}))",
       .inputs = {{"x", kNumeric}, {"y", kNumeric}},
       .infer = infer_inner,
       .decompose = decompose_inner},
      {.name = "trace",
       .doc =
           "The sum of the diagonal of a matrix. Integers and bool give int64. pg.trace of a function instead prints "
           "what the ops in it got and gave.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):trace()",
       .inputs = {{"x"}},
       .infer = infer_trace,
       .decompose = [](Rule& c) -> std::vector<Var> { return {call<"sum">(call<"diagonal">(c.in(0)))}; }},
  };
}

// --- kron, cross, vdot, chain_matmul ---

// The shapes under which the product of two tensors is their Kronecker product: for each dim that of x, then that of
// y. Where one of them is 1 a single dim does for both.
struct KronShapes {
  Dims x, y, out;
  bool fits = true;

  KronShapes(Dims a, Dims b) {
    while (a.size() < b.size()) a.insert(0, 1);
    while (b.size() < a.size()) b.insert(0, 1);
    for (int d = 0; d < a.size(); ++d) {
      const bool joined = a[d] == 1 || b[d] == 1;
      fits = fits && x.size() + (joined ? 1 : 2) <= kMaxRank;
      out.push_back(times(a[d], b[d]));
      if (!fits) continue;
      x.push_back(a[d]);
      if (!joined) x.push_back(1), y.push_back(1);
      y.push_back(b[d]);
    }
  }
};

void infer_kron(Infer& c) {
  const KronShapes shapes(c.shape(0), c.shape(1));
  if (!shapes.fits) c.bad_input(1, fmt::format("fewer dims: both tensors together have at most {}", kMaxRank));
  c.output(promoted(c), shapes.out);
}

std::vector<Var> decompose_kron(Rule& c) {
  const KronShapes shapes(c.input(0).shape(), c.input(1).shape());
  return {with_shape(with_shape(c.in(0), shapes.x) * with_shape(c.in(1), shapes.y), shapes.out)};
}

// Returns the dim of the vectors: `dim`, or the first of size 3.
int cross_dim(const AttrReader& c, const Dims& x) {
  if (c.has_attr("dim")) return c.dim("dim", x.size());
  return int(std::find(x.begin(), x.end(), 3) - x.begin());
}

void infer_cross(Infer& c) {
  const Dims &x = c.shape(0), &y = c.shape(1);
  if (x.empty()) c.bad_input(0, "at least 1 dim");
  if (x.size() != y.size()) c.bad_input(1, fmt::format("{} dims like x", x.size()));
  const int d = cross_dim(c, x);
  if (d == x.size() || x[d] != 3)
    c.bad_input(0, c.has_attr("dim") ? fmt::format("size 3 in dim {}", d + 1) : std::string("a dim of size 3"));
  if (y[d] != 3) c.bad_input(1, fmt::format("size 3 in dim {}", d + 1));
  Dims out;
  if (!broadcast(x, y, &out)) c.bad_input(1, "a shape that broadcasts with " + to_string(x));
  c.output(promoted(c), out);
}

// Element i of x times element i + 2 of y, where y[i + 1] and so on wrap around.
std::vector<Var> decompose_cross(Rule& c) {
  const int d = cross_dim(c, c.input(0).shape());
  const auto rolled = [&](size_t i, int64_t by) {
    return call<"roll">(c.in(i), {{"shifts", Ints{-by}}, {"dims", Ints{user_dim(d)}}});
  };
  return {rolled(0, 1) * rolled(1, 2) - rolled(0, 2) * rolled(1, 1)};
}

void infer_vdot(Infer& c) {
  c.require_rank(0, 1);
  c.require_rank(1, 1);
  if (!(c.shape(0) == c.shape(1))) c.bad_input(1, fmt::format("{} elements like x", c.shape(0)[0]));
  c.output(promoted(c), {});
}

void infer_chain(Infer& c) {
  if (c.count() == 0) bad_argument(c.op().name, "matrices", "at least one tensor", "none");
  for (size_t i = 0; i < c.count(); ++i) {
    c.require_rank(i, 2);
    if (i > 0 && c.shape(i)[0] != c.shape(i - 1)[1])
      c.bad_input(i, fmt::format("{} rows to go with {}", c.shape(i - 1)[1], to_string(c.shape(i - 1))));
  }
  c.output(promoted(c), {c.shape(0)[0], c.shape(c.count() - 1)[1]});
}

// The order of products with the fewest multiplications (Cormen et al., Introduction to Algorithms, 15.2).
class Chain {
 public:
  explicit Chain(Rule& c) : c_(c), n_(c.count()), cost_(n_ * n_, 0), split_(n_ * n_, 0) {
    for (size_t length = 2; length <= n_; ++length)
      for (size_t i = 0; i + length <= n_; ++i) choose(i, i + length - 1);
  }
  Var product(size_t i, size_t j) const {
    if (i == j) return c_.in(i);
    const size_t k = split_[i * n_ + j];
    return call<"matmul">(product(i, k), product(k + 1, j));
  }

 private:
  void choose(size_t i, size_t j) {
    double& best = cost_[i * n_ + j] = 1e300;
    for (size_t k = i; k < j; ++k) {
      const double own = double(rows(i)) * double(rows(k + 1)) * double(c_.input(j).shape()[1]);
      const double cost = cost_[i * n_ + k] + cost_[(k + 1) * n_ + j] + own;
      if (cost >= best) continue;
      best = cost;
      split_[i * n_ + j] = k;
    }
  }
  int64_t rows(size_t i) const { return c_.input(i).shape()[0]; }

  Rule& c_;
  size_t n_;
  std::vector<double> cost_;
  std::vector<size_t> split_;
};

std::vector<OpDef> special_rows() {
  return {
      {.name = "kron",
       .doc =
           "The Kronecker product: blocks of y times each element of x. The tensor with fewer dims gets leading ones.",
       .example = "return pg.kron(pg.eye(2), pg.tensor({{1, 2}, {3, 4}}))",
       .inputs = {{"x"}, {"y"}},
       .infer = infer_kron,
       .decompose = decompose_kron},
      {.name = "cross",
       .doc =
           "The cross product of vectors of 3 elements along `dim`, by default the first dim of size 3. The other dims "
           "broadcast.",
       .example = "return pg.cross(pg.tensor({1, 0, 0}), pg.tensor({0, 1, 0}))",
       .inputs = {{"x", kNumeric}, {"y", kNumeric}},
       .attrs = {{"dim", AttrKind::kDim, {}, "the dim of the vectors", true}},
       .infer = infer_cross,
       .decompose = decompose_cross,
       .traits = kWidens},
      {.name = "vdot",
       .doc = "The sum of products of two vectors.",
       .example = "return pg.vdot(pg.tensor({1, 2}), pg.tensor({3, 4}))",
       .inputs = {{"x", kNumeric}, {"y", kNumeric}},
       .infer = infer_vdot,
       .decompose = [](Rule& c) -> std::vector<Var> { return {call<"matmul">(c.in(0), c.in(1))}; }},
      {.name = "chain_matmul",
       .doc = "The product of matrices, in the order that takes the fewest multiplications.",
       .example = "return pg.chain_matmul(pg.ones(2, 9), pg.ones(9, 9), pg.ones(9, 1))",
       .inputs = {{"matrices", kNumeric, Arity::kList}},
       .infer = infer_chain,
       .decompose = [](Rule& c) -> std::vector<Var> {
         const Var product = Chain(c).product(0, c.count() - 1);
         DType t = product.dtype();
         for (size_t i = 0; i < c.count(); ++i) t = promote(t, c.input(i).dtype());
         return {as_dtype(product, t)};
       },
       .traits = kFunctionOnly},
  };
}

// --- addr, addcmul, addcdiv ---

// Numbers multiply integers only if they are whole.
void check_factor(Infer& c, const char* name, DType t) {
  if (!is_float(t) && !holds(t, c.attr<double>(name))) c.bad_attr(name, "a whole number for integers");
}

void infer_addr(Infer& c) {
  c.require_rank(1, 1);
  c.require_rank(2, 1);
  const Dims out = {c.shape(1)[0], c.shape(2)[0]};
  Dims joined;
  if (!broadcast(c.shape(0), out, &joined) || !(joined == out))
    c.bad_input(0, "a shape that expands to " + to_string(out));
  const DType t = promoted(c);
  check_factor(c, "beta", t);
  check_factor(c, "alpha", t);
  c.output(t, out);
}

// Input i in the dtype of the result, times a factor.
Var scaled(const Rule& c, size_t i, DType result, double factor) {
  const Var v = as_dtype(c.in(i), result);
  return factor == 1 ? v : v * Var(factor);
}

DType joint_dtype(const Rule& c) {
  return promote(c.input(0).dtype(), promote(c.input(1).dtype(), c.input(2).dtype()));
}

std::vector<Var> decompose_addr(Rule& c) {
  const DType t = joint_dtype(c);
  const double beta = c.attr<double>("beta");
  const Var rows = call<"unsqueeze">(scaled(c, 1, t, c.attr<double>("alpha")), {{"dim", int64_t(2)}});
  const Var outer = rows * call<"unsqueeze">(c.in(2), {{"dim", int64_t(1)}});
  return {beta == 0 ? outer : scaled(c, 0, t, beta) + outer};
}

template <bool kQuotient>
void infer_add_term(Infer& c) {
  Dims out = c.shape(0);
  for (size_t i = 1; i < 3; ++i)
    if (const Dims before = out; !broadcast(before, c.shape(i), &out))
      c.bad_input(i, "a shape that broadcasts with " + to_string(before));
  const DType t = kQuotient ? float_result(promoted(c)) : promoted(c);
  check_factor(c, "value", t);
  c.output(t, out);
}

template <bool kQuotient>
std::vector<Var> decompose_add_term(Rule& c) {
  const AttrList value = {{"value", c.raw("value")}};
  return {kQuotient ? call<"add_quotient">(c.in(0), c.in(1), c.in(2), value)
                    : call<"add_product">(c.in(0), c.in(1), c.in(2), value)};
}

Var times_value(const Vjp& c, const Var& v) {
  const double value = c.attr<double>("value");
  return value == 1 ? v : v * value;
}

OpDef term(const char* name, const char* doc, const char* example, double low) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kNumeric}, {"tensor1", kNumeric}, {"tensor2", kNumeric, Arity::kOne, low, 2}},
          .attrs = {{"value", AttrKind::kFloat, 1.0, "factor of the term"}}};
}

OpDef composed(OpDef row, InferFn infer, DecomposeFn decompose) {
  row.infer = infer;
  row.decompose = decompose;
  return row;
}

// The pointwise op that the row decomposes into.
OpDef pointwise(OpDef row, const char* name, Result result, std::vector<GradFn> vjp) {
  row.name = name;
  row.example = nullptr;
  row.result = result;
  row.vjp = std::move(vjp);
  row.vjp_uses = "tensor1 tensor2";
  row.traits = kPointwise | kHidden | kWidens;
  return row;
}

std::vector<OpDef> sum_rows() {
  const OpDef product = term("addcmul", "x + value * tensor1 * tensor2, with broadcasting.",
                             "return pg.addcmul(pg.ones(2), pg.tensor({1, 2}), pg.tensor({3, 4}), {value = 0.5})", -2);
  const OpDef quotient =
      term("addcdiv", "x + value * tensor1 / tensor2, with broadcasting. Integers give float32.",
           "return pg.addcdiv(pg.ones(2), pg.tensor({1, 2}), pg.tensor({4, 4}), {value = 0.5})", 0.5);
  return {
      {.name = "addr",
       .doc = "beta * input + alpha * the outer product of two vectors.",
       .example = "return pg.addr(pg.zeros(2, 3), pg.tensor({1, 2}), pg.tensor({3, 4, 5}))",
       .inputs = {{"input", kNumeric}, {"vec1", kNumeric}, {"vec2", kNumeric}},
       .attrs = {{"beta", AttrKind::kFloat, 1.0, "factor of input; with 0 it is not read"},
                 {"alpha", AttrKind::kFloat, 1.0, "factor of the product"}},
       .infer = infer_addr,
       .decompose = decompose_addr,
       .traits = kWidens},
      composed(product, infer_add_term<false>, decompose_add_term<false>),
      composed(quotient, infer_add_term<true>, decompose_add_term<true>),
      pointwise(product, "add_product", Result::kPromote,
                {[](Vjp& c) { return c.dy(); }, [](Vjp& c) { return times_value(c, c.dy() * c.in(2)); },
                 [](Vjp& c) { return c.dy() * times_value(c, c.in(1)); }}),
      pointwise(quotient, "add_quotient", Result::kFloat,
                {[](Vjp& c) { return c.dy(); }, [](Vjp& c) { return times_value(c, c.dy() / c.in(2)); },
                 [](Vjp& c) { return -c.dy() / c.in(2) * (times_value(c, c.in(1)) / c.in(2)); }}),
  };
}

}  // namespace

void add_product_ops(Registry& r) {
  r.add(contraction_rows());
  r.add(special_rows());
  r.add(sum_rows());
}

}  // namespace pg
