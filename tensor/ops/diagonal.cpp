// Diagonals and triangles of matrices.
#include <algorithm>
#include <cmath>

#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {
namespace {

// The two dims of the matrices, and the start and length of the diagonal.
struct Diagonal {
  int rows, columns;
  int64_t row = 0, column = 0, length = 0;
};

Diagonal diagonal_of(const AttrReader& c, const Dims& shape) {
  const int rank = shape.size();
  if (rank < 2) bad_argument(c.op().name, "x", "at least 2 dims", std::to_string(rank));
  Diagonal d{c.dim("dim1", rank), c.dim("dim2", rank)};
  if (d.rows == d.columns) bad_argument(c.op().name, "dim2", "another dim than dim1", to_string(c.raw("dim2")));
  const int64_t offset = c.attr<int64_t>("offset");
  d.row = offset < 0 ? -offset : 0;
  d.column = offset > 0 ? offset : 0;
  d.length = std::max<int64_t>(0, std::min(shape[d.rows] - d.row, shape[d.columns] - d.column));
  if (d.length == 0) d.row = d.column = 0;
  return d;
}

Dims diagonal_shape(const Dims& shape, const Diagonal& d) {
  Dims out = shape;
  out.erase(std::max(d.rows, d.columns));
  out.erase(std::min(d.rows, d.columns));
  out.push_back(d.length);
  return out;
}

bool view_diagonal(ViewArgs& c) {
  const Diagonal d = diagonal_of(c, c.input.type.shape);
  const Dims& strides = c.input.strides;
  c.offset = d.row * strides[d.rows] + d.column * strides[d.columns];
  c.strides = strides;
  c.strides.erase(std::max(d.rows, d.columns));
  c.strides.erase(std::min(d.rows, d.columns));
  c.strides.push_back(strides[d.rows] + strides[d.columns]);
  return true;
}

void infer_diagonal_backward(Infer& c) {
  const Dims shape{std::span<const int64_t>(c.attr<Ints>("shape"))};
  if (!(diagonal_shape(shape, diagonal_of(c, shape)) == c.shape(0))) c.bad_input(0, "the shape of the diagonal");
  c.output(c.dtype(0), shape);
}

// Returns the shape of the result of diag_embed.
Dims embedded(const AttrReader& c, const Dims& x) {
  if (x.empty()) bad_argument(c.op().name, "x", "at least 1 dim", "0");
  const int rank = x.size() + 1;
  const int a = c.dim("dim1", rank), b = c.dim("dim2", rank);
  if (a == b) bad_argument(c.op().name, "dim2", "another dim than dim1", to_string(c.raw("dim2")));
  const int64_t size = x.back() + std::abs(c.attr<int64_t>("offset"));
  Dims out = x;
  out.pop_back();
  out.insert(std::min(a, b), size);
  out.insert(std::max(a, b), size);
  return out;
}

void infer_diag(Infer& c) {
  const Dims& x = c.shape(0);
  const int64_t k = c.attr<int64_t>("diagonal");
  if (x.size() == 1) {
    const int64_t n = x[0] + std::abs(k);
    return c.output(c.dtype(0), {n, n});
  }
  if (x.size() != 2) c.bad_input(0, "1 or 2 dims");
  c.output(c.dtype(0),
           {std::max<int64_t>(0, std::min(x[0] - std::max<int64_t>(-k, 0), x[1] - std::max<int64_t>(k, 0)))});
}

std::vector<Var> decompose_diag(Rule& c) {
  if (c.input(0).rank() == 1) return {call<"diag_embed">(c.in(0), {{"offset", c.raw("diagonal")}})};
  return {call<"diagonal">(c.in(0), {{"offset", c.raw("diagonal")}})};
}

void infer_triangle(Infer& c) {
  if (c.rank(0) < 2) c.bad_input(0, "at least 2 dims");
  c.output(c.dtype(0), c.shape(0));
}

AttrDef offset_attr(const char* name) {
  return {name, AttrKind::kInt, int64_t(0), "0 is the main diagonal, positive ones are above it", false, -1e15, 1e15};
}
AttrDef dim_attr(const char* name, int64_t fallback) {
  return {name, AttrKind::kDim, fallback, "a dim that spans the matrices"};
}

std::vector<OpDef> diagonal_rows() {
  const AttrDef kShape = {"shape", AttrKind::kInts, {}, "sizes of the result"};
  return {
      {.name = "diagonal",
       .doc = "The diagonal of the matrices that dims dim1 and dim2 span, as a new last dim. A view.",
       .example = "return pg.tensor({{1, 2}, {3, 4}}):diagonal()",
       .inputs = {{"x"}},
       .attrs = {offset_attr("offset"), dim_attr("dim1", 1), dim_attr("dim2", 2)},
       .infer = [](Infer& c) { c.output(c.dtype(0), diagonal_shape(c.shape(0), diagonal_of(c, c.shape(0)))); },
       .view = view_diagonal,
       .vjp = {[](Vjp& c) {
         return call_like<"diagonal_backward">(c, {c.dy()}, {{"shape", ints(c.input(0).shape())}});
       }},
       .vjp_uses = "",
       .traits = kView},
      {.name = "diagonal_backward",
       .doc = "Zeros of `shape` except for the diagonal, which is dy: the derivative of diagonal.",
       .inputs = {{"dy"}},
       .attrs = {kShape, offset_attr("offset"), dim_attr("dim1", 1), dim_attr("dim2", 2)},
       .infer = infer_diagonal_backward,
       .vjp = {[](Vjp& c) { return call_like<"diagonal">(c, {c.dy()}); }},
       .vjp_uses = "",
       .traits = kHidden},
      {.name = "diag_embed",
       .doc = "Square matrices, spanned by dims dim1 and dim2 of the result, that are zero except for a diagonal, "
              "which is the last dim of x.",
       .example = "return pg.tensor({1, 2}):diag_embed()",
       .inputs = {{"x"}},
       .attrs = {offset_attr("offset"), dim_attr("dim1", -2), dim_attr("dim2", -1)},
       .infer = [](Infer& c) { c.output(c.dtype(0), embedded(c, c.shape(0))); },
       .decompose = [](Rule& c) -> std::vector<Var> {
         return {call_like<"diagonal_backward">(c, {c.in(0)}, {{"shape", ints(embedded(c, c.input(0).shape()))}})};
       }},
      {.name = "diag",
       .doc = "The diagonal of a matrix, or a square matrix with x on its diagonal when x is 1-dim.",
       .example = "return pg.tensor({1, 2}):diag()",
       .inputs = {{"x"}},
       .attrs = {offset_attr("diagonal")},
       .infer = infer_diag,
       .decompose = decompose_diag},
      {.name = "tril",
       .doc = "The lower triangle of the matrices in the last two dims; elements above diagonal `diagonal` become 0.",
       .example = "return pg.ones(3, 3):tril()",
       .inputs = {{"x"}},
       .attrs = {offset_attr("diagonal")},
       .infer = infer_triangle,
       .vjp = {[](Vjp& c) {
         return call<"tril">(c.dy(), {{"diagonal", c.raw("diagonal")}});
       }},
       .vjp_uses = ""},
      {.name = "triu",
       .doc = "The upper triangle of the matrices in the last two dims; elements below diagonal `diagonal` become 0.",
       .example = "return pg.ones(3, 3):triu()",
       .inputs = {{"x"}},
       .attrs = {offset_attr("diagonal")},
       .infer = infer_triangle,
       .vjp = {[](Vjp& c) {
         return call<"triu">(c.dy(), {{"diagonal", c.raw("diagonal")}});
       }},
       .vjp_uses = ""},
  };
}

}  // namespace

void add_diagonal_ops(Registry& r) { r.add(diagonal_rows()); }

}  // namespace pg
