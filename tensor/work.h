// Whether a kernel has anything to do.
#pragma once
#include <algorithm>

#include "tensor/op.h"

namespace pg {

// False where no input and no output holds an element: there is nothing to compute or to refuse, and no kernel has to
// mind dims of any length beside one of 0.
inline bool has_work(const OpDef& op, std::span<const View> in, std::span<const View> out) {
  if (op.traits & (kEffect | kDynamicShape) || in.empty()) return true;
  const auto holds_some = [](const View& v) { return v && v.numel() > 0; };
  return std::any_of(out.begin(), out.end(), holds_some) || std::any_of(in.begin(), in.end(), holds_some);
}

}  // namespace pg
