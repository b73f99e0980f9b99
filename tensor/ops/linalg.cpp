// Matrix products.
#include "tensor/ops/all.h"
#include "tensor/ops/epilogue.h"
#include "tensor/ops/linalg_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

// [batch, m, k] x [batch, k, n]. A 1-dim operand is a row on the left and a column on the right; the result then lacks
// that dim.
// Checks that the last dim of input `left`, of shape x, is as long as dim `rows` (from 0) of the next input, of shape
// y.
void check_product(Infer& c, size_t left, const Dims& x, const Dims& y, int rows) {
  const int64_t k = x.back();
  if (k == y[rows]) return;
  const char* name = c.op().inputs[left + 1].name;
  const bool turned = y.size() > 1 && rows == y.size() - 2 && y.back() == k;
  c.bad_input(left + 1, fmt::format("{} {} to go with the {} {} of {} {}{}", k, y.size() == 1 ? "elements" : "rows", k,
                                    x.size() == 1 ? "elements" : "columns", c.op().inputs[left].name, to_string(x),
                                    turned ? fmt::format("; {}:transpose(-1, -2) has them", name) : ""));
}

Dims matmul_shape(Infer& c) {
  const Dims &x = c.shape(0), &y = c.shape(1);
  if (x.empty()) c.bad_input(0, "at least 1 dim");
  if (y.empty()) c.bad_input(1, "at least 1 dim");
  check_product(c, 0, x, y, y.size() == 1 ? 0 : y.size() - 2);
  Dims out;
  if (!broadcast(batch_of(x, 2), batch_of(y, 2), &out))
    c.bad_input(1, "leading dims that broadcast with " + to_string(x));
  if (x.size() > 1) out.push_back(x[x.size() - 2]);
  if (y.size() > 1) out.push_back(y.back());
  return out;
}

void infer_matmul(Infer& c) { c.output(promote(c.dtype(0), c.dtype(1)), matmul_shape(c)); }

void infer_matmul_add(Infer& c) {
  const Dims out = matmul_shape(c);
  if (!(c.shape(2) == out)) c.bad_input(2, "the shape of the product, " + to_string(out));
  c.output(promote(promote(c.dtype(0), c.dtype(1)), c.dtype(2)), out);
}

template <int kX, int kY>
void infer_ranks(Infer& c) {
  c.require_rank(0, kX);
  c.require_rank(1, kY);
  if (kX == 3 && c.shape(0)[0] != c.shape(1)[0]) c.bad_input(1, fmt::format("{} matrices like x", c.shape(0)[0]));
  infer_matmul(c);
}

// The cotangent with the dims that 1-dim operands removed.
Var full_cotangent(Vjp& c) {
  Var dy = c.dy();
  if (c.input(1).rank() == 1) dy = insert_dim(dy, -1);
  if (c.input(0).rank() == 1) dy = insert_dim(dy, -2);
  return dy;
}

Var grad_left(Vjp& c) {
  const Var y = c.input(1).rank() == 1 ? insert_dim(c.in(1), -1) : c.in(1);
  const Var g = call<"matmul">(full_cotangent(c), matrix_transpose(y));
  return c.input(0).rank() == 1 ? call<"squeeze">(g, {{"dim", Ints{-2}}}) : g;
}

// Reshapes v to one matrix of its rows.
Var rows_of(const Var& v) {
  const Dims& s = v.shape();
  return with_shape(v, {numel(batch_of(s, 1)), s.back()});
}

Var grad_right(Vjp& c) {
  const Var x = c.input(0).rank() == 1 ? insert_dim(c.in(0), -2) : c.in(0);
  const Var dy = full_cotangent(c);
  if (c.input(1).rank() <= 2 && x.rank() > 2) {  // one product for all rows
    const Var g = call<"matmul">(matrix_transpose(rows_of(x)), rows_of(dy));
    return c.input(1).rank() == 1 ? call<"squeeze">(g, {{"dim", Ints{-1}}}) : g;
  }
  const Var g = call<"matmul">(matrix_transpose(x), dy);
  return c.input(1).rank() == 1 ? call<"squeeze">(g, {{"dim", Ints{-1}}}) : g;
}

double product_work(std::span<const View> in, std::span<const View> out) {
  return double(out[0].numel()) * double(in[0].shape().back());
}

OpDef product(const char* name, const char* doc, const char* example, InferFn infer, uint32_t traits = kProduct) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"x", kNumeric}, {"y", kNumeric}},
          .infer = infer,
          .vjp = {grad_left, grad_right},
          .vjp_uses = "x y",
          .traits = kTotal | traits,
          .multiply_adds = product_work};
}

void infer_linear(Infer& c) {
  const Dims &x = c.shape(0), &w = c.shape(1);
  c.require_rank(1, 2);
  if (x.empty()) c.bad_input(0, "at least 1 dim");
  if (x.back() != w[1]) c.bad_input(1, fmt::format("a matrix with {} columns to go with x {}", x.back(), to_string(x)));
  if (c.has(2) && (c.rank(2) != 1 || c.shape(2)[0] != w[0])) c.bad_input(2, fmt::format("{} elements", w[0]));
  Dims out = x;
  out[out.size() - 1] = w[0];
  DType type = promote(c.dtype(0), c.dtype(1));
  if (c.has(2)) type = promote(type, c.dtype(2));
  c.output(type, out);
}

Var grad_linear_weight(Vjp& c) { return call<"matmul">(matrix_transpose(rows_of(c.dy())), rows_of(c.in(0))); }

void infer_dot(Infer& c) {
  const auto rank_ok = [&](size_t i) { return c.rank(i) == 1 || c.rank(i) == 2; };
  for (size_t i = 0; i < 2; ++i)
    if (!rank_ok(i)) c.bad_input(i, "1 or 2 dims (matmul takes more)");
  Dims x = c.shape(0), y = c.shape(1);
  if (c.attr<bool>("transpose_a") && x.size() == 2) std::swap(x[0], x[1]);
  if (c.attr<bool>("transpose_b") && y.size() == 2) std::swap(y[0], y[1]);
  check_product(c, 0, x, y, 0);
  Dims out;
  if (x.size() == 2) out.push_back(x[0]);
  if (y.size() == 2) out.push_back(y[1]);
  c.output(promote(c.dtype(0), c.dtype(1)), out);
}

std::vector<Var> decompose_dot(Rule& c) {
  Var x = c.in(0), y = c.in(1);
  if (c.attr<bool>("transpose_a") && x.rank() == 2) x = matrix_transpose(x);
  if (c.attr<bool>("transpose_b") && y.rank() == 2) y = matrix_transpose(y);
  return {call<"matmul">(x, y)};
}

void infer_outer(Infer& c) {
  c.require_rank(0, 1);
  c.require_rank(1, 1);
  c.output(promote(c.dtype(0), c.dtype(1)), {c.shape(0)[0], c.shape(1)[0]});
}

// input + the product of the other two inputs; `rank` is that of the product.
template <int kRank>
void infer_add_product(Infer& c) {
  const Dims &a = c.shape(1), &b = c.shape(2);
  c.require_rank(1, kRank);
  c.require_rank(2, kRank);
  check_product(c, 1, a, b, kRank - 2);
  if (kRank == 3 && a[0] != b[0]) c.bad_input(2, fmt::format("{} matrices", a[0]));
  Dims out = a, joined;
  out[kRank - 1] = b.back();
  if (!broadcast(c.shape(0), out, &joined) || !(joined == out))
    c.bad_input(0, "a shape that expands to " + to_string(out));
  c.output(promote(c.dtype(0), promote(c.dtype(1), c.dtype(2))), out);
}

std::vector<Var> decompose_add_product(Rule& c) {
  const double beta = c.attr<double>("beta"), alpha = c.attr<double>("alpha");
  Var product = call<"matmul">(c.in(1), c.in(2));
  if (alpha != 1) product = product * Var(alpha);
  if (beta == 0) return {product};
  return {(beta == 1 ? c.in(0) : c.in(0) * Var(beta)) + product};
}

OpDef add_product(const char* name, const char* doc, const char* example, const char* a, const char* b, InferFn infer) {
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {{"input", kNumeric}, {a, kNumeric}, {b, kNumeric}},
          .attrs = {{"beta", AttrKind::kFloat, 1.0, "factor of input; with 0 it is not read"},
                    {"alpha", AttrKind::kFloat, 1.0, "factor of the product"}},
          .infer = infer,
          .decompose = decompose_add_product,
          .traits = kWidens};
}

std::vector<OpDef> product_rows() {
  return {
      product("matmul",
              "The matrix product of the last two dims, broadcast over the leading ones. A 1-D x is a row, a 1-D y a "
              "column, "
              "and their dim is left out of the result.",
              "return pg.matmul(pg.ones(2, 3), pg.ones(3, 4))", infer_matmul),
      product("mm", "The product of two matrices.", "return pg.mm(pg.ones(2, 3), pg.ones(3, 4))", infer_ranks<2, 2>),
      product("bmm", "The products of two batches of matrices.", "return pg.bmm(pg.ones(5, 2, 3), pg.ones(5, 3, 4))",
              infer_ranks<3, 3>, 0),
      product("mv", "The product of a matrix and a vector.", "return pg.mv(pg.ones(2, 3), pg.ones(3))",
              infer_ranks<2, 1>),
      {.name = "dot",
       .doc = "The product of two vectors, of two matrices or of one and the other; matrices may be transposed first.",
       .example = "return pg.dot(pg.ones(3, 2), pg.ones(3, 4), {transpose_a = true})",
       .inputs = {{"x", kNumeric}, {"y", kNumeric}},
       .attrs = {{"transpose_a", AttrKind::kBool, false, "use the transpose of x"},
                 {"transpose_b", AttrKind::kBool, false, "use the transpose of y"}},
       .infer = infer_dot,
       .decompose = decompose_dot},
      {.name = "outer",
       .doc = "All products of an element of vector x (rows) and one of vector y (columns).",
       .example = "return pg.outer(pg.tensor({1, 2}), pg.tensor({3, 4, 5}))",
       .inputs = {{"x"}, {"y"}},
       .infer = infer_outer,
       .decompose = [](Rule& c) -> std::vector<Var> { return {insert_dim(c.in(0), -1) * insert_dim(c.in(1), -2)}; }},
      add_product("addmm", "beta * input + alpha * mat1 mat2.",
                  "return pg.addmm(pg.ones(2, 4), pg.ones(2, 3), pg.ones(3, 4), {alpha = 0.5})", "mat1", "mat2",
                  infer_add_product<2>),
      add_product("baddbmm", "beta * input + alpha * batch1 batch2, for batches of matrices.",
                  "return pg.baddbmm(pg.ones(5, 2, 4), pg.ones(5, 2, 3), pg.ones(5, 3, 4))", "batch1", "batch2",
                  infer_add_product<3>),
      {.name = "matmul_add",
       .doc = "z plus the matrix product of x and y. Made by graph passes.",
       .inputs = {{"x", kFloating}, {"y", kFloating}, {"z", kFloating}},
       .infer = infer_matmul_add,
       .decompose = [](Rule& c) -> std::vector<Var> { return {call<"matmul">(c.in(0), c.in(1)) + c.in(2)}; },
       .traits = kHidden | kTotal,
       .multiply_adds = product_work},
      {.name = "linear",
       .doc = "x weightᵀ + bias on the last dim of x; weight is (out, in).",
       .example = "return pg.ones(2, 3):linear(pg.ones(4, 3), pg.zeros(4))",
       .inputs = {{"x", kFloating}, {"weight", kFloating}, {"bias", kFloating, Arity::kOptional}},
       .infer = infer_linear,
       .vjp = {[](Vjp& c) { return call<"matmul">(c.dy(), c.in(1)); }, grad_linear_weight,
               [](Vjp& c) { return c.dy(); }},
       .vjp_uses = "x weight",
       .traits = kTotal | kChannels,
       .with_epilogue = op_named<"linear_act">,
       .multiply_adds = product_work},
      {.name = "linear_act",
       .doc = "An activation of linear. Made by graph passes.",
       .inputs = {{"x", kFloating}, {"weight", kFloating}, {"bias", kFloating, Arity::kOptional}},
       .attrs = {activation_attr(), slope_attr()},
       .infer = infer_linear,
       .decompose = [](Rule& c) -> std::vector<Var> {
         return {activated(c, call<"linear">(c.in(0), c.in(1), c.in(2)))};
       },
       .traits = kHidden | kTotal,
       .multiply_adds = product_work},
  };
}

}  // namespace

void add_linalg_ops(Registry& r) {
  r.add(product_rows());
  add_einsum_op(r);
  add_attention_op(r);
  add_solve_ops(r);
  add_factor_ops(r);
  add_determinant_ops(r);
  add_matrix_function_ops(r);
}

}  // namespace pg
