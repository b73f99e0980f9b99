// Functions of matrices: powers, the exponential, pseudoinverses and ranks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/ops/linalg_rules.h"

namespace pg {
namespace {

// By squaring (Knuth, The art of computer programming, volume 2, 4.6.3).
std::vector<Var> decompose_power(Rule& c) {
  const int64_t n = c.attr<int64_t>("n");
  if (n == 0) {  // plus a sum of nothing, through which the matrices get zeros as their gradient
    const Var none = call<"narrow">(c.in(0), {{"dim", int64_t(-1)}, {"start", int64_t(1)}, {"length", int64_t(0)}});
    return {identity_like(c.in(0)) + call<"sum">(none)};
  }
  Var square = n < 0 ? c.in_own_name([&] { return call<"linalg_inv">(c.in(0)); }) : c.in(0), power;
  for (int64_t left = std::abs(n);;) {
    if (left & 1) power = power.defined() ? matmul(power, square) : square;
    if (!(left >>= 1)) return {power};
    square = matmul(square, square);
  }
}

// exp([A G; 0 A]) has the derivative of exp at A in the direction G in its upper right block (Van Loan 1978; Higham,
// Functions of matrices, 2008, theorem 3.6). The adjoint of that derivative is the one at A^T.
Var grad_exp(Vjp& c) {
  const Var a = matrix_transpose(c.in(0)), zero = call<"zeros_like">(a);
  const int64_t n = a.shape().back();
  const auto beside = [](const Var& x, const Var& y) {
    const Var both[] = {x, y};
    return call_list<"cat">(both, {{"dim", int64_t(-1)}});
  };
  const Var rows[] = {beside(a, c.dy()), beside(zero, a)};
  const Var whole = call<"linalg_matrix_exp">(call_list<"cat">(rows, {{"dim", int64_t(-2)}}));
  return call<"narrow">(first_rows(whole, n), {{"dim", int64_t(-1)}, {"start", n + 1}, {"length", n}});
}

// --- pseudoinverse and rank ---

// The largest of atol and rtol times the largest singular value, one for each matrix; s is not empty.
Var tolerance(const Rule& c, const Var& s) {
  const Dims& shape = c.input(0).shape();
  const double epsilon = s.dtype() == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                      : double(std::numeric_limits<float>::epsilon());
  const double atol = c.attr<double>("atol");
  const double rtol = c.has_attr("rtol") ? c.attr<double>("rtol")
                      : atol > 0         ? 0.0
                                         : epsilon * double(std::max(shape[shape.size() - 2], shape.back()));
  const Var relative = first_columns(s, 1) * Var(rtol);  // s is in descending order
  return call<"maximum">(relative, Var(atol));
}

std::vector<AttrDef> tolerance_attrs() {
  return {{"atol", AttrKind::kFloat, 0.0, "singular values up to it count as 0", false, 0},
          {"rtol",
           AttrKind::kFloat,
           {},
           "the same, times the largest one; when nil 0 with an atol, else max(rows, columns) times the epsilon of the "
           "dtype",
           true,
           0}};
}

void infer_pinv(Infer& c) {
  require_matrices(c, 0);
  Dims out = c.shape(0);
  std::swap(out[out.size() - 1], out[out.size() - 2]);
  c.output(c.dtype(0), out);
}

std::vector<Var> decompose_pinv(Rule& c) {
  if (c.input(0).numel() == 0) return {call<"contiguous">(matrix_transpose(c.in(0)))};
  const std::vector<Var> f = call_all<"linalg_svd">({c.in(0)});
  const Var large = call<"gt">(f[1], tolerance(c, f[1]));
  const Var inverse = call<"where">(large, Var(1.0) / call<"where">(large, f[1], Var(1.0)), Var(0.0));
  const Var whole = matmul(scale_columns(matrix_transpose(f[2]), inverse), matrix_transpose(f[0]));
  // A matrix with NaN or inf has singular values of NaN.
  return {whole + insert_dim(first_columns(f[1], 1), -1) * Var(0.0)};
}

// For perturbations that keep the rank: dP = -P dA P + P P^T dA^T (I - A P) + (I - P A) dA^T P^T P (Golub and Pereyra,
// The differentiation of pseudo-inverses, 1973).
Var grad_pinv(Vjp& c) {
  const Var a = c.in(0), p = c.out(), pt = matrix_transpose(p), gt = matrix_transpose(c.dy());
  const Var left = gt - matmul(a, matmul(p, gt)), right = gt - matmul(matmul(gt, p), a);
  return matmul(matmul(left, p), pt) + matmul(pt, matmul(p, right)) - matmul(pt, matmul(c.dy(), pt));
}

void infer_rank(Infer& c) {
  require_matrices(c, 0);
  c.output(DType::kInt64, batch_of(c.shape(0), 2));
}

std::vector<Var> decompose_rank(Rule& c) {
  const Var s = call<"linalg_svdvals">(c.in(0));
  const Var counted = s.shape().back() == 0 ? s : call<"gt">(s, tolerance(c, s));
  return {call<"to">(call<"sum">(counted, {{"dim", Ints{-1}}}), {{"dtype", DType::kInt64}})};
}

std::vector<OpDef> function_rows() {
  return {
      {.name = "linalg_matrix_power",
       .doc = "The product of n times the same square matrix; of its inverse for negative n, and the identity for 0.",
       .example = "return pg.linalg.matrix_power(pg.tensor({{1, 1}, {1, 0}}), 10)  -- linalg_matrix_power",
       .inputs = {{"a", kReal}},
       .attrs = {{"n", AttrKind::kInt, {}, "the power", false, -1e15, 1e15}},
       .infer = infer_square,
       .decompose = decompose_power,
       .traits = kFunctionOnly},
      {.name = "linalg_matrix_exp",
       .doc = "The exponential of square matrices: I + a + a a / 2! + …",
       .example = "return pg.linalg.matrix_exp(pg.tensor({{0, 1}, {0, 0}}))  -- linalg_matrix_exp",
       .inputs = {{"a", kReal}},
       .infer = infer_square,
       .vjp = {grad_exp},
       .vjp_uses = "a",
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_pinv",
       .doc = "The Moore-Penrose pseudoinverse of matrices. Singular values up to the larger tolerance count as 0. The "
              "gradient is for changes that keep the rank.",
       .example = "return pg.linalg.pinv(pg.tensor({{1, 0}, {0, 2}, {0, 0}}))  -- linalg_pinv",
       .inputs = {{"a", kReal}},
       .attrs = tolerance_attrs(),
       .infer = infer_pinv,
       .vjp = {grad_pinv},
       .vjp_uses = "a out",
       .decompose = decompose_pinv,
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_matrix_rank",
       .doc = "How many singular values of a matrix are above the larger tolerance. int64.",
       .example = "return pg.linalg.matrix_rank(pg.tensor({{1, 2}, {2, 4}}))  -- linalg_matrix_rank",
       .inputs = {{"a", kReal}},
       .attrs = tolerance_attrs(),
       .infer = infer_rank,
       .decompose = decompose_rank,
       .traits = kFunctionOnly | kNoGrad | kTotal},
  };
}

}  // namespace

void add_matrix_function_ops(Registry& r) { r.add(function_rows()); }

}  // namespace pg
