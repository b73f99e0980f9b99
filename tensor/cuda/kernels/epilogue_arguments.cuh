// The arguments of kernels/epilogue.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

struct EpilogueArgs {
  void* y;
  const void* bias;         // one element a channel, or null
  int64_t count;            // of y
  int64_t channels, plane;  // y is (…, channels, plane)
  double slope;             // of leaky_relu
};

}  // namespace pg::kernels
