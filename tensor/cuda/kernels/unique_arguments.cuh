// The arguments of kernels/unique.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// The slices along the middle dim of outer x n x inner, in an order.
struct UniqueArgs {
  const void* x;
  const int64_t* order;  // the positions of the slices, or null: as they are
  bool* starts;          // whether a slice in order differs from the one before it
  const void* ranks;     // the number of starts up to a slice in order
  int64_t* firsts;       // the places in order of the starts
  void* values;
  int64_t *inverse, *counts;
  int64_t outer, n, inner, count, base;
};

}  // namespace pg::kernels
