// Batch normalization. See norm.cpp for how public and fused ops relate.
#include "tensor/ops/norm_rules.h"

namespace pg {
namespace {

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
  const DType t = stat_dtype(c.input(0).dtype());
  const Var factor = call<"rsqrt">(as_dtype(c.in(2), t) + Var(c.attr<double>("eps")));
  const Var scale = c.has(3) ? factor * c.in(3) : factor;
  const Var mean = as_dtype(c.in(1), t), moved = call<"detach">(mean * scale);  // its gradients are those of center
  const Var shift = c.has(4) ? c.in(4) - moved : -moved;
  return {call<"scale_shift">({c.in(0), scale, shift, mean}, {}), call<"detach">(c.in(1)), call<"detach">(c.in(2))};
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
  const auto mean_of = [&](const Var& v) {  // 0 for an empty batch
    return x.numel() ? call<"mean">(v, {{"dim", dims}}) : call<"sum">(v, {{"dim", dims}});
  };
  const Var mean = mean_of(x);
  const Var d = x - per_channel(mean, rank);
  const Var var = mean_of(d * d);
  const Var rstd = call<"rsqrt">(var + Var(c.attr<double>("eps")));
  Var out = d * per_channel(rstd, rank);
  if (c.has(3)) out = out * per_channel(c.in(3), rank);
  if (c.has(4)) out = out + per_channel(c.in(4), rank);
  std::vector<Var> all = {as_dtype(out, t), mean, rstd};
  if (!c.has(1)) return all;
  if (x.numel() == 0) {
    all.push_back(call<"detach">(c.in(1)));
    all.push_back(call<"detach">(c.in(2)));
    return all;
  }
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

}  // namespace

void add_batch_norm_ops(Registry& r) {
  const AttrDef momentum = {"momentum", AttrKind::kFloat, 0.9, "share of the running statistics that is kept", false, 0,
                            1};
  const AttrDef correction = {"running_var_correction",
                              AttrKind::kFloat,
                              0.0,
                              "taken from the count in the divisor of the running variance",
                              false,
                              0,
                              1e15};
  const OpDef rows[] = {
      {.name = "batch_norm",
       .doc = "Normalizes each channel (dim 2) over batch and positions, then scales and shifts by channel (Ioffe, "
              "Szegedy 2015). In training with the statistics of the batch, else with the running ones. Returns the "
              "result and the new running mean and variance: momentum times the old plus the rest times those of the "
              "batch; nothing is changed in place, and an empty batch changes nothing. Without running statistics it "
              "returns only the result and always "
              "uses the batch. training follows the mode (pg.record, pg.train_mode) when absent.",
       .example = "local y, mean, var = pg.batch_norm(pg.tensor({{1, 2}, {3, 5}}), pg.zeros(2), pg.ones(2), nil, nil, "
                  "{training = true})\nreturn mean",
       .inputs = {kX, kRunningMean, kRunningVar, kWeight, kBias},
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
       .doc = "batch_norm with the statistics of the batch, which it also returns, before the new running ones.",
       .inputs = {kX, kRunningMean, kRunningVar, kWeight, kBias},
       .attrs = {momentum, kEps, correction},
       .outputs = {"out", "mean", "rstd", "new_running_mean", "new_running_var"},
       .infer = infer_batch_norm_train,
       .vjp_all = vjp_batch_norm_train,
       .vjp_uses = "x weight mean rstd",
       .decompose = decompose_batch_norm_train,
       .traits = kHidden | kCheap | kTotal},
      {.name = "batch_norm_apply",
       .doc = "The result of batch_norm_train for x, from the statistics that it returned.",
       .inputs = {kX, kMean, kRstd, kWeight, kBias},
       .infer = infer_batch_norm_apply,
       .decompose = decompose_batch_norm_apply,
       .traits = kHidden | kTotal},
      {.name = "batch_norm_sums",
       .doc = "The sums over each channel of dy xhat and of dy: the derivatives of batch_norm for weight and bias.",
       .inputs = {kX, kMean, kRstd, kCotangent},
       .outputs = {"dweight", "dbias"},
       .infer = infer_batch_norm_sums,
       .decompose = decompose_batch_norm_sums,
       .traits = kHidden | kTotal},
      {.name = "batch_norm_dx",
       .doc = "The derivative of batch_norm for x, from the sums of batch_norm_sums.",
       .inputs = {kX, kMean, kRstd, kCotangent, {"dweight", kFloating}, {"dbias", kFloating}, kWeight},
       .infer = infer_batch_norm_dx,
       .decompose = decompose_batch_norm_dx,
       .traits = kHidden | kTotal},
  };
  r.add(rows);
}

}  // namespace pg
