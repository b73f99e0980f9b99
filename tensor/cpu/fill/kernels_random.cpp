// Kernels of the random ops. They turn Philox words, computed sixteen blocks at a time in vectors, into the requested
// distribution.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/fill/kernels_random.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "tensor/cpu/fill/bits.h"
#include "tensor/cpu/fill/dropout.h"
#include "tensor/cpu/loops.h"
#include "tensor/cpu/move/index.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/elementary-inl.h"
#include "tensor/kernels/philox.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {

using philox::kGroup;
constexpr int64_t kGrain = 8192;  // elements that take about 10 µs

#if HWY_TARGET == HWY_SCALAR
using philox::group_words;
#else
// The low and the high halves of x * factor, by lane.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void multiply_wide(D d, V x, V factor, V* low, V* high) {
  const hn::RepartitionToWide<D> wide;
  const auto even = hn::MulEven(x, factor);
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x))), factor);
  *low = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd)), hn::BitCast(d, even));
  *high = hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, hn::ShiftRight<32>(even)));
}

// philox::group_words in vectors.
HWY_INLINE void group_words(uint64_t seed, uint64_t tick, uint32_t stream, uint64_t group, uint32_t* out) {
  using philox::kLanes;
  const hn::CappedTag<uint32_t, kLanes> d;
  const uint64_t first = group * kLanes;
  for (size_t i = 0; i < size_t(kLanes); i += hn::Lanes(d)) {
    auto c0 = hn::Iota(d, uint32_t(first) + uint32_t(i)), c1 = hn::Set(d, uint32_t(first >> 32));
    auto c2 = hn::Set(d, uint32_t(tick)), c3 = hn::Set(d, uint32_t(tick >> 32) ^ (stream << 30));
    auto k0 = hn::Set(d, uint32_t(seed)), k1 = hn::Set(d, uint32_t(seed >> 32));
    for (int round = 0; round < 10; ++round) {
      auto low0 = c0, high0 = c0, low1 = c0, high1 = c0;
      multiply_wide(d, c0, hn::Set(d, philox::kFactor0), &low0, &high0);
      multiply_wide(d, c2, hn::Set(d, philox::kFactor1), &low1, &high1);
      c0 = hn::Xor(hn::Xor(high1, c1), k0), c1 = low1;
      c2 = hn::Xor(hn::Xor(high0, c3), k1), c3 = low0;
      k0 = hn::Add(k0, hn::Set(d, philox::kStep0)), k1 = hn::Add(k1, hn::Set(d, philox::kStep1));
    }
    hn::StoreU(c0, d, out + i);
    hn::StoreU(c1, d, out + kLanes + i);
    hn::StoreU(c2, d, out + 2 * kLanes + i);
    hn::StoreU(c3, d, out + 3 * kLanes + i);
  }
}
#endif

// The random words of one group of kGroup elements.
struct Words {
  alignas(64) uint32_t word[4][kGroup];
  template <class Key>
  HWY_INLINE void draw(const Key& key, int64_t group, int streams) {
    for (int s = 0; s < streams; ++s) group_words(key.seed, key.tick, uint32_t(s), uint64_t(group), word[s]);
  }
  uint64_t wide(int i, int stream = 0) const { return uint64_t(word[stream][i]) << 32 | word[stream + 1][i]; }
};

// Calls make(words, T* values) for each group and stores the values whose index is in [first, first + n).
template <class T, class Make>
HWY_INLINE void generate(const RandomKey& key, int streams, int64_t first, int64_t n, T* out, Make make) {
  parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
    Words words;
    alignas(64) T values[kGroup];
    for (int64_t at = begin; at < end;) {
      const int64_t group = (first + at) / kGroup, skip = (first + at) % kGroup,
                    count = std::min(end - at, kGroup - skip);
      words.draw(key, group, streams);
      make(words, values);
      std::copy_n(values + skip, count, out + at);
      at += count;
    }
  });
}

// Uniform in [0, 1), on a grid that T represents exactly.
template <class T>
void uniform(const RandomKey& key, int64_t n, void* out) {
  constexpr int bits = std::is_same_v<T, Half> ? 11 : std::is_same_v<T, BFloat16> ? 8 : 24;
  generate(key, std::is_same_v<T, double> ? 2 : 1, 0, n, static_cast<T*>(out), [](const Words& w, T* v) {
    for (int i = 0; i < kGroup; ++i) {
      if constexpr (std::is_same_v<T, double>)
        v[i] = double(int64_t(w.wide(i) >> 11)) * 0x1p-53;
      else
        v[i] = T(float(int32_t(w.word[0][i] >> (32 - bits))) * (1.0f / float(1 << bits)));
    }
  });
}

// The Box-Muller transform: sqrt(-2 log u) cos(2 pi v) for u in (0, 1], v in [0, 1), which are multiples of 2^-24 for
// float and 2^-53 for double.
template <class T>
HWY_INLINE void normal_group(const Words& w, T* v) {
  const hn::CappedTag<T, kGroup> d;
  constexpr bool kDouble = std::is_same_v<T, double>;
  constexpr double kStep = kDouble ? 0x1p-53 : 0x1p-24;
  alignas(64) T angle[kGroup];
  for (int i = 0; i < kGroup; ++i) {
    const int64_t u = kDouble ? int64_t(w.wide(i) >> 11) : int64_t(w.word[0][i] >> 8);
    const int64_t a = kDouble ? int64_t(w.wide(i, 2) >> 11) : int64_t(w.word[1][i] >> 8);
    v[i] = T(u + 1) * T(kStep);
    angle[i] = T(a) * T(kStep * 6.28318530717958647692);
  }
  for (size_t i = 0; i < size_t(kGroup); i += hn::Lanes(d)) {
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, T(-2)), elementary::log(d, hn::Load(d, v + i))));
    hn::Store(hn::Mul(radius, elementary::cos(d, hn::Load(d, angle + i))), d, v + i);
  }
}

template <class T>
void normal(const RandomKey& key, int64_t n, void* out) {
  generate(key, std::is_same_v<T, double> ? 4 : 2, 0, n, static_cast<T*>(out), [](const Words& w, T* v) {
    if constexpr (std::is_floating_point_v<T>) {
      normal_group(w, v);
    } else {
      alignas(64) float wide[kGroup];
      normal_group(w, wide);
      for (int i = 0; i < kGroup; ++i) v[i] = T(wide[i]);
    }
  });
}

// Calls f with the C++ type of a floating dtype.
template <class F>
void visit_floating(DType t, F f) {
  if (t == DType::kFloat32) return f(TypeTag<float>{});
  if (t == DType::kFloat64) return f(TypeTag<double>{});
  if (t == DType::kFloat16) return f(TypeTag<Half>{});
  f(TypeTag<BFloat16>{});
}

void fill_uniform(DType t, const RandomKey& key, int64_t n, void* out) {
  visit_floating(t, [&](auto tag) { uniform<typename decltype(tag)::type>(key, n, out); });
}
void fill_normal(DType t, const RandomKey& key, int64_t n, void* out) {
  visit_floating(t, [&](auto tag) { normal<typename decltype(tag)::type>(key, n, out); });
}

// 64 random bits for each of n elements from `first` on, for kernels that run element by element.
void fill_bits(const RandomKey& key, int64_t first, int64_t n, uint64_t* out) {
  generate(key, 2, first, n, out, [](const Words& w, uint64_t* v) {
    for (int i = 0; i < kGroup; ++i) v[i] = w.wide(i);
  });
}

// Drops an element when its word is below p 2^32. x and out are those of elements [begin, end).
template <class T>
void drop_span(const RandomKey& key, double p, int64_t begin, int64_t end, const T* x, T* out) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const uint64_t threshold = uint64_t(std::ceil(p * 0x1p32));
  const C scale = p < 1 ? C(1 / (1 - p)) : C(0);
  Words words;
  for (int64_t pos = begin; pos < end;) {
    const int64_t group = pos / kGroup, skip = pos - group * kGroup, count = std::min(end - pos, kGroup - skip);
    words.draw(key, group, 1);
    const uint32_t* w = words.word[0] + skip;
    PERIGEE_INDEPENDENT
    for (int64_t i = 0; i < count; ++i) out[i] = w[i] < threshold ? T(C(0)) : T(C(x[i]) * scale);
    pos += count, x += count, out += count;
  }
}

void drop_f32(const RandomKey& key, double p, int64_t first, int64_t n, float* x) {
  drop_span(key, p, first, first + n, x, x);
}
void drop_f64(const RandomKey& key, double p, int64_t first, int64_t n, double* x) {
  drop_span(key, p, first, first + n, x, x);
}

void apply_dropout(DType t, const RandomKey& key, double p, int64_t n, const void* x, void* out) {
  visit_floating(t, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(out);
    parallel_for(n, kGrain,
                 [&](int64_t begin, int64_t end) { drop_span(key, p, begin, end, from + begin, to + begin); });
  });
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg {
namespace cpu {
HWY_EXPORT(fill_uniform);
HWY_EXPORT(fill_normal);
HWY_EXPORT(fill_bits);
HWY_EXPORT(apply_dropout);
HWY_EXPORT(drop_f32);
HWY_EXPORT(drop_f64);
void drop(const RandomKey& key, double p, int64_t first, int64_t n, float* x) {
  HWY_DYNAMIC_DISPATCH(drop_f32)(key, p, first, n, x);
}
void drop(const RandomKey& key, double p, int64_t first, int64_t n, double* x) {
  HWY_DYNAMIC_DISPATCH(drop_f64)(key, p, first, n, x);
}
void write_bits(const RandomKey& key, int64_t first, int64_t count, uint64_t* out) {
  HWY_DYNAMIC_DISPATCH(fill_bits)(key, first, count, out);
}
}  // namespace cpu
namespace {

using cpu::over_bits;
using cpu::unit;
using cpu::WorkVector;

const RandomKey& key_of(const KernelArgs& a) { return a.attr<RandomKey>("generator"); }

void rand_kernel(const KernelArgs& a) {
  using namespace cpu;
  HWY_DYNAMIC_DISPATCH(fill_uniform)(a.out[0].dtype(), key_of(a), a.out[0].numel(), a.out[0].data);
}

void randn_kernel(const KernelArgs& a) {
  using namespace cpu;
  HWY_DYNAMIC_DISPATCH(fill_normal)(a.out[0].dtype(), key_of(a), a.out[0].numel(), a.out[0].data);
}

// Draws a mask of size 1 along `axes`, as dropout of ones, and multiplies x by it.
void drop_along(const KernelArgs& a, const Dims& axes) {
  using namespace cpu;
  const View &x = a.in[0], &out = a.out[0];
  const Dims whole = out.rank() == 0 ? Dims{1} : out.shape();
  Dims shape = whole;
  for (int64_t d : axes) shape[int(d)] = 1;
  const Dims from = broadcast_strides(shape, contiguous_strides(shape), whole);
  WorkVector<double> mask(size_t(numel(shape)), 1);
  HWY_DYNAMIC_DISPATCH(apply_dropout)
  (DType::kFloat64, key_of(a), a.attr<double>("p"), int64_t(mask.size()), mask.data(), mask.data());
  const int64_t row = whole.back(), step = from.back();
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
    if constexpr (std::is_constructible_v<T, C> && std::is_convertible_v<T, C>)
      parallel_for(out.numel() / row, 8192 / row + 1, [&](int64_t begin, int64_t end) {
        RowWalk<1> walk(whole, {from}, begin);
        for (int64_t r = begin; r < end; ++r, walk.next())
          for (int64_t j = 0; j < row; ++j)
            out.as<T>()[r * row + j] = T(C(x.as<T>()[r * row + j]) * C(mask[size_t(walk.offset[0] + j * step)]));
      });
  });
}

void dropout_kernel(const KernelArgs& a) {
  using namespace cpu;
  if (a.out[0].numel() > 0 && a.has_attr("axes") && !a.attr<Ints>("axes").empty())
    return drop_along(a, a.dims("axes", a.out[0].rank()));
  HWY_DYNAMIC_DISPATCH(apply_dropout)
  (a.out[0].dtype(), key_of(a), a.attr<double>("p"), a.out[0].numel(), a.in[0].data, a.out[0].data);
}

// Turns 64 random bits into a whole number below n (Lemire's multiplication, without rejection).
uint64_t below(uint64_t n, uint64_t random) { return uint64_t((static_cast<unsigned __int128>(random) * n) >> 64); }

void randint_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const int64_t low = a.attr<int64_t>("low");
  const uint64_t count = uint64_t(a.attr<int64_t>("high") - low) + 1;
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    over_bits(key_of(a), 0, out.numel(), [&](int64_t begin, int64_t end, const uint64_t* random) {
      T* const data = out.as<T>();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t number = low + int64_t(below(count, random[i - begin]));
        if constexpr (std::is_arithmetic_v<T>)
          data[i] = T(number);
        else
          data[i] = T(float(number));
      }
    });
  });
}

constexpr int64_t kMissWork = 8;  // of an element that is rarely in a cache, or of a logarithm

// The Fisher-Yates shuffle, in blocks of elements from the last one on.
template <class T>
void shuffle(const RandomKey& key, T* order, int64_t n) {
  constexpr int64_t kBlock = 32 << 10, kAhead = 16;
  WorkVector<uint64_t> other(size_t(std::min(kBlock, n)));  // the positions to swap with
  Poller poll;
  for (int64_t end = n; end > 0; end -= kBlock) {
    const int64_t begin = std::max<int64_t>(end - kBlock, 0), count = end - begin;
    cpu::write_bits(key, begin, count, other.data());
    for (int64_t i = 0; i < count; ++i) other[size_t(i)] = below(uint64_t(begin + i) + 1, other[size_t(i)]);
    for (int64_t i = count - 1; i >= 0; --i, poll(kMissWork)) {
      __builtin_prefetch(order + other[size_t(std::max<int64_t>(i - kAhead, 0))], 1);
      std::swap(order[begin + i], order[other[size_t(i)]]);
    }
  }
}

void randperm_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const int64_t n = out.numel(), base = a.attr<int64_t>("index_base");
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const order = out.as<T>();
    in_polled_blocks(n, 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if constexpr (std::is_arithmetic_v<T>)
          order[i] = T(i + base);
        else
          order[i] = T(float(i + base));
    });
    shuffle(key_of(a), order, n);
  });
}

// Throws if one of n probabilities is none.
void check_probabilities(const View& p) {
  const int64_t n = p.numel(), size = size_of(p.dtype());
  std::atomic<bool> fine{true};
  visit_dtype(p.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_for(n, 16 << 10, [&](int64_t begin, int64_t end) {
      bool valid = true;
      for (int64_t i = begin; i < end; ++i) {
        const double v = double(p.as<T>()[i]);
        valid &= int(v >= 0) & int(v <= 1);
      }
      if (!valid) fine = false;
    });
  });
  for (int64_t i = 0; !fine && i < n; ++i)
    if (const double v = load_number(p.dtype(), p.as<char>() + i * size); !(v >= 0 && v <= 1))
      bad_argument("bernoulli", "p", "probabilities from 0 to 1", fmt::format("{} at element {}", v, i + 1));
}

void bernoulli_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const bool one = a.has_attr("probability");
  const double shared = one ? a.attr<double>("probability") : 0;
  if (!one) check_probabilities(a.in[0]);
  visit_dtype(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const p = one ? nullptr : a.in[0].as<T>();
    over_bits(key_of(a), 0, out.numel(), [&](int64_t begin, int64_t end, const uint64_t* random) {
      T* const data = out.as<T>();
      uint8_t chosen[cpu::kPart];  // two loops, so that neither has a branch
      for (int64_t i = begin; i < end; ++i) chosen[i - begin] = unit(random[i - begin]) < (one ? shared : double(p[i]));
      for (int64_t i = begin; i < end; ++i) data[i] = T(float(chosen[i - begin]));
    });
  });
}

}  // namespace

void add_random_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"rand", rand_kernel},
      {"randn", randn_kernel},
      {"rand_like", rand_kernel, kStridedInputs},
      {"randn_like", randn_kernel, kStridedInputs},
      {"randint", randint_kernel},
      {"randperm", randperm_kernel},
      {"bernoulli", bernoulli_kernel},
      {"dropout", dropout_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
#endif
