// Max pooling with the most common window.
#pragma once
#include <cstdint>

namespace pg::cpu {

// For each 2 x 2 window with stride 2 of a plane with rows of `width` elements: y = its largest element, index = the
// flat position of that element in the plane. index may be null.
void max_pool_2x2_plane(const float* x, int64_t width, int64_t out_rows, int64_t out_cols, float* y, int32_t* index);

}  // namespace pg::cpu
