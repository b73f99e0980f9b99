// Offsets in one block of memory for blocks that live during intervals of steps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace pg {

inline constexpr size_t kArenaAlignment = 64;
inline size_t arena_aligned(size_t bytes) { return (bytes + kArenaAlignment - 1) & ~(kArenaAlignment - 1); }

struct ArenaBlock {
  size_t bytes = 0;
  int32_t first = 0, last = 0;  // steps, both inclusive
  size_t offset = 0;
};

// The largest sum of aligned sizes that live at one step: no placement needs less.
size_t arena_lower_bound(std::span<const ArenaBlock> blocks);

// Fills the offsets so that no two blocks that live at one step overlap; answers the bytes needed.
size_t place_blocks(std::span<ArenaBlock> blocks);

}  // namespace pg
