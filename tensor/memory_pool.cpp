#include "tensor/memory_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "tensor/poison.h"
#include "tensor/thread_end.h"

namespace pg {
namespace {

constexpr size_t kCacheLimit = size_t(512) << 20;  // larger caches return blocks to the source

size_t class_step(size_t bytes) { return size_t(1) << (std::bit_width(bytes - 1) - 3); }

// Blocks up to kLocalSize are kept in lists of the thread that freed them; a thread keeps at most kLocalBytes per
// class.
constexpr size_t kLocalSize = 1024;
constexpr int kLocalBytes = 512 << 10;

struct LocalCache {
  struct Free {
    Free* next;
  };
  Free* lists[kLocalSize / 64];
  int depth[kLocalSize / 64];
  bool armed, dead;

  void end() {
    dead = true;
    for (Free*& list : lists)
      while (list) std::free(std::exchange(list, list->next));
  }
  void* take(size_t size) {
    const size_t i = size / 64 - 1;
    Free* block = lists[i];
    if (!block) return nullptr;
    lists[i] = block->next;
    --depth[i];
    return block;
  }
  bool give(void* block, size_t size) {
    const size_t i = size / 64 - 1;
    if (dead || depth[i] * int(size) >= kLocalBytes) return false;
    if (!armed) arm();
    lists[i] = new (block) Free{lists[i]};
    ++depth[i];
    return true;
  }
  void arm();
};
thread_local LocalCache local_cache;

void LocalCache::arm() {
  armed = true;
  at_thread_end([] { local_cache.end(); });
}

}  // namespace

size_t MemoryPool::class_size(size_t bytes) {
  if (bytes <= 1024) return (std::max<size_t>(bytes, 1) + 63) & ~size_t(63);
  const size_t step = bytes <= kLarge ? class_step(bytes) : LargeBlocks::kUnit;
  return (bytes + step - 1) & ~(step - 1);
}

int MemoryPool::class_index(size_t size) {
  if (size <= 1024) return int(size / 64) - 1;
  const int top = std::bit_width(size - 1);
  return 16 + (top - 11) * 4 + int((size - (size_t(1) << (top - 1))) / class_step(size)) - 1;
}

// Whether there is room in the cache for a block. Requires the lock.
bool MemoryPool::keeps(size_t size) const { return size_t(cached_ + large_idle_) + size <= kCacheLimit; }

void* MemoryPool::allocate(size_t size) {
  if (source_.allocate) return source_.allocate(source_.user, size, LargeBlocks::kAlign);
  void* block = nullptr;
  return posix_memalign(&block, LargeBlocks::kAlign, size) == 0 ? block : nullptr;
}

void MemoryPool::release(void* block, size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  source_.release ? source_.release(source_.user, block, size) : std::free(block);
}

void* MemoryPool::take(size_t size) {
  if (size >= kLarge) {
    const std::lock_guard hold(lock_);
    void* const block = large_.take(size);
    large_idle_ = int64_t(large_.idle_bytes());
    return block;
  }
  void* block = per_thread_ && size <= kLocalSize ? local_cache.take(size) : take_shared(size);
  return block ? block : allocate(size);
}

void MemoryPool::give(void* block, size_t size) {
  if (size >= kLarge) {
    const std::lock_guard hold(lock_);
    large_.give(block, keeps(size));
    large_idle_ = int64_t(large_.idle_bytes());
    return;
  }
  if (!per_thread_ || size > kLocalSize) return give_shared(block, size);
  if (!local_cache.give(block, size)) release(block, size);
}

void* MemoryPool::take_shared(size_t size) {
  const std::lock_guard hold(lock_);
  auto& list = lists_[size_t(class_index(size))];
  if (list.empty()) return nullptr;
  void* const block = list.back();
  list.pop_back();
  cached_ -= int64_t(size);
  return block;
}

void MemoryPool::give_shared(void* block, size_t size) {
  {
    const std::lock_guard hold(lock_);
    if (keeps(size)) try {
        lists_[size_t(class_index(size))].push_back(block);
        cached_ += int64_t(size);
        return;
      } catch (const std::bad_alloc&) {}  // a destructor calls this
  }
  release(block, size);
}

void MemoryPool::flush() {
  const std::lock_guard hold(lock_);
  for (size_t bytes = 1; bytes < kLarge; bytes = class_size(bytes + 1)) {
    const size_t size = class_size(bytes);
    auto& list = lists_[size_t(class_index(size))];
    for (void* block : list) release(block, size);
    list.clear();
  }
  cached_ = 0;
  large_.flush();
  large_idle_ = int64_t(large_.idle_bytes());
}

void MemoryPool::count(int64_t bytes) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (live > peak_.load(std::memory_order_relaxed)) peak_.store(live, std::memory_order_relaxed);
}

}  // namespace pg
