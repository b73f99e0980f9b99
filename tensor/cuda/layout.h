// Views that kernels make of the memory of their operands.
#pragma once
#include "tensor/kernel.h"

namespace pg::cuda {

// Memory of a view in another shape. `offset` is in elements.
struct Placed {
  Placed(const View& of, const Dims& shape, const Dims& to, int64_t offset)
      : type{of.dtype(), of.type->device, shape}, strides(to) {
    view = {&type, &strides, static_cast<char*>(of.data) + offset * size_of(of.dtype())};
  }
  Placed(const View& of, const Dims& shape) : Placed(of, shape, contiguous_strides(shape), 0) {}
  Placed(const Placed&) = delete;
  Type type;
  Dims strides;
  View view;
};

}  // namespace pg::cuda
