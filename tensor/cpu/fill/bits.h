// Random words for kernels that draw element by element.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tensor/parallel.h"
#include "tensor/random.h"

namespace pg::cpu {

// Writes the words of `count` elements from `first` on, 64 bits for each.
void write_bits(const RandomKey& key, int64_t first, int64_t count, uint64_t* out);

// Calls f(begin, end, words) for parts of [0, n) of at most kPart elements, on all threads. Word i - begin is that of
// element `first` + i.
inline constexpr int64_t kPart = 1024;  // whole groups
template <class F>
void over_bits(const RandomKey& key, int64_t first, int64_t n, const F& f) {
  parallel_for(n, 4 << 10, [&](int64_t begin, int64_t end) {
    uint64_t words[kPart];
    for (int64_t at = begin, next = at; at < end; at = next) {
      next = std::min(end, (at / kPart + 1) * kPart);
      write_bits(key, first + at, next - at, words);
      f(at, next, words);
    }
  });
}

// Turns 64 random bits into a number in [0, 1).
inline double unit(uint64_t random) { return double(int64_t(random >> 11)) * 0x1p-53; }

}  // namespace pg::cpu
