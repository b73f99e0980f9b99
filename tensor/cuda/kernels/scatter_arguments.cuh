// The arguments of kernels/scatter.cuh.
#pragma once
#include "tensor/cuda/kernels/arguments.cuh"

namespace pg::kernels {

constexpr int32_t kReduceSum = 0, kReduceProduct = 1, kReduceLargest = 2, kReduceSmallest = 3;

// A dim of the index, with strides.
struct ScatterDim {
  int64_t size, from, to, index;
  int64_t last, number;
};

struct ScatterArgs {
  const void* from;
  void* to;
  void* last;       // the number of the last element for each place that is written, or null
  int64_t* counts;  // of the elements for each place, or null
  int64_t count;
  int64_t step, last_step;  // of a position in `to` and `last`
  double alpha;
  IndexArgs index;
  int32_t reduce, rank;
  ScatterDim dims[kMostDims];
};

}  // namespace pg::kernels
