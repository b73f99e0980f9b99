// Attributes of convolutions and pooling, as written by the user, spread over the spatial dims.
#pragma once
#include "tensor/op.h"

namespace pg {

// Attribute `name` with one value a spatial dim; a single value counts for all. Throws where the number is another or a
// value is below `least`.
Dims spatial(const AttrReader& c, const char* name, int count, int64_t least);

struct Window {
  Dims kernel, stride, padding, dilation;
};
// The attributes kernel_size, stride (by default the kernel), padding and, where the op has it, dilation.
Window window_of(const AttrReader& c, int count);

void add_pool_ops(Registry& registry);  // parts of the family, called by add_conv_ops
void add_resample_ops(Registry& registry);

}  // namespace pg
