// A caching allocator for the memory of tensors.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace pg {

// Where blocks come from. Both null: from the system.
struct MemorySource {
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;  // null if there is no memory
  void (*release)(void* user, void* data, size_t bytes) = nullptr;
  void* user = nullptr;
};

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
  MemoryPool(const MemorySource& source, bool per_thread) : source_(source), per_thread_(per_thread) {}
  ~MemoryPool() { flush(); }
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // The size of the block for a request: multiples of 64 up to 1 KiB, then four steps per power of two (at most 25 %
  // slack). At most 2^48.
  static size_t class_size(size_t bytes);

  // Returns a block of `size` bytes (a class_size), 64-byte aligned with unspecified contents; null when there is no
  // memory.
  void* take(size_t size);
  // The same for memory that is given back soon. Prefers an idle block of a larger size to a new one, and sets `size`
  // to the size of the block. A new one replaces idle blocks, all of which are smaller.
  void* take_briefly(size_t* size);
  // Takes back a block of take(size). Keeps it for reuse within limits.
  void give(void* block, size_t size);
  // Returns cached memory to the source.
  void flush();

  // Counts a buffer of `bytes`.
  void count(int64_t bytes);
  void uncount(int64_t bytes) { live_.fetch_sub(bytes, std::memory_order_relaxed); }
  MemoryStats stats() const { return {live_, cached_, peak_, allocations_}; }
  void reset_peak() { peak_ = live_.load(); }

 private:
  struct Idle {
    void* block;
    size_t size;
    uint64_t since;  // asked_ when it was given
  };
  static constexpr int kClasses = 16 + 4 * 40;
  static constexpr double kLeastPatience = 0.5, kMostPatience = 16;

  void* allocate(size_t size);
  void release(void* block, size_t size);
  void release(const std::vector<Idle>& blocks);
  void* take_shared(size_t size);
  void give_shared(void* block, size_t size);
  std::vector<Idle> make_room(size_t size);
  std::vector<Idle> take_oldest(size_t bytes, uint64_t age);

  const MemorySource source_;
  const bool per_thread_;
  std::atomic<int64_t> live_{0}, cached_{0}, peak_{0}, allocations_{0};

  std::mutex lock_;     // guards the members below
  uint64_t asked_ = 0;  // bytes requested so far
  double patience_ = kLeastPatience;
  std::array<int64_t, kClasses> given_back_{};  // blocks of each class
  std::array<std::vector<Idle>, kClasses> lists_;
};

}  // namespace pg
