// Philox4x32-10, the counter-based generator of Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011). A
// draw is a pure function of (seed, tick, element): key = seed, counter = (block, tick). Host and devices share this
// file.
#pragma once
#include <cstdint>

namespace pg::philox {

inline constexpr int kGroup = 64;  // elements whose words come from kLanes consecutive blocks
inline constexpr int kLanes = 16;
inline constexpr uint32_t kFactor0 = 0xD2511F53u, kFactor1 = 0xCD9E8D57u;  // of the products in a round
inline constexpr uint32_t kStep0 = 0x9E3779B9u, kStep1 = 0xBB67AE85u;      // of the keys between rounds

// Computes words 0 to 3 of kLanes consecutive blocks: out[word * kLanes + lane]. An op that needs several independent
// words per element uses streams 0 to 3.
constexpr void group_words(uint64_t seed, uint64_t tick, uint32_t stream, uint64_t group, uint32_t* out) {
  uint32_t c0[kLanes]{}, c1[kLanes]{}, c2[kLanes]{}, c3[kLanes]{};
  const uint64_t first = group * kLanes;
  for (int i = 0; i < kLanes; ++i) {
    c0[i] = uint32_t(first) + uint32_t(i);  // no carry: kLanes divides 2^32
    c1[i] = uint32_t(first >> 32);
    c2[i] = uint32_t(tick);
    c3[i] = uint32_t(tick >> 32) ^ (stream << 30);
  }
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t p0 = uint64_t(kFactor0) * c0[i], p1 = uint64_t(kFactor1) * c2[i];
      c0[i] = uint32_t(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = uint32_t(p1);
      c2[i] = uint32_t(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = uint32_t(p0);
    }
    k0 += kStep0;
    k1 += kStep1;
  }
  for (int i = 0; i < kLanes; ++i) {
    out[i] = c0[i];
    out[kLanes + i] = c1[i];
    out[2 * kLanes + i] = c2[i];
    out[3 * kLanes + i] = c3[i];
  }
}

}  // namespace pg::philox
