// Attention. The public op becomes attention_rows, whose kernel keeps no matrix of all scores. Its composition of
// products and softmax defines it, and is what higher derivatives and dropout use. Rules compute in float32 for halves,
// and round results once.
#include <cmath>
#include <limits>

#include "tensor/ops/linalg_rules.h"
#include "tensor/ops/random_rules.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

Var insert_last(const Var& v) { return call<"unsqueeze">(v, {{"dim", int64_t(-1)}}); }

Dims without_matrix(const Dims& shape) {
  Dims out;
  for (int i = 0; i + 2 < shape.size(); ++i) out.push_back(shape[i]);
  return out;
}

// The leading dims of input i, key or value; with enable_gqa as many heads as query has, in the third dim from the end.
Dims grouped(const Infer& c, const Dims& shape, size_t i) {
  Dims out = without_matrix(shape);
  if (!c.attr<bool>("enable_gqa")) return out;
  const int64_t heads = c.rank(0) > 2 ? c.shape(0)[c.rank(0) - 3] : 0;
  if (heads == 0 || out.empty() || out.back() == 0 || heads % out.back() != 0)
    c.bad_input(i, fmt::format("heads (dim -3) that divide the {} of query, for enable_gqa", heads));
  out[out.size() - 1] = heads;
  return out;
}

// query [batch, L, E], key [batch, S, E], value [batch, S, V], mask broadcasting to [batch, L, S].
void infer_attention(Infer& c) {
  for (size_t i = 0; i < 3; ++i)
    if (c.rank(i) < 2) c.bad_input(i, "at least 2 dims (batch, positions, features)");
  const Dims &q = c.shape(0), &k = c.shape(1), &v = c.shape(2);
  const int64_t length = q[q.size() - 2], positions = k[k.size() - 2];
  if (k.back() != q.back()) c.bad_input(1, fmt::format("{} features like query", q.back()));
  if (v[v.size() - 2] != positions) c.bad_input(2, fmt::format("{} positions like key", positions));
  Dims batch, all;
  if (!broadcast(without_matrix(q), grouped(c, k, 1), &batch)) c.bad_input(1, "leading dims that broadcast with query");
  if (!broadcast(batch, grouped(c, v, 2), &all)) c.bad_input(2, "leading dims that broadcast with query and key");
  if (c.has(3)) {
    Dims scores = batch, joined;
    scores.push_back(length);
    scores.push_back(positions);
    const bool kind = c.dtype(3) == DType::kBool || is_float(c.dtype(3));
    if (!kind || !broadcast(c.shape(3), scores, &joined) || !(joined == scores))
      c.bad_input(3, "a bool or floating tensor that expands to " + to_string(scores));
    if (c.attr<bool>("is_causal")) c.bad_attr("is_causal", "false where attn_mask is given");
  }
  all.push_back(length);
  all.push_back(v.back());
  c.output(promote(c.dtype(0), promote(c.dtype(1), c.dtype(2))), all);
}

// The inputs of attention and its attributes, for rules.
struct Attention {
  Var query, key, value, mask;  // the mask may be absent
  bool causal;
  double scale;
};

// The products of query and key, with -inf where a query must not see a key.
Var scores_of(const Attention& a) {
  const Var hidden(-std::numeric_limits<double>::infinity());
  Var scores = call<"matmul">(a.query * Var(a.scale), matrix_transpose(a.key));
  if (a.mask.defined())
    scores = a.mask.dtype() == DType::kBool ? call<"where">(a.mask, scores, hidden) : scores + a.mask;
  if (a.causal) scores = call<"where">(call<"gt">(call<"tril">(call<"ones_like">(scores)), Var(0.0)), scores, hidden);
  return scores;
}

// Where a mask hides all keys from a query: (..., L, 1). Such a row has weights 0. The rules give it scores without
// infinities, for the sake of gradients.
Var hidden_rows(const Var& scores) {
  return call<"eq">(call<"amax">(scores, {{"dim", Ints{-1}}, {"keepdim", true}}),
                    Var(-std::numeric_limits<double>::infinity()));
}

// Weights, or gradients of dropped weights, after the dropout of the op.
Var dropped(const Rule& c, const Var& v) {
  if (c.attr<double>("dropout_p") == 0) return v;
  return call<"dropout">(v, {{"p", c.raw("dropout_p")}, {"training", true}, {"generator", c.raw("generator")}});
}

// The composition, which holds all scores.
Var attend_by_scores(const Rule& c, const Attention& a) {
  Var scores = scores_of(a), hidden;
  if (a.mask.defined()) {
    hidden = hidden_rows(scores);
    scores = call<"where">(hidden, Var(0.0), scores);
  }
  Var weights = call<"softmax">(scores, {{"dim", int64_t(-1)}});
  if (a.mask.defined()) weights = call<"where">(hidden, Var(0.0), weights);
  return call<"matmul">(dropped(c, weights), a.value);
}

// --- attention_rows and attention_grads: the op and its derivative in memory linear in the numbers of positions ---

// float32 in place of a half.
Var widened(const Var& v) { return is_float(v.dtype()) ? as_dtype(v, stat_dtype(v.dtype())) : v; }

Attention inputs_of(const Rule& c, size_t mask) {
  return {widened(c.in(0)),          widened(c.in(1)),
          widened(c.in(2)),          c.has(mask) ? widened(c.in(mask)) : Var(),
          c.attr<bool>("is_causal"), c.attr<double>("scale")};
}

void infer_rows(Infer& c) {
  const Dims &q = c.shape(0), &k = c.shape(1), &v = c.shape(2);
  Dims batch, all;
  if (q.size() < 2 || k.size() < 2 || v.size() < 2 || q.back() != k.back() || k[k.size() - 2] != v[v.size() - 2] ||
      !broadcast(without_matrix(q), without_matrix(k), &batch) || !broadcast(batch, without_matrix(v), &all))
    c.bad_input(1, "keys and values that fit query " + to_string(q));
  for (size_t i = 1; i < 3; ++i)
    if (c.dtype(i) != c.dtype(0)) c.bad_input(i, std::string(name_of(c.dtype(0))) + ", as query is");
  const size_t mask = c.count() - 1;
  const DType wide = stat_dtype(c.dtype(0));
  Dims scores = all, joined;
  scores.push_back(q[q.size() - 2]);
  scores.push_back(k[k.size() - 2]);
  const auto fits = [&](DType t) { return t == DType::kBool || t == c.dtype(0) || t == wide; };
  if (c.has(mask) && (!fits(c.dtype(mask)) || !broadcast(c.shape(mask), scores, &joined) || !(joined == scores)))
    c.bad_input(mask, fmt::format("bool, {} or {}, and a shape that expands to {}", name_of(c.dtype(0)), name_of(wide),
                                  to_string(scores)));
}

// The shape of the result, without its last dim if `width` is negative.
Dims rows_shape(const Infer& c, int64_t rows, int64_t width) {
  Dims out, batch;
  broadcast(without_matrix(c.shape(0)), without_matrix(c.shape(1)), &batch);
  broadcast(batch, without_matrix(c.shape(2)), &out);
  out.push_back(rows);
  if (width >= 0) out.push_back(width);
  return out;
}

void infer_attention_rows(Infer& c) {
  infer_rows(c);
  const int64_t length = c.shape(0)[c.rank(0) - 2];
  c.output(c.dtype(0), rows_shape(c, length, c.shape(2).back()));
  for (int i = 0; i < 2; ++i) c.output(stat_dtype(c.dtype(0)), rows_shape(c, length, -1));
}

// The largest score of each query: (..., L, 1). It is a constant for gradients: weights do not depend on it.
Var top_of(const Var& scores) {
  const AttrList last = {{"dim", Ints{-1}}, {"keepdim", true}};
  return call<"detach">(scores.shape().back() == 0 ? call<"sum">(scores, last) : call<"amax">(scores, last));
}

std::vector<Var> decompose_attention_rows(Rule& c) {
  const Attention a = inputs_of(c, 3);
  Var scores = scores_of(a), top = top_of(scores), hidden;
  if (a.mask.defined()) {
    hidden = hidden_rows(scores);
    scores = call<"where">(hidden, Var(0.0), scores);
    top = call<"where">(hidden, Var(0.0), top);
  }
  Var log_sum = call<"logsumexp">(scores - top, {{"dim", Ints{-1}}, {"keepdim", true}});
  if (hidden.defined()) log_sum = call<"where">(hidden, Var(std::numeric_limits<double>::infinity()), log_sum);
  const auto flat = [](const Var& v) { return call<"squeeze">(v, {{"dim", Ints{-1}}}); };
  return {as_dtype(attend_by_scores(c, a), c.in(0).dtype()), flat(top), flat(log_sum)};
}

// The weights before dropout, from the normalizers.
Var weights_of(const Attention& a, const Var& top, const Var& log_sum) {
  return call<"exp">(scores_of(a) - insert_last(top) - insert_last(log_sum));
}

// The gradients of scores, from the weights before dropout, the cotangent dy and delta = sum(dy out).
Var score_grads(const Rule& c, const Attention& a, const Var& weights, const Var& dy, const Var& delta) {
  return weights * (dropped(c, call<"matmul">(dy, matrix_transpose(a.value))) - insert_last(delta));
}

void vjp_attention_rows(Vjp& c) {
  const Var top = c.out(1), log_sum = c.out(2), dy = widened(c.dy(0));
  Var delta = call<"sum">(dy * widened(c.out(0)), {{"dim", Ints{-1}}});
  if (c.has_dy(2)) delta = delta - c.dy(2);
  if (c.needs(0) || c.needs(1) || c.needs(2)) {
    const Var mask = c.has(3) ? c.in(3) : Var();
    const std::vector<Var> grads = call_all<"attention_grads">(
        {c.in(0), c.in(1), c.in(2), top, log_sum, delta, c.dy(0), mask}, {{"is_causal", c.raw("is_causal")},
                                                                          {"scale", c.raw("scale")},
                                                                          {"dropout_p", c.raw("dropout_p")},
                                                                          {"generator", c.raw("generator")}});
    for (size_t i = 0; i < 3; ++i)
      if (c.needs(i)) c.set(i, grads[i]);
  }
  if (!c.has(3) || !c.needs(3)) return;
  const Attention a = inputs_of(c, 3);  // all scores: as many as the mask of a single head has
  c.set(3, as_dtype(score_grads(c, a, weights_of(a, top, log_sum), dy, delta), c.in(3).dtype()));
}

void infer_attention_grads(Infer& c) {
  infer_rows(c);
  const int64_t length = c.shape(0)[c.rank(0) - 2], positions = c.shape(1)[c.rank(1) - 2];
  const Dims row = rows_shape(c, length, -1), full = rows_shape(c, length, c.shape(2).back());
  for (size_t i = 3; i < 7; ++i)
    if (const DType t = i == 6 ? c.dtype(0) : stat_dtype(c.dtype(0));
        c.dtype(i) != t || !(c.shape(i) == (i == 6 ? full : row)))
      c.bad_input(i, fmt::format("{} {}", name_of(t), to_string(i == 6 ? full : row)));
  c.output(c.dtype(0), rows_shape(c, length, c.shape(0).back()));
  c.output(c.dtype(0), rows_shape(c, positions, c.shape(1).back()));
  c.output(c.dtype(0), rows_shape(c, positions, c.shape(2).back()));
}

std::vector<Var> decompose_attention_grads(Rule& c) {
  const Attention a = inputs_of(c, 7);
  const Var dy = widened(c.in(6)), weights = weights_of(a, c.in(3), c.in(4));
  const Var grads = score_grads(c, a, weights, dy, c.in(5));
  std::vector<Var> out = {call<"matmul">(grads, a.key) * Var(a.scale),
                          call<"matmul">(matrix_transpose(grads), a.query * Var(a.scale)),
                          call<"matmul">(matrix_transpose(dropped(c, weights)), dy)};
  for (Var& v : out) v = as_dtype(v, c.in(0).dtype());
  return out;
}

// The multiply-adds of products of all scores: so many with the width of queries, and with that of values. `rows` has
// an element for each query of each head.
double score_work(std::span<const View> in, const View& rows, int of_queries, int of_values) {
  const View &query = in[0], &value = in[2];
  const double width = double(of_queries * query.shape().back() + of_values * value.shape().back());
  return double(rows.numel()) * double(value.size(value.rank() - 2)) * width;
}

// --- scaled_dot_product_attention ---

// x, whose dim -3 is that of the heads, with this dim split into `kept` groups and the rest.
Var split_heads(const Var& x, int64_t kept) {
  return call<"unflatten">(x, {{"dim", int64_t(-3)}, {"sizes", Ints{kept, -1}}});
}

int64_t heads_of(const Var& v) { return v.shape()[v.rank() - 3]; }

// With fewer heads of keys and values, each head of them broadcasts over a group of heads of queries. Returns false,
// with the heads repeated, where keys and values have different numbers of heads.
bool group_heads(Attention& a) {
  const int64_t groups = heads_of(a.key);
  if (heads_of(a.value) != groups) {
    for (Var* v : {&a.key, &a.value})
      *v = call<"repeat_interleave">(*v, {{"repeats", Ints{heads_of(a.query) / heads_of(*v)}}, {"dim", int64_t(-3)}});
    return false;
  }
  for (Var* v : {&a.query, &a.key, &a.value}) *v = split_heads(*v, groups);
  if (a.mask.defined() && a.mask.rank() >= 3) a.mask = split_heads(a.mask, heads_of(a.mask) == 1 ? 1 : groups);
  return true;
}

std::vector<Var> decompose_attention(Rule& c) {
  const DType t = promote(c.input(0).dtype(), promote(c.input(1).dtype(), c.input(2).dtype()));
  Attention a{as_dtype(c.in(0), t), as_dtype(c.in(1), t), as_dtype(c.in(2), t), {}, c.attr<bool>("is_causal"), 0};
  if (c.has(3)) {
    const DType kind = c.input(3).dtype();
    a.mask = kind == DType::kBool || kind == t ? c.in(3) : as_dtype(c.in(3), stat_dtype(t));
  }
  a.scale = c.has_attr("scale") ? c.attr<double>("scale") : 1 / std::sqrt(double(a.query.shape().back()));
  const bool grouped = c.attr<bool>("enable_gqa") && group_heads(a);
  const double share = c.context().training ? c.attr<double>("dropout_p") : 0;
  Var out = call<"attention_rows">(
      {a.query, a.key, a.value, a.mask},
      {{"is_causal", a.causal}, {"scale", a.scale}, {"dropout_p", share}, {"generator", c.raw("generator")}});
  if (grouped) out = call<"flatten">(out, {{"start_dim", int64_t(-4)}, {"end_dim", int64_t(-3)}});
  return {out};
}

bool drops_some(const AttrReader& c) { return c.attr<double>("dropout_p") != 0; }

}  // namespace

void add_attention_op(Registry& r) {
  const std::vector<AttrDef> attrs = {
      {"is_causal", AttrKind::kBool, false, "hide the positions after each query's own"},
      {"scale", AttrKind::kFloat, 1.0, "factor of the products"},
      {"dropout_p", AttrKind::kFloat, 0.0, "share of the weights that is dropped", false, 0, 1},
      generator_attr()};
  const InputDef query{"query", kFloating}, key{"key", kFloating}, value{"value", kFloating};
  const InputDef mask{"attn_mask", kAnyDType, Arity::kOptional};
  const OpDef rows[] = {
      {.name = "attention_rows",
       .doc =
           "scaled_dot_product_attention of one dtype without options; also the largest score of each query, and the "
           "logarithm of the sum of e^(score - top), which are 0 and inf where attn_mask hides all keys.",
       .inputs = {query, key, value, mask},
       .attrs = attrs,
       .outputs = {"out", "top", "log_sum"},
       .infer = infer_attention_rows,
       .vjp_all = vjp_attention_rows,
       .decompose = decompose_attention_rows,
       .traits = kHidden | kTotal | kRandom,
       .draws = drops_some,
       .multiply_adds = [](std::span<const View> in,
                           std::span<const View> out) { return score_work(in, out[1], 1, 1); }},
      {.name = "attention_grads",
       .doc = "The gradients of attention_rows for query, key and value; delta is sum(dy out) less the cotangent of "
              "log_sum.",
       .inputs = {query, key, value, {"top", kReal}, {"log_sum", kReal}, {"delta", kReal}, {"dy", kFloating}, mask},
       .attrs = attrs,
       .outputs = {"dquery", "dkey", "dvalue"},
       .infer = infer_attention_grads,
       .decompose = decompose_attention_grads,
       .traits = kHidden | kTotal | kRandom,
       .draws = drops_some,
       .multiply_adds = [](std::span<const View> in, std::span<const View>) { return score_work(in, in[3], 3, 2); }},
      {.name = "scaled_dot_product_attention",
       .doc =
           "softmax(query keyᵀ scale + mask) value over the last two dims (positions, features). A bool mask keeps "
           "the products where it is true; a floating mask is added. dropout_p acts in training. Vaswani et al., "
           "Attention is all you need, 2017. With enable_gqa, key and value may have fewer heads (dim -3) than query, "
           "a divisor of their number. Ainslie et al., GQA, 2023. Takes memory linear in the numbers of positions, "
           "except for the gradient of attn_mask (Dao, FlashAttention-2, 2023).",
       .example = "local q = pg.ones(2, 3, 4) return pg.scaled_dot_product_attention(q, q, q, {is_causal = true})",
       .inputs =
           {{"query", kFloating}, {"key", kFloating}, {"value", kFloating}, {"attn_mask", kAnyDType, Arity::kOptional}},
       .attrs = {{"dropout_p", AttrKind::kFloat, 0.0, "share of the weights that is dropped in training", false, 0, 1},
                 {"is_causal", AttrKind::kBool, false, "hide the positions after each query's own"},
                 {"scale", AttrKind::kFloat, {}, "factor of the products; 1 / sqrt(features) by default", true},
                 {"enable_gqa", AttrKind::kBool, false, "each head of key and value serves a group of heads of query"},
                 // Optional because older files name none.
                 {.name = "generator",
                  .kind = AttrKind::kRandom,
                  .doc = "of the dropout; the default one when nil",
                  .optional = true}},
       .infer = infer_attention,
       .decompose = decompose_attention,
       .traits = kRandom},
  };
  r.add(rows);
}

}  // namespace pg
