// Philox4x32-10 with the counters of tensor/kernels/philox.h, so that elements have the CPU's bits. Families include
// this part.
namespace pg::kernels {

struct Block {
  uint32_t word[4];
};
__device__ inline Block philox(uint64_t seed, uint64_t tick, uint32_t stream, uint64_t block) {
  uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = uint32_t(tick),
           c3 = uint32_t(tick >> 32) ^ (stream << 30);
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(p1 >> 32) ^ c1 ^ k0;
    c1 = uint32_t(p1);
    c2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c3 = uint32_t(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace pg::kernels
