// How threads share arrays.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tensor/parallel.h"

namespace pg::cpu {

// A core waits about 25 ns for each line of a cache that another one has written, longer than most ops take for its
// elements. So all ops share arrays of at least half of this with other threads, whatever they cost, and no smaller
// ones unless the work on each line takes longer than that.
inline constexpr int64_t kGrainBytes = 400 << 10;
inline constexpr int64_t kPicosecondsPerByte = 400;

// The grain for items of `bytes` bytes of the largest array of an op, which take `cost` picoseconds each.
inline int64_t shared_grain(int64_t bytes, int64_t cost = 0) {
  bytes = std::max<int64_t>(bytes, 1);
  return std::max<int64_t>(1, cost < kPicosecondsPerByte * bytes ? kGrainBytes / bytes : kGrainPicoseconds / cost);
}

// Whether n such items are at least half a grain, without a division.
inline bool is_shared(int64_t n, int64_t bytes, int64_t cost) {
  return cost < kPicosecondsPerByte * bytes ? n * bytes >= kGrainBytes / 2 : n * cost >= kFewestSplit;
}

}  // namespace pg::cpu
