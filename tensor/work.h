// Whether a kernel has anything to do.
#pragma once
#include <algorithm>

#include "tensor/op.h"

namespace pg {

// Returns false when no input and no output has elements: there is nothing to compute or to refuse. Kernels therefore
// never see arrays whose dims are large although one of them is 0.
inline bool has_work(const OpDef& op, std::span<const View> in, std::span<const View> out) {
  if (op.traits & (kEffect | kDynamicShape) || in.empty()) return true;
  const auto holds_some = [](const View& v) { return v && v.numel() > 0; };
  return std::any_of(out.begin(), out.end(), holds_some) || std::any_of(in.begin(), in.end(), holds_some);
}

}  // namespace pg
