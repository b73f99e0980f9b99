// What reductions of arrays and of fused bodies share: the kernels of kernels/reduce.cuh.
#pragma once
#include <string_view>

#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/launch.h"
#include "tensor/function_ref.h"

namespace pg::cuda {

// Names of kernels/reduce.cuh, and the factor of some of them.
struct Reduction {
  const char *op, *finish = "kPlain";
  double factor = 1;
};
// The reduction of `count` elements by an op of tensor/tile.h's tile_reduces.
Reduction reduction_of(std::string_view op, int64_t count);
// The total of no element.
double neutral(const Reduction& r);

// Queues the kernels that compute the totals. `kernel` returns one by its name. `args` is the start of their argument;
// there are elements, and `parts` is not set. The order of the sum depends on count and outputs only.
void launch_reduction(Stream& stream, kernels::ReduceArgs& args, FunctionRef<CUfunction(const char* name)> kernel);

}  // namespace pg::cuda
