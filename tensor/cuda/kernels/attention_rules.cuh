// What the kernels of attention share.
#include "philox.cuh"

// a b + c; modules are compiled so that the compiler joins none.
#ifndef PERIGEE_FMA
#define PERIGEE_FMA(a, b, c) ::fma(a, b, c)
#endif

namespace pg::kernels {

// Where the matrix of a head begins. There are fewer than 2^31 blocks, so 32 bits hold the number of a head.
__device__ inline int64_t offset_of(const AttentionArgs& a, int operand, int64_t head) {
  int64_t offset = 0;
  uint32_t left = uint32_t(head);
  for (int d = a.rank - 1; d >= 0; left /= uint32_t(a.sizes[d--]))
    offset += left % uint32_t(a.sizes[d]) * a.steps[d][operand];
  return offset;
}

__device__ inline bool sees(const AttentionArgs& a, int64_t query, int64_t key) {
  return query < a.queries && key < a.keys && (!a.causal || key <= query);
}

// The random words of weights that share a block of the generator.
struct Drawn {
  int64_t number = -1;
  Block block;
};
// Whether dropout drops a weight. `last`: what an earlier call for the same head drew.
__device__ inline bool drops(const AttentionArgs& a, int64_t head, int64_t query, int64_t key, Drawn& last) {
  const int64_t e = (head * a.queries + query) * a.keys + key, number = e / 64 * 16 + e % 16;
  if (number != last.number) last = {number, philox(uint64_t(a.seed), uint64_t(a.tick), 0, uint64_t(number))};
  const int i = int(e % 64 / 16);
  const uint32_t *word = last.block.word, low = i & 1 ? word[1] : word[0], high = i & 1 ? word[3] : word[2];
  return uint64_t(i & 2 ? high : low) < uint64_t(a.drop_below);
}

}  // namespace pg::kernels
