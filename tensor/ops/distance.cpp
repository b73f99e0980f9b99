// Normalization by norms, and distances and similarities of vectors. Gradients at 0 are PyTorch's.
#include <cmath>
#include <limits>

#include "tensor/ops/all.h"
#include "tensor/ops/reduce_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

AttrDef order_attr(double fallback, double low) {
  return {"p",      AttrKind::kFloat,
          fallback, "the order of the norm; math.huge is the largest difference or element",
          false,    low,
          kInf};
}
AttrDef eps_attr(double fallback, const char* doc) { return {"eps", AttrKind::kFloat, fallback, doc, false, 0, 1e300}; }

Var norm_of(const Var& x, double p, const Ints& dims, bool keepdim = true) {
  return call<"norm">(x, {{"p", p}, {"dim", dims}, {"keepdim", keepdim}});
}

// Checks p. An infinite norm of no elements does not exist.
void check_order(Infer& c, const Dims& shape, const Dims& dims) {
  const double p = c.attr<double>("p");
  if (std::isnan(p)) c.bad_attr("p", "a number");
  if (!std::isinf(p)) return;
  for (int64_t d : dims)
    if (shape[int(d)] == 0) c.bad_input(0, "at least one element in each norm");
}

// --- normalize and renorm ---

void infer_normalize(Infer& c) {
  check_order(c, c.shape(0), c.rank(0) ? c.dims("dim", c.rank(0)) : Dims());
  c.output(c.dtype(0), c.shape(0));
}

std::vector<Var> decompose_normalize(Rule& c) {
  const Var x = c.in(0);
  const Ints dims = user_dims(x.rank() ? c.dims("dim", x.rank()) : Dims());
  return {x / call<"clamp">(norm_of(x, c.attr<double>("p"), dims), Var(c.attr<double>("eps")))};
}

Dims all_but(int d, int rank) {
  Dims dims;
  for (int i = 0; i < rank; ++i)
    if (i != d) dims.push_back(i);
  return dims;
}

void infer_renorm(Infer& c) {
  const int rank = c.rank(0);
  if (rank < 2) c.bad_input(0, "at least 2 dims");
  if (c.attr<double>("p") == 0) c.bad_attr("p", "a positive number");
  check_order(c, c.shape(0), all_but(c.dim("dim", rank), rank));
  c.output(c.dtype(0), c.shape(0));
}

// Slices that are longer than maxnorm become maxnorm long.
std::vector<Var> decompose_renorm(Rule& c) {
  const Var x = c.in(0);
  const double most = c.attr<double>("maxnorm");
  const Var norm = norm_of(x, c.attr<double>("p"), user_dims(all_but(c.dim("dim", x.rank()), x.rank())));
  return {x * call<"where">(call<"gt">(norm, Var(most)), Var(most) / (norm + Var(1e-7)), Var(1.0))};
}

// --- cosine_similarity and pairwise_distance ---

Dims joined_shape(Infer& c) {
  Dims out;
  if (!broadcast(c.shape(0), c.shape(1), &out)) c.bad_input(1, "a shape that broadcasts with " + to_string(c.shape(0)));
  if (out.empty()) c.bad_input(0, "at least 1 dim in one of the tensors");
  return out;
}

void infer_cosine(Infer& c) {
  Dims out = joined_shape(c);
  out.erase(c.dim("dim", out.size()));
  c.output(promote(c.dtype(0), c.dtype(1)), out);
}

// x / max(|x|, eps). The gradient of the norm does not see the bound.
Var unit(const Var& x, const Dims& shape, const Ints& dim, double eps) {
  const Var full = call<"expand">(x, {{"shape", ints(shape)}});
  const Var norm = norm_of(full, 2, dim);
  const Var missing = call<"where">(call<"lt">(norm, Var(eps)), Var(eps) - norm, Var(0.0));
  return full / (norm + call<"detach">(missing));
}

std::vector<Var> decompose_cosine(Rule& c) {
  Dims shape;
  broadcast(c.input(0).shape(), c.input(1).shape(), &shape);
  const Ints dim = {user_dim(c.dim("dim", shape.size()))};
  const double eps = c.attr<double>("eps");
  const DType t = promote(c.input(0).dtype(), c.input(1).dtype());
  const Var product = unit(as_dtype(c.in(0), t), shape, dim, eps) * unit(as_dtype(c.in(1), t), shape, dim, eps);
  return {call<"sum">(product, {{"dim", dim}})};
}

void infer_pairwise(Infer& c) {
  Dims out = joined_shape(c);
  check_order(c, out, {out.size() - 1});
  if (c.attr<bool>("keepdim"))
    out[out.size() - 1] = 1;
  else
    out.pop_back();
  c.output(promote(c.dtype(0), c.dtype(1)), out);
}

std::vector<Var> decompose_pairwise(Rule& c) {
  const Var d = c.in(0) - c.in(1) + Var(c.attr<double>("eps"));
  return {norm_of(d, c.attr<double>("p"), {-1}, c.attr<bool>("keepdim"))};
}

// --- cdist ---

Dims batch_of(const Dims& shape) {
  Dims out = shape;
  out.pop_back();
  out.pop_back();
  return out;
}

void infer_cdist(Infer& c) {
  for (size_t i = 0; i < 2; ++i)
    if (c.rank(i) < 2) c.bad_input(i, "at least 2 dims");
  const Dims &x = c.shape(0), &y = c.shape(1);
  if (x.back() != y.back()) c.bad_input(1, fmt::format("rows of {} elements to go with x {}", x.back(), to_string(x)));
  Dims out;
  if (!broadcast(batch_of(x), batch_of(y), &out)) c.bad_input(1, "leading dims that broadcast with " + to_string(x));
  if (out.size() + 2 > kMaxRank) c.bad_input(0, fmt::format("at most {} dims", kMaxRank));
  check_order(c, {x.back()}, {0});
  out.push_back(x[x.size() - 2]);
  out.push_back(y[y.size() - 2]);
  c.output(promote(c.dtype(0), c.dtype(1)), out);
}

// v as batches x rows x elements.
Var as_batches(const Var& v, const Dims& batch, DType t) {
  const int rank = v.rank();
  Dims wide = batch, flat = {1};
  for (int64_t n : batch) flat[0] = times(flat[0], n);
  for (int d = rank - 2; d < rank; ++d) {
    wide.push_back(v.shape()[d]);
    flat.push_back(v.shape()[d]);
  }
  return reshaped(call<"expand">(as_dtype(v, t), {{"shape", ints(wide)}}), flat);
}

std::vector<Var> decompose_cdist(Rule& c) {
  const Dims &x = c.input(0).shape(), &y = c.input(1).shape();
  Dims out;
  broadcast(batch_of(x), batch_of(y), &out);
  const DType t = promote(c.input(0).dtype(), c.input(1).dtype());
  const Var d = call<"row_distances">(as_batches(c.in(0), out, t), as_batches(c.in(1), out, t), {{"p", c.raw("p")}});
  out.push_back(x[x.size() - 2]);
  out.push_back(y[y.size() - 2]);
  return {reshaped(d, out)};
}

void check_rows(const Infer& c, size_t x, size_t y) {
  bool fits = c.rank(x) == 3 && c.rank(y) == 3 && c.dtype(x) == c.dtype(y);
  fits = fits && c.shape(x)[0] == c.shape(y)[0] && c.shape(x)[2] == c.shape(y)[2];
  if (!fits) c.bad_input(y, "as many batches of rows as " + to_string(c.shape(x)));
}

void infer_row_distances(Infer& c) {
  check_rows(c, 0, 1);
  c.output(c.dtype(0), {c.shape(0)[0], c.shape(0)[1], c.shape(1)[1]});
}

Var swap_rows(const Var& v) { return call<"transpose">(v, {{"dim0", int64_t(2)}, {"dim1", int64_t(3)}}); }

Var grad_left_rows(Vjp& c) {
  return call<"row_distances_backward">({c.dy(), c.in(0), c.in(1), c.out()}, {{"p", c.raw("p")}});
}
Var grad_right_rows(Vjp& c) {
  return call<"row_distances_backward">({swap_rows(c.dy()), c.in(1), c.in(0), swap_rows(c.out())}, {{"p", c.raw("p")}});
}

// Inputs: dy, x, y, out.
void infer_row_distances_backward(Infer& c) {
  check_rows(c, 1, 2);
  const Dims pairs = {c.shape(1)[0], c.shape(1)[1], c.shape(2)[1]};
  for (size_t i : {size_t(0), size_t(3)})
    if (!(c.shape(i) == pairs) || c.dtype(i) != c.dtype(1)) c.bad_input(i, "the distances " + to_string(pairs));
  c.output(c.dtype(1), c.shape(1));
}

// The derivative of one distance by a difference d of elements: sign(d) (|d| / distance)^(p-1), and 0 at 0.
Var slope(const Var& d, const Var& distance, double p) {
  if (p == 0) return call<"zeros_like">(d);
  if (p == 1) return call<"sign">(d);
  if (std::isinf(p)) return call<"where">(call<"eq">(call<"abs">(d), distance), call<"sign">(d), Var(0.0));
  const Var same = call<"eq">(distance, Var(0.0)), safe = call<"where">(same, Var(1.0), distance);
  if (p == 2) return call<"where">(same, Var(0.0), d / safe);
  const Var zero = call<"eq">(d, Var(0.0)), share = call<"where">(zero, Var(1.0), call<"abs">(d)) / safe;
  return call<"where">(call<"logical_or">(zero, same), Var(0.0), call<"sign">(d) * call<"pow">(share, Var(p - 1)));
}

// For higher derivatives. Makes all differences at once.
std::vector<Var> decompose_row_distances_backward(Rule& c) {
  const auto inserted = [](const Var& v, int64_t dim) { return call<"unsqueeze">(v, {{"dim", dim}}); };
  const Var d = inserted(c.in(1), 3) - inserted(c.in(2), 2);
  const Var each = inserted(c.in(0), 4) * slope(d, inserted(c.in(3), 4), c.attr<double>("p"));
  return {call<"sum">(each, {{"dim", Ints{3}}})};
}

std::vector<OpDef> norm_rows() {
  return {
      {.name = "normalize",
       .doc =
           "x over its p-norm along `dim`, or over eps where the norm is less. The gradient at a zero vector is that "
           "of x / eps.",
       .example = "return pg.tensor({{3, 4}, {0, 2}}):normalize()",
       .inputs = {{"x", kFloating, Arity::kOne, 0.3, 2}},
       .attrs = {order_attr(2, -kInf),
                 {"dim", AttrKind::kDims, Ints{2}, "the dims of the norm"},
                 eps_attr(1e-12, "the least divisor")},
       .infer = infer_normalize,
       .decompose = decompose_normalize,
       .traits = kWidens},
      {.name = "renorm",
       .doc = "x with those of its slices at the positions of `dim` scaled down to the p-norm maxnorm whose norm is "
              "larger.",
       .example = "return pg.tensor({{3, 4}, {0, 2}}):renorm(2, 1, 2.5)",
       .inputs = {{"x", kFloating}},
       .attrs = {{"p", AttrKind::kFloat, {}, "the order of the norm, above 0", false, 0, kInf},
                 {"dim", AttrKind::kDim, {}, "the dim whose positions are the slices"},
                 {"maxnorm", AttrKind::kFloat, {}, "the largest norm", false, 0, 1e300}},
       .infer = infer_renorm,
       .decompose = decompose_renorm,
       .traits = kWidens},
  };
}

std::vector<OpDef> distance_rows() {
  return {
      {.name = "cosine_similarity",
       .doc = "The cosine of the angle between x1 and x2 along `dim`, with broadcasting: the sum of products of x1 and "
              "x2 over their norms, each at least eps.",
       .example = "return pg.cosine_similarity(pg.tensor({{1, 0}, {1, 1}}), pg.tensor({{1, 1}, {1, 1}}))",
       .inputs = {{"x1", kFloating}, {"x2", kFloating}},
       .attrs = {{"dim", AttrKind::kDim, int64_t(2), "the dim of the vectors, after broadcasting"},
                 eps_attr(1e-8, "the least norm")},
       .infer = infer_cosine,
       .decompose = decompose_cosine,
       .traits = kWidens},
      {.name = "pairwise_distance",
       .doc = "The p-norm of x1 - x2 + eps along the last dim, with broadcasting.",
       .example = "return pg.pairwise_distance(pg.tensor({{1, 2}, {3, 4}}), pg.tensor({{1, 2}, {0, 0}}))",
       .inputs = {{"x1", kFloating}, {"x2", kFloating}},
       .attrs = {order_attr(2, -kInf),
                 eps_attr(1e-6, "added to each difference"),
                 {"keepdim", AttrKind::kBool, false, "keep the last dim with size 1"}},
       .infer = infer_pairwise,
       .decompose = decompose_pairwise,
       .traits = kWidens},
      {.name = "cdist",
       .doc =
           "The p-norm distance of each row of x1 (… x P x M) from each row of x2 (… x R x M): … x P x R; leading dims "
           "broadcast. Distances are sums over differences, so near points keep their digits. The gradient at "
           "distance 0 is 0.",
       .example = "return pg.cdist(pg.tensor({{0, 0}, {3, 4}}), pg.tensor({{0, 0}, {0, 4}}))",
       .inputs = {{"x1", kFloating}, {"x2", kFloating}},
       .attrs = {order_attr(2, 0)},
       .infer = infer_cdist,
       .decompose = decompose_cdist,
       .traits = kWidens},
      {.name = "row_distances",
       .doc = "cdist of one batch dim.",
       .inputs = {{"x", kFloating}, {"y", kFloating}},
       .attrs = {order_attr(2, 0)},
       .infer = infer_row_distances,
       .vjp = {grad_left_rows, grad_right_rows},
       .vjp_uses = "x y out",
       .traits = kHidden},
      {.name = "row_distances_backward",
       .doc = "The derivative of row_distances for x.",
       .inputs = {{"dy", kFloating}, {"x", kFloating}, {"y", kFloating}, {"out", kFloating}},
       .attrs = {order_attr(2, 0)},
       .infer = infer_row_distances_backward,
       .decompose = decompose_row_distances_backward,
       .traits = kHidden},
  };
}

}  // namespace

void add_distance_ops(Registry& r) {
  r.add(norm_rows());
  r.add(distance_rows());
}

}  // namespace pg
