// Determinants.
#include "tensor/ops/linalg_rules.h"

namespace pg {
namespace {

void infer_det(Infer& c) {
  require_square(c, 0);
  c.output(c.dtype(0), batch_of(c.shape(0), 2));
}

void infer_slogdet(Infer& c) {
  infer_det(c);
  c.output(c.dtype(0), batch_of(c.shape(0), 2));
}

Var as_factor(const Var& v) { return insert_dim(insert_dim(v, -1), -1); }

// Running products along the last dim of all elements before each one, or after it if `reverse`.
Var products_before(const Var& v, bool reverse = false) {
  const int64_t n = v.shape().back();
  const Var kept = call<"narrow">(v, {{"dim", int64_t(-1)}, {"start", int64_t(reverse ? 2 : 1)}, {"length", n - 1}});
  const Var padded = call<"pad">(kept, {{"pad", reverse ? Ints{0, 1} : Ints{1, 0}}, {"value", 1.0}});
  return call<"cumprod">(padded, {{"dim", int64_t(-1)}, {"reverse", reverse}});
}

// out_ij = the product of all s except s_i and s_j, 0 on the diagonal: for i < j the products before i, between i and
// j, and after j. Nothing is divided, so zeros in s do no harm.
Var products_without_pairs(const Var& s, const Var& square) {
  const Var ones = call<"zeros_like">(square) + Var(1.0);
  const Var later = triangle(ones * insert_dim(s, -2), true, true) + triangle(ones, false);  // s_j for i < j, else 1
  const Var between = products_before(later);
  const Var both = insert_dim(products_before(s), -1) * between * insert_dim(products_before(s, true), -2);
  const Var upper = triangle(both, true, true);
  return upper + matrix_transpose(upper);
}

// With a = u diag(s) vh, cof(a) = det(u) det(vh) u cof(diag(s)) vh, and cof(diag(s)) is diagonal. Nothing is divided.
std::vector<Var> decompose_cofactors(Rule& c) {
  if (c.input(0).numel() == 0) return {call<"zeros_like">(c.in(0))};
  const std::vector<Var> f = call_all<"linalg_svd">({c.in(0)});
  const Var sign = call<"sign">(call<"linalg_det">(f[0]) * call<"linalg_det">(f[2]));
  const Var others = products_before(f[1]) * products_before(f[1], true);  // of all s but each one
  return {matmul(scale_columns(f[0], others), f[2]) * as_factor(sign)};
}

// With a = u diag(s) vh, cof(a) = det(u) det(vh) u cof(diag(s)) vh. To first order in e, cof(diag(s) + e) has the
// diagonal c_ii + sum over k of p_ik e_kk and the other elements -p_ij e_ji, where p_ij is the product of all s except
// s_i and s_j.
Var grad_cofactors(Vjp& c) {
  if (c.input(0).numel() == 0) return call<"zeros_like">(c.in(0));
  const std::vector<Var> f = call_all<"linalg_svd">({c.in(0)});
  const Var &u = f[0], &vh = f[2];
  const Var inner = matmul(matrix_transpose(u), matmul(c.dy(), matrix_transpose(vh)));
  const Var p = products_without_pairs(f[1], inner);
  const Var along = call<"squeeze">(matmul(p, insert_dim(diagonal(inner), -1)), {{"dim", Ints{-1}}});
  const Var change = diagonal_matrix(along) - matrix_transpose(p * inner);
  const Var sign = call<"sign">(call<"linalg_det">(u) * call<"linalg_det">(vh));
  return matmul(u, matmul(change, vh)) * as_factor(sign);
}

std::vector<OpDef> determinant_rows() {
  return {
      {.name = "linalg_det",
       .doc = "The determinants of square matrices. Gradients of order 1 and 2 are exact for singular matrices too.",
       .example = "return pg.linalg.det(pg.tensor({{1, 2}, {3, 4}}))  -- linalg_det",
       .inputs = {{"a", kReal}},
       .infer = infer_det,
       .vjp = {[](Vjp& c) { return as_factor(c.dy()) * call<"linalg_cofactors">(c.in(0)); }},
       .vjp_uses = "a",
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_cofactors",
       .doc = "The matrices of cofactors, det(a) a^-T: the derivative of the determinant.",
       .inputs = {{"a", kReal}},
       .infer = infer_square,
       .vjp = {grad_cofactors},
       .vjp_uses = "a",
       .decompose = decompose_cofactors,
       .traits = kHidden | kTotal},
      {.name = "linalg_slogdet",
       .doc = "The sign (-1, 0 or 1) of the determinants of square matrices, and the logarithm of their absolute "
              "value, which does not overflow. The gradient of a singular matrix is an error.",
       .example = "local sign, logabsdet = pg.linalg.slogdet(pg.tensor({{1, 2}, {3, 4}}))  -- linalg_slogdet\n"
                  "return logabsdet",
       .inputs = {{"a", kReal}},
       .outputs = {"sign", "logabsdet"},
       .infer = infer_slogdet,
       .vjp = {[](Vjp& c) {
         if (!c.has_dy(1)) return call<"zeros_like">(c.in(0));
         return as_factor(c.dy(1)) * matrix_transpose(c.in_own_name([&] { return call<"linalg_inv">(c.in(0)); }));
       }},
       .vjp_uses = "a",
       .traits = kFunctionOnly | kTotal},
  };
}

}  // namespace

void add_determinant_ops(Registry& r) { r.add(determinant_rows()); }

}  // namespace pg
