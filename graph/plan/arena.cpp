#include "graph/plan/arena.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace pg {
namespace {

// A block with an offset. Kept in the order of offsets.
struct Placed {
  Bytes begin, end;
  int32_t first, last;
};

// Returns the smallest sufficient gap between the blocks that live at the same time, or the end of the last of them.
Bytes best_fit(const std::vector<Placed>& placed, const ArenaBlock& block) {
  const Bytes bytes = arena_aligned(block.bytes);
  Bytes free_from, best;
  size_t best_gap = std::numeric_limits<size_t>::max();
  bool found = false;
  for (const Placed& p : placed) {
    if (p.last < block.first || block.last < p.first) continue;
    if (p.begin >= free_from + bytes && p.begin.count() - free_from.count() < best_gap) {
      best = free_from;
      best_gap = p.begin.count() - free_from.count();
      found = true;
    }
    free_from = std::max(free_from, p.end);
  }
  return found ? best : free_from;
}

// An order in which blocks are placed. In order of time, blocks that have ended are not looked at again, so the cost is
// linear.
struct Order {
  std::vector<uint32_t> blocks;
  bool by_time = false;
};

// Keeps the order of offsets.
void insert(std::vector<Placed>& placed, const ArenaBlock& b) {
  const Placed p{b.offset, b.offset + arena_aligned(b.bytes), b.first, b.last};
  placed.insert(std::upper_bound(placed.begin(), placed.end(), p,
                                 [](const Placed& x, const Placed& y) { return x.begin < y.begin; }),
                p);
}

Bytes place_in_order(std::span<ArenaBlock> blocks, const Order& order) {
  std::vector<Placed> placed;
  placed.reserve(blocks.size());
  Bytes total;
  for (uint32_t i : order.blocks) {
    ArenaBlock& b = blocks[i];
    b.offset = {};
    if (b.bytes == Bytes()) continue;
    if (order.by_time) std::erase_if(placed, [&](const Placed& p) { return p.last < b.first; });
    b.offset = best_fit(placed, b);
    insert(placed, b);
    total = std::max(total, b.offset + arena_aligned(b.bytes));
  }
  return total;
}

template <class Key>
Order ordered(std::span<const ArenaBlock> blocks, Key key) {
  Order order;
  order.blocks.resize(blocks.size());
  std::iota(order.blocks.begin(), order.blocks.end(), 0u);
  std::stable_sort(order.blocks.begin(), order.blocks.end(),
                   [&](uint32_t a, uint32_t b) { return key(blocks[a]) > key(blocks[b]); });
  return order;
}

double length_of(const ArenaBlock& b) { return double(b.last - b.first + 1); }

}  // namespace

Bytes arena_lower_bound(std::span<const ArenaBlock> blocks) {
  int32_t end = 0;
  for (const ArenaBlock& b : blocks) end = std::max(end, b.last + 1);
  std::vector<double> change(size_t(end) + 1, 0);  // exact for sizes that fit in memory
  for (const ArenaBlock& b : blocks) {
    change[size_t(b.first)] += double(arena_aligned(b.bytes).count());
    change[size_t(b.last) + 1] -= double(arena_aligned(b.bytes).count());
  }
  double live = 0, peak = 0;
  for (double c : change) peak = std::max(peak, live += c);
  return Bytes(uint64_t(std::min(peak, double(kMostSize))));
}

Bytes place_blocks(std::span<ArenaBlock> blocks) {
  const Bytes bound = arena_lower_bound(blocks);
  const Bytes enough = bound + Bytes(bound.count() / 50);
  const auto by_size = [](const ArenaBlock& b) { return std::pair(double(b.bytes.count()), length_of(b)); };
  const auto by_area = [](const ArenaBlock& b) { return double(arena_aligned(b.bytes).count()) * length_of(b); };
  const auto by_length = [](const ArenaBlock& b) { return std::pair(length_of(b), double(b.bytes.count())); };
  const auto by_time = [](const ArenaBlock& b) { return std::pair(-double(b.first), double(b.bytes.count())); };
  // The orders to try: by time, by size, by size times lifetime, by lifetime.
  Order best = ordered(blocks, by_time);
  best.by_time = true;
  Bytes total = place_in_order(blocks, best);
  const auto attempt = [&](const auto& key) {
    if (total <= enough) return;
    Order order = ordered(blocks, key);
    const Bytes bytes = place_in_order(blocks, order);
    if (bytes < total) total = bytes, best = std::move(order);
  };
  attempt(by_size);
  attempt(by_area);
  attempt(by_length);
  return place_in_order(blocks, best);
}

std::vector<bool> place_between(std::span<const ArenaBlock> fixed, Bytes limit, std::span<ArenaBlock> blocks) {
  std::vector<bool> fits(blocks.size());
  std::vector<Placed> placed;
  for (const ArenaBlock& b : fixed) insert(placed, b);
  const auto by_size = [](const ArenaBlock& b) { return std::pair(double(b.bytes.count()), length_of(b)); };
  for (uint32_t i : ordered(blocks, by_size).blocks) {
    ArenaBlock& b = blocks[i];
    b.offset = best_fit(placed, b);
    fits[i] = b.offset + arena_aligned(b.bytes) <= limit;
    if (fits[i]) insert(placed, b);
  }
  return fits;
}

}  // namespace pg
