// Linear systems: solvers, inverses, least squares.
#include "tensor/ops/linalg_rules.h"

namespace pg {
namespace {

// Sets the output of a solve with matrices of `rows` rows and `size` unknowns in input i and right-hand sides in the
// other one, where b are vectors or matrices for each.
void infer_unknowns(Infer& c, size_t i, int64_t rows, int64_t size) {
  const Dims &a = c.shape(i), &b = c.shape(1 - i);
  if (b.empty()) c.bad_input(1 - i, fmt::format("{} rows", rows));
  const bool vector = is_vector_side(a, b);
  if ((vector ? b.back() : b[b.size() - 2]) != rows)
    c.bad_input(1 - i, fmt::format("{} rows to go with {}", rows, to_string(a)));
  Dims out;
  if (!broadcast(batch_of(a, 2), batch_of(b, vector ? 1 : 2), &out))
    c.bad_input(1 - i, "leading dims that broadcast with " + to_string(a));
  out.push_back(size);
  if (!vector) out.push_back(b.back());
  c.output(promote(c.dtype(0), c.dtype(1)), out);
}

void infer_solve(Infer& c) {
  require_square(c, 0);
  infer_unknowns(c, 0, c.shape(0).back(), c.shape(0).back());
}

void vjp_solve(Vjp& c) {
  const Var g = call<"linalg_solve">(matrix_transpose(c.in(0)), c.dy()), x = c.out();
  if (c.needs(1)) c.set(1, g);
  if (!c.needs(0)) return;
  const bool vector = is_vector_side(c.input(0).shape(), c.input(1).shape());
  c.set(0, -(vector ? insert_dim(g, -1) * insert_dim(x, -2) : matmul(g, matrix_transpose(x))));
}

Var grad_inv(Vjp& c) {
  const Var t = matrix_transpose(c.out());
  return -matmul(t, matmul(c.dy(), t));
}

// --- triangular systems ---

Side side_of(const AttrReader& c) {
  return {c.attr<bool>("upper"), c.attr<bool>("left"), c.attr<bool>("transpose"), c.attr<bool>("unitriangular")};
}

void infer_solve_triangular(Infer& c) {
  require_square(c, 0);
  require_matrices(c, 1);
  const Dims &a = c.shape(0), &b = c.shape(1);
  const bool left = c.attr<bool>("left");
  if (b[b.size() - (left ? 2 : 1)] != a.back())
    c.bad_input(1, fmt::format("{} {} to go with {}", a.back(), left ? "rows" : "columns", to_string(a)));
  Dims out;
  if (!broadcast(batch_of(a, 2), batch_of(b, 2), &out))
    c.bad_input(1, "leading dims that broadcast with " + to_string(a));
  out.push_back(b[b.size() - 2]);
  out.push_back(b.back());
  c.output(promote(c.dtype(0), c.dtype(1)), out);
}

// op(a) x = b gives d op(a) x + op(a) dx = 0; only the triangle that is read has a gradient.
void vjp_solve_triangular(Vjp& c) {
  const Side side = side_of(c);
  Side other = side;
  other.transposed = !side.transposed;
  const Var g = solve_triangular(c.in(0), c.dy(), other), x = c.out();
  if (c.needs(1)) c.set(1, g);
  if (!c.needs(0)) return;
  const Var d = side.left ? matmul(g, matrix_transpose(x)) : matmul(matrix_transpose(x), g);
  c.set(0, -triangle(side.transposed ? matrix_transpose(d) : d, side.upper, side.unit));
}

void infer_cholesky_solve(Infer& c) {
  require_matrices(c, 0);
  require_square(c, 1);
  const Dims &b = c.shape(0), &l = c.shape(1);
  if (b[b.size() - 2] != l.back()) c.bad_input(0, fmt::format("{} rows to go with l {}", l.back(), to_string(l)));
  Dims out;
  if (!broadcast(batch_of(l, 2), batch_of(b, 2), &out))
    c.bad_input(0, "leading dims that broadcast with " + to_string(l));
  out.push_back(l.back());
  out.push_back(b.back());
  c.output(promote(c.dtype(0), c.dtype(1)), out);
}

std::vector<Var> decompose_cholesky_solve(Rule& c) {
  const bool upper = c.attr<bool>("upper");
  const Var y = solve_triangular(c.in(1), c.in(0), {.upper = upper, .transposed = upper});
  return {solve_triangular(c.in(1), y, {.upper = upper, .transposed = !upper})};
}

// --- least squares ---

void infer_lstsq(Infer& c) {
  require_matrices(c, 0);
  const Dims& a = c.shape(0);
  infer_unknowns(c, 0, a[a.size() - 2], a.back());
}

// The least squares solution for tall matrices, that of the smallest norm for wide ones.
Var solve_by_qr(const Var& a, const Var& b) {
  const bool wide = a.shape()[a.rank() - 2] < a.shape().back();
  const std::vector<Var> qr = call_all<"linalg_qr">({wide ? matrix_transpose(a) : a});
  const Side side{.upper = true, .transposed = wide};
  if (wide) return matmul(qr[0], solve_triangular(qr[1], b, side));
  return solve_triangular(qr[1], matmul(matrix_transpose(qr[0]), b), side);
}

std::vector<Var> decompose_lstsq(Rule& c) {
  const DType t = promote(c.input(0).dtype(), c.input(1).dtype());
  const auto input = [&](size_t i) { return c.input(i).dtype() == t ? c.in(i) : call<"to">(c.in(i), {{"dtype", t}}); };
  const bool vector = is_vector_side(c.input(0).shape(), c.input(1).shape());
  const Var a = input(0), b = vector ? insert_dim(input(1), -1) : input(1);
  const Var x = c.attr<std::string>("driver") == "gels" ? solve_by_qr(a, b)
                                                        : matmul(call<"linalg_pinv">(a, {{"rtol", c.raw("rcond")}}), b);
  return {vector ? call<"squeeze">(x, {{"dim", Ints{-1}}}) : x};
}

std::vector<OpDef> solve_rows() {
  return {
      {.name = "linalg_solve",
       .doc = "x with a x = b for square matrices a; b is a vector or a matrix for each. A singular a is an error.",
       .example = "return pg.linalg.solve(pg.tensor({{2, 0}, {0, 4}}), pg.tensor({2, 4}))  -- linalg_solve",
       .inputs = {{"a", kReal}, {"b", kReal}},
       .infer = infer_solve,
       .vjp_all = vjp_solve,
       .vjp_uses = "a out",
       .traits = kFunctionOnly},
      {.name = "linalg_inv",
       .doc = "The inverse of square matrices. A singular one is an error, or has inf everywhere.",
       .example = "return pg.linalg.inv(pg.tensor({{2, 0}, {0, 4}}))  -- linalg_inv",
       .inputs = {{"a", kReal}},
       .attrs = {{"check_errors", AttrKind::kBool, true, "whether a singular matrix is an error"}},
       .infer = infer_square,
       .vjp = {grad_inv},
       .vjp_uses = "out",
       .traits = kFunctionOnly},
      {.name = "linalg_solve_triangular",
       .doc = "x with a x = b for triangular matrices a, or with x a = b if not `left`. The other triangle of a is not "
              "read. A 0 on the diagonal gives numbers without meaning.",
       .example = "return pg.linalg.solve_triangular(pg.tensor({{2, 0}, {1, 4}}), pg.tensor({{2}, {9}}), "
                  "{upper = false})  -- linalg_solve_triangular",
       .inputs = {{"a", kReal}, {"b", kReal}},
       .attrs = {{"upper", AttrKind::kBool, {}, "whether a is the upper triangle, else the lower one"},
                 {"left", AttrKind::kBool, true, "whether a is on the left of x"},
                 {"transpose", AttrKind::kBool, false, "use the transpose of a; `upper` is still that of a"},
                 {"unitriangular", AttrKind::kBool, false, "the diagonal of a counts as ones and is not read"}},
       .infer = infer_solve_triangular,
       .vjp_all = vjp_solve_triangular,
       .vjp_uses = "a out",
       .traits = kFunctionOnly | kTotal},
      {.name = "linalg_cholesky_solve",
       .doc = "x with a x = b for a = l lᵀ, where l is the result of pg.linalg.cholesky(a); "
              "for a = lᵀ l if `upper`.",
       .example = "return pg.linalg.cholesky_solve(pg.tensor({{4}, {6}}), pg.tensor({{2, 0}, {0, 1}}))"
                  "  -- linalg_cholesky_solve",
       .inputs = {{"b", kReal}, {"l", kReal}},
       .attrs = {{"upper", AttrKind::kBool, false, "whether l is an upper triangle"}},
       .infer = infer_cholesky_solve,
       .decompose = decompose_cholesky_solve,
       .traits = kFunctionOnly},
      {.name = "linalg_lstsq",
       .doc = "x with the smallest sum of squares of a x - b, and of those the shortest; b is a vector or a matrix for "
              "each a. The driver \"gels\" (by QR) is for matrices of full rank, min(rows, columns): others give "
              "numbers without meaning. \"gelsd\" (by SVD, slower) is for all.",
       .example = "return pg.linalg.lstsq(pg.tensor({{1, 0}, {1, 1}, {1, 2}}), pg.tensor({1, 3, 5}))  -- linalg_lstsq",
       .inputs = {{"a", kReal}, {"b", kReal}},
       .attrs = {{"rcond", AttrKind::kFloat, {}, "rtol of pg.linalg.pinv, for \"gelsd\"", true, 0},
                 {.name = "driver",
                  .kind = AttrKind::kString,
                  .fallback = std::string("gels"),
                  .doc = "how it is computed",
                  .choices = {"gels", "gelsd"}}},
       .infer = infer_lstsq,
       .decompose = decompose_lstsq,
       .traits = kFunctionOnly},
  };
}

}  // namespace

void add_solve_ops(Registry& r) { r.add(solve_rows()); }

}  // namespace pg
