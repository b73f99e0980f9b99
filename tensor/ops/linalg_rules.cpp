#include "tensor/ops/linalg_rules.h"

namespace pg {

Var matrix_transpose(const Var& v) { return call<"transpose">(v, {{"dim0", int64_t(-2)}, {"dim1", int64_t(-1)}}); }

Var with_shape(const Var& v, const Dims& shape) { return call<"reshape_to">(v, {{"shape", ints(shape)}}); }

Var matmul(const Var& a, const Var& b) { return call<"matmul">(a, b); }

Var insert_dim(const Var& v, int64_t dim) { return call<"unsqueeze">(v, {{"dim", dim}}); }

Var diagonal(const Var& v) { return call<"diagonal">(v, {{"dim1", int64_t(-2)}, {"dim2", int64_t(-1)}}); }

Var diagonal_matrix(const Var& v) { return call<"diag_embed">(v); }

Var first_rows(const Var& v, int64_t count) {
  return call<"narrow">(v, {{"dim", int64_t(-2)}, {"start", int64_t(1)}, {"length", count}});
}

Var first_columns(const Var& v, int64_t count) {
  return call<"narrow">(v, {{"dim", int64_t(-1)}, {"start", int64_t(1)}, {"length", count}});
}

Var scale_columns(const Var& matrix, const Var& v) { return matrix * insert_dim(v, -2); }

Var identity_like(const Var& v) { return diagonal_matrix(call<"zeros_like">(diagonal(v)) + Var(1.0)); }

Var symmetric_part(const Var& v) { return (v + matrix_transpose(v)) * Var(0.5); }

Var triangle(const Var& v, bool upper, bool strict) {
  if (upper) return call<"triu">(v, {{"diagonal", int64_t(strict)}});
  return call<"tril">(v, {{"diagonal", -int64_t(strict)}});
}

Dims batch_of(const Dims& shape, int matrix_dims) {
  Dims out;
  for (int i = 0; i + matrix_dims < shape.size(); ++i) out.push_back(shape[i]);
  return out;
}

void require_matrices(Infer& c, size_t i) {
  if (c.rank(i) < 2) c.bad_input(i, "matrices in the last two dims");
}

void require_square(Infer& c, size_t i) {
  const Dims& s = c.shape(i);
  if (s.size() < 2 || s[s.size() - 1] != s[s.size() - 2]) c.bad_input(i, "square matrices in the last two dims");
}

void infer_square(Infer& c) {
  require_square(c, 0);
  c.output(c.dtype(0), c.shape(0));
}

bool is_vector_side(const Dims& a, const Dims& b) {
  if (b.size() == 1) return true;
  if (b.size() + 1 != a.size()) return false;
  for (int i = 0; i < b.size(); ++i)
    if (a[i] != b[i]) return false;
  return true;
}

Var solve_triangular(const Var& a, const Var& b, Side side) {
  return call<"linalg_solve_triangular">(
      a, b, {{"upper", side.upper}, {"left", side.left}, {"transpose", side.transposed}, {"unitriangular", side.unit}});
}

}  // namespace pg
