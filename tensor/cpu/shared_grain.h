// How threads share arrays.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tensor/line_time.h"
#include "tensor/parallel.h"

namespace pg::cpu {

// Most ops take less time for the elements of a line of a cache than a slow machine takes to bring it from another
// core. So all ops share arrays of at least half a grain with other threads, whatever they cost, and no smaller ones
// unless the work on each line takes longer than that. An unknown machine is a slow one.
inline constexpr int64_t kSlowLine = 25'000, kFewestBytes = 32 << 10;
inline int64_t line_picoseconds() { return line_time.picoseconds() ? line_time.picoseconds() : kSlowLine; }

// The bytes of a grain: 64 KB (a region costs as much as the work on a few KB) to 400 KB.
inline int64_t grain_bytes() { return std::clamp<int64_t>(16 * line_picoseconds(), 2 * kFewestBytes, 400 << 10); }
inline bool is_dear(int64_t bytes, int64_t cost) {
  return cost >= std::clamp<int64_t>(line_picoseconds() / 64, 50, 400) * bytes;
}

// The grain for items of `bytes` bytes of the largest array of an op, which take `cost` picoseconds each. It says how
// threads share work, and nothing else may depend on it, such as the order of a sum: it differs from run to run.
inline int64_t shared_grain(int64_t bytes, int64_t cost = 0) {
  bytes = std::max<int64_t>(bytes, 1);
  return std::max<int64_t>(1, is_dear(bytes, cost) ? kGrainPicoseconds / cost : grain_bytes() / bytes);
}

// Whether n such items are at least half a grain, without a division.
inline bool is_shared(int64_t n, int64_t bytes, int64_t cost) {
  if (n * bytes < kFewestBytes && n * cost < kFewestSplit) return false;
  return is_dear(bytes, cost) ? n * cost >= kFewestSplit : n * bytes >= grain_bytes() / 2;
}

}  // namespace pg::cpu
