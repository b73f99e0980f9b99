// Kernels of grid_sample: reads and writes at a list of positions with weights, the same for all channels of an image.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/move/kernels_sample.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/register.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 256;   // points whose positions and weights stay in the cache for all channels
constexpr int64_t kGrain = 8192;  // element reads that take about 10 µs

// Calls f(TypeTag<T>{}) for float32 or float64.
template <class F>
void visit_computed(DType t, F f) {
  t == DType::kFloat64 ? f(TypeTag<double>{}) : f(TypeTag<float>{});
}

void check_places(const KernelArgs& a, size_t input, int64_t size) {
  const int32_t* places = a.in[input].as<int32_t>();
  std::atomic<bool> fine{true};
  parallel_for(a.in[input].numel(), 64 << 10, [&](int64_t begin, int64_t end) {
    int32_t low = 0, high = -1;
    for (int64_t i = begin; i < end; ++i) {
      low = std::min(low, places[i]);
      high = std::max(high, places[i]);
    }
    if (low < -1 || high >= size) fine = false;
  });
  if (!fine) bad_argument(a.op.name, "index", fmt::format("positions from -1 to {}", size - 1), "one outside");
}

// The sizes of x (batch, channels, positions) and index (batch, taps, points).
struct Sizes {
  int64_t batch, channels, positions, taps, points;
  Sizes(const View& x, const View& index)
      : batch(x.size(0)), channels(x.size(1)), positions(x.size(2)), taps(index.size(1)), points(index.size(2)) {}
  // Calls f(image, first point, number of points) for blocks of points, in parallel.
  template <class F>
  void by_blocks(F f) const {
    const int64_t blocks = (points + kBlock - 1) / kBlock, work = kBlock * taps * std::max<int64_t>(channels, 1);
    parallel_for(batch * blocks, kGrain / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % blocks * kBlock;
        f(i / blocks, first, std::min(kBlock, points - first));
      }
    });
  }
};

template <class T>
T read(const T* x, int32_t i) {
  const T v = x[std::max(i, 0)];
  return i >= 0 ? v : T(0);
}

// to += the elements of a plane at `places`, times `weight` if there is one.
template <class T>
void add_tap(const T* plane, const int32_t* places, const T* weight, int64_t count, T* to) {
  if (weight) {
    PERIGEE_INDEPENDENT
    for (int64_t p = 0; p < count; ++p) to[p] += weight[p] * read(plane, places[p]);
  } else {
    PERIGEE_INDEPENDENT
    for (int64_t p = 0; p < count; ++p) to[p] += read(plane, places[p]);
  }
}

template <class T>
void sample_typed(const Sizes& s, const T* x, const int32_t* index, const T* weight, T* out) {
  s.by_blocks([&](int64_t n, int64_t first, int64_t count) {
    for (int64_t c = 0; c < s.channels; ++c) {
      if (c % 64 == 63) poll_kernel();
      const T* plane = x + (n * s.channels + c) * s.positions;
      T* to = out + (n * s.channels + c) * s.points + first;
      for (int64_t k = 0; k < s.taps; ++k) {
        const int64_t at = (n * s.taps + k) * s.points + first;
        if (k == 0) std::fill_n(to, count, T(0));
        add_tap(plane, index + at, weight ? weight + at : nullptr, count, to);
      }
    }
  });
}

void sample_kernel(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  const Sizes s(x, a.in[1]);
  check_places(a, 1, s.positions);
  if (out.numel() == 0) return;
  visit_computed(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (s.taps == 0 || s.positions == 0) return void(std::fill_n(out.as<T>(), out.numel(), T(0)));
    sample_typed<T>(s, x.as<T>(), a.in[1].as<int32_t>(), a.in[2] ? a.in[2].as<T>() : nullptr, out.as<T>());
  });
}

template <class T>
void sample_back_typed(const Sizes& s, const T* dy, const int32_t* index, const T* weight, T* out) {
  parallel_for(s.batch * s.channels, kGrain / (s.points * s.taps + s.positions) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / s.channels;
      T* plane = out + i * s.positions;
      std::fill_n(plane, s.positions, T(0));
      for (int64_t k = 0; k < s.taps; ++k) {
        const int64_t at = (n * s.taps + k) * s.points;
        in_polled_blocks(s.points, 1 << 16, [&](int64_t from, int64_t to) {
          for (int64_t p = from; p < to; ++p)
            if (index[at + p] >= 0)
              plane[index[at + p]] += weight ? weight[at + p] * dy[i * s.points + p] : dy[i * s.points + p];
        });
      }
    }
  });
}

void sample_back_kernel(const KernelArgs& a) {
  const View& out = a.out[0];
  const Sizes s(out, a.in[1]);
  check_places(a, 1, s.positions);
  if (out.numel() == 0) return;
  visit_computed(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (a.in[1].numel() == 0) return void(std::fill_n(out.as<T>(), out.numel(), T(0)));  // there may be 2^60 empty taps
    sample_back_typed<T>(s, a.in[0].as<T>(), a.in[1].as<int32_t>(), a.in[2] ? a.in[2].as<T>() : nullptr, out.as<T>());
  });
}

template <class T>
void sample_weight_typed(const Sizes& s, const T* dy, const T* x, const int32_t* index, T* out) {
  s.by_blocks([&](int64_t n, int64_t first, int64_t count) {
    for (int64_t k = 0; k < s.taps; ++k) {
      const int64_t at = (n * s.taps + k) * s.points + first;
      std::fill_n(out + at, count, T(0));
      for (int64_t c = 0; c < s.channels; ++c) {
        if (c % 64 == 63) poll_kernel();
        const T* plane = x + (n * s.channels + c) * s.positions;
        const T* from = dy + (n * s.channels + c) * s.points + first;
        add_tap(plane, index + at, from, count, out + at);
      }
    }
  });
}

void sample_weight_kernel(const KernelArgs& a) {
  const View &x = a.in[1], &out = a.out[0];
  const Sizes s(x, a.in[2]);
  check_places(a, 2, s.positions);
  if (out.numel() == 0) return;
  visit_computed(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (s.positions == 0) return void(std::fill_n(out.as<T>(), out.numel(), T(0)));
    sample_weight_typed<T>(s, a.in[0].as<T>(), x.as<T>(), a.in[2].as<int32_t>(), out.as<T>());
  });
}

// --- Positions ---

enum class Outside { kZero, kBorder, kReflect };

// One spatial dim: turns an element number into one inside, or -1.
struct TapRule {
  int32_t size;
  Outside outside;
  bool corners;

  int32_t place(int32_t i) const {
    if (outside == Outside::kBorder) return std::clamp(i, 0, size - 1);
    if (outside == Outside::kReflect) return mirrored(i);
    return (i >= 0) & (i < size) ? i : -1;
  }
  int32_t mirrored(int32_t i) const {
    const int64_t period = corners ? 2 * (int64_t(size) - 1) : 2 * int64_t(size);
    if (period == 0) return 0;
    const int64_t at = (i % period + period) % period;
    return int32_t(at < size ? at : corners ? period - at : period - 1 - at);
  }
};

// Sets `to` to the positions of tap number `tap` of the points whose coordinates start at `v`.
template <class T>
void place_tap(const TapRule& rule, const T* v, int32_t tap, int64_t count, int32_t* to) {
  constexpr T kFar = 1 << 30;
  PERIGEE_INDEPENDENT
  for (int64_t p = 0; p < count; ++p) to[p] = int32_t(v[p] > -kFar ? std::min(v[p], kFar) : -kFar) + tap;
  if (rule.outside == Outside::kZero) {
    const int32_t size = rule.size;
    PERIGEE_INDEPENDENT
    for (int64_t p = 0; p < count; ++p) to[p] = (to[p] >= 0) & (to[p] < size) ? to[p] : -1;
  } else {
    for (int64_t p = 0; p < count; ++p) to[p] = rule.place(to[p]);
  }
}

// to += scale from, or -1 where one of them is -1.
void add_digit(const int32_t* from, int32_t scale, int64_t count, int32_t* to) {
  PERIGEE_INDEPENDENT
  for (int64_t p = 0; p < count; ++p) to[p] = (to[p] | from[p]) < 0 ? -1 : to[p] + from[p] * scale;
}

// The taps of `count` points from `first` of image n on. Tap k has the number of the tap per dim as digits, the last
// dim's in the end.
template <class T>
void fill_taps(const KernelArgs& a, const std::vector<TapRule>& rules, int64_t n, int64_t first, int64_t count) {
  const View& out = a.out[0];
  const int64_t all = out.size(1), points = out.size(2), taps = a.attr<int64_t>("taps");
  std::array<std::array<int32_t, kBlock>, 12> own;  // per dim and tap
  for (size_t d = 0; d < rules.size(); ++d)
    for (int64_t t = 0; t < taps; ++t)
      place_tap(rules[d], a.in[d].as<T>() + n * points + first, int32_t(taps == 4 ? t - 1 : t), count,
                own[d * size_t(taps) + size_t(t)].data());
  for (int64_t k = 0; k < all; ++k) {
    int32_t* to = out.as<int32_t>() + (n * all + k) * points + first;
    int64_t digits = k;
    int32_t scale = 1;
    for (int d = int(rules.size()) - 1; d >= 0; --d) {
      const int32_t* from = own[size_t(d * taps + digits % taps)].data();
      if (d + 1 == int(rules.size()))
        std::copy_n(from, count, to);
      else
        add_digit(from, scale, count, to);
      digits /= taps;
      scale *= rules[size_t(d)].size;
    }
  }
}

void sample_taps_kernel(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  const std::string& mode = a.attr<std::string>("padding_mode");
  const Outside outside = a.attr<int64_t>("taps") < 4 || mode == "zeros" ? Outside::kZero
                          : mode == "border"                             ? Outside::kBorder
                                                                         : Outside::kReflect;
  std::vector<TapRule> rules;
  for (int64_t n : a.attr<Ints>("size")) rules.push_back({int32_t(n), outside, a.attr<bool>("align_corners")});
  const int64_t points = a.out[0].size(2), blocks = (points + kBlock - 1) / kBlock;
  visit_computed(a.in[0].dtype(), [&](auto tag) {
    parallel_for(a.out[0].size(0) * blocks, kGrain / (kBlock * a.out[0].size(1)) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % blocks * kBlock;
        fill_taps<typename decltype(tag)::type>(a, rules, i / blocks, first, std::min(kBlock, points - first));
      }
    });
  });
}

}  // namespace
}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg {
namespace cpu {
HWY_EXPORT(sample_kernel);
HWY_EXPORT(sample_back_kernel);
HWY_EXPORT(sample_weight_kernel);
HWY_EXPORT(sample_taps_kernel);
}  // namespace cpu

void add_sample_kernels(Registry& r) {
  using namespace cpu;
  static const KernelRow kRows[] = {
      {"sample_points",
       [](const KernelArgs& a) {
         HWY_DYNAMIC_DISPATCH(sample_kernel)
         (a);
       }},
      {"sample_points_back",
       [](const KernelArgs& a) {
         HWY_DYNAMIC_DISPATCH(sample_back_kernel)
         (a);
       }},
      {"sample_points_weight",
       [](const KernelArgs& a) {
         HWY_DYNAMIC_DISPATCH(sample_weight_kernel)
         (a);
       }},
      {"sample_taps",
       [](const KernelArgs& a) {
         HWY_DYNAMIC_DISPATCH(sample_taps_kernel)
         (a);
       }},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
#endif
