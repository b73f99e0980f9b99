// What products and convolutions may do to their results before they leave the cache: the attributes of linear_act and
// conv_act, which graph passes make and scripts do not see.
#pragma once
#include "tensor/rule.h"

namespace pg {

// `slope` is leaky_relu's; gelu_tanh is gelu{approximate = 'tanh'}.
inline AttrDef activation_attr() {
  return {.name = "activation",
          .kind = AttrKind::kString,
          .fallback = std::string("relu"),
          .doc = "applied to the result",
          .choices = {"relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh"}};
}
inline AttrDef slope_attr() {
  return {.name = "slope",
          .kind = AttrKind::kFloat,
          .fallback = Epilogue{"leaky_relu"}.slope,
          .doc = "the factor below 0 of leaky_relu"};
}

// The activation that the attributes name, applied to x.
Var activated(const AttrReader& c, const Var& x);

}  // namespace pg
