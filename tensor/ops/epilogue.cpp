#include "tensor/ops/epilogue.h"

namespace pg {

Var activated(const AttrReader& c, const Var& x) {
  const std::string& name = c.attr<std::string>("activation");
  if (name == "leaky_relu") return call<"leaky_relu">(x, {{"negative_slope", c.raw("slope")}});
  if (name == "gelu_tanh") return call<"gelu">(x, {{"approximate", std::string("tanh")}});
  Context& ctx = *x.context();
  return Var(ctx, apply_vars(registry().require(name), {x}, {})[0]);
}

}  // namespace pg
