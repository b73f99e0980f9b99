// Counts the work of a call that an instruction hook does not see: ops, steps of loops, pattern matching.
#pragma once
#include <atomic>
#include <cstdint>

namespace pg {

struct WorkMeter {
  static constexpr uint64_t kPoll = 10;  // that a poll counts for
  uint64_t done = 0;                     // in instructions of Lua, about
  uint64_t limit = 0;                    // 0: none
  const std::atomic<bool>* cancel = nullptr;

  bool must_end() const { return (limit > 0 && done > limit) || (cancel && cancel->load(std::memory_order_relaxed)); }

  // That of the call on this thread, or null.
  static inline thread_local WorkMeter* current = nullptr;
};

}  // namespace pg
