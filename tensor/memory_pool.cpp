#include "tensor/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "tensor/poison.h"
#include "tensor/thread_end.h"

namespace pg {
namespace {

constexpr size_t kAlign = 64, kHuge = size_t(2) << 20;
constexpr size_t kCacheLimit = size_t(512) << 20;  // larger caches return blocks to the source

size_t class_step(size_t bytes) { return size_t(1) << (std::bit_width(bytes - 1) - 3); }

int class_index(size_t size) {
  if (size <= 1024) return int(size / 64) - 1;
  const int top = std::bit_width(size - 1);
  const size_t step = class_step(size);
  return 16 + (top - 11) * 4 + int((size - (size_t(1) << (top - 1))) / step) - 1;
}

// Blocks from this size on are mapped one by one, so that freeing them returns their pages to the system at once.
constexpr size_t kMapped = size_t(256) << 10;

// Returns a whole number of pages, aligned to huge pages if it holds some.
void* map_block(size_t size) {
  const size_t slack = size >= 2 * kHuge ? kHuge : 0;
  void* mapped = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  if (!slack) return mapped;
  char* begin = static_cast<char*>(mapped);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) & (slack - 1);
  if (before) munmap(begin, before);
  if (before < slack) munmap(begin + before + size, slack - before);
  madvise(begin + before, size - class_step(size), MADV_HUGEPAGE);  // a block of the class uses all of these
  return begin + before;
}

void* system_allocate(size_t size) {
  if (size >= kMapped) return map_block(size);
  void* block = nullptr;
  return posix_memalign(&block, kAlign, size) == 0 ? block : nullptr;
}
void system_free(void* block, size_t size) {
  if (size >= kMapped)
    munmap(block, size);
  else
    std::free(block);
}

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
    const int i = class_index(size);
    Free* block = lists[i];
    if (!block) return nullptr;
    lists[i] = block->next;
    --depth[i];
    return block;
  }
  bool give(void* block, size_t size) {
    const int i = class_index(size);
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
  const size_t step = class_step(bytes);
  return (bytes + step - 1) & ~(step - 1);
}

void* MemoryPool::allocate(size_t size) {
  return source_.allocate ? source_.allocate(source_.user, size, kAlign) : system_allocate(size);
}

void MemoryPool::release(void* block, size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  if (source_.release)
    source_.release(source_.user, block, size);
  else
    system_free(block, size);
}

void MemoryPool::release(const std::vector<Idle>& blocks) {
  for (const Idle& idle : blocks) release(idle.block, idle.size);
}

void* MemoryPool::take(size_t size) {
  void* block = per_thread_ && size <= kLocalSize ? local_cache.take(size) : take_shared(size);
  return block ? block : allocate(size);
}

void* MemoryPool::take_briefly(size_t* size) {
  if (*size < kMapped) return take(*size);
  std::vector<Idle> smaller;
  {
    const std::lock_guard hold(lock_);
    asked_ += *size;
    const auto fits =
        std::find_if(lists_.begin() + class_index(*size), lists_.end(), [](auto& l) { return !l.empty(); });
    if (fits != lists_.end()) {
      const Idle idle = fits->back();
      fits->pop_back();
      cached_ -= int64_t(idle.size);
      *size = idle.size;
      return idle.block;
    }
    smaller = take_oldest(*size, 0);
  }
  release(smaller);
  return allocate(*size);
}

void MemoryPool::give(void* block, size_t size) {
  if (!per_thread_ || size > kLocalSize) return give_shared(block, size);
  if (!local_cache.give(block, size)) release(block, size);
}

// On a miss, first releases blocks that were idle for long: as many bytes as the request takes from the source.
void* MemoryPool::take_shared(size_t size) {
  std::vector<Idle> stale;
  {
    std::lock_guard hold(lock_);
    asked_ += size;
    auto& list = lists_[size_t(class_index(size))];
    if (!list.empty()) {
      void* block = list.back().block;
      list.pop_back();
      cached_ -= int64_t(size);
      return block;
    }
    if (size >= kMapped) stale = make_room(size);
  }
  release(stale);
  return nullptr;
}

void MemoryPool::give_shared(void* block, size_t size) {
  {
    std::lock_guard hold(lock_);
    if (size_t(cached_.load()) + size <= kCacheLimit) try {
        lists_[size_t(class_index(size))].push_back({block, size, asked_});
        cached_ += int64_t(size);
        return;
      } catch (const std::bad_alloc&) {}  // a destructor calls this
  }
  release(block, size);
}

void MemoryPool::flush() {
  std::lock_guard hold(lock_);
  for (auto& list : lists_) {
    for (const Idle& idle : list) release(idle.block, idle.size);
    list.clear();
  }
  cached_ = 0;
  patience_ = kLeastPatience;
  given_back_ = {};
}

// Blocks are reused last in, first out, so the first block of a list has been idle longest. A block is stale when
// `patience_` times the bytes in the cache have been requested since it was freed. Patience grows whenever a released
// block could have been reused, so that a loop that repeats its sizes soon keeps all its blocks.
std::vector<MemoryPool::Idle> MemoryPool::make_room(size_t size) {
  int64_t& missed = given_back_[size_t(class_index(size))];
  if (missed > 0) --missed, patience_ = std::min(patience_ * 1.25, kMostPatience);
  std::vector<Idle> stale = take_oldest(size, uint64_t(patience_ * double(cached_.load())));
  for (const Idle& idle : stale) ++given_back_[size_t(class_index(idle.size))];
  return stale;
}

// Takes blocks out of the lists that were freed before `age` more bytes were requested, oldest first, until they have
// `bytes` bytes.
std::vector<MemoryPool::Idle> MemoryPool::take_oldest(size_t bytes, uint64_t age) {
  std::vector<Idle> taken;
  for (size_t freed = 0; freed < bytes;) {
    std::vector<Idle>* oldest = nullptr;
    for (int i = class_index(kMapped); i < kClasses; ++i) {
      std::vector<Idle>& list = lists_[size_t(i)];
      if (!list.empty() && (!oldest || list.front().since < oldest->front().since)) oldest = &list;
    }
    if (!oldest || asked_ - oldest->front().since < age) break;
    taken.push_back(oldest->front());
    oldest->erase(oldest->begin());
    freed += taken.back().size;
    cached_ -= int64_t(taken.back().size);
  }
  return taken;
}

void MemoryPool::count(int64_t bytes) {
  allocations_.fetch_add(1, std::memory_order_relaxed);
  const int64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (live > peak_.load(std::memory_order_relaxed)) peak_.store(live, std::memory_order_relaxed);
}

}  // namespace pg
