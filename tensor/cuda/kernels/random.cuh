// Random numbers. T: the dtype of the elements.
#include "philox.cuh"

namespace pg::kernels {

// Calls f(i, words of streams 0 to kStreams - 1) for all elements. Word w of block l of group g is that of element
// 64 g + 16 w + l.
template <int kStreams, class Args, class F>
__device__ inline void each(const Args& a, F f) {
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

// A random number below n: the upper 64 bits of the product of 64 random bits and n.
__device__ inline int64_t below(uint64_t n, const uint32_t* words) {
  const uint64_t x = wide(words);
  const uint64_t low = (x & 0xffffffffu) * (n & 0xffffffffu), middle = (x >> 32) * (n & 0xffffffffu) + (low >> 32);
  const uint64_t other = (x & 0xffffffffu) * (n >> 32) + (middle & 0xffffffffu);
  return int64_t((x >> 32) * (n >> 32) + (middle >> 32) + (other >> 32));
}

PERIGEE_KERNEL(integers, RandomArgs) {
  T* out = static_cast<T*>(a.out);
  each<2>(a, [&](int64_t i, const uint32_t* words) {
    out[i] = convert_one<T>(double(a.low + below(uint64_t(a.range), words)));
  });
}

// With x, its elements are the probabilities.
PERIGEE_KERNEL(bernoulli, RandomArgs) {
  const T* x = static_cast<const T*>(a.x);
  T* out = static_cast<T*>(a.out);
  each<2>(a, [&](int64_t i, const uint32_t* words) {
    const double p = x ? double(widen(x[i])) : a.p;
    if (!(p >= 0 && p <= 1)) report(a.fault, a.report, std::bit_cast<int64_t>(p), i);
    out[i] = convert_one<T>(unit(words) < p ? 1.0f : 0.0f);
  });
}

// The shuffle of Fisher and Yates, which swaps number i with a random one up to i for i = n - 1, n - 2, … A swap does
// not depend on those before it that want other numbers. So each round makes all swaps that are the next ones for both
// of their numbers. There are about log n rounds (Shun et al., Sequential random permutation, list contraction and tree
// contraction are highly parallel, 2015).
PERIGEE_KERNEL(shuffle_start, ShuffleArgs) {
  each<2>(a, [&](int64_t i, const uint32_t* words) {
    a.numbers[i] = i + a.base;
    a.partners[i] = i > 0 ? below(uint64_t(i) + 1, words) : -1;
    a.claims[i] = -1;
    if (i == 0) *a.unfinished = -1;
  });
}
PERIGEE_KERNEL(shuffle_claim, ShuffleArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    if (a.partners[i] < 0) continue;
    atomicMax(a.claims + i, a.round * a.count + i);
    atomicMax(a.claims + a.partners[i], a.round * a.count + i);
  }
}
PERIGEE_KERNEL(shuffle_swap, ShuffleArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t j = a.partners[i], claim = a.round * a.count + i;
    if (j < 0) continue;
    if (a.claims[i] != claim || a.claims[j] != claim) {
      *a.unfinished = a.round;
      continue;
    }
    const int64_t number = a.numbers[i];
    a.numbers[i] = a.numbers[j];
    a.numbers[j] = number;
    a.partners[i] = -1;
  }
}

// One block per row: refuses weights that are no probabilities, and rows with too few of them.
PERIGEE_BLOCK_KERNEL(draw_check, DrawArgs) {
  __shared__ int64_t counts[256];
  const double* w = a.weights + blockIdx.x * a.choices;
  int64_t count = 0;
  for (int64_t i = threadIdx.x; i < a.choices; i += blockDim.x) {
    if (!(w[i] >= 0 && w[i] <= std::numeric_limits<double>::max()))
      report(a.fault, a.bad_weight, std::bit_cast<int64_t>(w[i]), i);
    count += w[i] > 0;
  }
  scan_block(counts, count, [](int64_t x, int64_t y) { return x + y; });
  const int64_t total = counts[blockDim.x - 1];
  if (threadIdx.x == 0 && total < (a.replacement ? 1 : a.draws)) report(a.fault, a.few_weights, total, 0);
}

// With replacement: looks a random part of the sum of the weights up in their running sums.
PERIGEE_KERNEL(draw_again, DrawArgs) {
  each<2>(a, [&](int64_t i, const uint32_t* words) {
    const double* const w = a.weights + i / a.draws * a.choices;
    const double* const sums = a.sums + i / a.draws * a.choices;
    const double u = unit(words) * sums[a.choices - 1];
    int64_t low = 0, high = a.choices;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sums[middle] > u)
        high = middle;
      else
        low = middle + 1;
    }
    // The running sums are rounded. A weight of 0 is never drawn.
    while (low < a.choices && !(w[low] > 0)) ++low;
    if (low == a.choices)
      for (--low; low > 0 && !(w[low] > 0);) --low;
    a.out[i] = low + a.base;
  });
}

// Without: the smallest of -log(u) / w are drawn (Efraimidis and Spirakis, Weighted random sampling with a reservoir,
// 2006). NaN is larger than all.
PERIGEE_KERNEL(draw_keys, DrawArgs) {
  each<2>(a, [&](int64_t i, const uint32_t* words) {
    const double w = a.weights[i];
    a.sums[i] = w > 0 ? -std::log1p(-unit(words)) / w : std::numeric_limits<double>::quiet_NaN();
  });
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
