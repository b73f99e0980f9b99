#include "tensor/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

#include "tensor/buffer_limit.h"
#include "tensor/device_table.h"
#include "tensor/error.h"

#if __has_include(<sanitizer/asan_interface.h>)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(data, bytes) (void(data), void(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(data, bytes) (void(data), void(bytes))
#endif

namespace pg {

// The header stands in front of the data in one block on the CPU, so that a tiny tensor costs one
// allocation; elsewhere it is a block of its own.
struct BufferAccess {
  static Buffer* construct(void* at) { return new (at) Buffer; }
  static size_t& capacity(Buffer* b) { return b->capacity_; }
};

namespace {

constexpr size_t kHeader = 64, kGuard = 64, kHuge = size_t(2) << 20;
constexpr unsigned char kGuardByte = 0xA5, kPoisonByte = 0xFF;
constexpr Bytes kMaxBytes = Bytes(uint64_t(1) << 47);  // no machine has more; size classes end here
constexpr size_t kCacheLimit = size_t(512) << 20;      // larger caches are trimmed at the next release

struct Counters {
  std::atomic<int64_t> live{0}, cached{0}, peak{0}, allocations{0};
};
Counters counters;

thread_local int64_t fail_countdown = 0;
thread_local bool fail_persistent = false, fail_happened = false;
thread_local size_t largest_request = kMaxBytes.count();
thread_local OutOfMemoryHandler oom_handler = nullptr;
thread_local void* oom_context = nullptr;

bool guard_mode() {
  static const bool on = std::getenv("PERIGEE_GUARD") != nullptr;
  return on;
}

bool injected_failure() {
  if (fail_countdown == 0) return false;
  if (--fail_countdown > 0) return false;
  fail_happened = true;
  if (fail_persistent) fail_countdown = 1;
  return true;
}

// Size classes: multiples of 64 up to 1 KiB, then four steps a power of two (at most 25 % slack).
size_t class_step(size_t bytes) { return size_t(1) << (std::bit_width(bytes - 1) - 3); }
size_t class_size(size_t bytes) {
  if (bytes <= 1024) return (std::max<size_t>(bytes, 1) + 63) & ~size_t(63);
  const size_t step = class_step(bytes);
  return (bytes + step - 1) & ~(step - 1);
}

int class_index(size_t size) {
  if (size <= 1024) return int(size / 64) - 1;
  const int top = std::bit_width(size - 1);
  const size_t step = class_step(size);
  return 16 + (top - 11) * 4 + int((size - (size_t(1) << (top - 1))) / step) - 1;
}
constexpr int kClasses = 16 + 4 * 40;

// Blocks from here on are mapped one by one, so that what is given back leaves the process at once.
constexpr size_t kMapped = size_t(256) << 10;

// Of a whole number of pages, aligned to huge pages where it holds some.
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
  return posix_memalign(&block, 64, size) == 0 ? block : nullptr;
}
void system_free(void* block, size_t size) {
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  if (size >= kMapped)
    munmap(block, size);
  else
    std::free(block);
}

// Free blocks by size class. Small classes are cached a thread, the rest under one lock.
class Cache {
 public:
  // On a miss, blocks that nobody took for long are given back first, as many bytes as are to come from the system.
  void* take(size_t size) {
    std::vector<Idle> stale;
    {
      std::lock_guard hold(lock_);
      asked_ += size;
      auto& list = lists_[class_index(size)];
      if (!list.empty()) {
        void* block = list.back().block;
        list.pop_back();
        counters.cached -= int64_t(size);
        return block;
      }
      if (size >= kMapped) stale = make_room(size);
    }
    for (const Idle& idle : stale) system_free(idle.block, idle.size);
    return nullptr;
  }
  void give(void* block, size_t size) {
    {
      std::lock_guard hold(lock_);
      if (size_t(counters.cached.load()) + size <= kCacheLimit) try {
          lists_[class_index(size)].push_back({block, size, asked_});
          counters.cached += int64_t(size);
          return;
        } catch (const std::bad_alloc&) {}  // a destructor calls this
    }
    system_free(block, size);
  }
  void flush() {
    std::lock_guard hold(lock_);
    for (auto& list : lists_) {
      for (const Idle& idle : list) system_free(idle.block, idle.size);
      list.clear();
    }
    counters.cached = 0;
    patience_ = kLeastPatience;
    given_back_ = {};
  }

 private:
  struct Idle {
    void* block;
    size_t size;
    uint64_t since;  // asked_ when it was given
  };

  // The last of a list is taken first, so the first has rested longest. A block is stale when `patience_` times the
  // bytes in the cache have been asked for since it came. Patience grows whenever a block given back would have been of
  // use, so that a loop that comes round to the same sizes soon keeps them all.
  std::vector<Idle> make_room(size_t size) {
    int64_t& missed = given_back_[class_index(size)];
    if (missed > 0) --missed, patience_ = std::min(patience_ * 1.25, kMostPatience);
    std::vector<Idle> stale;
    const uint64_t patience = uint64_t(patience_ * double(counters.cached.load()));
    for (size_t freed = 0; freed < size;) {
      std::vector<Idle>* oldest = nullptr;
      for (int i = class_index(kMapped); i < kClasses; ++i)
        if (!lists_[i].empty() && (!oldest || lists_[i].front().since < oldest->front().since)) oldest = &lists_[i];
      if (!oldest || asked_ - oldest->front().since < patience) break;
      const Idle idle = oldest->front();
      oldest->erase(oldest->begin());
      stale.push_back(idle);
      ++given_back_[class_index(idle.size)];
      freed += idle.size;
      counters.cached -= int64_t(idle.size);
    }
    return stale;
  }

  static constexpr double kLeastPatience = 0.5, kMostPatience = 16;
  std::mutex lock_;
  uint64_t asked_ = 0;  // bytes, so far
  double patience_ = kLeastPatience;
  std::array<int64_t, kClasses> given_back_{};  // blocks of each class
  std::array<std::vector<Idle>, kClasses> lists_;
};

Cache& cache() {
  static Cache* instance = new Cache;
  return *instance;
}

// Blocks up to this size live in lists of the thread that freed them; a thread keeps at most
// kLocalBytes of each class.
constexpr size_t kLocalSize = 1024;
constexpr int kLocalBytes = 512 << 10;  // a class

struct LocalCache {
  struct Free {
    Free* next;
  };
  Free* lists[kLocalSize / 64] = {};
  int depth[kLocalSize / 64] = {};
  bool dead = false;

  ~LocalCache() {
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
    lists[i] = new (block) Free{lists[i]};
    ++depth[i];
    return true;
  }
};
thread_local LocalCache local_cache;

void* cached_allocate(size_t size) {
  if (size <= kLocalSize) {
    if (void* block = local_cache.take(size)) return block;
  } else if (void* block = cache().take(size)) {
    return block;
  }
  return system_allocate(size);
}

void cached_free(void* block, size_t size) {
  if (size <= kLocalSize && local_cache.give(block, size)) return;
  if (size <= kLocalSize) return system_free(block, size);
  cache().give(block, size);
}

// Under AddressSanitizer: only the bytes asked for may be touched, and none of a block that waits to be used again.
void poison_unasked(const Buffer* b, size_t size) {
  const char* end = static_cast<const char*>(b->data) + b->bytes;
  ASAN_POISON_MEMORY_REGION(end, size_t(reinterpret_cast<const char*>(b) + size - end));
}
void poison_resting(void* block, size_t size) {
  if (size > kHeader) ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + kHeader, size - kHeader);
}

void write_guards(Buffer* b) {
  auto* data = static_cast<unsigned char*>(b->data);
  std::memset(data, kPoisonByte, b->bytes);
  std::memset(data - kGuard, kGuardByte, kGuard);
  std::memset(data + b->bytes, kGuardByte, kGuard);
}

void check_guards(const Buffer* b) {
  auto* data = static_cast<const unsigned char*>(b->data);
  for (size_t i = 0; i < kGuard; ++i)
    if (data[-1 - ptrdiff_t(i)] != kGuardByte || data[b->bytes + i] != kGuardByte) {
      fmt::print(stderr, "perigee: a kernel wrote outside its buffer of {} bytes\n", b->bytes);
      std::abort();
    }
}

Buffer* try_allocate(Device device, Bytes wanted) {
  if (wanted > kMaxBytes || wanted.count() > largest_request) return nullptr;
  const size_t bytes = wanted.count();
  const size_t guard = device.is_cpu() && guard_mode() ? kGuard : 0;
  const size_t size = class_size(kHeader + (device.is_cpu() ? bytes + 2 * guard : 0));
  void* block = cached_allocate(size);
  if (!block) return nullptr;
  ASAN_UNPOISON_MEMORY_REGION(block, size);
  Buffer* b = BufferAccess::construct(block);
  BufferAccess::capacity(b) = size;
  b->bytes = bytes;
  b->device = device;
  if (device.is_cpu()) {
    b->data = static_cast<char*>(block) + kHeader + guard;
    if (guard)
      write_guards(b);
    else
      poison_unasked(b, size);
  } else if (!(b->data = device_table(device).allocate(device.index, stream_of(device), std::max<size_t>(bytes, 1)))) {
    cached_free(block, size);
    return nullptr;
  }
  return b;
}

}  // namespace

Ref<Buffer> Buffer::allocate(Device device, Bytes wanted) {
  const size_t bytes = wanted.count();
  const bool injected = injected_failure();
  Buffer* b = injected ? nullptr : try_allocate(device, wanted);
  if (!b) {
    flush_memory_cache();
    const bool again = !oom_handler || oom_handler(oom_context, bytes);
    if (again && !injected) b = try_allocate(device, wanted);
  }
  if (!b) throw OutOfMemory(fmt::format("out of memory: cannot allocate {} bytes on {}", bytes, name_of(device)));
  counters.allocations.fetch_add(1, std::memory_order_relaxed);
  const int64_t live = counters.live.fetch_add(int64_t(bytes), std::memory_order_relaxed) + int64_t(bytes);
  if (live > counters.peak.load(std::memory_order_relaxed)) counters.peak.store(live, std::memory_order_relaxed);
  return Ref<Buffer>(b);
}

void Buffer::destroy(Buffer* b) {
  counters.live.fetch_sub(int64_t(b->bytes), std::memory_order_relaxed);
  if (!b->device.is_cpu())
    device_table(b->device).release(b->device.index, stream_of(b->device), b->data, std::max<size_t>(b->bytes, 1));
  else if (guard_mode())
    check_guards(b);
  const size_t size = BufferAccess::capacity(b);
  poison_resting(b, size);
  b->~Buffer();
  cached_free(b, size);
}

MemoryStats memory_stats() { return {counters.live, counters.cached, counters.peak, counters.allocations}; }
void reset_peak() { counters.peak = counters.live.load(); }
void flush_memory_cache() { cache().flush(); }

ScopedOutOfMemoryHandler::ScopedOutOfMemoryHandler(OutOfMemoryHandler handler, void* context)
    : saved_handler_(std::exchange(oom_handler, handler)), saved_context_(std::exchange(oom_context, context)) {}
ScopedOutOfMemoryHandler::~ScopedOutOfMemoryHandler() {
  oom_handler = saved_handler_;
  oom_context = saved_context_;
}

void fail_allocation(int64_t nth, bool persistent) {
  fail_countdown = nth;
  fail_persistent = persistent;
  fail_happened = false;
}
bool allocation_failed() { return fail_happened; }
void limit_allocation(size_t bytes) { largest_request = bytes > 0 ? bytes : kMaxBytes.count(); }

}  // namespace pg
