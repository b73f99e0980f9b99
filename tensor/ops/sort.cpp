// Ops that sort, search and count values.
#include "tensor/ops/all.h"
#include "tensor/ops/index.h"
#include "tensor/rule.h"

namespace pg {
namespace {

void infer_sort(Infer& c) {
  c.dim("dim", c.rank(0));
  c.output(c.dtype(0), c.shape(0));
  c.output(DType::kInt64, c.shape(0));
}

void infer_topk(Infer& c) {
  const int d = c.dim("dim", c.rank(0));
  Dims out = c.shape(0);
  const int64_t size = out.empty() ? 1 : out[d], k = c.attr<int64_t>("k");
  if (k > size) c.bad_attr("k", fmt::format("at most the {} positions of the dim", size));
  if (!out.empty())
    out[d] = k;
  else if (k == 0)
    out.push_back(0);
  c.output(c.dtype(0), out);
  c.output(DType::kInt64, out);
}

// Every output comes from the position in the output `indices`.
Var grad_order(Vjp& c) {
  const Dims& x = c.input(0).shape();
  if (x.empty()) return c.dy();
  return call_like<"gather_backward">(c, {c.dy(), c.out(1)}, {{"shape", ints(x)}});
}

void infer_unique(Infer& c) {
  Dims values = {-1}, inverse = c.shape(0);
  if (c.has_attr("dim")) {
    const int d = c.dim("dim", c.rank(0));
    inverse = Dims{c.rank(0) ? c.shape(0)[d] : 1};
    if (c.rank(0)) values = c.shape(0), values[d] = -1;
  }
  c.output(c.dtype(0), values);
  if (c.attr<bool>("return_inverse")) c.output(DType::kInt64, inverse);
  if (c.attr<bool>("return_counts")) c.output(DType::kInt64, {-1});
}

void infer_bincount(Infer& c) {
  c.require_rank(0, 1);
  if (c.has(1) && !(c.shape(1) == c.shape(0))) c.bad_input(1, "the shape of x, " + to_string(c.shape(0)));
  c.output(!c.has(1) ? DType::kInt64 : c.dtype(1) == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64, {-1});
}

void infer_searchsorted(Infer& c) {
  const Dims& sequence = c.shape(0);
  if (sequence.empty()) c.bad_input(0, "at least 1 dim");
  if (c.is_number(1)) {
    if (sequence.size() != 1) c.bad_input(0, "1 dim where values is a number");
    return c.output(DType::kInt64, {});
  }
  bool fits = sequence.size() == 1 || sequence.size() == c.rank(1);
  for (int i = 0; fits && sequence.size() > 1 && i + 1 < sequence.size(); ++i) fits = sequence[i] == c.shape(1)[i];
  if (!fits) c.bad_input(1, "the sizes of sorted_sequence but for the last dim, " + to_string(sequence));
  c.output(DType::kInt64, c.shape(1));
}

std::vector<OpDef> sort_rows() {
  const AttrDef dim = {"dim", AttrKind::kDim, int64_t(-1), "the dim to order along"};
  const AttrDef descending = {"descending", AttrKind::kBool, false, "the largest first"};
  const AttrDef stable = {"stable", AttrKind::kBool, false, "accepted; equal values always keep their order"};
  return {
      {.name = "sort",
       .doc = "x in ascending order along `dim`, and the original position of each element. Equal elements keep their "
              "order; NaN counts as the largest value.",
       .example = "return pg.tensor({3, 1, 2}):sort()",
       .inputs = {{"x"}},
       .attrs = {dim, descending, stable, index_base_attr()},
       .outputs = {"values", "indices"},
       .infer = infer_sort,
       .vjp = {grad_order},
       .vjp_uses = "indices"},
      {.name = "argsort",
       .doc = "The positions that bring x in ascending order along `dim`, int64. Equal elements keep their order; NaN "
              "counts as the largest value.",
       .example = "return pg.tensor({3, 1, 2}):argsort()",
       .inputs = {{"x"}},
       .attrs = {dim, descending, stable, index_base_attr()},
       .outputs = {"indices"},
       .infer =
           [](Infer& c) {
             c.dim("dim", c.rank(0));
             c.output(DType::kInt64, c.shape(0));
           },
       .traits = kNoGrad},
      {.name = "topk",
       .doc = "The k largest (or smallest) elements along `dim` in order, and their positions in x. NaN counts as the "
              "largest value.",
       .example = "return pg.tensor({3, 1, 2}):topk(2)",
       .inputs = {{"x"}},
       .attrs = {{"k", AttrKind::kInt, {}, "how many", false, 0},
                 dim,
                 {"largest", AttrKind::kBool, true, "the largest elements, else the smallest"},
                 {"sorted", AttrKind::kBool, true, "accepted; the result is always in order"},
                 index_base_attr()},
       .outputs = {"values", "indices"},
       .infer = infer_topk,
       .vjp = {grad_order},
       .vjp_uses = "indices"},
  };
}

OpDef unique(const char* name, const char* doc, const char* example, std::vector<AttrDef> own) {
  OpDef row = {.name = name, .doc = doc, .example = example, .inputs = {{"x"}}, .attrs = std::move(own)};
  row.attrs.push_back({"return_inverse", AttrKind::kBool, false, "also return `inverse`"});
  row.attrs.push_back({"return_counts", AttrKind::kBool, false, "also return `counts`"});
  row.attrs.push_back({"dim", AttrKind::kDim, {}, "the dim whose slices to compare", true});
  row.attrs.push_back(index_base_attr());
  row.outputs = {"values", "inverse", "counts"};
  row.infer = infer_unique;
  row.traits = kDynamicShape | kNoGrad;
  return row;
}

std::vector<OpDef> count_rows() {
  return {
      unique("unique",
             "The different values of x in ascending order as a 1-dim tensor; then, if asked for, for each element of "
             "x its position among them, and how often each occurs. With dim the same of the slices at its positions, "
             "ordered element by element. Every NaN is different. The size depends on values: eager only.",
             "return pg.tensor({3, 1, 3}):unique{return_counts = true}",
             {{"sorted", AttrKind::kBool, true, "accepted; the result is always in order"}}),
      unique("unique_consecutive",
             "The values of x without those that equal the one before them; otherwise like unique. The size depends on "
             "values: eager only.",
             "return pg.tensor({3, 3, 1, 3}):unique_consecutive{return_counts = true}", {}),
      {.name = "bincount",
       .doc = "How often each label from index_base on occurs in x (1-dim), or the sum of the weights of its "
              "occurrences: int64 (float32 or float64 with weights) up to the largest label, at least minlength long. "
              "The size depends on values: eager only.",
       .example = "return pg.tensor({1, 3, 3}, {dtype = \"int64\"}):bincount()",
       .inputs = {{"x", kIntegral}, {"weights", kAnyDType, Arity::kOptional}},
       .attrs = {{"minlength", AttrKind::kInt, int64_t(0), "least size of the result", false, 0}, index_base_attr()},
       .infer = infer_bincount,
       .traits = kDynamicShape | kNoGrad},
      {.name = "searchsorted",
       .doc = "Where each of `values` is to be inserted into the last dim of sorted_sequence to keep it in order: the "
              "position of the first element that is not less (with right = true, that is greater). sorted_sequence "
              "has 1 dim or the leading sizes of values.",
       .example = "return pg.tensor({1, 3, 5}):searchsorted(pg.tensor({3, 4}))",
       .inputs = {{"sorted_sequence"}, {"values"}},
       .attrs = {{"right", AttrKind::kBool, false, "insert after equal elements"}, index_base_attr()},
       .infer = infer_searchsorted,
       .traits = kNoGrad | kWeakNumber},
      {.name = "bucketize",
       .doc = "The bucket of each element of x between the sorted `boundaries` (1-dim): the position of the first "
              "boundary that is not less (with right = true, that is greater). searchsorted with x first.",
       .example = "return pg.tensor({3, 4}):bucketize(pg.tensor({1, 3, 5}))",
       .inputs = {{"x"}, {"boundaries"}},
       .attrs = {{"right", AttrKind::kBool, false, "a boundary belongs to the bucket above it"}, index_base_attr()},
       .infer =
           [](Infer& c) {
             c.require_rank(1, 1);
             c.output(DType::kInt64, c.shape(0));
           },
       .decompose =
           [](Rule& c) {
             const AttrValue base = c.raw("index_base");
             return std::vector<Var>{
                 call<"searchsorted">(c.in(1), c.in(0), {{"right", c.raw("right")}, {"index_base", base}})};
           },
       .traits = kNoGrad | kNumberOk},
  };
}

}  // namespace

void add_sort_ops(Registry& r) {
  r.add(sort_rows());
  r.add(count_rows());
}

}  // namespace pg
