// Stable sorts on the device.
#pragma once
#include "tensor/cuda/lines.h"
#include "tensor/cuda/stream.h"

namespace pg::cuda {

struct SortResult {
  void* values = nullptr;   // or null
  void* indices = nullptr;  // int64
};

// The first `keep` elements of each sorted line of a contiguous array and their positions, from `base` on.
void sort_lines(Stream& stream, const void* x, DType t, const Lines& lines, bool descending, int64_t keep, int64_t base,
                SortResult to);
// The positions from 0 of the slices along the middle dim in lexicographic order.
void sort_slices(Stream& stream, const void* x, DType t, const Lines& lines, void* indices);

}  // namespace pg::cuda
