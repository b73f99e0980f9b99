// The epilogue that the kernels of products and convolutions can apply to their results: the attributes of linear_act
// and conv_act. Graph passes create these ops; scripts cannot.
#pragma once
#include "tensor/rule.h"

namespace pg {

// `slope` is the factor of leaky_relu. gelu_tanh is gelu{approximate = 'tanh'}.
inline AttrDef activation_attr() {
  return {.name = "activation",
          .kind = AttrKind::kString,
          .fallback = std::string("relu"),
          .doc = "applied to the result",
          .choices = {"relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "relu6"}};
}
inline AttrDef slope_attr() {
  return {.name = "slope",
          .kind = AttrKind::kFloat,
          .fallback = Epilogue{"leaky_relu"}.slope,
          .doc = "the factor below 0 of leaky_relu"};
}

// Applies the activation that the attributes name to x.
Var activated(const AttrReader& c, const Var& x);

}  // namespace pg
