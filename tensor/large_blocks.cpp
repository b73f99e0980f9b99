#include "tensor/large_blocks.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>
#include <new>
#include <utility>
#include <vector>

#include "tensor/poison.h"

namespace pg {
namespace {

constexpr size_t kHuge = size_t(2) << 20;
// Memory is mapped in steps that grow with the program, up to this size. The system gives it when it is written to.
constexpr size_t kMostGrowth = size_t(64) << 20;

// The list of idle blocks of about this size: four for each power of two.
size_t list_of(size_t size) {
  const size_t bits = size_t(std::bit_width(size));
  return 4 * (bits - 1) + (size >> (bits - 3) & 3);
}
size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// Returns pages, at `wanted` if nothing is there.
char* map_pages(char* wanted, size_t size) {
  void* const data = mmap(wanted, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  if (size >= 2 * kHuge) madvise(data, size, MADV_HUGEPAGE);
  return static_cast<char*>(data);
}

// Returns an address that nothing is near, below what the system maps, or null. One of a pool that is gone is used
// again.
char* unused_space() {
  constexpr uintptr_t kSpace = uintptr_t(1) << 36, kSpaces = 64;
  static std::atomic<uintptr_t> spaces{0};
  void* const probe = map_pages(nullptr, LargeBlocks::kUnit);
  if (!probe) return nullptr;
  munmap(probe, LargeBlocks::kUnit);
  const uintptr_t below = (spaces++ % kSpaces + 1) * kSpace, here = reinterpret_cast<uintptr_t>(probe);
  return below < here / 2 ? reinterpret_cast<char*>((here - below) & ~(kHuge - 1)) : nullptr;
}

}  // namespace

void* LargeBlocks::take(size_t size) try {
  asked_ += size;
  auto block = fit(size);
  const size_t known = block == blocks_.end() ? 0 : std::min(block->second.touched, size);
  if (known < size) {
    if (missing_ > 0) patience_ = std::min(patience_ * 1.25, kMostPatience);
    missing_ -= std::min<uint64_t>(missing_, size - known);
    release_stale(size - known);
    block = fit(size);
  }
  if (block == blocks_.end()) {
    if (!grow(size)) return nullptr;
    block = fit(size);
  }
  cut(block, size);
  block->second.entry = extract(block);
  block->second.idle = false;
  idle_bytes_ -= block->second.touched;
  return block->first;
} catch (const std::bad_alloc&) {
  return nullptr;
}

void LargeBlocks::give(void* data, bool keeps) noexcept {
  auto at = blocks_.find(static_cast<char*>(data));
  Block& block = at->second;
  block.touched = block.size;
  block.since = asked_;
  block.idle = true;
  idle_bytes_ += block.size;
  insert(at, std::move(block.entry));
  if (!block.last)
    if (const auto next = std::next(at); next->second.idle) join(at, next);
  if (!block.first)
    if (const auto before = std::prev(at); before->second.idle) join(before, at), at = before;
  if (!keeps) release(at);
}

void LargeBlocks::flush() noexcept {
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    const auto next = std::next(at);
    if (at->second.idle) release(at);
    at = next;
  }
  patience_ = kLeastPatience;
  missing_ = 0;
}

// Returns the first idle block by address that has from `size` to `most` bytes, or end().
LargeBlocks::Blocks::iterator LargeBlocks::first_fit(size_t size, size_t most) {
  char* found = nullptr;
  for (size_t list = list_of(size); list <= list_of(most); ++list)
    for (const auto& [data, has] : idle_[list]) {
      if (found && data > found) break;
      if (has < size || has > most) continue;
      found = data;
      break;
    }
  return found ? blocks_.find(found) : blocks_.end();
}

// Returns the block to cut a request from, or end(): one of about its size, or else the first that fits. So blocks at
// low addresses fill up, and the rest stays whole. With the smallest block that fits, small arrays that live long end
// up in the gaps that large ones leave.
LargeBlocks::Blocks::iterator LargeBlocks::fit(size_t size) {
  const auto near = first_fit(size, size + size / 4);
  return near != blocks_.end() ? near : first_fit(size, kMostBytes);
}

// Adds memory with room for a block.
bool LargeBlocks::grow(size_t size) {
  if (source_.allocate) {
    void* const data = source_.allocate(source_.user, size, kAlign);
    if (data) add(static_cast<char*>(data), size);
    return data;
  }
  if (!end_) end_ = unused_space();
  const size_t step = std::max(size, std::min(mapped_, kMostGrowth));
  for (const size_t bytes : {round_up(step, step >= 2 * kHuge ? kHuge : kUnit), size})
    if (char* const data = map_pages(end_, bytes)) {
      add(data, bytes);
      return true;
    }
  return false;
}

void LargeBlocks::add(char* data, size_t size) {
  try {
    Idle entry{{data, size}};
    const auto at = blocks_.emplace(data, Block{.size = size, .first = true, .last = true}).first;
    insert(at, entry.extract(entry.begin()));
    const auto before = at == blocks_.begin() ? at : std::prev(at);
    if (!source_.allocate && before->first + before->second.size == data) {
      before->second.last = at->second.first = false;
      if (before->second.idle) join(before, at);
    }
  } catch (...) {
    source_.release ? source_.release(source_.user, data, size) : void(munmap(data, size));
    throw;
  }
  mapped_ += size;
  if (!source_.allocate) end_ = data + size;
}

// Cuts what is behind the first `size` bytes off an idle block.
void LargeBlocks::cut(Blocks::iterator at, size_t size) {
  Block& block = at->second;
  if (block.size == size) return;
  char* const data = at->first + size;
  const size_t touched = block.touched - std::min(block.touched, size);
  Idle entry{{data, 0}};
  const auto rest = blocks_.emplace_hint(
      std::next(at), data,
      Block{.size = block.size - size, .touched = touched, .since = block.since, .first = false, .last = block.last});
  Idle::node_type own = extract(at);
  block.size = size;
  block.touched -= touched;
  block.last = false;
  insert(at, std::move(own));
  insert(rest, entry.extract(entry.begin()));
}

// Joins two idle neighbors.
void LargeBlocks::join(Blocks::iterator at, Blocks::iterator next) noexcept {
  Block &block = at->second, &other = next->second;
  Idle::node_type own = extract(at);
  extract(next);
  block.size += other.size;
  block.touched += other.touched;
  block.since = std::max(block.since, other.since);
  block.last = other.last;
  insert(at, std::move(own));
  blocks_.erase(next);
}

// Returns the memory of an idle block. A host's segment is returned when all of it is idle. The addresses of a block
// between others stay mapped.
void LargeBlocks::release(Blocks::iterator at) noexcept {
  Block& block = at->second;
  const bool whole = block.first && block.last;
  if (source_.release && !whole) return;
  idle_bytes_ -= block.touched;
  block.touched = 0;
  if (!block.first && !block.last) return void(madvise(at->first, block.size, MADV_DONTNEED));
  if (!block.first) std::prev(at)->second.last = true;
  if (!block.last) std::next(at)->second.first = true;
  ASAN_UNPOISON_MEMORY_REGION(at->first, block.size);
  if (at->first + block.size == end_) end_ = at->first;
  mapped_ -= block.size;
  source_.release ? source_.release(source_.user, at->first, block.size) : void(munmap(at->first, block.size));
  extract(at);
  blocks_.erase(at);
}

// Releases blocks that were idle for long, until they have `bytes` bytes, those first that were idle longest. A block
// is stale when `patience_` times the idle bytes have been requested since it came back. Patience grows whenever
// released memory could have been reused, so that a loop that repeats its sizes soon keeps all its blocks.
void LargeBlocks::release_stale(size_t bytes) {
  const auto age = uint64_t(patience_ * double(idle_bytes_));
  std::vector<Blocks::iterator> stale;
  for (auto at = blocks_.begin(); at != blocks_.end(); ++at)
    if (at->second.idle && at->second.touched > 0 && asked_ - at->second.since >= age) stale.push_back(at);
  std::sort(stale.begin(), stale.end(), [](auto a, auto b) { return a->second.since < b->second.since; });
  const size_t before = idle_bytes_;
  for (const auto at : stale)
    if (before - idle_bytes_ < bytes) release(at);
  missing_ += before - idle_bytes_;
}

void LargeBlocks::insert(Blocks::iterator at, Idle::node_type entry) noexcept {
  entry.key() = at->first;
  entry.mapped() = at->second.size;
  idle_[list_of(at->second.size)].insert(std::move(entry));
}

LargeBlocks::Idle::node_type LargeBlocks::extract(Blocks::iterator at) noexcept {
  return idle_[list_of(at->second.size)].extract(at->first);
}

}  // namespace pg
