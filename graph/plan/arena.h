// Assigns offsets within one block of memory to blocks that live during intervals of steps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/size.h"

namespace pg {

inline constexpr size_t kArenaAlignment = 64;
inline Bytes arena_aligned(Bytes bytes) { return bytes.aligned(kArenaAlignment); }

struct ArenaBlock {
  Bytes bytes = {};
  int32_t first = 0, last = 0;  // steps, both inclusive
  Bytes offset = {};
};

// The largest sum of aligned sizes that live at one step. No placement needs less.
Bytes arena_lower_bound(std::span<const ArenaBlock> blocks);

// Sets the offsets so that no two blocks that live at one step overlap. Returns the bytes needed.
Bytes place_blocks(std::span<ArenaBlock> blocks);

// Sets the offsets of blocks that fit within `limit` bytes, between blocks that have their places. Returns which ones
// do.
std::vector<bool> place_between(std::span<const ArenaBlock> fixed, Bytes limit, std::span<ArenaBlock> blocks);

}  // namespace pg
