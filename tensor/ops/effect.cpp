// Ops that show a value to the host each time they run. They have no outputs, so no other op depends on them.
#include "tensor/effects.h"

#include "tensor/ops/all.h"
#include "tensor/op.h"

namespace pg {

EffectHooks& effect_hooks() {
  static EffectHooks hooks;
  return hooks;
}

void add_effect_ops(Registry& r) {
  static const OpDef kRows[] = {
      {.name = "print_value",
       .doc = "Prints the label and x.",
       .inputs = {{"x"}},
       .attrs = {{"label", AttrKind::kString, std::string(), "text before the value"}},
       .outputs = {},
       .infer = [](Infer&) {},
       .traits = kEffect | kNoGrad | kHidden | kFunctionOnly},
      {.name = "call_value",
       .doc = "Calls a function of the host with x.",
       .inputs = {{"x"}},
       .attrs = {{"callback", AttrKind::kInt, {}, "which function, as the host numbers them"}},
       .outputs = {},
       .infer = [](Infer&) {},
       .traits = kEffect | kNoGrad | kHidden | kFunctionOnly},
  };
  r.add(kRows);
}

}  // namespace pg
