// When row kernels write their results past the caches, which a large result would only fill.
#pragma once
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace pg::cpu {

// Results of so many bytes are written past the caches. Below it, a large last-level cache takes them faster.
inline int64_t streamed_bytes() {
  static const int64_t bytes = std::clamp<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE) / 8, 16 << 20, 32 << 20);
  return bytes;
}

// Whether rows of n elements at y, `total` elements in all, are many bytes and consist of whole aligned cache lines.
template <class T>
bool writes_past_caches(const T* y, int64_t n, int64_t total) {
  constexpr int64_t kLine = 64;
  return total * int64_t(sizeof(T)) >= streamed_bytes() && n * int64_t(sizeof(T)) % kLine == 0 &&
         reinterpret_cast<uintptr_t>(y) % kLine == 0;
}

}  // namespace pg::cpu
