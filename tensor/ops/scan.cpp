// Running reductions along one dim.
#include <limits>

#include "tensor/ops/like.h"
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

const AttrDef kAlong = {"dim", AttrKind::kDim, {}, "the dim to run along"};
const AttrDef kReverse = {"reverse", AttrKind::kBool, false, "run from the end"};

void infer_running_sum(Infer& c) {
  c.dim("dim", c.rank(0));
  c.output(is_float(c.dtype(0)) ? c.dtype(0) : DType::kInt64, c.shape(0));
}

void infer_running_extreme(Infer& c) {
  c.dim("dim", c.rank(0));
  c.output(c.dtype(0), c.shape(0));
  c.output(DType::kInt64, c.shape(0));
}

Var vjp_cumprod(Vjp& c) {
  const bool reverse = c.attr<bool>("reverse");
  const int d = c.dim("dim", c.in(0).rank());
  const Var tail =
      call<"scan_affine">(c.in(0), c.dy(), {{"dim", c.raw("dim")}, {"reverse", !reverse}, {"lag", int64_t(1)}});
  return tail * shifted(c.out(), d, reverse ? -1 : 1, 1);
}

Var vjp_running_extreme(Vjp& c) {
  const Var dy = c.dy(0);
  if (dy.rank() == 0) return dy;
  return call_like<"scatter_add">(c, {call<"zeros_like">(dy), c.out(1), dy});
}

void infer_scan_affine(Infer& c) {
  if (!(c.shape(0) == c.shape(1)) || c.dtype(0) != c.dtype(1)) c.bad_input(1, "the type of input 1");
  c.dim("dim", c.rank(0));
  c.output(c.dtype(0), c.shape(0));
}

// The gradient of b is the scan whose matrix is the transpose of this scan's matrix.
void vjp_scan_affine(Vjp& c) {
  const int64_t lag = c.attr<int64_t>("lag");
  const bool reverse = c.attr<bool>("reverse");
  const Var g = call<"scan_affine">(c.in(0), c.dy(), {{"dim", c.raw("dim")}, {"reverse", !reverse}, {"lag", 1 - lag}});
  if (c.needs(1)) c.set(1, g);
  if (!c.needs(0)) return;
  const int d = c.dim("dim", c.in(0).rank()), along = reverse ? -1 : 1;
  c.set(0, lag ? shifted(g, d, -along, 0) * c.out() : g * shifted(c.out(), d, along, 0));
}

// The sums of exp(x - level), where level is the largest element so far, rounded, follow from the one before: it is
// scaled when the level grows. Rounding makes that rare, so that errors of the factors do not add up. The result does
// not depend on the level and the largest element, which are therefore constants for derivatives. Where no other
// element counts, it is exactly that one.
std::vector<Var> decompose_logcumsumexp(Rule& c) {
  const Var x = c.in(0);
  const AttrValue dim = c.raw("dim");
  const Var top = call<"cummax">(call<"detach">(x), {{"dim", dim}});
  const Var finite = call<"nan_to_num">(top), level = call<"round">(finite);
  const Var before = shifted(level, c.dim("dim", x.rank()), 1, -std::numeric_limits<double>::infinity());
  const Var sums = call<"scan_affine">(call<"exp">(before - level), call<"exp">(x - level), {{"dim", dim}});
  const Var share = call<"maximum">(sums, 1e-30) / call<"exp">(finite - level);  // sums are 0 or above 0.6
  return {call<"log">(share) + top};
}

}  // namespace

void add_scan_ops(Registry& r) {
  const OpDef extreme = {
      .name = "cummax",
      .doc =
          "The largest element so far along dim and its index, the last of equal ones; NaN is larger than any number.",
      .example = "local values, indices = pg.tensor({1, 3, 2}):cummax(1)\nreturn indices",
      .inputs = {{"x"}},
      .attrs = {kAlong, kPositionBase},
      .outputs = {"values", "indices"},
      .infer = infer_running_extreme,
      .vjp = {vjp_running_extreme},
      .vjp_uses = "indices"};
  const OpDef rows[] = {
      {.name = "cumsum",
       .doc = "Running sums along dim. bool and integers give int64.",
       .example = "return pg.tensor({1, 2, 3}):cumsum(1)",
       .inputs = {{"x"}},
       .attrs = {kAlong, kReverse},
       .options = {dtype_option()},
       .infer = infer_running_sum,
       .vjp = {[](Vjp& c) {
         return call<"cumsum">(c.dy(), {{"dim", c.raw("dim")}, {"reverse", !c.attr<bool>("reverse")}});
       }},
       .vjp_uses = "",
       .expand = expand_dtype},
      {.name = "cumprod",
       .doc = "Running products along dim. bool and integers give int64. The gradient is exact where elements are 0.",
       .example = "return pg.tensor({1, 2, 3}):cumprod(1)",
       .inputs = {{"x"}},
       .attrs = {kAlong, kReverse},
       .options = {dtype_option()},
       .infer = infer_running_sum,
       .vjp = {vjp_cumprod},
       .vjp_uses = "x out",
       .expand = expand_dtype},
      extreme,
      like(extreme, "cummin",
           "The smallest element so far along dim and its index, the last of equal ones; NaN is smaller than any "
           "number.",
           "local values, indices = pg.tensor({3, 1, 2}):cummin(1)\nreturn indices"),
      {.name = "logcumsumexp",
       .doc = "The logarithm of the running sums of exp(x) along dim, without overflow.",
       .example = "return pg.tensor({1000, 1000}):logcumsumexp(1)",
       .inputs = {{"x", kFloating}},
       .attrs = {kAlong},
       .infer = [](Infer& c) { c.dim("dim", c.rank(0)), c.output(c.dtype(0), c.shape(0)); },
       .decompose = decompose_logcumsumexp,
       .traits = kWidens},
      {.name = "scan_affine",
       .doc = "y[i] = b[i] + a[i - lag] y[i - 1] along dim, with reverse y[i] = b[i] + a[i + lag] y[i + 1]; the first "
              "y is its b. The derivative of running products.",
       .inputs = {{"a", kFloating}, {"b", kFloating}},
       .attrs = {kAlong, kReverse, {"lag", AttrKind::kInt, int64_t(0), "0 or 1", false, 0, 1}},
       .infer = infer_scan_affine,
       .vjp_all = vjp_scan_affine,
       .vjp_uses = "a out",
       .traits = kHidden},
  };
  r.add(rows);
}

}  // namespace pg
