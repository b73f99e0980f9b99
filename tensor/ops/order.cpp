// Reductions to an element at a place in the order: medians, quantiles, the k-th smallest and the most frequent value.
#include <cmath>
#include <limits>

#include "tensor/ops/index.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

const AttrDef kLastDim = {"dim", AttrKind::kDim, int64_t(-1), "the dim to reduce"};

// Input 1 and the dim that the op reduces: flattened where `dim` is absent, a 0-dim tensor as a line of one.
struct Line {
  Var x;
  int dim = 0;
  explicit Line(const Rule& c) : x(c.in(0)) {
    if (x.rank() == 0 || !c.has_attr("dim"))
      x = reshaped(x, Dims{x.numel()});
    else
      dim = c.dim("dim", x.rank());
  }
  int64_t size() const { return x.shape()[dim]; }
  int64_t user() const { return user_dim(dim); }
};

// A result that has size 1 in the dim of the line, in the shape of the reduction.
Var finished(const Rule& c, const Var& v) { return reshaped(v, reduced_shape(c, c.input(0).shape())); }

std::vector<Var> sorted(const Rule& c, const Line& line) {
  return call_all<"sort">({line.x}, {{"dim", line.user()}, {"index_base", c.raw("index_base")}});
}

// The number of NaNs of each line, int64, size 1 in its dim.
Var count_nans(const Line& line) {
  return call<"sum">(call<"isnan">(line.x), {{"dim", Ints{line.user()}}, {"keepdim", true}});
}

// The values and indices at these places (from 1 on) of the sorted lines; without `dim` the values only.
std::vector<Var> at(const Rule& c, const Line& line, const Var& place) {
  std::vector<Var> out;
  for (const Var& v : sorted(c, line)) out.push_back(finished(c, call<"gather">(v, place, {{"dim", line.user()}})));
  if (!c.has_attr("dim")) out.pop_back();
  return out;
}
std::vector<Var> at(const Rule& c, const Line& line, int64_t place) {
  std::vector<Var> out;
  for (const Var& v : sorted(c, line))
    out.push_back(finished(c, call<"narrow">(v, {{"dim", line.user()}, {"start", place}, {"length", int64_t(1)}})));
  if (!c.has_attr("dim")) out.pop_back();
  return out;
}

// A float tensor without elements has the median NaN.
void infer_median(Infer& c) {
  if (is_float(c.dtype(0)) && !c.has_attr("dim"))
    c.output(c.dtype(0), reduced_shape(c));
  else
    infer_extreme_pair(c);
}

// NaNs are the last of a sorted line.
template <bool skip_nan>
std::vector<Var> decompose_median(Rule& c) {
  const Line line(c);
  const int64_t n = line.size();
  if (n == 0 && !c.has_attr("dim")) {
    const Type type{line.x.dtype(), line.x.value().device(), reduced_shape(c, c.input(0).shape())};
    return {c.wrap(c.context().interpreter->filled(c.context(), type, std::numeric_limits<double>::quiet_NaN()))};
  }
  const int64_t middle = (n - 1) / 2 + 1;
  if (!is_float(line.x.dtype())) return at(c, line, middle);
  const Var nans = count_nans(line);
  if (skip_nan) {
    const Var last = call<"maximum">(double(n - 1) - nans, 0.0);
    return at(c, line, call<"floor_divide">(last, 2.0) + 1.0);
  }
  return at(c, line, call<"where">(call<"eq">(nans, 0.0), double(middle), double(n + 1) - nans));
}

// Without `dim` elements equal to the median share the gradient; NaNs do where it is NaN.
Var vjp_median(Vjp& c) {
  if (c.has_attr("dim")) return vjp_extreme_pair(c);
  const Var x = c.in(0), out = c.out();
  const Var nans = call<"logical_and">(call<"isnan">(x), call<"isnan">(out));
  const Var tied = call<"logical_or">(call<"eq">(x, out), nans);
  return call<"where">(tied, c.dy() / call<"sum">(tied), 0.0);
}

void infer_kth(Infer& c) {
  infer_extreme_pair(c);
  const Dims& x = c.shape(0);
  const int64_t size = x.empty() ? 1 : x[c.dim("dim", x.size())];
  if (c.attr<int64_t>("k") > size) c.bad_attr("k", fmt::format("at most the {} positions of the dim", size));
}

// The runs of equal values in sorted lines: the first element at which a run reaches the greatest length belongs to the
// smallest of the most frequent values, and is its last occurrence.
std::vector<Var> decompose_mode(Rule& c) {
  const Line line(c);
  const int64_t n = line.size(), dim = line.user();
  const std::vector<Var> order = sorted(c, line);
  if (n == 1) return {finished(c, order[0]), finished(c, order[1])};
  const Var places = positions(c, line.x.value(), line.dim, 1);
  const auto part = [&](const Var& v, int64_t start) {
    return call<"narrow">(v, {{"dim", dim}, {"start", start}, {"length", n - 1}});
  };
  const Var starts = call<"where">(call<"ne">(part(order[0], 2), part(order[0], 1)), part(places, 2), 1.0);
  Ints widths(size_t(line.x.rank() - line.dim) * 2, 0);
  widths[widths.size() - 2] = 1;
  const Var run = call<"cummax">(call<"pad">(starts, {{"pad", widths}, {"value", 1.0}}), {{"dim", dim}});
  const Var best = call<"argmax">(places - run, {{"dim", dim}, {"keepdim", true}});
  std::vector<Var> out;
  for (const Var& v : order) out.push_back(finished(c, call<"gather">(v, best, {{"dim", dim}})));
  return out;
}

void infer_quantile(Infer& c) {
  if (numel(c.shape(0)) == 0) c.bad_input(0, "at least one element");
  Dims shape = reduced_shape(c);
  if (c.is_number(1)) {
    const double q = c.inputs()[1].number();
    if (!(q >= 0 && q <= 1)) c.bad_input(1, "a number from 0 to 1");
  } else {
    if (c.rank(1) > 1) c.bad_input(1, "a number or at most 1 dim");
    if (c.rank(1) == 1) shape.insert(0, c.shape(1)[0]);
  }
  c.output(c.dtype(0), shape);
}

// Between two neighbors in the order. An infinite one counts as it is, where lerp would compute inf - inf.
Var between(const Var& low, const Var& high, const Var& weight) {
  const Var infinite = call<"logical_or">(call<"isinf">(low), call<"isinf">(high));
  const Var limit = call<"where">(call<"eq">(low, high), low, low + high);
  return call<"where">(infinite, limit, call<"lerp">(low, high, weight));
}

// The element at a fractional place of sorted lines, which count from 0 along the last dim.
Var interpolated(const Rule& c, const Var& lines, const Var& place) {
  const std::string& how = c.attr<std::string>("interpolation");
  const auto pick = [&](const Var& whole) {
    return call<"gather">(lines, as_dtype(whole, DType::kInt64), {{"dim", int64_t(-1)}, {"index_base", int64_t(0)}});
  };
  if (how == "nearest") return pick(call<"round">(place));
  const Var low = call<"floor">(place);
  if (how == "lower") return pick(low);
  const Var high = call<"ceil">(place);
  if (how == "higher") return pick(high);
  const Var weight = how == "midpoint" ? Var(0.5) : as_dtype(place - low, lines.dtype());
  return between(pick(low), pick(high), weight);
}

// The same at a place that is a number: two elements of the line are selected, which costs less than to sort it.
Var interpolated(const Rule& c, const Line& line, double place) {
  const std::string& how = c.attr<std::string>("interpolation");
  if (how == "nearest") place = std::rint(place);
  if (how == "lower") place = std::floor(place);
  if (how == "higher") place = std::ceil(place);
  const auto pick = [&](double whole) {
    return call_all<"kthvalue">({line.x}, {{"k", int64_t(whole) + 1}, {"dim", line.user()}, {"keepdim", true}})[0];
  };
  const double low = std::floor(place);
  const Var out = low == place ? pick(low) : between(pick(low), pick(low + 1), how == "midpoint" ? 0.5 : place - low);
  return call<"where">(call<"gt">(count_nans(line), 0.0), pick(double(line.size() - 1)), out);  // NaN is the last
}

// The places q (size - 1) in float64, of all elements or of those that are not NaN. A line with NaN has its last place,
// which is NaN; one without other elements has the first.
template <bool skip_nan>
std::vector<Var> decompose_quantile(Rule& c) {
  Line line(c);
  constexpr int64_t kShort = 32;  // such a line is sorted as fast
  if (c.input(1).is_number() && !skip_nan && line.size() > kShort)
    return {finished(c, interpolated(c, line, c.input(1).number() * double(line.size() - 1)))};
  const Var q = c.input(1).is_number() ? c.in(1) : as_dtype(c.in(1), DType::kFloat64);
  const Var x = call<"moveaxis">(line.x, {{"source", Ints{line.user()}}, {"destination", Ints{-1}}});
  const double last = double(line.size() - 1);
  line.x = x;
  line.dim = x.rank() - 1;
  const Var nans = as_dtype(count_nans(line), DType::kFloat64);
  Var place = q * (skip_nan ? call<"maximum">(last - nans, 0.0) : nans * 0.0 + last);
  if (!skip_nan) place = call<"where">(call<"gt">(nans, 0.0), last, place);
  const bool number = q.value().is_number();
  const Var valid = number ? Var() : call<"logical_and">(call<"ge">(q, 0.0), call<"le">(q, 1.0));
  if (!number) place = call<"where">(valid, place, 0.0);
  Var out = interpolated(c, call<"sort">(x, {{"dim", int64_t(-1)}}), place);
  if (!number) out = call<"where">(valid, out, std::numeric_limits<double>::quiet_NaN());
  Dims shape = reduced_shape(c, c.input(0).shape());
  if (!number && q.rank() == 1) {
    out = call<"moveaxis">(out, {{"source", Ints{-1}}, {"destination", Ints{1}}});
    shape.insert(0, q.shape()[0]);
  }
  return {reshaped(out, shape)};
}

OpDef median(const char* name, const char* doc, const char* example, DecomposeFn decompose) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kNumeric}},
          .attrs = {kReducedDim, kKeepDim, index_base_attr()},
          .outputs = {"values", "indices"},
          .infer = infer_median,
          .vjp = {vjp_median},
          .vjp_uses = "x values indices",
          .decompose = decompose,
          .traits = kReduction};
}

OpDef quantile(const char* name, const char* doc, const char* example, DecomposeFn decompose) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kFloating}, {"q", kFloating, Arity::kOne, 0, 1, "a number or a tensor of at most 1 dim"}},
          .attrs = {kReducedDim,
                    kKeepDim,
                    {.name = "interpolation",
                     .kind = AttrKind::kString,
                     .fallback = std::string("linear"),
                     .doc = "what is between two elements",
                     .choices = {"linear", "lower", "higher", "midpoint", "nearest"}}},
          .infer = infer_quantile,
          .decompose = decompose,
          .traits = kReduction | kWeakNumber | kWidens};
}

}  // namespace

void add_order_ops(Registry& r) {
  static const OpDef kRows[] = {
      median("median",
             "The middle element as a 0-dim tensor or, with dim, the middle elements along it and their indices: the "
             "lower one of two. NaN where there is one; the median of no floats is NaN.",
             "return pg.tensor({3, 1, 2, 5}):median()", decompose_median<false>),
      median("nanmedian", "median of the elements that are not NaN; NaN where there are no others.",
             "return pg.tensor({3, 0 / 0, 2}):nanmedian()", decompose_median<true>),
      {.name = "kthvalue",
       .doc = "The k-th smallest element along dim, and its index. NaN is larger than any number.",
       .example = "local values, indices = pg.tensor({3, 1, 2}):kthvalue(2)\nreturn values",
       .inputs = {{"x"}},
       .attrs =
           {{"k", AttrKind::kInt, {}, "which element, from 1 on", false, 1}, kLastDim, kKeepDim, index_base_attr()},
       .outputs = {"values", "indices"},
       .infer = infer_kth,
       .vjp = {vjp_extreme_pair},
       .vjp_uses = "x values indices",
       .decompose = [](Rule& c) { return at(c, Line(c), c.attr<int64_t>("k")); },
       .traits = kReduction},
      {.name = "mode",
       .doc = "The most frequent value along dim, the smallest of several, and the index of its last occurrence. Every "
              "NaN is different.",
       .example = "local values, indices = pg.tensor({2, 1, 2}):mode()\nreturn values",
       .inputs = {{"x"}},
       .attrs = {kLastDim, kKeepDim, index_base_attr()},
       .outputs = {"values", "indices"},
       .infer = infer_extreme_pair,
       .vjp = {vjp_extreme_pair},
       .vjp_uses = "x values indices",
       .decompose = decompose_mode,
       .traits = kReduction},
      quantile("quantile",
               "The value below which the share q of the elements lies, along dim or of all elements: of the sorted "
               "elements the one at q (n - 1), counted from 0. For a 1-dim q the results lie along a new first dim; "
               "an element of it outside of 0 to 1 gives NaN. NaN where an element is.",
               "return pg.tensor({3, 1, 2, 4}):quantile(0.5)", decompose_quantile<false>),
      quantile("nanquantile", "quantile of the elements that are not NaN; NaN where there are no others.",
               "return pg.tensor({3, 0 / 0, 2, 4}):nanquantile(0.5)", decompose_quantile<true>),
  };
  r.add(kRows);
}

}  // namespace pg
