#include "graph/plan/arena.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

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

// The memory between the blocks that live now.
class Gaps {
 public:
  // Takes the start of the smallest sufficient gap, or memory after the last block.
  size_t take(size_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) return std::exchange(end_, end_ + bytes);
    const auto [size, begin] = *fit;
    remove(begin, begin + size);
    if (size > bytes) add(begin + bytes, begin + size);
    return begin;
  }

  void release(size_t begin, size_t end) {
    const auto next = by_begin_.lower_bound(begin);
    if (next != by_begin_.begin())
      if (const auto [from, to] = *std::prev(next); to == begin) remove(begin = from, to);
    if (const auto at = by_begin_.find(end); at != by_begin_.end()) {
      const size_t to = at->second;
      remove(end, to);
      end = to;
    }
    if (end == end_)
      end_ = begin;
    else
      add(begin, end);
  }

 private:
  void add(size_t begin, size_t end) {
    by_size_.emplace(end - begin, begin);
    by_begin_.emplace(begin, end);
  }
  void remove(size_t begin, size_t end) {
    by_size_.erase({end - begin, begin});
    by_begin_.erase(begin);
  }

  size_t end_ = 0;
  std::set<std::pair<size_t, size_t>> by_size_;  // size and begin
  std::map<size_t, size_t> by_begin_;            // begin and end
};

// Places blocks in this order, which is that of their first steps.
Bytes place_by_time(std::span<ArenaBlock> blocks, const std::vector<uint32_t>& order) {
  struct Live {
    int32_t last;
    size_t begin, end;
    bool operator<(const Live& other) const { return last > other.last; }
  };
  std::priority_queue<Live> live;  // the first to end is on top
  Gaps gaps;
  Bytes total;
  for (uint32_t i : order) {
    ArenaBlock& b = blocks[i];
    b.offset = {};
    if (b.bytes == Bytes()) continue;
    for (; !live.empty() && live.top().last < b.first; live.pop()) gaps.release(live.top().begin, live.top().end);
    const size_t begin = gaps.take(arena_aligned(b.bytes).count());
    b.offset = Bytes(begin);
    const Bytes end = b.offset + arena_aligned(b.bytes);
    live.push({b.last, begin, end.count()});
    total = std::max(total, end);
  }
  return total;
}

// An order in which blocks are placed. In order of time, blocks that have ended are not looked at again.
struct Order {
  std::vector<uint32_t> blocks;
  bool by_time = false;
};

// The other orders compare all blocks with each other. For more blocks than this that would take longer than 0.2 s.
constexpr size_t kMostOrdered = size_t(1) << 14;

// Keeps the order of offsets.
void insert(std::vector<Placed>& placed, const ArenaBlock& b) {
  const Placed p{b.offset, b.offset + arena_aligned(b.bytes), b.first, b.last};
  placed.insert(std::upper_bound(placed.begin(), placed.end(), p,
                                 [](const Placed& x, const Placed& y) { return x.begin < y.begin; }),
                p);
}

Bytes place_in_order(std::span<ArenaBlock> blocks, const Order& order) {
  if (order.by_time) return place_by_time(blocks, order.blocks);
  std::vector<Placed> placed;
  placed.reserve(blocks.size());
  Bytes total;
  for (uint32_t i : order.blocks) {
    ArenaBlock& b = blocks[i];
    b.offset = {};
    if (b.bytes == Bytes()) continue;
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
    if (total <= enough || blocks.size() > kMostOrdered) return;
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
