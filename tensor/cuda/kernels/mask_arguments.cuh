// The arguments of kernels/mask.cuh.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

// An array of `rows` rows of `row` elements with a mask over the rows, and another array with a row for each true
// element of the mask.
struct MaskArgs {
  const bool* mask;
  const void* ranks;  // for each row, how many of the mask are true up to there
  const void* from;
  void* to;
  int64_t rows, row;
  int64_t selected;  // rows of the other array
  int64_t base;
  Fault* fault;
  int32_t report, at_least;  // at_least: there may be more rows than true elements
  int32_t one_row;           // the other array has one row for all
  int32_t rank;
  int64_t size[12];  // of nonzero: the shape of the mask
};

}  // namespace pg::kernels
