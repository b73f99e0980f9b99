// How long a line of a cache takes from one core to another.
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace pg {

// A core that writes a line which another one has read waits for it: 2 ns where both share a fast cache, 25 on some
// virtual machines, longer than most ops take for the elements of the line. See tensor/cpu/shared_grain.h for its use.
// No result depends on it.
class LineTime {
 public:
  // Zero until it has been measured.
  int64_t picoseconds() const { return picoseconds_.load(std::memory_order_relaxed); }
  void set(int64_t picoseconds) { picoseconds_.store(picoseconds, std::memory_order_relaxed); }
  // Whether the caller should try to measure it, which fails while both threads have one core: at the first, second,
  // fourth, eighth … call until set().
  bool is_due() { return picoseconds() == 0 && std::has_single_bit(++calls_); }

 private:
  std::atomic<int64_t> picoseconds_{0};
  std::atomic<uint32_t> calls_{0};
};
extern LineTime line_time;

// Measures it, in about 30 µs: two threads call run(), with parts 0 and 1. Gives up if the other one does not come.
class LineExchange {
 public:
  void run(int64_t part);
  // The shortest time in picoseconds, or 0.
  int64_t result() const { return complete_ ? best_ : 0; }

 private:
  static constexpr int kLines = 256, kRounds = 8;
  struct alignas(64) Line {
    uint32_t value = 0;
  };
  bool wait_for(int turn);

  std::array<Line, kLines> lines_;
  alignas(64) std::atomic<int> turn_{0};
  bool complete_ = false;
  int64_t best_ = INT64_MAX;
  alignas(64) uint32_t sums_ = 0;  // keeps what part 1 reads
};

}  // namespace pg
