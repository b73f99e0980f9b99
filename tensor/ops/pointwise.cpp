#include "tensor/ops/all.h"
#include "tensor/rule.h"

namespace pg {

void add_pointwise_ops(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "add",
       .doc = "x + y, with broadcasting.",
       .example = "return pg.add(pg.tensor({1, 2}), 3)",
       .inputs = {{"x", kAnyDType}, {"y", kAnyDType}},
       .vjp = {[](Vjp& c) { return c.dy(); }, [](Vjp& c) { return c.dy(); }},
       .vjp_uses = "",
       .traits = kPointwise | kCommutative},
      {.name = "sub",
       .doc = "x - y, with broadcasting.",
       .example = "return pg.sub(pg.tensor({1, 2}), 3)",
       .inputs = {{"x", kNumeric}, {"y", kNumeric}},
       .vjp = {[](Vjp& c) { return c.dy(); }, [](Vjp& c) { return -c.dy(); }},
       .vjp_uses = "",
       .traits = kPointwise},
      {.name = "mul",
       .doc = "x * y, with broadcasting.",
       .example = "return pg.mul(pg.tensor({1, 2}), 3)",
       .inputs = {{"x"}, {"y"}},
       .vjp = {[](Vjp& c) { return c.dy() * c.in(1); }, [](Vjp& c) { return c.dy() * c.in(0); }},
       .traits = kPointwise | kCommutative},
      {.name = "div",
       .doc = "x / y, with broadcasting; integers give float32.",
       .example = "return pg.div(pg.tensor({1, 2}), 3)",
       .inputs = {{"x"}, {"y", kAnyDType, Arity::kOne, 0.5, 2}},
       .result = Result::kFloat,
       .vjp = {[](Vjp& c) { return c.dy() / c.in(1); }, [](Vjp& c) { return -c.dy() * c.out() / c.in(1); }},
       .vjp_uses = "y out",
       .traits = kPointwise},
      {.name = "neg",
       .doc = "-x.",
       .example = "return pg.tensor({1, -2}):neg()",
       .inputs = {{"x", kNumeric}},
       .vjp = {[](Vjp& c) { return -c.dy(); }},
       .vjp_uses = "",
       .traits = kPointwise},
  };
  r.add(kRows);
}

}  // namespace pg
