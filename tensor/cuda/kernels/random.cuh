// Random numbers. T: the dtype of the elements.
#include "philox.cuh"

namespace pg::kernels {

// Calls f(i, words of streams 0 to kStreams - 1) for all elements. Word w of block l of group g is that of element
// 64 g + 16 w + l.
template <int kStreams, class F>
__device__ inline void each(const RandomArgs& a, F f) {
  const int64_t blocks = (a.count + 63) / 64 * 16;
  for (int64_t b = thread_index(); b < blocks; b += thread_count()) {
    Block drawn[kStreams];
    for (int s = 0; s < kStreams; ++s) drawn[s] = philox(uint64_t(a.seed), uint64_t(a.tick), uint32_t(s), uint64_t(b));
    for (int w = 0; w < 4; ++w) {
      const int64_t i = b / 16 * 64 + b % 16 + w * 16;
      uint32_t words[kStreams];
      for (int s = 0; s < kStreams; ++s) words[s] = drawn[s].word[w];
      if (i < a.count) f(i, words);
    }
  }
}
__device__ inline uint64_t wide(const uint32_t* words) { return uint64_t(words[0]) << 32 | words[1]; }
__device__ inline double unit(const uint32_t* words) { return double(int64_t(wide(words) >> 11)) * 0x1p-53; }

constexpr bool kDouble = std::is_same_v<T, double>;

PERIGEE_KERNEL(uniform, RandomArgs) {
  T* out = static_cast<T*>(a.out);
  each<kDouble ? 2 : 1>(a, [&](int64_t i, const uint32_t* words) {
    constexpr int kBits = std::is_same_v<T, Half> ? 11 : std::is_same_v<T, BFloat16> ? 8 : 24;
    if constexpr (kDouble)
      out[i] = convert_one<T>(unit(words));
    else
      out[i] = convert_one<T>(float(int32_t(words[0] >> (32 - kBits))) * (1.0f / float(1 << kBits)));
  });
}

// The Box-Muller transform.
PERIGEE_KERNEL(normal, RandomArgs) {
  T* out = static_cast<T*>(a.out);
  each<kDouble ? 4 : 2>(a, [&](int64_t i, const uint32_t* words) {
    if constexpr (kDouble) {
      const double u = double(int64_t(wide(words) >> 11) + 1) * 0x1p-53, v = unit(words + 2);
      out[i] = convert_one<T>(std::sqrt(-2 * std::log(u)) * std::cos(6.28318530717958647692 * v));
    } else {
      const float u = float(int32_t(words[0] >> 8) + 1) * 0x1p-24f;
      const float angle = float(int32_t(words[1] >> 8)) * (0x1p-24f * 6.28318530717958647692f);
      out[i] = convert_one<T>(std::sqrt(-2.0f * std::log(u)) * std::cos(angle));
    }
  });
}

PERIGEE_KERNEL(integers, RandomArgs) {
  T* out = static_cast<T*>(a.out);
  each<2>(a, [&](int64_t i, const uint32_t* words) {
    // The upper 64 bits of the product of 64 random bits and the number of values.
    const uint64_t x = wide(words), n = uint64_t(a.range);
    const uint64_t low = (x & 0xffffffffu) * (n & 0xffffffffu), middle = (x >> 32) * (n & 0xffffffffu) + (low >> 32);
    const uint64_t other = (x & 0xffffffffu) * (n >> 32) + (middle & 0xffffffffu);
    const uint64_t high = (x >> 32) * (n >> 32) + (middle >> 32) + (other >> 32);
    out[i] = convert_one<T>(double(a.low + int64_t(high)));
  });
}

PERIGEE_KERNEL(bernoulli, RandomArgs) {
  T* out = static_cast<T*>(a.out);
  each<2>(a, [&](int64_t i, const uint32_t* words) { out[i] = convert_one<T>(unit(words) < a.p ? 1.0f : 0.0f); });
}

// Drops an element when its word is below `range`.
PERIGEE_KERNEL(drop, RandomArgs) {
  using C = std::conditional_t<kDouble, double, float>;
  const T* x = static_cast<const T*>(a.x);
  T* out = static_cast<T*>(a.out);
  each<1>(a, [&](int64_t i, const uint32_t* words) {
    // Without x, a mask.
    if (!x) return void(out[i] = convert_one<T>(words[0] < uint64_t(a.range) ? C(0) : C(a.scale)));
    const C kept = C(widen(x[i])) * C(a.scale);
    out[i] = convert_one<T>(words[0] < uint64_t(a.range) ? C(0) : kept);
  });
}

}  // namespace pg::kernels
