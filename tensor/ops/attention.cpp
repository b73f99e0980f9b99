// Attention as a composition of products and softmax.
#include <cmath>
#include <limits>

#include "tensor/ops/linalg_rules.h"

namespace pg {
namespace {

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

std::vector<Var> decompose_attention(Rule& c) {
  const Var query = c.in(0);
  Var key = c.in(1), value = c.in(2);
  if (c.attr<bool>("enable_gqa"))
    for (Var* v : {&key, &value}) {
      const int64_t group = query.shape()[query.rank() - 3] / v->shape()[v->rank() - 3];
      if (group > 1) *v = call<"repeat_interleave">(*v, {{"repeats", Ints{group}}, {"dim", int64_t(-3)}});
    }
  const double width = double(query.shape().back());
  const double scale = c.has_attr("scale") ? c.attr<double>("scale") : 1 / std::sqrt(width);
  const Var hidden(-std::numeric_limits<double>::infinity());
  Var scores = call<"matmul">(query * Var(scale), matrix_transpose(key));
  if (c.has(3) && c.input(3).dtype() == DType::kBool)
    scores = call<"where">(c.in(3), scores, hidden);
  else if (c.has(3))
    scores = scores + c.in(3);
  if (c.attr<bool>("is_causal"))
    scores = call<"where">(call<"gt">(call<"tril">(call<"ones_like">(scores)), Var(0.0)), scores, hidden);
  // A row whose positions are all masked has weights 0. It gets scores without infinities, for the sake of gradients.
  Var masked;
  if (c.has(3)) {
    masked = call<"eq">(call<"amax">(scores, {{"dim", Ints{-1}}, {"keepdim", true}}), hidden);
    scores = call<"where">(masked, Var(0.0), scores);
  }
  Var weights = call<"softmax">(scores, {{"dim", int64_t(-1)}});
  if (c.has(3)) weights = call<"where">(masked, Var(0.0), weights);
  if (c.attr<double>("dropout_p") > 0)
    weights = call<"dropout">(weights, {{"p", c.raw("dropout_p")}, {"generator", c.raw("generator")}});
  return {call<"matmul">(weights, value)};
}

}  // namespace

void add_attention_op(Registry& r) {
  const OpDef rows[] = {
      {.name = "scaled_dot_product_attention",
       .doc =
           "softmax(query keyᵀ scale + mask) value over the last two dims (positions, features). A bool mask keeps "
           "the products where it is true; a floating mask is added. dropout_p acts in training. Vaswani et al., "
           "Attention is all you need, 2017. With enable_gqa, key and value may have fewer heads (dim -3) than query, "
           "a divisor of their number. Ainslie et al., GQA, 2023.",
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
       .traits = kRandom | kWidens},
  };
  r.add(rows);
}

}  // namespace pg
