// Normalizations of rows and of groups of channels. A public op decomposes into a fused op, which also returns the
// statistics that its derivative needs. Every fused op also has a composition, which defines it and which higher
// derivatives use.
#include "tensor/ops/norm_rules.h"

#include "tensor/ops/all.h"

namespace pg {

void check_precision(Infer& c, size_t i) {
  if (stat_dtype(c.dtype(i)) != stat_dtype(c.dtype(0)))
    c.bad_input(i, c.dtype(0) == DType::kFloat64 ? "float64, as x is" : "no float64, as x is not");
}

void check_cotangent(const Infer& c, size_t i) {
  if (!(c.shape(i) == c.shape(0))) c.bad_input(i, "the shape of x, " + to_string(c.shape(0)));
}

void check_stats(const Infer& c, size_t first, const Dims& shape) {
  for (size_t i = first; i < first + 2; ++i)
    if (!(c.shape(i) == shape) || c.dtype(i) != stat_dtype(c.dtype(0)))
      c.bad_input(i, fmt::format("{} {}", name_of(stat_dtype(c.dtype(0))), to_string(shape)));
}

void check_channels(Infer& c, size_t first, int64_t channels) {
  for (size_t i = first; i < c.count(); ++i) {
    if (!c.has(i)) continue;
    if (!(c.shape(i) == Dims{channels})) c.bad_input(i, "shape " + to_string(Dims{channels}));
    check_precision(c, i);
  }
}

Var per_channel(const Var& v, int rank) {
  Dims shape(rank - 1, 1);
  shape[0] = v.shape()[0];
  return reshaped(v, shape);
}

Ints all_but_channels(int rank) {
  Ints dims = {1};
  for (int d = 2; d < rank; ++d) dims.push_back(user_dim(d));
  return dims;
}

namespace {

const AttrDef kRmsEps = {"eps", AttrKind::kFloat, 1e-6, "added to the mean square", false, 0, 1e300};
const AttrDef kShape = {"normalized_shape", AttrKind::kInts, {}, "the last dims, which are normalized together"};

// --- Rows: layer_norm and rms_norm ---

int normalized_rank(const AttrReader& c) { return int(c.attr<Ints>("normalized_shape").size()); }

// Returns the last dims of `rank` that `normalized_shape` covers, 1-based.
Ints row_dims(const AttrReader& c, int rank) {
  Ints dims;
  for (int d = rank - normalized_rank(c); d < rank; ++d) dims.push_back(user_dim(d));
  return dims;
}

Dims row_shape(const AttrReader& c, const Dims& full) {  // the shape of the statistics
  Dims shape = full;
  for (int d = full.size() - normalized_rank(c); d < full.size(); ++d) shape[d] = 1;
  return shape;
}

void check_rows(Infer& c, size_t first_optional) {
  const Ints& last = c.attr<Ints>("normalized_shape");
  const Dims& shape = c.shape(0);
  bool fits = !last.empty() && int(last.size()) <= shape.size();
  for (size_t i = 0; fits && i < last.size(); ++i) fits = shape[shape.size() - int(last.size() - i)] == last[i];
  if (!fits) c.bad_attr("normalized_shape", "the last dims of " + to_string(shape));
  const Dims expected{std::span<const int64_t>(last)};
  for (size_t i = first_optional; i < c.count(); ++i) {
    if (!c.has(i)) continue;
    if (!(c.shape(i) == expected)) c.bad_input(i, "shape " + to_string(expected));
    check_precision(c, i);
  }
}

void infer_layer_norm(Infer& c) {
  check_rows(c, 1);
  c.output(c.dtype(0), c.shape(0));
}

void infer_row_norm(Infer& c) {
  infer_layer_norm(c);
  c.output(stat_dtype(c.dtype(0)), row_shape(c, c.shape(0)));
  c.output(stat_dtype(c.dtype(0)), row_shape(c, c.shape(0)));
}

Var mean_over(const Var& v, const Ints& dims) { return call<"mean">(v, {{"dim", dims}, {"keepdim", true}}); }

// weight * xhat + bias, if they are present
Var affine(const Rule& c, Var xhat, size_t weight, size_t bias) {
  if (c.has(weight)) xhat = xhat * c.in(weight);
  if (bias && c.has(bias)) xhat = xhat + c.in(bias);
  return xhat;
}

std::vector<Var> decompose_row_norm(Rule& c) {
  const DType t = c.input(0).dtype();
  const Var x = as_dtype(c.in(0), stat_dtype(t));
  const Ints dims = row_dims(c, x.rank());
  const bool centered = c.attr<bool>("centered");
  const Var mean = centered ? mean_over(x, dims) : mean_over(x, dims) * Var(0.0);
  const Var d = centered ? x - mean : x;
  const Var rstd = call<"rsqrt">(mean_over(d * d, dims) + Var(c.attr<double>("eps")));
  return {as_dtype(affine(c, d * rstd, 1, 2), t), mean, rstd};
}

// The row statistics depend on x too, and second derivatives have cotangents of them.
Var row_stat_terms(Vjp& c) {
  const Var x = c.in(0), mean = c.out(1), rstd = c.out(2);
  const double n = double(x.numel()) / double(std::max<int64_t>(mean.numel(), 1));
  Var sum;
  if (c.has_dy(1) && c.attr<bool>("centered")) sum = c.dy(1) / Var(n);
  if (c.has_dy(2)) {
    const Var d = c.attr<bool>("centered") ? x - mean : x;
    const Var part = -(c.dy(2) * rstd * rstd * rstd) * d / Var(n);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

void vjp_row_norm(Vjp& c) {
  const AttrList attrs = {{"normalized_shape", c.raw("normalized_shape")}, {"centered", c.raw("centered")}};
  const Var x = c.in(0), mean = c.out(1), rstd = c.out(2);
  if (c.needs(0)) {
    const Var stats = row_stat_terms(c);
    Var dx;
    if (c.has_dy(0)) dx = call<"row_norm_dx">({x, mean, rstd, c.dy(0), c.in(1)}, attrs);
    c.set(0, !stats.defined() ? dx : !dx.defined() ? stats : dx + stats);
  }
  if (!c.has_dy(0)) return;
  const bool weight = c.has(1) && c.needs(1), bias = c.has(2) && c.needs(2);
  if (weight) {
    const std::vector<Var> sums = call_all<"row_norm_dw">({x, mean, rstd, c.dy(0)}, attrs);
    c.set(1, sums[0]);
    if (bias) c.set(2, sums[1]);
  } else if (bias) {
    c.set(2, as_dtype(c.dy(0), stat_dtype(x.dtype())));  // backward sums it to the shape of the bias
  }
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight. Without centering the term mean(g) is absent.
std::vector<Var> decompose_row_norm_dx(Rule& c) {
  const DType t = c.input(0).dtype();
  const Var x = as_dtype(c.in(0), stat_dtype(t)), rstd = c.in(2);
  const bool centered = c.attr<bool>("centered");
  const Ints dims = row_dims(c, x.rank());
  const Var xhat = (centered ? x - c.in(1) : x) * rstd;
  Var g = as_dtype(c.in(3), stat_dtype(t));
  if (c.has(4)) g = g * c.in(4);
  Var inner = g - xhat * mean_over(g * xhat, dims);
  if (centered) inner = inner - mean_over(g, dims);
  return {as_dtype(rstd * inner, t)};
}

// Inputs: x, mean, rstd, dy; row_norm_dx also has weight.
void check_row_derivative(Infer& c) {
  check_rows(c, 4);
  check_stats(c, 1, row_shape(c, c.shape(0)));
  check_cotangent(c, 3);
  check_precision(c, 3);
}

void infer_row_norm_dx(Infer& c) {
  check_row_derivative(c);
  c.output(c.dtype(0), c.shape(0));
}

void infer_row_norm_dw(Infer& c) {
  check_row_derivative(c);
  const Dims shape{std::span<const int64_t>(c.attr<Ints>("normalized_shape"))};
  const DType t = stat_dtype(c.dtype(0));  // weights of layers in half precision may be float32
  c.output(t, shape);
  c.output(t, shape);
}

std::vector<Var> decompose_row_norm_dw(Rule& c) {
  const DType t = stat_dtype(c.input(0).dtype());
  const Var x = as_dtype(c.in(0), t), dy = as_dtype(c.in(3), t);
  const Var xhat = (c.attr<bool>("centered") ? x - c.in(1) : x) * c.in(2);
  const AttrValue shape = c.raw("normalized_shape");
  return {call<"sum_to">(dy * xhat, {{"shape", shape}}), call<"sum_to">(dy, {{"shape", shape}})};
}

std::vector<Var> decompose_layer_norm(Rule& c) { return {call_like<"row_norm">(c, {c.in(0), c.in(1), c.in(2)})}; }

std::vector<Var> decompose_rms_norm(Rule& c) {
  return {call_like<"row_norm">(c, {c.in(0), c.in(1), Var()}, {{"centered", false}})};
}

// --- Groups of channels ---

void infer_group_norm(Infer& c) {
  if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims: batch and channels");
  const int64_t channels = c.shape(0)[1];
  if (channels % c.attr<int64_t>("num_groups"))
    c.bad_attr("num_groups", fmt::format("a divisor of the {} channels", channels));
  check_channels(c, 1, channels);
  c.output(c.dtype(0), c.shape(0));
}

void infer_instance_norm(Infer& c) {
  if (c.rank(0) < 3) c.bad_input(0, "at least 3 dims: batch, channels and positions");
  check_channels(c, 1, c.shape(0)[1]);
  if (!c.attr<bool>("use_input_stats") && !(c.has(1) && c.has(2)))
    c.bad_attr("use_input_stats", "true where running statistics are absent");
  c.output(c.dtype(0), c.shape(0));
}

std::vector<Var> normalize_groups(Rule& c, int64_t groups, size_t weight, size_t bias) {
  const Var x = c.in(0);
  const Dims& shape = x.shape();
  const int64_t rows = times(shape[0], groups), n = groups ? shape[1] / groups : 0;
  Dims flat = {rows, n};
  for (int d = 2; d < shape.size(); ++d) flat[1] = times(flat[1], shape[d]);
  const Var hat =
      call<"row_norm">({reshaped(x, flat), Var(), Var()}, {{"normalized_shape", Ints{flat[1]}}, {"eps", c.raw("eps")}});
  Var out = reshaped(hat, shape);
  if (c.has(weight) && c.has(bias)) return {call<"scale_shift">({out, c.in(weight), c.in(bias)}, {})};
  if (c.has(weight)) out = out * per_channel(c.in(weight), shape.size());
  if (c.has(bias)) out = out + per_channel(c.in(bias), shape.size());
  return {out};
}

std::vector<Var> decompose_instance_norm(Rule& c) {
  if (c.attr<bool>("use_input_stats")) return normalize_groups(c, c.in(0).shape()[1], 3, 4);
  const std::vector<Var> all = call_all<"batch_norm">({c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)},
                                                      {{"training", false}, {"eps", c.raw("eps")}});
  return {all[0]};
}

void infer_scale_shift(Infer& c) {
  if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims: batch and channels");
  check_channels(c, 1, c.shape(0)[1]);
  c.output(c.dtype(0), c.shape(0));
}

std::vector<Var> decompose_scale_shift(Rule& c) {
  const int rank = c.in(0).rank();
  return {as_dtype(c.in(0) * per_channel(c.in(1), rank) + per_channel(c.in(2), rank), c.input(0).dtype())};
}

void vjp_scale_shift(Vjp& c) {
  const int rank = c.in(0).rank();
  const Ints dims = all_but_channels(rank);
  if (c.needs(0)) c.set(0, c.dy() * per_channel(c.in(1), rank));
  const DType t = stat_dtype(c.in(0).dtype());
  const Var dy = as_dtype(c.dy(), t);
  if (c.needs(1)) {
    Var x = as_dtype(c.in(0), t);
    if (c.has(3)) x = x - per_channel(c.in(3), rank);
    c.set(1, call<"sum">(dy * x, {{"dim", dims}}));
  }
  const bool moves = c.has(3) && c.needs(3);
  if (!c.needs(2) && !moves) return;
  const Var sum = call<"sum">(dy, {{"dim", dims}});
  c.set(2, sum);
  if (moves) c.set(3, -(sum * c.in(1)));
}

}  // namespace

void add_norm_ops(Registry& r) {
  const AttrDef centered = {"centered", AttrKind::kBool, true, "whether the mean is subtracted"};
  const AttrDef groups = {"num_groups", AttrKind::kInt, {}, "number of groups of channels", false, 1, 1e9};
  const OpDef rows[] = {
      {.name = "layer_norm",
       .doc = "(x - mean) / sqrt(var + eps) over the last dims, times weight, plus bias (Ba, Kiros, Hinton 2016). "
              "weight and bias have the shape of those dims.",
       .example = "return pg.tensor({{1, 2, 3}}):layer_norm{3}",
       .inputs = {kX, kWeight, kBias},
       .attrs = {kShape, kEps},
       .signature = "x normalized_shape weight bias eps",
       .infer = infer_layer_norm,
       .decompose = decompose_layer_norm,
       .traits = kTotal},
      {.name = "rms_norm",
       .doc = "x / sqrt(mean(x^2) + eps) over the last dims, times weight (Zhang, Sennrich 2019).",
       .example = "return pg.tensor({{3, 4}}):rms_norm{2}",
       .inputs = {kX, kWeight},
       .attrs = {kShape, kRmsEps},
       .signature = "x normalized_shape weight eps",
       .infer = infer_layer_norm,
       .decompose = decompose_rms_norm,
       .traits = kTotal},
      {.name = "row_norm",
       .doc = "layer_norm or, not centered, rms_norm, with the mean and 1 / sqrt(var + eps) of each row.",
       .inputs = {kX, kWeight, kBias},
       .attrs = {kShape, kEps, centered},
       .outputs = {"out", "mean", "rstd"},
       .infer = infer_row_norm,
       .vjp_all = vjp_row_norm,
       .vjp_uses = "x weight mean rstd",
       .decompose = decompose_row_norm,
       .traits = kHidden | kTotal},
      {.name = "row_norm_dx",
       .doc = "The derivative of row_norm for x.",
       .inputs = {kX, kMean, kRstd, kCotangent, kWeight},
       .attrs = {kShape, centered},
       .infer = infer_row_norm_dx,
       .decompose = decompose_row_norm_dx,
       .traits = kHidden | kTotal},
      {.name = "row_norm_dw",
       .doc = "The derivatives of row_norm for weight and bias.",
       .inputs = {kX, kMean, kRstd, kCotangent},
       .attrs = {kShape, centered},
       .outputs = {"dweight", "dbias"},
       .infer = infer_row_norm_dw,
       .decompose = decompose_row_norm_dw,
       .traits = kHidden | kTotal},
      {.name = "group_norm",
       .doc = "Normalizes each of num_groups groups of channels of each sample, then scales and shifts by channel (Wu, "
              "He 2018). x is batch x channels x …; weight and bias have one element per channel.",
       .example = "return pg.randn(2, 4, 3):group_norm(2)",
       .inputs = {kX, kWeight, kBias},
       .attrs = {groups, kEps},
       .signature = "x num_groups weight bias eps",
       .infer = infer_group_norm,
       .decompose = [](Rule& c) { return normalize_groups(c, c.attr<int64_t>("num_groups"), 1, 2); }},
      {.name = "instance_norm",
       .doc = "Normalizes each channel of each sample over its positions, then scales and shifts by channel (Ulyanov, "
              "Vedaldi, Lempitsky 2016). x is batch x channels x … Running statistics are read only without "
              "use_input_stats.",
       .example = "return pg.randn(2, 4, 3):instance_norm()",
       .inputs = {kX, kRunningMean, kRunningVar, kWeight, kBias},
       .attrs = {{"use_input_stats", AttrKind::kBool, true, "whether to use the statistics of x"}, kEps},
       .infer = infer_instance_norm,
       .decompose = decompose_instance_norm},
      {.name = "scale_shift",
       .doc = "x times scale plus shift, both with one element per channel (dim 2). With `center`, whose product with "
              "scale shift has lost without history, the gradients are those of (x - center) scale: so sums that "
              "would cancel are not formed.",
       .inputs = {kX, {"scale", kFloating}, {"shift", kFloating}, {"center", kFloating, Arity::kOptional}},
       .infer = infer_scale_shift,
       .vjp_all = vjp_scale_shift,
       .vjp_uses = "x scale center",
       .decompose = decompose_scale_shift,
       .traits = kHidden | kTotal},
  };
  r.add(rows);
  add_batch_norm_ops(r);
  add_response_norm_op(r);
}

}  // namespace pg
