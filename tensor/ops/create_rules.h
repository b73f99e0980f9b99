// Attributes of ops that create tensors.
#pragma once
#include "tensor/op.h"

namespace pg {

inline AttrDef shape_attr() {
  return {.name = "shape", .kind = AttrKind::kInts, .doc = "the sizes; an empty list is 0-dim", .min = 0};
}
inline AttrDef dtype_attr(DType fallback = DType::kFloat32) {
  return {.name = "dtype", .kind = AttrKind::kDType, .fallback = fallback, .doc = "the dtype of the result"};
}
inline AttrDef device_attr() {
  return {.name = "device", .kind = AttrKind::kDevice, .fallback = Device{}, .doc = "device of the result"};
}

}  // namespace pg
