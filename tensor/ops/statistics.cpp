// Reductions made of others: without NaN, several results at once, histograms.
#include <cmath>
#include <limits>

#include "tensor/ops/linalg_rules.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

Var total(const Rule& c, const Var& v) { return call_like<"sum">(c, {v}); }

Var vjp_nansum(Vjp& c) { return call<"where">(call<"isnan">(c.in(0)), 0.0, restore_dims(c, c.dy(), 0)); }

std::vector<Var> decompose_nanmean(Rule& c) {
  const Var x = c.in(0), nan = call<"isnan">(x);
  return {call_like<"nansum">(c, {x}) / total(c, call<"logical_not">(nan))};
}

void infer_aminmax(Infer& c) {
  require_elements(c);
  for (int i = 0; i < 2; ++i) c.output(c.dtype(0), reduced_shape(c));
}

std::vector<Var> decompose_aminmax(Rule& c) {
  const AttrValue dim = c.has_attr("dim") ? AttrValue(Ints{c.attr<int64_t>("dim")}) : AttrValue();
  const AttrValue keep = c.raw("keepdim");
  return {call<"amin">(c.in(0), {{"dim", dim}, {"keepdim", keep}}),
          call<"amax">(c.in(0), {{"dim", dim}, {"keepdim", keep}})};
}

void infer_moments(Infer& c) {
  for (int i = 0; i < 2; ++i) c.output(c.dtype(0), reduced_shape(c));
}

template <OpName deviation>
std::vector<Var> decompose_moments(Rule& c) {
  return {call_like<deviation>(c, {c.in(0)}), call_like<"mean">(c, {c.in(0)})};
}

OpDef moments(const char* name, const char* doc, const char* example, const char* first, DecomposeFn decompose) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kFloating}},
          .attrs = {kReducedDims, kCorrection, kKeepDim},
          .options = {unbiased_option()},
          .outputs = {first, "mean"},
          .infer = infer_moments,
          .decompose = decompose,
          .expand = expand_unbiased,
          .traits = kWidens | kReduction};
}

void infer_histc(Infer& c) {
  const double low = c.attr<double>("min"), high = c.attr<double>("max");
  if (!std::isfinite(low)) c.bad_attr("min", "a finite number");
  if (!std::isfinite(high) || high < low) c.bad_attr("max", fmt::format("a finite number of at least min, {:g}", low));
  c.output(c.dtype(0), {c.attr<int64_t>("bins")});
}

// The limits of the bins, which are equally wide from `low` to `high`. Both ends are exact.
Var bin_edges(const Rule& c, int64_t bins, const Var& low, const Var& high) {
  Value like = c.context().interpreter->filled(c.context(), {DType::kInt64, c.input(0).device(), {bins + 1}}, 0);
  const Var i = as_dtype(positions(c, like, 0, 0), c.input(0).dtype());
  // Halves of everything: the range may overflow.
  const Var start = low * 0.5, end = high * 0.5, step = (end - start) / Var(double(bins));
  const Var upward = i * step + start, downward = (i - double(bins)) * step + end;
  const Var edges = call<"where">(call<"lt">(i, double(bins + 1) / 2), upward, downward) * 2.0;
  return call<"where">(call<"eq">(i, 0.0), low, call<"where">(call<"eq">(i, double(bins)), high, edges));
}

void infer_bin_counts(Infer& c) {
  if (c.rank(0) != 1 || c.rank(1) != 1 || c.shape(1)[0] < 2) c.bad_input(1, "1 dim of at least 2 edges");
  if (c.dtype(1) != c.dtype(0)) c.bad_input(1, "the dtype of x");
  c.output(DType::kInt64, {c.shape(1)[0] - 1});
}

std::vector<Var> decompose_bin_counts(Rule& c) {
  const Var x = c.in(0), edges = c.in(1);
  const int64_t n = x.numel(), bins = edges.numel() - 1;
  const auto filled = [&](int64_t size, double number) {
    return c.wrap(c.context().interpreter->filled(c.context(), {DType::kInt64, x.value().device(), {size}}, number));
  };
  const auto part = [](const Var& v, int64_t start, int64_t length) {
    return call<"narrow">(v, {{"dim", int64_t(1)}, {"start", start}, {"length", length}});
  };
  // The number of edges that are not above x: its bin. The last bin has both ends; others go to one bin more.
  const Var below = call<"searchsorted">(edges, x, {{"right", true}, {"index_base", int64_t(0)}});
  const Var inside = call<"logical_and">(call<"ge">(x, part(edges, 1, 1)), call<"le">(x, part(edges, bins + 1, 1)));
  const Var bin = call<"where">(inside, call<"minimum">(below, double(bins)), double(bins + 1));
  return {part(call<"scatter_add">(filled(bins + 1, 0), bin, filled(n, 1), {{"dim", int64_t(1)}}), 1, bins)};
}

std::vector<Var> decompose_histc(Rule& c) {
  const Var x = reshaped(c.in(0), Dims{c.in(0).numel()});
  const int64_t bins = c.attr<int64_t>("bins");
  if (x.numel() == 0)
    return {c.wrap(c.context().interpreter->filled(c.context(), {x.dtype(), x.value().device(), {bins}}, 0))};
  Var low = Var(c.attr<double>("min")), high = Var(c.attr<double>("max"));
  if (c.attr<double>("min") == c.attr<double>("max")) {
    const double inf = std::numeric_limits<double>::infinity();
    const Var nan = call<"isnan">(x);
    const Var least = call<"amin">(call<"where">(nan, inf, x)), most = call<"amax">(call<"where">(nan, -inf, x));
    call<"assert">(
        call<"logical_and">(call<"isfinite">(least), call<"isfinite">(most)),
        {{"message", std::string("histc: bad argument 'x' (expected finite elements, or `min` and `max`, got "
                                 "an infinite range)")}});
    const Var same = call<"eq">(least, most);
    low = call<"where">(same, least - 1.0, least);
    high = call<"where">(same, most + 1.0, most);
  }
  return {as_dtype(call<"bin_counts">(x, bin_edges(c, bins, low, high)), x.dtype())};
}

}  // namespace

void add_statistics_ops(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "nansum",
       .doc = "The sum over dims of the elements that are not NaN; 0 for none. bool and integers give int64.",
       .example = "return pg.tensor({1, 0 / 0, 2}):nansum()",
       .inputs = {{"x"}},
       .attrs = {kReducedDims, kKeepDim},
       .options = {dtype_option()},
       .infer = [](Infer& c) { c.output(is_float(c.dtype(0)) ? c.dtype(0) : DType::kInt64, reduced_shape(c)); },
       .vjp = {vjp_nansum},
       .vjp_uses = "x",
       .expand = expand_dtype,
       .traits = kReduction | kTotal | kRowwise},
      {.name = "nanmean",
       .doc = "The mean over dims of the elements that are not NaN; NaN for none.",
       .example = "return pg.tensor({1, 0 / 0, 2}):nanmean()",
       .inputs = {{"x", kFloating}},
       .attrs = {kReducedDims, kKeepDim},
       .options = {dtype_option()},
       .infer = [](Infer& c) { c.output(c.dtype(0), reduced_shape(c)); },
       .decompose = decompose_nanmean,
       .expand = expand_float_dtype,
       .traits = kWidens | kReduction},
      {.name = "aminmax",
       .doc = "The smallest and the largest element over dim, or of all; NaN when there is one. Equal elements share "
              "the gradient.",
       .example = "local min, max = pg.tensor({3, 1, 2}):aminmax()\nreturn min, max",
       .inputs = {{"x"}},
       .attrs = {kReducedDim, kKeepDim},
       .outputs = {"min", "max"},
       .infer = infer_aminmax,
       .decompose = decompose_aminmax,
       .traits = kReduction},
      moments("var_mean", "The variance and the mean over dims; see var and mean.",
              "local var, mean = pg.var_mean(pg.tensor({1, 2, 4}))\nreturn var, mean", "var", decompose_moments<"var">),
      moments("std_mean", "The standard deviation and the mean over dims; see std and mean.",
              "local std, mean = pg.std_mean(pg.tensor({1, 2, 4}))\nreturn std, mean", "std", decompose_moments<"std">),
      {.name = "histc",
       .doc = "How many elements lie in each of `bins` equally wide bins from min to max, in the dtype of x; the last "
              "bin has both its ends. Where min equals max, the range of the elements is taken, or 1 to both sides of "
              "it where all are equal. NaN and other elements are not counted.",
       .example = "return pg.tensor({1, 2, 2, 4}):histc(3, 1, 4)",
       .inputs = {{"x", kFloating}},
       .attrs = {{"bins", AttrKind::kInt, int64_t(100), "how many", false, 1},
                 {"min", AttrKind::kFloat, 0.0, "the start of the first bin"},
                 {"max", AttrKind::kFloat, 0.0, "the end of the last bin"}},
       .infer = infer_histc,
       .decompose = decompose_histc,
       .traits = kNoGrad | kWidens},
      {.name = "bin_counts",
       .doc = "How many elements lie between each two of the ascending edges, which are about equally far apart. An "
              "element on an edge belongs to the bin after it, on the last one to the bin before it.",
       .inputs = {{"x", kReal}, {"edges", kReal}},
       .infer = infer_bin_counts,
       .decompose = decompose_bin_counts,
       .traits = kNoGrad | kHidden},
  };
  r.add(kRows);
}

}  // namespace pg
