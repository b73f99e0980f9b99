// A caching allocator for the memory of tensors.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "tensor/large_blocks.h"

namespace pg {

struct MemoryStats {
  int64_t live = 0;    // bytes in live buffers
  int64_t cached = 0;  // bytes kept for reuse
  int64_t peak = 0;    // largest `live` so far
  int64_t allocations = 0;
};

class MemoryPool {
 public:
  // With `per_thread`, small free blocks are kept in lists of the thread that freed them. Only a pool that is never
  // destroyed may do this, because it cannot reach the lists of other threads.
  MemoryPool(const MemorySource& source, bool per_thread) : source_(source), per_thread_(per_thread), large_(source) {}
  ~MemoryPool() { flush(); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // The size of the block for a request: multiples of 64 up to 1 KiB, then four steps per power of two (at most 25 %
  // slack) up to kLarge, then multiples of LargeBlocks::kUnit.
  static size_t class_size(size_t bytes);

  // Returns a block of `size` bytes (a class_size), 64-byte aligned with unspecified contents; null when there is no
  // memory.
  void* take(size_t size);
  // Takes back a block of take(size). Keeps it for reuse within limits.
  void give(void* block, size_t size);
  // Returns cached memory to the source.
  void flush();

  // Counts a buffer of `bytes`.
  void count(int64_t bytes);
  void uncount(int64_t bytes) { live_.fetch_sub(bytes, std::memory_order_relaxed); }
  MemoryStats stats() const { return {live_, cached_ + large_idle_, peak_, allocations_}; }
  void reset_peak() { peak_ = live_.load(); }

 private:
  static constexpr size_t kLarge = size_t(256) << 10;
  static constexpr int kClasses = 16 + 4 * 8;  // up to kLarge

  static int class_index(size_t size);
  bool keeps(size_t size) const;
  void* take_shared(size_t size);
  void give_shared(void* block, size_t size);
  void* allocate(size_t size);
  void release(void* block, size_t size);

  const MemorySource source_;
  const bool per_thread_;
  std::atomic<int64_t> live_{0}, cached_{0}, large_idle_{0}, peak_{0}, allocations_{0};

  std::mutex lock_;  // guards the members below
  std::array<std::vector<void*>, kClasses> lists_;
  LargeBlocks large_;
};

}  // namespace pg
