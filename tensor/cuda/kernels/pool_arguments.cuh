// The arguments of kernels/pool.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

// One spatial dim: window o has `kernel` elements from o * stride - padding on, `dilation` apart.
struct WindowAxis {
  int64_t in, out, kernel, stride, padding, dilation;
};

struct PoolArgs {
  const void* x;
  void* y;
  int32_t* index;          // of max_pool: the positions of the maxima in their planes, or null
  int64_t channels;        // of each position of a plane: 1 unless the channels are the last dim
  int64_t count;           // of y
  int64_t divisor;         // of means, or 0 for the number of elements of the window
  int32_t counts_padding;  // whether that number includes the padding
  WindowAxis axis[3];
};

// What moves elements between planes by the positions of maxima.
struct MovePoolArgs {
  const void* x;
  void* y;
  const int32_t* index;
  int64_t count;               // of the index
  int64_t plane, index_plane;  // elements of a plane that positions count in, and of a plane of the index
  int64_t channels;            // of each position of a plane: 1 unless the channels are the last dim
  Fault* fault;
  int32_t report;
};

}  // namespace pg::kernels
