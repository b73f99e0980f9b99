// The arguments of kernels/loop.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

// The fields of pg::LoopState.
struct LoopArgs {
  int64_t* steps;
  int64_t* number;
  bool* more;
  const int64_t* count;
  const bool* flag;
  int64_t limit;
  int32_t reverse, first;
};

struct RowArgs {
  void* to;
  const void* from;
  const int64_t* number;  // of the row, from 1
  int64_t count;          // words of a row
  int32_t writes;         // whether `to` has the rows, and not `from`
};

}  // namespace pg::kernels
