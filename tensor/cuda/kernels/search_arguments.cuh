// The arguments of kernels/search.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// Values that are looked for in sorted sequences of n elements.
struct SearchArgs {
  const void *sequence, *values;
  int64_t* out;
  int64_t count, n;
  int64_t row;  // values of a sequence; 0: there is one sequence for all
  int64_t base;
  int32_t right;
};

}  // namespace pg::kernels
