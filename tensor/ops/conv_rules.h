// Reads the attributes of convolutions and pooling, and expands them to the spatial dims.
#pragma once
#include <algorithm>

#include "tensor/op.h"

namespace pg {

// Returns attribute `name` as one value per spatial dim; a single value is used for all of them. Throws when the number
// of values is wrong or a value is below `least`.
Dims spatial(const AttrReader& c, const char* name, int count, int64_t least);

// The last sizes of a shape.
inline Ints tail(const Dims& shape, int count) { return Ints(shape.end() - count, shape.end()); }

struct Window {
  Dims kernel, stride, padding, dilation;
};
// Reads the attributes kernel_size, stride (default: kernel_size), padding and, if the op has it, dilation.
Window window_of(const AttrReader& c, int count);

// Moves the channels of a shape (N, C, spatial...) or (N, spatial..., C). For the numbers of dims they return the
// order that a permutation to that form takes.
inline Dims channels_last(Dims shape) {
  std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  return shape;
}
inline Dims channels_first(Dims shape) {
  std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
  return shape;
}

void add_pool_ops(Registry& registry);  // parts of the family, called by add_conv_ops
void add_resample_ops(Registry& registry);
void add_grid_ops(Registry& registry);
void add_unfold_ops(Registry& registry);
void add_channels_last_ops(Registry& registry);

}  // namespace pg
