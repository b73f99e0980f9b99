// The large blocks of a memory pool. They are cut from one range of addresses that grows as needed, and joined with
// their idle neighbors when they come back. So arrays of different sizes reuse each other's memory, and a program needs
// about the most that it holds at a time, not the sum of the most of each size.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

namespace pg {

// Where memory comes from. Both null: from the system.
struct MemorySource {
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;  // null if there is no memory
  void (*release)(void* user, void* data, size_t bytes) = nullptr;
  void* user = nullptr;
};

// Only one thread may use it at a time.
class LargeBlocks {
 public:
  static constexpr size_t kUnit = size_t(64) << 10, kAlign = 64;

  explicit LargeBlocks(const MemorySource& source) : source_(source) {}
  ~LargeBlocks() { flush(); }
  LargeBlocks(const LargeBlocks&) = delete;
  LargeBlocks& operator=(const LargeBlocks&) = delete;

  // Returns a block of `size` bytes, a multiple of kUnit; null if there is no memory. New memory replaces that of
  // blocks that have been idle for long.
  void* take(size_t size);
  // Takes back a block. Keeps its memory for reuse if `keeps`.
  void give(void* data, bool keeps) noexcept;
  // Returns the memory of idle blocks to its source.
  void flush() noexcept;

  size_t idle_bytes() const { return idle_bytes_; }  // in memory

 private:
  using Idle = std::map<char*, size_t>;  // sizes of blocks
  struct Block {
    size_t size;
    size_t touched = 0;  // bytes that are in memory; the source has not given the others yet
    uint64_t since = 0;  // asked_ when it came back
    bool idle = true;
    bool first, last;            // of a segment: memory without gaps that blocks are cut from
    Idle::node_type entry = {};  // of idle_, while the block is in use, so that to give it back allocates nothing
  };
  using Blocks = std::map<char*, Block>;
  static constexpr size_t kMostBits = 48, kMostBytes = (size_t(1) << kMostBits) - 1;
  static constexpr double kLeastPatience = 0.5, kMostPatience = 16;

  Blocks::iterator first_fit(size_t size, size_t most);
  Blocks::iterator fit(size_t size);
  bool grow(size_t size);
  void add(char* data, size_t size);
  void cut(Blocks::iterator at, size_t size);
  void join(Blocks::iterator at, Blocks::iterator next) noexcept;
  void release(Blocks::iterator at) noexcept;
  void release_stale(size_t bytes);
  void insert(Blocks::iterator at, Idle::node_type entry) noexcept;
  Idle::node_type extract(Blocks::iterator at) noexcept;

  const MemorySource source_;
  Blocks blocks_;                         // all of them, by address
  std::array<Idle, 4 * kMostBits> idle_;  // by size
  char* end_ = nullptr;                   // of the newest segment of the system, where it grows
  size_t idle_bytes_ = 0, mapped_ = 0;
  uint64_t asked_ = 0;    // bytes requested so far
  uint64_t missing_ = 0;  // bytes that were released as stale and have not been requested since
  double patience_ = kLeastPatience;
};

}  // namespace pg
