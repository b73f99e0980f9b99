// The check of index values.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace pg::cpu {

// Whether n integers are from `low` to `high`, or from `negative_low` to -1.
bool all_inside(DType dtype, const void* values, int64_t n, int64_t low, int64_t high, int64_t negative_low);

}  // namespace pg::cpu
