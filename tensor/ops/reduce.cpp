// Reductions over dims: sums, products, extremes, moments, norms.
#include <cmath>
#include <limits>

#include "tensor/ops/all.h"
#include "tensor/ops/like.h"
#include "tensor/ops/reduce_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

DType sum_dtype(DType t) { return is_float(t) ? t : DType::kInt64; }

void infer_sum(Infer& c) { c.output(sum_dtype(c.dtype(0)), reduced_shape(c)); }
void infer_mean(Infer& c) { c.output(float_result(c.dtype(0)), reduced_shape(c)); }
void infer_same(Infer& c) { c.output(c.dtype(0), reduced_shape(c)); }
void infer_bool(Infer& c) { c.output(DType::kBool, reduced_shape(c)); }
void infer_count(Infer& c) { c.output(DType::kInt64, reduced_shape(c)); }

void infer_extreme(Infer& c) {
  require_elements(c);
  infer_same(c);
}

void infer_extreme_index(Infer& c) {
  require_elements(c);
  c.output(DType::kInt64, reduced_shape(c));
}

// Elements equal to the extreme share the gradient evenly. None is equal to NaN: then all gradients are NaN, as in
// PyTorch.
Var vjp_shared_extreme(Vjp& c) {
  const Var tied = call<"eq">(c.in(0), restore_dims(c, c.out(), 0));
  const Var count = call<"sum">(tied, {{"dim", c.raw("dim")}, {"keepdim", true}});
  return call<"where">(tied, restore_dims(c, c.dy(), 0) / count, zero_or_nan(count, c.in(0).dtype()));
}

Var vjp_prod(Vjp& c) {
  const Var x = c.in(0);
  if (x.rank() == 0) return c.dy();
  // Moves the reduced dims to the end and merges them, so that the products of all other elements are two scans. Those
  // of 16-bit floats are kept in float32, whose range they may need.
  const Dims dims = reduced_dims(c, x.rank());
  Dims order, back(x.rank(), 0);
  for (int d = 0; d < x.rank(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  for (int d = 0; d < x.rank(); ++d)
    if (std::find(dims.begin(), dims.end(), d) != dims.end()) order.push_back(d);
  for (int i = 0; i < x.rank(); ++i) back[int(order[i])] = i;
  const Var moved = call<"permute">(x, {{"dims", user_dims(order)}});
  const int kept = x.rank() - dims.size();
  Dims flat_shape(1, int64_t(reduced_count(c, x.shape())));
  for (int d = kept - 1; d >= 0; --d) flat_shape.insert(0, moved.shape()[d]);
  const Var flat = as_dtype(reshaped(moved, flat_shape), stat_dtype(x.dtype()));
  const Var before = shifted(call<"cumprod">(flat, {{"dim", user_dim(kept)}}), kept, 1, 1);
  const Var after = shifted(call<"cumprod">(flat, {{"dim", user_dim(kept)}, {"reverse", true}}), kept, -1, 1);
  const Var others = call<"permute">(reshaped(before * after, moved.shape()), {{"dims", user_dims(back)}});
  return as_dtype(restore_dims(c, c.dy(), 0) * others, x.dtype());
}

std::vector<Var> decompose_var(Rule& c) {
  const Var x = c.in(0);
  const AttrValue dim = c.raw("dim");
  const double n = reduced_count(c, x.shape()), left = n - c.attr<double>("correction");
  const Var d = x - call<"mean">(x, {{"dim", dim}, {"keepdim", true}});
  const Var squares = call<"sum_squares">(d, {{"dim", dim}, {"keepdim", c.raw("keepdim")}});
  return {squares / Var(left > 0 ? left : 0.0)};
}

// x minus its mean. The mean of the differences is subtracted too, since the mean of large numbers is not exact.
Var centered(const Vjp& c) {
  const AttrList over = {{"dim", c.raw("dim")}, {"keepdim", true}};
  const Var d = c.in(0) - call<"mean">(c.in(0), over);
  return d - call<"mean">(d, over);
}

Var vjp_var(Vjp& c) {
  const Var x = c.in(0);
  const double left = reduced_count(c, x.shape()) - c.attr<double>("correction");
  const Var scale = restore_dims(c, c.dy() * Var(2.0 / (left > 0 ? left : 0.0)), 0);
  return scale * centered(c);
}

std::vector<Var> decompose_std(Rule& c) { return {call<"sqrt">(call_like<"var">(c, {c.in(0)}))}; }

// 0 where the deviation is 0, as in PyTorch.
Var vjp_std(Vjp& c) {
  const Var x = c.in(0), s = c.out();
  const double left = reduced_count(c, x.shape()) - c.attr<double>("correction");
  const Var flat = call<"eq">(s, Var(0.0));
  const Var scale = call<"where">(flat, Var(0.0), c.dy() / (call<"where">(flat, Var(1.0), s) * Var(left)));
  return restore_dims(c, scale, 0) * centered(c);
}

void infer_norm(Infer& c) {
  const double p = c.attr<double>("p");
  if (std::isnan(p)) c.bad_attr("p", "a number");
  if (std::isinf(p)) require_elements(c);
  c.output(float_result(c.dtype(0)), reduced_shape(c));
}

std::vector<Var> decompose_norm(Rule& c) {
  const Var x = c.in(0);
  const double p = c.attr<double>("p");
  const AttrValue dim = c.raw("dim"), keep = c.raw("keepdim");
  const DType t = float_result(x.dtype());
  const auto total = [&](const Var& v) { return call<"sum">(v, {{"dim", dim}, {"keepdim", keep}}); };
  if (p == 2) return {call<"sqrt">(call<"sum_squares">(as_dtype(x, t), {{"dim", dim}, {"keepdim", keep}}))};
  if (p == 0) return {total(as_dtype(call<"ne">(x, Var(0.0)), t))};
  const Var size = call<"abs">(as_dtype(x, t));
  if (p == 1) return {total(size)};
  if (p == std::numeric_limits<double>::infinity()) return {call<"amax">(size, {{"dim", dim}, {"keepdim", keep}})};
  if (p == -std::numeric_limits<double>::infinity()) return {call<"amin">(size, {{"dim", dim}, {"keepdim", keep}})};
  return {call<"pow">(total(call<"pow">(size, Var(p))), Var(1 / p))};
}

Var vjp_norm(Vjp& c) {
  const Var x = c.in(0);
  const double p = c.attr<double>("p");
  const Var dy = restore_dims(c, c.dy(), 0);
  if (p == 0) return call<"zeros_like">(x);
  if (p == 1) return dy * call<"sign">(x);
  const Var out = restore_dims(c, c.out(), 0);
  if (std::isinf(p)) {
    const Var size = call<"abs">(x), tied = call<"eq">(size, out);
    const Var count = call<"sum">(tied, {{"dim", c.raw("dim")}, {"keepdim", true}});
    return call<"where">(tied, call<"sign">(x) * dy / count, Var(0.0));
  }
  // x |x|^(p-2) / out^(p-1), and 0 where x or out is 0.
  const Var zero = call<"eq">(out, Var(0.0)), safe = call<"where">(zero, Var(1.0), out);
  const Var unit = x / safe;
  if (p == 2) return call<"where">(zero, Var(0.0), dy * unit);
  Var size = call<"abs">(unit);
  if (p < 2) size = call<"where">(call<"eq">(unit, Var(0.0)), Var(1.0), size);  // the power is infinite at 0
  const Var slope = call<"sign">(unit) * call<"pow">(size, Var(p - 1));
  return call<"where">(zero, Var(0.0), dy * slope);
}

void infer_float_reduction(Infer& c) { c.output(float_result(c.dtype(0)), reduced_shape(c)); }

std::vector<Var> decompose_logsumexp(Rule& c) {
  const Var x = as_dtype(c.in(0), float_result(c.in(0).dtype()));
  const AttrValue dim = c.raw("dim");
  if (x.numel() == 0) return {call<"log">(call<"sum">(call<"exp">(x), {{"dim", dim}, {"keepdim", c.raw("keepdim")}}))};
  Var top = call<"amax">(x, {{"dim", dim}, {"keepdim", true}});
  top = call<"where">(call<"isfinite">(top), top, Var(0.0));
  const Var sums = call<"sum">(call<"exp">(x - top), {{"dim", dim}, {"keepdim", true}});
  const Var out = call<"log">(sums) + top;
  return {c.attr<bool>("keepdim") ? out : drop_dims(c, out)};
}

// A result of 16 bits has too few digits: what it rounds off would be a factor of the gradient.
Var vjp_logsumexp(Vjp& c) {
  const DType dtype = c.in(0).dtype(), wide = stat_dtype(dtype);
  const Var x = as_dtype(c.in(0), wide);
  const Var out =
      dtype == wide ? c.out() : call<"logsumexp">(x, {{"dim", c.raw("dim")}, {"keepdim", c.raw("keepdim")}});
  return restore_dims(c, c.dy(), 0) * as_dtype(call<"exp">(x - restore_dims(c, out, 0)), dtype);
}

void infer_sum_to(Infer& c) {
  const Ints& target = c.attr<Ints>("shape");
  Dims shape, joined;
  for (int64_t n : target) shape.push_back(n);
  if (!broadcast(shape, c.shape(0), &joined) || !(joined == c.shape(0)))
    c.bad_attr("shape", "a shape that broadcasts to " + to_string(c.shape(0)));
  c.output(sum_dtype(c.dtype(0)), shape);
}

std::vector<Var> decompose_sum_to(Rule& c) {
  const Dims& x = c.input(0).shape();
  const Ints& shape = c.attr<Ints>("shape");
  const int extra = x.size() - int(shape.size());
  Ints dims;
  for (int i = 0; i < x.size(); ++i)
    if (i < extra || shape[size_t(i - extra)] != x[i]) dims.push_back(user_dim(i));
  if (dims.empty()) return {as_dtype(c.in(0), sum_dtype(c.in(0).dtype()))};
  return {call<"reshape_to">(call<"sum">(c.in(0), {{"dim", dims}}), {{"shape", shape}})};
}

void infer_cov(Infer& c) {
  if (c.rank(0) > 2) c.bad_input(0, "1 or 2 dims");
  const int64_t n = c.rank(0) == 2 ? c.shape(0)[0] : 1;
  c.output(float_result(c.dtype(0)), n == 1 ? Dims{} : Dims{n, n});
}

std::vector<Var> decompose_cov(Rule& c) {
  const Var x = as_dtype(c.in(0), float_result(c.in(0).dtype()));
  if (x.rank() < 2 || x.shape()[0] == 1) return {call<"var">(x, {{"correction", c.raw("correction")}})};
  const double left = double(x.shape()[1]) - c.attr<double>("correction");
  const auto mean = [](const Var& v) { return call<"mean">(v, {{"dim", Ints{2}}, {"keepdim", true}}); };
  Var d = x - mean(x);
  d = d - call<"detach">(mean(d));  // what rounding the mean left
  return {call<"matmul">(d, call<"transpose">(d, {{"dim0", int64_t(1)}, {"dim1", int64_t(2)}})) /
          Var(left > 0 ? left : 0.0)};
}

std::vector<OpDef> sum_rows() {
  return {
      {.name = "sum",
       .doc = "The sum over dims; 0 for no elements. bool and integers give int64. Floats are added in blocks in a "
              "fixed order, so the result does not depend on the number of threads.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):sum(1)",
       .inputs = {{"x"}},
       .attrs = {kReducedDims, kKeepDim},
       .options = {dtype_option()},
       .infer = infer_sum,
       .vjp = {[](Vjp& c) { return spread(c, c.dy()); }},
       .vjp_uses = "",
       .expand = expand_dtype,
       .traits = kReduction | kTotal | kRowwise},
      {.name = "mean",
       .doc = "The mean over dims; NaN for no elements. bool and integers give float32.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):mean{dim = 2, keepdim = true}",
       .inputs = {{"x"}},
       .attrs = {kReducedDims, kKeepDim},
       .options = {dtype_option()},
       .infer = infer_mean,
       .vjp = {[](Vjp& c) { return spread(c, c.dy() / Var(reduced_count(c, c.in(0).shape()))); }},
       .vjp_uses = "",
       .expand = expand_float_dtype,
       .traits = kReduction | kTotal | kRowwise},
      {.name = "sum_squares",
       .doc = "The sum of squares over dims in one pass.",
       .inputs = {{"x", kFloating}},
       .attrs = {kReducedDims, kKeepDim},
       .infer = infer_same,
       .vjp = {[](Vjp& c) { return restore_dims(c, c.dy(), 0) * c.in(0) * Var(2.0); }},
       .vjp_uses = "x",
       .traits = kReduction | kHidden | kTotal | kRowwise},
      {.name = "prod",
       .doc = "The product over dims; 1 for no elements. bool and integers give int64. The gradient is exact where "
              "elements are 0.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):prod()",
       .inputs = {{"x"}},
       .attrs = {kReducedDims, kKeepDim},
       .options = {dtype_option()},
       .infer = infer_sum,
       .vjp = {vjp_prod},
       .vjp_uses = "x",
       .expand = expand_dtype,
       .traits = kReduction | kTotal | kRowwise},
      {.name = "logsumexp",
       .doc = "log(sum(exp(x))) over dims without overflow.",
       .example = "return pg.tensor({1000, 1000}):logsumexp(1)",
       .inputs = {{"x"}},
       .attrs = {kReducedDims, kKeepDim},
       .infer = infer_float_reduction,
       .vjp = {vjp_logsumexp},
       .vjp_uses = "x out",
       .decompose = decompose_logsumexp,
       .traits = kReduction},
      {.name = "sum_to",
       .doc = "Sums x down to a shape that broadcasts to its own, the reverse of expand.",
       .example = "return pg.ones(3, 2):sum_to{1, 2}",
       .inputs = {{"x"}},
       .attrs = {{"shape", AttrKind::kInts, {}, "the shape of the result"}},
       .infer = infer_sum_to,
       .vjp = {[](Vjp& c) {
         return call<"expand">(c.dy(), {{"shape", ints(c.in(0).shape())}});
       }},
       .vjp_uses = "",
       .decompose = decompose_sum_to,
       .traits = kReduction | kTotal},
  };
}

std::vector<OpDef> extreme_rows() {
  const OpDef extreme = {
      .name = "amax",
      .doc = "The largest element over dims; NaN when there is one. Equal elements share the gradient.",
      .example = "return pg.tensor({{1, 5}, {3, 4}}):amax(2)",
      .inputs = {{"x"}},
      .attrs = {kReducedDims, kKeepDim},
      .infer = infer_extreme,
      .vjp = {vjp_shared_extreme},
      .vjp_uses = "x out",
      .traits = kReduction | kTotal | kRowwise};
  const OpDef pair = {
      .name = "max",
      .doc =
          "The largest element as a 0-dim tensor or, with dim, the largest elements along it and their indices. "
          "The first of equal elements counts, NaN is larger than any number.",
      .example = "local values, indices = pg.tensor({{1, 5}, {3, 4}}):max(2)\nreturn indices",
      .inputs = {{"x"}},
      .attrs = {kReducedDim, kKeepDim, kPositionBase},
      .outputs = {"values", "indices"},
      .infer = infer_extreme_pair,
      .vjp = {vjp_extreme_pair},
      .vjp_uses = "x values indices",
      .traits = kReduction | kTotal};
  const OpDef position = {
      .name = "argmax",
      .doc = "The index of the first largest element along dim, of the flattened tensor without dim; int64, from 1 on.",
      .example = "return pg.tensor({{1, 5}, {3, 4}}):argmax(2)",
      .inputs = {{"x"}},
      .attrs = {kReducedDim, kKeepDim, kPositionBase},
      .infer = infer_extreme_index,
      .traits = kReduction | kNoGrad | kTotal | kRowwise};
  return {
      extreme,
      like(extreme, "amin", "The smallest element over dims; NaN when there is one. Equal elements share the gradient.",
           "return pg.tensor({{1, 5}, {3, 4}}):amin(2)"),
      pair,
      like(pair, "min",
           "The smallest element as a 0-dim tensor or, with dim, the smallest elements along it and their indices. "
           "The first of equal elements counts, NaN is smaller than any number.",
           "local values, indices = pg.tensor({{1, 5}, {3, 4}}):min(2)\nreturn indices"),
      position,
      like(position, "argmin",
           "The index of the first smallest element along dim, of the flattened tensor without dim; int64, from 1 on.",
           "return pg.tensor({{1, 5}, {3, 4}}):argmin(2)"),
  };
}

std::vector<OpDef> test_rows() {
  const OpDef test = {.name = "any",
                      .doc = "Whether any element over dims is not 0; false of nothing.",
                      .example = "return pg.tensor({0, 2}):any()",
                      .inputs = {{"x"}},
                      .attrs = {kReducedDims, kKeepDim},
                      .infer = infer_bool,
                      .traits = kReduction | kNoGrad | kTotal | kRowwise};
  return {
      test,
      like(test, "all", "Whether all elements over dims are not 0; true of nothing.", "return pg.tensor({0, 2}):all()"),
      {.name = "count_nonzero",
       .doc = "The number of elements over dims that are not 0, int64.",
       .example = "return pg.tensor({0, 2, 3}):count_nonzero()",
       .inputs = {{"x"}},
       .attrs = {kReducedDims, {"keepdim", AttrKind::kBool, false, "keep reduced dims with size 1"}},
       .infer = infer_count,
       .traits = kReduction | kNoGrad | kTotal | kRowwise},
  };
}

std::vector<OpDef> deviation_rows() {
  return {
      {.name = "var",
       .doc = "The variance over dims: squared deviations from the mean over n - correction.",
       .example = "return pg.tensor({1, 2, 4}):var()",
       .inputs = {{"x", kFloating}},
       .attrs = {kReducedDims, kCorrection, kKeepDim},
       .options = {unbiased_option()},
       .infer = infer_same,
       .vjp = {vjp_var},
       .vjp_uses = "x",
       .decompose = decompose_var,
       .expand = expand_unbiased,
       .traits = kWidens | kReduction},
      {.name = "std",
       .doc = "The standard deviation over dims, the root of var. The gradient is 0 where the deviation is.",
       .example = "return pg.tensor({1, 2, 4}):std()",
       .inputs = {{"x", kFloating}},
       .attrs = {kReducedDims, kCorrection, kKeepDim},
       .options = {unbiased_option()},
       .infer = infer_same,
       .vjp = {vjp_std},
       .vjp_uses = "x out",
       .decompose = decompose_std,
       .expand = expand_unbiased,
       .traits = kWidens | kReduction},
      {.name = "norm",
       .doc = "The p-norm over dims: the sum of |x|^p to the power 1/p; math.huge gives the largest |x|, 0 the number "
              "of elements that are not 0. The gradient at 0 is 0.",
       .example = "return pg.tensor({3, 4}):norm()",
       .inputs = {{"x", kAnyDType, Arity::kOne, 0.3, 2}},
       .attrs = {{"p", AttrKind::kFloat, 2.0, "the order", false, -std::numeric_limits<double>::infinity(),
                  std::numeric_limits<double>::infinity()},
                 kReducedDims,
                 kKeepDim},
       .infer = infer_norm,
       .vjp = {vjp_norm},
       .vjp_uses = "x out",
       .decompose = decompose_norm,
       .traits = kWidens | kReduction},
      {.name = "cov",
       .doc = "The covariance matrix of variables in rows and observations in columns; 1-D input is one variable. One "
              "variable gives its variance, a 0-dim tensor.",
       .example = "return pg.tensor({{1, 2, 3}, {3, 1, 2}}):cov()",
       .inputs = {{"x", kFloating}},
       .attrs = {kCorrection},
       .infer = infer_cov,
       .decompose = decompose_cov,
       .traits = kWidens},
  };
}

}  // namespace

void add_reduce_ops(Registry& r) {
  r.add(sum_rows());
  r.add(extreme_rows());
  r.add(test_rows());
  r.add(deviation_rows());
  add_scan_ops(r);
  add_softmax_ops(r);
  add_statistics_ops(r);
  add_order_ops(r);
}

}  // namespace pg
