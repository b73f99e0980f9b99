// The arguments of kernels/bag.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

// Bags of positions 0 to length - 1: bag b starts at offset b.
struct BagNumbersArgs {
  const void* offsets;
  int64_t* out;
  int64_t offset_count, bags, length, base;
  Fault* fault;
  int32_t not_first, not_in_order, not_last;  // the reports
};

// Rows of an array, each in a bag.
struct BagArgmaxArgs {
  const void* x;
  const int64_t* bag;
  uint64_t* keys;  // bags x columns: of the largest element so far
  int64_t* out;    // bags x columns
  int64_t rows, columns, bags;
};

}  // namespace pg::kernels
