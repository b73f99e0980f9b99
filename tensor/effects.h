// What ops with an effect outside of tensors call: set once by the host that has a terminal and callbacks.
#pragma once
#include <string>

#include "tensor/kernel.h"

namespace pg {

struct EffectHooks {
  void (*print)(const std::string& label, const View& value) = nullptr;
  void (*call)(int64_t callback, const View& value) = nullptr;  // may throw
};

EffectHooks& effect_hooks();

}  // namespace pg
