// The arguments of kernels/flat.cuh.
#pragma once
#include "tensor/cuda/kernels/arguments.cuh"

namespace pg::kernels {

constexpr int kMostIndices = 12;

// Index tensors, one for each dim, that are broadcast together.
struct FlatArgs {
  int64_t* out;
  int64_t count, base;  // base: the first position in `out`
  int32_t inputs, rank;
  IndexArgs index[kMostIndices];
  int32_t bytes[kMostIndices];  // of a value; 0: one byte without a sign
  int64_t strides[kMostIndices][kMostDims];
  int64_t sizes[kMostDims];  // of the indices after broadcasting
};

}  // namespace pg::kernels
