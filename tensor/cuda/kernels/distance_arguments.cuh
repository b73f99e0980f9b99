// The arguments of kernels/distance.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// Distances of the rows of x from those of y, in batches.
struct DistanceArgs {
  const void *x, *y;
  const void *dy, *distance;  // of the derivative
  void* out;
  int64_t batch, rows, others, width;
  double p;
};

}  // namespace pg::kernels
