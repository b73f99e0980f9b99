// When row kernels write their results past the caches, which a large result would only fill.
#pragma once
#include <cstdint>

namespace pg::cpu {

// Whether rows of n elements at y, `total` elements in all, are many bytes and consist of whole aligned cache lines.
template <class T>
bool writes_past_caches(const T* y, int64_t n, int64_t total) {
  constexpr int64_t kLarge = 16 << 20, kLine = 64;
  return total * int64_t(sizeof(T)) >= kLarge && n * int64_t(sizeof(T)) % kLine == 0 &&
         reinterpret_cast<uintptr_t>(y) % kLine == 0;
}

}  // namespace pg::cpu
