// The arguments of kernels/sort.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

constexpr int kSortTile = 2048;  // items that a block sorts in shared memory

// Sorted runs of each line, one behind the other. All but the last have the same length.
struct SortRuns {
  int64_t count, length, last;
};

// The lines along the middle dim of outer x n x inner. Or, of slices, one line of the n slices of outer x inner
// elements.
struct SortArgs {
  const void* x;
  void* values;  // or null
  void* indices;
  const void* from;  // items of the runs
  void* to;
  int64_t outer, n, inner;
  int64_t keep, base;
  SortRuns runs, merged;  // in `from`, in `to`
  int32_t descending;
};

}  // namespace pg::kernels
