#include "graph/plan_arena.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace pg {
namespace {

// A block that has its place; kept in the order of offsets.
struct Placed {
  Bytes begin, end;
  int32_t first, last;
};

// The tightest gap among the blocks that live at the same time, else the end of the last of them.
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

Bytes place_in_order(std::span<ArenaBlock> blocks, const std::vector<uint32_t>& order) {
  std::vector<Placed> placed;
  placed.reserve(blocks.size());
  Bytes total;
  for (uint32_t i : order) {
    ArenaBlock& b = blocks[i];
    b.offset = {};
    if (b.bytes == Bytes()) continue;
    b.offset = best_fit(placed, b);
    const Placed p{b.offset, b.offset + arena_aligned(b.bytes), b.first, b.last};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), p, [](const Placed& x, const Placed& y) { return x.begin < y.begin; }), p);
    total = std::max(total, p.end);
  }
  return total;
}

// The orders worth a try: large ones first, those that hold most memory for longest first, as they come.
template <class Key>
std::vector<uint32_t> ordered(std::span<const ArenaBlock> blocks, Key key) {
  std::vector<uint32_t> order(blocks.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(blocks[a]) > key(blocks[b]); });
  return order;
}

double length_of(const ArenaBlock& b) { return double(b.last - b.first + 1); }

}  // namespace

Bytes arena_lower_bound(std::span<const ArenaBlock> blocks) {
  int32_t end = 0;
  for (const ArenaBlock& b : blocks) end = std::max(end, b.last + 1);
  std::vector<double> change(size_t(end) + 1, 0);  // exact while memory can hold them
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
  std::vector<uint32_t> best = ordered(blocks, by_size);
  Bytes total = place_in_order(blocks, best);
  const auto attempt = [&](std::vector<uint32_t> order) {
    if (total <= enough) return;
    const Bytes bytes = place_in_order(blocks, order);
    if (bytes < total) total = bytes, best = std::move(order);
  };
  attempt(ordered(blocks, by_area));
  attempt(ordered(blocks, by_length));
  attempt(ordered(blocks, by_time));
  return place_in_order(blocks, best);
}

}  // namespace pg
