// Tensors made of all choices of elements, powers or positions; and correlations.
#include <algorithm>

#include "tensor/ops/all.h"
#include "tensor/ops/index.h"
#include "tensor/ops/reduce_rules.h"
#include "tensor/rule.h"

namespace pg {
namespace {

// --- cartesian_prod and combinations ---

void infer_cartesian(Infer& c) {
  if (c.count() == 0) bad_argument(c.op().name, "tensors", "at least one tensor", "none");
  DType t = c.dtype(0);
  Dims out = {1, int64_t(c.count())};
  for (size_t i = 0; i < c.count(); ++i) {
    c.require_rank(i, 1);
    out[0] = times(out[0], c.shape(i)[0]);
    t = promote(t, c.dtype(i));
  }
  c.output(t, c.count() == 1 ? c.shape(0) : out);
}

// Column i repeats each element as often as the later tensors have rows, and all that for the earlier ones.
std::vector<Var> decompose_cartesian(Rule& c) {
  if (c.count() == 1) return {c.in(0)};
  int64_t rows = 1, before = 1;
  for (size_t i = 0; i < c.count(); ++i) rows = times(rows, c.input(i).numel());
  std::vector<Var> columns;
  for (size_t i = 0; i < c.count(); ++i) {
    const int64_t n = c.input(i).numel(), after = rows == 0 ? 0 : rows / before / n;
    const Var block = call<"expand">(reshaped(c.in(i), {1, n, 1}), {{"shape", Ints{before, n, after}}});
    columns.push_back(reshaped(block, {rows}));
    before = rows == 0 ? 0 : before * n;
  }
  return {call_list<"stack">(columns, {{"dim", int64_t(2)}})};
}

// Returns the binomial coefficient, saturated at kMostSize.
int64_t choose(int64_t n, int64_t k) {
  if (k < 0 || k > n) return 0;
  k = std::min(k, n - k);
  __int128 count = 1;
  for (int64_t i = 1; i <= k; ++i) {
    count = count * (n - k + i) / i;
    if (count > kMostSize) return kMostSize;
  }
  return int64_t(count);
}

// Choices with replacement of r of n elements are choices of r of n + r - 1.
int64_t combination_count(const AttrReader& c, int64_t n) {
  const int64_t r = c.attr<int64_t>("r");
  if (!c.attr<bool>("with_replacement")) return choose(n, r);
  return n == 0 ? (r == 0) : choose(plus(n, r - 1), r);
}

void infer_combinations(Infer& c) {
  c.require_rank(0, 1);
  const int64_t r = c.attr<int64_t>("r");
  c.output(c.dtype(0), r == 0 ? Dims{0} : Dims{combination_count(c, c.shape(0)[0]), r});
}

// Writes the positions of all choices of r of n, in lexicographic order.
void write_combinations(Context& ctx, int64_t n, int64_t r, bool again, int64_t count, int64_t* to) {
  std::vector<int64_t> chosen(size_t(r), 1);
  for (int64_t i = 0; i < r && !again; ++i) chosen[size_t(i)] = i + 1;
  for (int64_t k = 0; k < count; ++k) {
    if (k % 4096 == 0) ctx.poll();
    to = std::copy(chosen.begin(), chosen.end(), to);
    int64_t i = r - 1;
    while (i >= 0 && chosen[size_t(i)] == (again ? n : n - r + i + 1)) --i;
    if (i < 0) return;
    const int64_t next = chosen[size_t(i)] + 1;
    for (int64_t j = i; j < r; ++j) chosen[size_t(j)] = again ? next : next + j - i;
  }
}

std::vector<Var> decompose_combinations(Rule& c) {
  const int64_t n = c.input(0).numel(), r = c.attr<int64_t>("r"), count = combination_count(c, n);
  if (r == 0) return {call<"narrow">(c.in(0), {{"dim", int64_t(1)}, {"start", int64_t(1)}, {"length", int64_t(0)}})};
  Value list = make_array(Type{DType::kInt64, {}, {count, r}});
  if (count > 0)
    write_combinations(c.context(), n, r, c.attr<bool>("with_replacement"), count,
                       static_cast<int64_t*>(list.array().data()));
  const Var index = c.wrap(to_device(c.context(), list, c.input(0).device()));
  return {call<"index_select">(c.in(0), index, {{"dim", int64_t(1)}})};
}

// --- vander ---

int64_t power_count(const AttrReader& c, int64_t n) { return c.has_attr("n") ? c.attr<int64_t>("n") : n; }

void infer_vander(Infer& c) {
  c.require_rank(0, 1);
  const int64_t n = c.shape(0)[0];
  c.output(is_float(c.dtype(0)) ? c.dtype(0) : DType::kInt64, {n, power_count(c, n)});
}

// 1, x, x x … are cumulative products.
std::vector<Var> decompose_vander(Rule& c) {
  const int64_t n = c.input(0).numel(), columns = power_count(c, n);
  const DType t = is_float(c.input(0).dtype()) ? c.input(0).dtype() : DType::kInt64;
  const Var wide =
      call<"expand">(reshaped(as_dtype(c.in(0), t), {n, 1}), {{"shape", Ints{n, std::max<int64_t>(columns - 1, 0)}}});
  const Var factors = call<"pad">(wide, {{"pad", Ints{columns > 0, 0}}, {"value", 1.0}});
  const Var powers = call<"cumprod">(factors, {{"dim", int64_t(2)}});
  return {c.attr<bool>("increasing") ? powers : call<"flip">(powers, {{"dims", Ints{2}}})};
}

// --- corrcoef ---

void infer_corrcoef(Infer& c) {
  if (c.rank(0) > 2) c.bad_input(0, "at most 2 dims");
  const int64_t n = c.rank(0) == 2 ? c.shape(0)[0] : 1;
  c.output(float_result(c.dtype(0)), n == 1 ? Dims{} : Dims{n, n});
}

std::vector<Var> decompose_corrcoef(Rule& c) {
  const Var v = call<"cov">(as_dtype(c.in(0), float_result(c.input(0).dtype())));
  if (v.rank() == 0) return {v / v};
  const int64_t n = v.shape()[0];
  const Var s = call<"sqrt">(call<"diagonal">(v));
  return {call<"clamp">(v / reshaped(s, {n, 1}) / s, Var(-1.0), Var(1.0))};
}

std::vector<OpDef> choice_rows() {
  return {
      {.name = "cartesian_prod",
       .doc = "All choices of one element of each of the 1-dim tensors, one row each, the last tensor varying fastest. "
              "A single tensor comes back as it is. dtypes promote.",
       .example = "return pg.cartesian_prod(pg.tensor({1, 2}), pg.tensor({3, 4, 5}))",
       .inputs = {{"tensors", kAnyDType, Arity::kList}},
       .infer = infer_cartesian,
       .decompose = decompose_cartesian,
       .traits = kFunctionOnly},
      {.name = "combinations",
       .doc = "All choices of r elements of the 1-dim x in its order, one row each.",
       .example = "return pg.tensor({1, 2, 3}):combinations()",
       .inputs = {{"x"}},
       .attrs = {{"r", AttrKind::kInt, int64_t(2), "how many elements to choose", false, 0},
                 {"with_replacement", AttrKind::kBool, false, "whether an element can be chosen again"}},
       .infer = infer_combinations,
       .decompose = decompose_combinations},
      {.name = "vander",
       .doc = "The matrix with a row of powers of each element of the 1-dim x, the highest first. Integers give int64.",
       .example = "return pg.tensor({1, 2, 3}):vander()",
       .inputs = {{"x"}},
       .attrs = {{"n", AttrKind::kInt, {}, "how many powers; as many as elements when nil", true, 0},
                 {"increasing", AttrKind::kBool, false, "the lowest power first"}},
       .infer = infer_vander,
       .decompose = decompose_vander,
       .traits = kWidens},
      {.name = "corrcoef",
       .doc = "The correlation coefficients of variables in rows and observations in columns, in -1..1, NaN where a "
              "variable is constant. One variable gives 1, a 0-dim tensor.",
       .example = "return pg.tensor({{1, 2, 3}, {3, 1, 2}}):corrcoef()",
       .inputs = {{"x", kNumeric}},
       .infer = infer_corrcoef,
       .decompose = decompose_corrcoef,
       .traits = kWidens},
  };
}

// --- tril_indices and triu_indices ---

// Returns the number of elements of a rows x columns matrix that are not above diagonal `offset`.
int64_t lower_count(int64_t rows, int64_t columns, int64_t offset) {
  const int64_t first = std::clamp<int64_t>(-offset, 0, rows);              // the first row with elements
  const int64_t full = std::clamp<int64_t>(columns - offset, first, rows);  // from here on all columns
  const __int128 n = full - first;
  const __int128 partial = n * (first + 1 + offset) + n * (n - 1) / 2;
  const __int128 count = partial + __int128(rows - full) * columns;
  return int64_t(std::min<__int128>(count, kMostSize));
}

template <bool kLower>
void infer_triangle(Infer& c) {
  const int64_t rows = c.attr<int64_t>("row"), columns = c.attr<int64_t>("col"), offset = c.attr<int64_t>("offset");
  const int64_t count =
      kLower ? lower_count(rows, columns, offset) : times(rows, columns) - lower_count(rows, columns, offset - 1);
  c.outputs.push_back(Type{DType::kInt64, c.attr<Device>("device"), {2, std::max<int64_t>(count, 0)}});
}

OpDef triangle(const char* name, const char* doc, const char* example, InferFn infer) {
  const double most = 1e15;
  return {.name = name,
          .doc = doc,
          .example = example,
          .inputs = {},
          .attrs = {{"row", AttrKind::kInt, {}, "how many rows", false, 0, most},
                    {"col", AttrKind::kInt, {}, "how many columns", false, 0, most},
                    {"offset", AttrKind::kInt, int64_t(0), "0 is the main diagonal, positive ones are above it", false,
                     -most, most},
                    index_base_attr(),
                    {.name = "device", .kind = AttrKind::kDevice, .fallback = Device{}, .doc = "device of the result"}},
          .infer = infer,
          .traits = kNoGrad};
}

std::vector<OpDef> triangle_rows() {
  return {
      triangle(
          "tril_indices",
          "The rows (first) and columns of the lower triangle of a row x col matrix, row by row: int64 of shape 2 x "
          "count.",
          "return pg.tril_indices(3, 3)", infer_triangle<true>),
      triangle(
          "triu_indices",
          "The rows (first) and columns of the upper triangle of a row x col matrix, row by row: int64 of shape 2 x "
          "count.",
          "return pg.triu_indices(3, 3)", infer_triangle<false>),
  };
}

}  // namespace

void add_combine_ops(Registry& r) {
  r.add(choice_rows());
  r.add(triangle_rows());
}

}  // namespace pg
