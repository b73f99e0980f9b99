// The arguments of kernels/pad.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// Element o of the result is element o - before of the source.
struct PadDim {
  int64_t size, source, before, stride;  // size of the result and of the source; stride of the source
};

struct PadArgs {
  const void* from;
  void* to;
  int64_t count;  // of the padded array
  double value;
  int32_t rank;
  PadDim dims[12];
};

}  // namespace pg::kernels
