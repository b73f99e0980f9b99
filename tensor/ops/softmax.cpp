// softmax and related ops. Each fused kernel also has a composition that defines it.
#include "tensor/ops/reduce_rules.h"

namespace pg {
namespace {

const AttrDef kAlong = {"dim", AttrKind::kDim, int64_t(-1), "the dim along which the results belong together"};

void infer_same(Infer& c) {
  c.dim("dim", c.rank(0));
  c.output(c.dtype(0), c.shape(0));
}

void infer_backward(Infer& c) {
  if (!(c.shape(0) == c.shape(1)) || c.dtype(0) != c.dtype(1)) c.bad_input(1, "the type of input 1");
  infer_same(c);
}

Var sum_along(const Rule& c, const Var& v) {
  return call<"sum">(v, {{"dim", Ints{c.attr<int64_t>("dim")}}, {"keepdim", true}});
}

void infer_glu(Infer& c) {
  if (c.rank(0) == 0) c.bad_input(0, "at least 1 dim");
  const int d = c.dim("dim", c.rank(0));
  const int64_t size = c.shape(0)[d];
  if (size % 2) c.bad_input(0, fmt::format("an even size in dim {}", d + 1));
  Dims shape = c.shape(0);
  shape[d] = size / 2;
  c.output(c.dtype(0), shape);
}

std::vector<Var> decompose_glu(Rule& c) {
  const Var x = c.in(0);
  const int d = c.dim("dim", x.rank());
  const int64_t n = x.shape()[d] / 2;
  const Var a = call<"narrow">(x, {{"dim", user_dim(d)}, {"start", int64_t(1)}, {"length", n}});
  // An empty half has no first position, so narrow cannot be used.
  const Var b = n == 0 ? a : call<"narrow">(x, {{"dim", user_dim(d)}, {"start", n + 1}, {"length", n}});
  return {a * call<"sigmoid">(b)};
}

}  // namespace

void add_softmax_ops(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "softmax",
       .doc = "exp(x) over its sum along dim, without overflow.",
       .example = "return pg.tensor({1, 2, 3}):softmax(1)",
       .inputs = {{"x", kFloating}},
       .attrs = {kAlong},
       .options = {dtype_option()},
       .infer = infer_same,
       .vjp = {[](Vjp& c) {
         return call<"softmax_backward">(c.out(), c.dy(), {{"dim", c.raw("dim")}});
       }},
       .vjp_uses = "out",
       .expand = expand_float_dtype,
       .traits = kTotal | kRowwise},
      {.name = "log_softmax",
       .doc = "The logarithm of softmax(x) along dim, computed as x - logsumexp(x).",
       .example = "return pg.tensor({1, 2, 3}):log_softmax(1)",
       .inputs = {{"x", kFloating}},
       .attrs = {kAlong},
       .options = {dtype_option()},
       .infer = infer_same,
       .vjp = {[](Vjp& c) {
         return call<"log_softmax_backward">(c.out(), c.dy(), {{"dim", c.raw("dim")}});
       }},
       .vjp_uses = "out",
       .expand = expand_float_dtype,
       .traits = kTotal | kRowwise},
      {.name = "softmin",
       .doc = "softmax(-x) along dim.",
       .example = "return pg.tensor({1, 2, 3}):softmin(1)",
       .inputs = {{"x", kFloating}},
       .attrs = {kAlong},
       .options = {dtype_option()},
       .infer = infer_same,
       .decompose =
           [](Rule& c) {
             return std::vector<Var>{call<"softmax">(-c.in(0), {{"dim", c.raw("dim")}})};
           },
       .expand = expand_float_dtype},
      {.name = "glu",
       .doc = "The first half of x along dim times the sigmoid of the second (Dauphin et al. 2017, Language modeling "
              "with gated convolutional networks).",
       .example = "return pg.tensor({1, 2, 0, 0}):glu()",
       .inputs = {{"x", kFloating}},
       .attrs = {{"dim", AttrKind::kDim, int64_t(-1), "the dim to halve"}},
       .infer = infer_glu,
       .decompose = decompose_glu,
       .traits = kWidens},
      {.name = "softmax_backward",
       .doc = "y (dy - sum(y dy)) along dim, the derivative of y = softmax(x).",
       .inputs = {{"y", kFloating}, {"dy", kFloating}},
       .attrs = {kAlong},
       .infer = infer_backward,
       .decompose =
           [](Rule& c) {
             const Var y = c.in(0), dy = c.in(1);
             return std::vector<Var>{y * (dy - sum_along(c, y * dy))};
           },
       .traits = kHidden | kTotal | kWidens},
      {.name = "log_softmax_backward",
       .doc = "dy - exp(y) sum(dy) along dim, the derivative of y = log_softmax(x).",
       .inputs = {{"y", kFloating}, {"dy", kFloating}},
       .attrs = {kAlong},
       .infer = infer_backward,
       .decompose =
           [](Rule& c) {
             const Var y = c.in(0), dy = c.in(1);
             return std::vector<Var>{dy - call<"exp">(y) * sum_along(c, dy)};
           },
       .traits = kHidden | kTotal | kWidens},
  };
  r.add(kRows);
}

}  // namespace pg
