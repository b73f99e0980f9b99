// The arguments of kernels/join.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

constexpr int kMostParts = 32;

// Rows of `row` elements, each made of a piece of each part: a part has the elements up to `end` of a row.
struct JoinArgs {
  const void* part[kMostParts];
  uint32_t end[kMostParts];
  void* to;
  uint32_t count, row;
};

}  // namespace pg::kernels
