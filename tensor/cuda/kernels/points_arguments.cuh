// The arguments of kernels/points.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

// x is batch x channels x positions; index and weight are batch x taps x points; dy is batch x channels x points.
struct PointsArgs {
  const void *x, *dy, *weight;  // weight: null for ones
  const int32_t* index;
  void* out;
  int64_t batch, channels, positions, taps, points;
  Fault* fault;
  int32_t report;
};

struct TapsArgs {
  const void* coordinates[3];
  int32_t* out;
  int64_t batch, points;
  int32_t size[3];
  int32_t dims, taps;
};

}  // namespace pg::kernels
