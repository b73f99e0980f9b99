// Counts the work of C functions that an instruction hook does not see, such as pattern matching.
#pragma once
#include <atomic>
#include <cstdint>

namespace pg::vm {

struct WorkMeter {
  uint64_t done = 0;   // in instructions of Lua, about
  uint64_t limit = 0;  // 0: none
  const std::atomic<bool>* cancel = nullptr;

  bool must_end() const { return (limit > 0 && done > limit) || (cancel && cancel->load(std::memory_order_relaxed)); }

  // That of the call on this thread, or null.
  static inline thread_local WorkMeter* current = nullptr;
};

}  // namespace pg::vm
