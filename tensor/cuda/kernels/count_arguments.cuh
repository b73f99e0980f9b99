// The arguments of kernels/count.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// Labels that are counted, or whose weights are added.
struct CountArgs {
  const void* labels;
  const double* weights;  // or null
  void* bins;             // int64, or double where there are weights
  int64_t* seen;          // the largest label, and how many labels there are from the first that is refused on
  int64_t count, base, limit;
};

}  // namespace pg::kernels
