// The commonest pooling window.
#pragma once
#include <cstdint>

namespace pg::cpu {

// The largest elements of the 2 x 2 windows, with stride 2, of a plane whose rows are `width` long, and their flat
// places. index may be null.
void max_pool_2x2_plane(const float* x, int64_t width, int64_t out_rows, int64_t out_cols, float* y, int32_t* index);

}  // namespace pg::cpu
