// Normalizations. A public op decomposes into a fused op, which also returns the statistics that its derivative needs.
// Every fused op also has a composition, which defines it and which higher derivatives use.
#include "tensor/ops/all.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

const AttrDef kEps = {"eps", AttrKind::kFloat, 1e-5, "added to the variance", false, 0, 1e300};
const AttrDef kRmsEps = {"eps", AttrKind::kFloat, 1e-6, "added to the mean square", false, 0, 1e300};
const AttrDef kShape = {"normalized_shape", AttrKind::kInts, {}, "the last dims, which are normalised together"};
const InputDef kX = {"x", kFloating};
const InputDef kWeight = {"weight", kFloating, Arity::kOptional, 0.5, 2, "factors"};
const InputDef kBias = {"bias", kFloating, Arity::kOptional, -2, 2, "terms"};

// The compute dtype of kernels: double for float64, float for other floats.
DType stat_dtype(DType t) { return t == DType::kFloat64 ? t : DType::kFloat32; }

void check_precision(Infer& c, size_t i) {
  if (stat_dtype(c.dtype(i)) != stat_dtype(c.dtype(0)))
    c.bad_input(i, c.dtype(0) == DType::kFloat64 ? "float64, as x is" : "no float64, as x is not");
}

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
    c.set(2, c.dy(0));  // backward sums it to the shape of the bias
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

// Checks a cotangent of x.
void check_cotangent(const Infer& c, size_t i) {
  if (!(c.shape(i) == c.shape(0))) c.bad_input(i, "the shape of x, " + to_string(c.shape(0)));
}

// Checks the statistics of the forward op: inputs `first` and `first + 1`.
void check_stats(const Infer& c, size_t first, const Dims& shape) {
  for (size_t i = first; i < first + 2; ++i)
    if (!(c.shape(i) == shape) || c.dtype(i) != stat_dtype(c.dtype(0)))
      c.bad_input(i, fmt::format("{} {}", name_of(stat_dtype(c.dtype(0))), to_string(shape)));
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
  c.output(c.dtype(0), shape);
  c.output(c.dtype(0), shape);
}

std::vector<Var> decompose_row_norm_dw(Rule& c) {
  const DType t = c.input(0).dtype();
  const Var x = as_dtype(c.in(0), stat_dtype(t)), dy = as_dtype(c.in(3), stat_dtype(t));
  const Var xhat = (c.attr<bool>("centered") ? x - c.in(1) : x) * c.in(2);
  const AttrValue shape = c.raw("normalized_shape");
  return {as_dtype(call<"sum_to">(dy * xhat, {{"shape", shape}}), t),
          as_dtype(call<"sum_to">(dy, {{"shape", shape}}), t)};
}

std::vector<Var> decompose_layer_norm(Rule& c) {
  return {call<"row_norm">({c.in(0), c.in(1), c.in(2)},
                           {{"normalized_shape", c.raw("normalized_shape")}, {"eps", c.raw("eps")}})};
}

std::vector<Var> decompose_rms_norm(Rule& c) {
  return {
      call<"row_norm">({c.in(0), c.in(1), Var()},
                       {{"normalized_shape", c.raw("normalized_shape")}, {"eps", c.raw("eps")}, {"centered", false}})};
}

// --- Groups of channels ---

void check_channels(Infer& c, size_t first, int64_t channels) {
  for (size_t i = first; i < c.count(); ++i) {
    if (!c.has(i)) continue;
    if (!(c.shape(i) == Dims{channels})) c.bad_input(i, "shape " + to_string(Dims{channels}));
    check_precision(c, i);
  }
}

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

Var per_channel(const Var& v, int rank) {  // reshapes (C) to (C, 1, …)
  Dims shape(rank - 1, 1);
  shape[0] = v.shape()[0];
  return reshaped(v, shape);
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

Ints all_but_channels(int rank) {
  Ints dims = {1};
  for (int d = 2; d < rank; ++d) dims.push_back(user_dim(d));
  return dims;
}

void vjp_scale_shift(Vjp& c) {
  const int rank = c.in(0).rank();
  const Ints dims = all_but_channels(rank);
  if (c.needs(0)) c.set(0, c.dy() * per_channel(c.in(1), rank));
  if (c.needs(1)) c.set(1, call<"sum">(c.dy() * c.in(0), {{"dim", dims}}));
  if (c.needs(2)) c.set(2, call<"sum">(c.dy(), {{"dim", dims}}));
}

// --- Batches ---

bool uses_batch(const AttrReader& c, bool running) {
  return !running || (c.has_attr("training") && c.attr<bool>("training"));
}

// Inputs: x, running statistics, weight and bias.
void check_batch(Infer& c) {
  if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims: batch and channels");
  if (c.has(1) != c.has(2)) c.bad_input(c.has(1) ? 2 : 1, "both running statistics or none");
  check_channels(c, 1, c.shape(0)[1]);
}

void infer_batch_norm(Infer& c) {
  check_batch(c);
  c.output(c.dtype(0), c.shape(0));
  if (!c.has(1)) return;
  c.output(c.dtype(1), c.shape(1));
  c.output(c.dtype(2), c.shape(2));
}

std::vector<Var> decompose_batch_norm(Rule& c) {
  const bool running = c.has(1);
  if (uses_batch(c, running)) {
    const AttrList attrs = {{"momentum", c.raw("momentum")},
                            {"eps", c.raw("eps")},
                            {"running_var_correction", c.raw("running_var_correction")}};
    std::vector<Var> all = call_all<"batch_norm_train">({c.in(0), c.in(1), c.in(2), c.in(3), c.in(4)}, attrs);
    if (!running) return {all[0]};
    return {all[0], all[3], all[4]};
  }
  const Var factor = call<"rsqrt">(c.in(2) + Var(c.attr<double>("eps")));
  const Var scale = c.has(3) ? factor * c.in(3) : factor;
  const Var moved = c.in(1) * scale;
  const Var shift = c.has(4) ? c.in(4) - moved : -moved;
  return {call<"scale_shift">({c.in(0), scale, shift}, {}), call<"detach">(c.in(1)), call<"detach">(c.in(2))};
}

void infer_batch_norm_train(Infer& c) {
  check_batch(c);
  const Dims channels = {c.shape(0)[1]};
  const DType t = stat_dtype(c.dtype(0));
  c.output(c.dtype(0), c.shape(0));
  c.output(t, channels);
  c.output(t, channels);
  if (!c.has(1)) return;
  c.output(c.dtype(1), channels);
  c.output(c.dtype(2), channels);
}

std::vector<Var> decompose_batch_norm_train(Rule& c) {
  const DType t = c.input(0).dtype();
  const Var x = as_dtype(c.in(0), stat_dtype(t));
  const Ints dims = all_but_channels(x.rank());
  const int rank = x.rank();
  const Var mean = call<"mean">(x, {{"dim", dims}});
  const Var d = x - per_channel(mean, rank);
  const Var var = call<"mean">(d * d, {{"dim", dims}});
  const Var rstd = call<"rsqrt">(var + Var(c.attr<double>("eps")));
  Var out = d * per_channel(rstd, rank);
  if (c.has(3)) out = out * per_channel(c.in(3), rank);
  if (c.has(4)) out = out + per_channel(c.in(4), rank);
  std::vector<Var> all = {as_dtype(out, t), mean, rstd};
  if (!c.has(1)) return all;
  const double keep = c.attr<double>("momentum"), n = double(x.numel()) / double(std::max<int64_t>(mean.numel(), 1));
  const double correction = c.attr<double>("running_var_correction"),
               unbias = n > correction ? n / (n - correction) : 1;
  all.push_back(call<"detach">(as_dtype(c.in(1) * Var(keep) + mean * Var(1 - keep), c.input(1).dtype())));
  all.push_back(call<"detach">(as_dtype(c.in(2) * Var(keep) + var * Var(unbias * (1 - keep)), c.input(2).dtype())));
  return all;
}

Var batch_stat_terms(Vjp& c) {
  const Var x = c.in(0), mean = c.out(1), rstd = c.out(2);
  const double n = double(x.numel()) / double(std::max<int64_t>(mean.numel(), 1));
  Var sum;
  if (c.has_dy(1)) sum = per_channel(c.dy(1), x.rank()) / Var(n);
  if (c.has_dy(2)) {
    const Var slope = per_channel(c.dy(2) * rstd * rstd * rstd, x.rank());
    const Var part = -slope * (x - per_channel(mean, x.rank())) / Var(n);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

void vjp_batch_norm_train(Vjp& c) {
  const Var x = c.in(0), mean = c.out(1), rstd = c.out(2);
  Var dx = c.needs(0) ? batch_stat_terms(c) : Var();
  if (c.has_dy(0)) {
    const Var dy = c.dy(0);
    const std::vector<Var> sums = call_all<"batch_norm_sums">({x, mean, rstd, dy});
    if (c.has(3) && c.needs(3)) c.set(3, sums[0]);
    if (c.has(4) && c.needs(4)) c.set(4, sums[1]);
    if (c.needs(0)) {
      const Var direct = call<"batch_norm_dx">({x, mean, rstd, dy, sums[0], sums[1], c.in(3)}, {});
      dx = dx.defined() ? dx + direct : direct;
    }
  }
  if (c.needs(0)) c.set(0, dx);
}

std::vector<Var> decompose_batch_norm_apply(Rule& c) {
  const DType t = c.input(0).dtype();
  const Var x = as_dtype(c.in(0), stat_dtype(t));
  Var out = (x - per_channel(c.in(1), x.rank())) * per_channel(c.in(2), x.rank());
  if (c.has(3)) out = out * per_channel(c.in(3), x.rank());
  if (c.has(4)) out = out + per_channel(c.in(4), x.rank());
  return {as_dtype(out, t)};
}

// Inputs: x, mean, rstd, and from input `first` on arrays with one element per channel.
void check_batch_stats(Infer& c, size_t first) {
  if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims: batch and channels");
  check_stats(c, 1, {c.shape(0)[1]});
  check_channels(c, first, c.shape(0)[1]);
}

void infer_batch_norm_apply(Infer& c) {
  check_batch_stats(c, 3);
  c.output(c.dtype(0), c.shape(0));
}

void infer_batch_norm_dx(Infer& c) {
  check_batch_stats(c, 4);
  check_stats(c, 4, {c.shape(0)[1]});
  check_cotangent(c, 3);
  check_precision(c, 3);
  c.output(c.dtype(0), c.shape(0));
}

void infer_batch_norm_sums(Infer& c) {
  check_batch_stats(c, 4);
  check_cotangent(c, 3);
  check_precision(c, 3);
  const DType t = stat_dtype(c.dtype(0));
  c.output(t, c.shape(1));
  c.output(t, c.shape(1));
}

std::vector<Var> decompose_batch_norm_sums(Rule& c) {
  const DType t = stat_dtype(c.input(0).dtype());
  const Var x = as_dtype(c.in(0), t), dy = as_dtype(c.in(3), t);
  const Ints dims = all_but_channels(x.rank());
  const Var xhat = (x - per_channel(c.in(1), x.rank())) * per_channel(c.in(2), x.rank());
  return {call<"sum">(dy * xhat, {{"dim", dims}}), call<"sum">(dy, {{"dim", dims}})};
}

// dx = weight rstd (dy - sum(dy) / n - xhat sum(dy xhat) / n)
std::vector<Var> decompose_batch_norm_dx(Rule& c) {
  const DType t = c.input(0).dtype();
  const Var x = as_dtype(c.in(0), stat_dtype(t)), dy = as_dtype(c.in(3), stat_dtype(t));
  const int rank = x.rank();
  const double n = double(x.numel()) / double(std::max<int64_t>(x.shape()[1], 1));
  const Var rstd = per_channel(c.in(2), rank), xhat = (x - per_channel(c.in(1), rank)) * rstd;
  const Var inner = dy - per_channel(c.in(5), rank) / Var(n) - xhat * (per_channel(c.in(4), rank) / Var(n));
  const Var scale = c.has(6) ? rstd * per_channel(c.in(6), rank) : rstd;
  return {as_dtype(scale * inner, t)};
}

const char* const kRowExample = "return pg.tensor({{1, 2, 3}}):layer_norm{3}";
const char* const kBatchExample =
    "return (pg.batch_norm(pg.tensor({{1, 2}, {3, 5}}), nil, nil, nil, nil, {training = true}))";

}  // namespace

void add_norm_ops(Registry& r) {
  const AttrDef centered = {"centered", AttrKind::kBool, true, "whether the mean is taken off"};
  const AttrDef groups = {"num_groups", AttrKind::kInt, {}, "number of groups of channels", false, 1, 1e9};
  const AttrDef momentum = {"momentum", AttrKind::kFloat, 0.9, "share of the running statistics that is kept", false, 0,
                            1};
  const AttrDef correction = {"running_var_correction",
                              AttrKind::kFloat,
                              0.0,
                              "taken from the count in the divisor of the running variance",
                              false,
                              0,
                              1e15};
  const InputDef mean = {"mean", kFloating}, rstd = {"rstd", kFloating, Arity::kOne, 0.5, 2}, dy = {"dy", kFloating};
  const InputDef running_mean = {"running_mean", kFloating, Arity::kOptional, -2, 2, "of each channel"};
  const InputDef running_var = {"running_var", kFloating, Arity::kOptional, 0.5, 2, "of each channel"};
  const OpDef rows[] = {
      {.name = "layer_norm",
       .doc = "(x - mean) / sqrt(var + eps) over the last dims, times weight, plus bias (Ba, Kiros, Hinton 2016). "
              "weight and bias "
              "have the shape of those dims.",
       .example = kRowExample,
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
       .example = kRowExample,
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
       .example = kRowExample,
       .inputs = {kX, mean, rstd, dy, kWeight},
       .attrs = {kShape, centered},
       .infer = infer_row_norm_dx,
       .decompose = decompose_row_norm_dx,
       .traits = kHidden},
      {.name = "row_norm_dw",
       .doc = "The derivatives of row_norm for weight and bias.",
       .example = kRowExample,
       .inputs = {kX, mean, rstd, dy},
       .attrs = {kShape, centered},
       .outputs = {"dweight", "dbias"},
       .infer = infer_row_norm_dw,
       .decompose = decompose_row_norm_dw,
       .traits = kHidden},
      {.name = "group_norm",
       .doc = "Normalises each of num_groups groups of channels of each sample, then scales and shifts by channel (Wu, "
              "He 2018). "
              "x is batch x channels x …; weight and bias have one element a channel.",
       .example = "return pg.randn(2, 4, 3):group_norm(2)",
       .inputs = {kX, kWeight, kBias},
       .attrs = {groups, kEps},
       .signature = "x num_groups weight bias eps",
       .infer = infer_group_norm,
       .decompose = [](Rule& c) { return normalize_groups(c, c.attr<int64_t>("num_groups"), 1, 2); }},
      {.name = "instance_norm",
       .doc = "Normalises each channel of each sample over its positions, then scales and shifts by channel (Ulyanov, "
              "Vedaldi, "
              "Lempitsky 2016). x is batch x channels x … Running statistics are read only without use_input_stats.",
       .example = "return pg.randn(2, 4, 3):instance_norm()",
       .inputs = {kX, running_mean, running_var, kWeight, kBias},
       .attrs = {{"use_input_stats", AttrKind::kBool, true, "whether to use the statistics of x"}, kEps},
       .infer = infer_instance_norm,
       .decompose = decompose_instance_norm},
      {.name = "scale_shift",
       .doc = "x times scale plus shift, both with one element a channel (dim 2).",
       .example = "return pg.randn(2, 4, 3):instance_norm()",
       .inputs = {kX, {"scale", kFloating}, {"shift", kFloating}},
       .infer = infer_scale_shift,
       .vjp_all = vjp_scale_shift,
       .vjp_uses = "x scale",
       .decompose = decompose_scale_shift,
       .traits = kHidden},
      {.name = "batch_norm",
       .doc =
           "Normalises each channel (dim 2) over batch and positions, then scales and shifts by channel (Ioffe, "
           "Szegedy 2015). In "
           "training with the statistics of the batch, else with the running ones. Answers the result and the new "
           "running mean "
           "and variance: momentum times the old plus the rest times those of the batch; nothing is changed in place. "
           "Without running statistics it answers the result alone and always uses the batch. training follows the "
           "mode "
           "(pg.record, pg.train_mode) when absent.",
       .example = "local y, mean, var = pg.batch_norm(pg.tensor({{1, 2}, {3, 5}}), pg.zeros(2), pg.ones(2), nil, nil, "
                  "{training = true})\nreturn mean",
       .inputs = {kX, running_mean, running_var, kWeight, kBias},
       .attrs = {{"training",
                  AttrKind::kBool,
                  {},
                  "whether to use the statistics of the batch; by the mode when absent",
                  true},
                 momentum,
                 kEps,
                 correction},
       .outputs = {"out", "new_running_mean", "new_running_var"},
       .infer = infer_batch_norm,
       .decompose = decompose_batch_norm},
      {.name = "batch_norm_train",
       .doc = "batch_norm with the statistics of the batch, which it answers as well, before the new running ones.",
       .example = kBatchExample,
       .inputs = {kX, running_mean, running_var, kWeight, kBias},
       .attrs = {momentum, kEps, correction},
       .outputs = {"out", "mean", "rstd", "new_running_mean", "new_running_var"},
       .infer = infer_batch_norm_train,
       .vjp_all = vjp_batch_norm_train,
       .vjp_uses = "x weight mean rstd",
       .decompose = decompose_batch_norm_train,
       .traits = kHidden | kCheap},
      {.name = "batch_norm_apply",
       .doc = "What batch_norm_train gives for x, from the statistics that it gave.",
       .example = kBatchExample,
       .inputs = {kX, mean, rstd, kWeight, kBias},
       .infer = infer_batch_norm_apply,
       .decompose = decompose_batch_norm_apply,
       .traits = kHidden},
      {.name = "batch_norm_sums",
       .doc = "The sums over each channel of dy xhat and of dy: the derivatives of batch_norm for weight and bias.",
       .example = kBatchExample,
       .inputs = {kX, mean, rstd, dy},
       .outputs = {"dweight", "dbias"},
       .infer = infer_batch_norm_sums,
       .decompose = decompose_batch_norm_sums,
       .traits = kHidden},
      {.name = "batch_norm_dx",
       .doc = "The derivative of batch_norm for x, from the sums of batch_norm_sums.",
       .example = kBatchExample,
       .inputs = {kX, mean, rstd, dy, {"dweight", kFloating}, {"dbias", kFloating}, kWeight},
       .infer = infer_batch_norm_dx,
       .decompose = decompose_batch_norm_dx,
       .traits = kHidden},
  };
  r.add(rows);
}

}  // namespace pg
