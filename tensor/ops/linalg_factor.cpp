// Factorizations of matrices.
#include <algorithm>

#include "tensor/ops/linalg_rules.h"

namespace pg {
namespace {

struct Size {
  int64_t rows, columns;
  explicit Size(const Dims& s) : rows(s[s.size() - 2]), columns(s.back()) {}
  int64_t least() const { return std::min(rows, columns); }
};

Dims matrices(const Dims& shape, int64_t rows, int64_t columns) {
  Dims out = batch_of(shape, 2);
  out.push_back(rows);
  out.push_back(columns);
  return out;
}

Dims vectors(const Dims& shape, int64_t size) {
  Dims out = batch_of(shape, 2);
  out.push_back(size);
  return out;
}

// x / divisor, but 0 where both are 0. A graph has zero cotangents for what its caller does not use; they give no
// gradient, whatever they are divided by.
Var quotient(const Var& x, const Var& divisor) {
  const Var none = call<"logical_and">(call<"eq">(x, Var(0.0)), call<"eq">(divisor, Var(0.0)));
  return x / call<"where">(none, Var(1.0), divisor);
}

// Checks, when the gradient runs, that nothing depends on the columns of a basis after the first k: any others that
// complete the basis would do. `dy` is the cotangent of the basis.
void require_unused(const Var& dy, int64_t k, const char* message) {
  if (dy.shape().back() == k) return;
  const Var rest = call<"narrow">(dy, {{"dim", int64_t(-1)}, {"start", k + 1}, {"length", dy.shape().back() - k}});
  call<"assert">(call<"all">(call<"eq">(rest, Var(0.0))), {{"message", std::string(message)}});
}

// dA = L^-T phi(L^T dL) L^-1, symmetrized. phi keeps the lower triangle and halves the diagonal (Murray,
// Differentiation of the Cholesky decomposition, 2016).
Var grad_cholesky(Vjp& c) {
  const Var p = matmul(matrix_transpose(c.out()), triangle(c.dy(), false));
  const Var phi = (triangle(p, false) + triangle(p, false, true)) * Var(0.5);
  const Var half = solve_triangular(c.out(), phi, {.upper = false, .transposed = true});
  return symmetric_part(solve_triangular(c.out(), half, {.upper = false, .left = false}));
}

// --- QR ---

void infer_qr(Infer& c) {
  require_matrices(c, 0);
  const Size a(c.shape(0));
  const int64_t k = c.attr<std::string>("mode") == "complete" ? a.rows : a.least();
  c.output(c.dtype(0), matrices(c.shape(0), a.rows, k));
  c.output(c.dtype(0), matrices(c.shape(0), k, a.columns));
}

// For as many columns as q has, and a square r (Walter and Lehmann, Algorithmic differentiation of linear algebra
// functions, 2010; the form of Seeger et al., Auto-differentiating linear algebra, 2017).
Var grad_tall_qr(const Var& q, const Var& r, const Var& dq, const Var& dr) {
  const Var m = matmul(r, matrix_transpose(dr)) - matmul(matrix_transpose(dq), q);
  const Var low = triangle(m, false, true);
  const Var copied = low + matrix_transpose(low) + diagonal_matrix(diagonal(m));
  return solve_triangular(r, dq + matmul(q, copied), {.upper = true, .left = false, .transposed = true});
}

// A wide a = q [r s] is the square [q r] beside q s, so that s = q^T of the other columns of a.
Var grad_wide_qr(const Var& a, const Var& q, const Var& r, const Var& dq, const Var& dr) {
  const int64_t k = q.shape().back(), rest = r.shape().back() - k;
  const auto right = [&](const Var& v) {
    return call<"narrow">(v, {{"dim", int64_t(-1)}, {"start", k + 1}, {"length", rest}});
  };
  const Var ds = right(dr);
  const Var square =
      grad_tall_qr(q, first_columns(r, k), dq + matmul(right(a), matrix_transpose(ds)), first_columns(dr, k));
  const Var both[] = {square, matmul(q, ds)};
  return call_list<"cat">(both, {{"dim", int64_t(-1)}});
}

Var grad_qr(Vjp& c) {
  const Size a(c.input(0).shape());
  if (a.rows < a.columns) return grad_wide_qr(c.in(0), c.out(0), c.out(1), c.dy(0), c.dy(1));
  const int64_t k = a.columns;
  if (c.has_dy(0))
    require_unused(c.dy(0), k,
                   "linalg.qr: with mode = \"complete\" the gradient of the columns of q after those of a is not "
                   "defined; use mode = \"reduced\"");
  return grad_tall_qr(first_columns(c.out(0), k), first_rows(c.out(1), k), first_columns(c.dy(0), k),
                      first_rows(c.dy(1), k));
}

// --- singular values ---

void infer_svd(Infer& c) {
  require_matrices(c, 0);
  const Size a(c.shape(0));
  const bool full = c.attr<bool>("full_matrices");
  c.output(c.dtype(0), matrices(c.shape(0), a.rows, full ? a.rows : a.least()));
  c.output(c.dtype(0), vectors(c.shape(0), a.least()));
  c.output(c.dtype(0), matrices(c.shape(0), full ? a.columns : a.least(), a.columns));
}

void infer_svdvals(Infer& c) {
  require_matrices(c, 0);
  c.output(c.dtype(0), vectors(c.shape(0), Size(c.shape(0)).least()));
}

// x_ij / (v_j - v_i) without the diagonal, which becomes 0.
Var over_differences(const Var& x, const Var& v) {
  const Var gaps = insert_dim(v, -2) - insert_dim(v, -1) + identity_like(x);
  return quotient(x - diagonal_matrix(diagonal(x)), gaps);
}

Var skew_part(const Var& x) { return x - matrix_transpose(x); }

// Townsend, Differentiating the singular value decomposition, 2016. Without cotangents of u and vh nothing is divided
// by the gaps between singular values, so that equal ones do no harm.
Var grad_svd(Vjp& c) {
  const Size a(c.input(0).shape());
  const int64_t k = a.least();
  const bool vectors = c.has_dy(0) || c.has_dy(2);
  const char* const unused =
      "linalg.svd: with full_matrices = true the gradient of the columns of u and rows of vh after the first "
      "min(rows, columns) is not defined; use full_matrices = false";
  if (c.has_dy(0)) require_unused(c.dy(0), k, unused);
  if (c.has_dy(2)) require_unused(matrix_transpose(c.dy(2)), k, unused);
  const Var u = first_columns(c.out(0), k), s = c.out(1), vh = first_rows(c.out(2), k);
  if (!vectors) return matmul(scale_columns(u, c.dy(1)), vh);
  const Var du = first_columns(c.dy(0), k), dv = matrix_transpose(first_rows(c.dy(2), k)), v = matrix_transpose(vh);
  const Var ut_du = matmul(matrix_transpose(u), du), vt_dv = matmul(vh, dv), squares = s * s;
  const Var inner = scale_columns(over_differences(skew_part(ut_du), squares), s) +
                    insert_dim(s, -1) * over_differences(skew_part(vt_dv), squares) + diagonal_matrix(c.dy(1));
  Var left = matmul(u, inner);
  if (a.rows > k) left = left + quotient(du - matmul(u, ut_du), insert_dim(s, -2));
  Var g = matmul(left, vh);
  if (a.columns > k) g = g + matmul(u, matrix_transpose(quotient(dv - matmul(v, vt_dv), insert_dim(s, -2))));
  return g;
}

// --- eigenvalues ---

void infer_eigvalsh(Infer& c) {
  require_square(c, 0);
  c.output(c.dtype(0), vectors(c.shape(0), c.shape(0).back()));
}

void infer_eigh(Infer& c) {
  infer_eigvalsh(c);
  c.output(c.dtype(0), c.shape(0));
}

// Giles, An extended collection of matrix derivative results, 2008, section 3.1; symmetrized.
Var grad_eigh(Vjp& c) {
  const Var vectors = c.out(1), t = matrix_transpose(vectors);
  Var inner = diagonal_matrix(c.dy(0));
  if (c.has_dy(1)) inner = inner + over_differences(matmul(t, c.dy(1)), c.out(0));
  return symmetric_part(matmul(vectors, matmul(inner, t)));
}

std::vector<OpDef> factor_rows() {
  return {
      {.name = "linalg_cholesky",
       .doc = "The lower triangular L with L Lᵀ = a for symmetric positive definite matrices a, of which only the "
              "lower triangle is read.",
       .example = "return pg.linalg.cholesky(pg.tensor({{4, 2}, {2, 3}}))  -- linalg_cholesky",
       .inputs = {{"a", kReal}},
       .infer = infer_square,
       .vjp = {grad_cholesky},
       .vjp_uses = "out",
       .traits = kFunctionOnly},
      {.name = "linalg_qr",
       .doc = "a = q r with orthonormal columns in q and an upper triangle r. With k = min(rows, columns), q has k "
              "columns in mode \"reduced\" and is square in mode \"complete\". The signs of the diagonal of r are not "
              "specified. The gradient needs linearly independent first k columns of a.",
       .example = "local q, r = pg.linalg.qr(pg.tensor({{3, 1}, {4, 2}}))  -- linalg_qr\nreturn r",
       .inputs = {{"a", kReal}},
       .attrs = {{.name = "mode",
                  .kind = AttrKind::kString,
                  .fallback = std::string("reduced"),
                  .doc = "the size of q",
                  .choices = {"reduced", "complete"}}},
       .outputs = {"q", "r"},
       .infer = infer_qr,
       .vjp = {grad_qr},
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_svd",
       .doc = "a = u diag(s) vh with orthonormal columns in u and rows in vh, and s in descending order. The largest "
              "element of each column of u, by absolute value, is positive. NaN or inf in a matrix gives NaN. The "
              "gradient of u and vh needs distinct singular values, and s > 0 where a is not "
              "square; that of s does not.",
       .example = "local u, s, vh = pg.linalg.svd(pg.tensor({{3, 0}, {0, -4}}))  -- linalg_svd\nreturn s",
       .inputs = {{"a", kReal}},
       .attrs = {{"full_matrices", AttrKind::kBool, false, "square u and vh, not only the first min(rows, columns)"}},
       .outputs = {"u", "s", "vh"},
       .infer = infer_svd,
       .vjp = {grad_svd},
       .vjp_uses = "u s vh",
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_svdvals",
       .doc = "The singular values of matrices in descending order; NaN where a matrix has NaN or inf.",
       .example = "return pg.linalg.svdvals(pg.tensor({{3, 0}, {0, -4}}))  -- linalg_svdvals",
       .inputs = {{"a", kReal}},
       .infer = infer_svdvals,
       .decompose = [](Rule& c) -> std::vector<Var> { return {call_all<"linalg_svd">({c.in(0)})[1]}; },
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_eigh",
       .doc =
           "The eigenvalues in ascending order, and the eigenvectors as columns, of symmetric matrices, of which "
           "only the lower triangle is read. The largest element of each vector, by absolute value, is positive. NaN "
           "or inf in a matrix gives NaN. The gradient of the vectors needs distinct eigenvalues.",
       .example = "local values, vectors = pg.linalg.eigh(pg.tensor({{2, 1}, {1, 2}}))  -- linalg_eigh\nreturn values",
       .inputs = {{"a", kReal}},
       .outputs = {"values", "vectors"},
       .infer = infer_eigh,
       .vjp = {grad_eigh},
       .vjp_uses = "values vectors",
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_eigvalsh",
       .doc = "The eigenvalues in ascending order of symmetric matrices, of which only the lower triangle is read.",
       .example = "return pg.linalg.eigvalsh(pg.tensor({{2, 1}, {1, 2}}))  -- linalg_eigvalsh",
       .inputs = {{"a", kReal}},
       .infer = infer_eigvalsh,
       .decompose = [](Rule& c) -> std::vector<Var> { return {call_all<"linalg_eigh">({c.in(0)})[0]}; },
       .traits = kFunctionOnly | kTotal},
  };
}

}  // namespace

void add_factor_ops(Registry& r) { r.add(factor_rows()); }

}  // namespace pg
