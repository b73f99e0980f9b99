// The arguments of kernels/labels.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

// Samples of an array outer x n x inner, with a class label each.
struct LabelArgs {
  const void* x;
  const void* target;
  const void *weight, *scale;  // in the compute dtype; weight may be null
  const double* weight_sum;    // where there is a weight
  void* lse;                   // in the compute dtype
  void* out;
  double* losses;   // of samples
  double* factors;  // the weight of each sample
  void* norm;       // in the compute dtype
  int64_t samples, n, inner;
  int64_t ignore, base;
  double smoothing;
  int32_t one_scale, mean;
  Fault* fault;
  int32_t report;
};

}  // namespace pg::kernels
