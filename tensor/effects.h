// Callbacks for ops with an effect outside of tensors. The host that owns the terminal and the callbacks sets them
// once.
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
