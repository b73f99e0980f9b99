// The commonest pooling window.
#pragma once
#include <cstdint>

namespace pg::cpu {

// One output row of 2 x 2 windows with stride 2: `top` and `bottom` hold 2 * count floats, `first` is the flat place of
// top[0] and `width` the distance from top to bottom.
void max_pool_2x2_row(const float* top, const float* bottom, int64_t count, int32_t first, int32_t width, float* y,
                      int32_t* index);

}  // namespace pg::cpu
