// The arguments of kernels/fft.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// Points along a dim of an array outer x points x inner. Arrays with `last` set are outer x inner x points instead. A
// point has 1 part (real) or 2 (real and imaginary).
struct FftArgs {
  const void* from;
  void* to;
  int64_t count, points, inner;
  int64_t n;            // points 0 and n / 2 are ends
  double ends, inside;  // factors
  int32_t from_parts, to_parts, from_last, to_last;
  int32_t real_ends;  // the imaginary part of the ends becomes 0
};

}  // namespace pg::kernels
