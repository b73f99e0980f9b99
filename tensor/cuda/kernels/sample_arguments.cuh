// The arguments of kernels/sample.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// Resizes the middle dim of (outer, in, inner) to (outer, out, inner).
struct ResampleArgs {
  const void* from;
  void* to;
  int64_t count;           // of `to`
  int64_t in, out, inner;  // sizes before and after, whichever of them `to` has
  double step;             // elements of `in` that an element of `out` covers
};

}  // namespace pg::kernels
