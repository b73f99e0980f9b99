// Ops that show a value to the host, or check it, each time they run. They have no outputs, so no other op depends on
// them.
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
      {.name = "check_probabilities",
       .doc = "Throws the error of argument `input` of the op `op` if an element of x is not from 0 to 1.",
       .inputs = {{"x", kFloating, Arity::kOne, 0, 1}},
       .attrs = {{"op", AttrKind::kString, std::string(), "the op that the error names"},
                 {"input", AttrKind::kString, std::string(), "its argument"}},
       .outputs = {},
       .infer = [](Infer&) {},
       .traits = kEffect | kNoGrad | kHidden | kFunctionOnly},
  };
  r.add(kRows);
}

}  // namespace pg
