// Kernels of grid_sample: reads and writes at a list of positions with weights, the same for all channels of an image.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/move/kernels_sample.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <type_traits>
#include <vector>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/move/transpose_simd.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

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
  void by_blocks(int64_t block, F f) const {
    const int64_t blocks = (points + block - 1) / block, work = block * taps * std::max<int64_t>(channels, 1);
    parallel_for(batch * blocks, kGrain / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % blocks * block;
        f(i / blocks, first, std::min(block, points - first));
      }
    });
  }
  // Whether so much is read that a copy of the images as pixels pays.
  bool takes_pixels() const { return channels > 1 && points * taps >= positions; }
};

// The sums, for `count` points, over n terms of a factor (1 without `factors`) times the element at a place; the terms
// of each argument are a step apart.
template <class T>
struct Terms {
  int64_t n;
  const T* planes;
  int64_t plane_step;
  const int32_t* places;
  int64_t place_step;
  const T* factors;
  int64_t factor_step;
};

template <class D, class T>
HWY_INLINE void add_reads_at(D d, const Terms<T>& terms, int64_t p, T* to) {
  const hn::Rebind<int32_t, D> narrow;
  const hn::RebindToSigned<D> wide;
  auto sum = hn::Zero(d);
  for (int64_t k = 0; k < terms.n; ++k) {
    auto place = hn::Zero(wide);
    if constexpr (sizeof(T) == sizeof(int32_t))
      place = hn::LoadU(narrow, terms.places + k * terms.place_step + p);
    else
      place = hn::PromoteTo(wide, hn::LoadU(narrow, terms.places + k * terms.place_step + p));
    const auto read = hn::GatherIndex(d, terms.planes + k * terms.plane_step, hn::Max(place, hn::Zero(wide)));
    const auto v = hn::IfThenZeroElse(hn::RebindMask(d, hn::Lt(place, hn::Zero(wide))), read);
    sum = hn::Add(sum, terms.factors ? hn::Mul(v, hn::LoadU(d, terms.factors + k * terms.factor_step + p)) : v);
  }
  hn::StoreU(sum, d, to + p);
}

template <class T>
void add_reads(const Terms<T>& terms, int64_t count, T* to) {
  const hn::ScalableTag<T> d;
  int64_t p = 0;
  for (const int64_t lanes = hn::Lanes(d); p + lanes <= count; p += lanes) {
    if (terms.n > 64) poll_kernel();
    add_reads_at(d, terms, p, to);
  }
  for (; p < count; ++p) add_reads_at(hn::CappedTag<T, 1>(), terms, p, to);
}

// --- Pixels: the channels of a position are next to each other, so that one vector has many of them ---

constexpr int64_t kPoints = 64;    // whose values for kChannels channels stay in the first-level cache
constexpr int64_t kChannels = 16;  // of a group, at most

// The lanes for a group of channels: 4, 8 or 16.
int64_t width_of(int64_t channels) { return channels > 8 ? 16 : channels > 4 ? 8 : 4; }

// Calls f with the width as a constant.
template <class F>
void visit_width(int64_t width, F f) {
  if (width == 16) return f(std::integral_constant<int64_t, 16>());
  if (width == 8) return f(std::integral_constant<int64_t, 8>());
  f(std::integral_constant<int64_t, 4>());
}

// Calls f(width, first channel, number of channels) for groups of channels; the width is a constant.
template <class F>
void by_groups(int64_t channels, F f) {
  for (int64_t c = 0; c < channels; c += kChannels) {
    const int64_t n = std::min(kChannels, channels - c);
    visit_width(width_of(n), [&](auto width) { f(width, c, n); });
  }
}

inline void transpose(int64_t rows, int64_t columns, const double* from, int64_t from_row, double* to, int64_t to_row) {
  cpu::transpose(rows, columns, reinterpret_cast<const uint64_t*>(from), from_row, reinterpret_cast<uint64_t*>(to),
                 to_row);
}
using cpu::transpose;

// The images of x as pixels. Position -1 has zeros.
template <class T>
class Pixels {
 public:
  Pixels(const Sizes& s, const T* x)
      : width_((s.channels - 1) / kChannels * kChannels + width_of((s.channels - 1) % kChannels + 1)),
        image_((s.positions + 1) * width_),
        data_(s.batch * image_) {
    if (width_ > s.channels) zero_bytes(data_.get(), s.batch * image_ * int64_t(sizeof(T)));
    for (int64_t n = 0; n < s.batch; ++n) std::fill_n(data_.get() + n * image_, width_, T(0));
    copy_block(sizeof(T), {s.batch, s.positions, s.channels}, x, {s.channels * s.positions, 1, s.positions},
               data_.get() + width_, {image_, width_, 1});
  }
  // Channel c of position 0 of image n.
  const T* at(int64_t n, int64_t c) const { return data_.get() + n * image_ + width_ + c; }
  int64_t width() const { return width_; }

 private:
  const int64_t width_, image_;
  const Scratch<T> data_;
};

// Sets each of `count` points to the sum of its taps. `step`: from tap to tap.
template <int64_t kWidth, class T>
void add_taps(const T* pixels, int64_t width, const int32_t* places, const T* weight, int64_t taps, int64_t step,
              int64_t count, T* to) {
  const hn::CappedTag<T, kWidth> d;
  constexpr int64_t kLanes = hn::MaxLanes(d), kVectors = kWidth / kLanes;
  for (int64_t p = 0; p < count; ++p) {
    hn::Vec<decltype(d)> sums[kVectors];
    PERIGEE_UNROLL
    for (int64_t v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
    for (int64_t at = p; at < taps * step; at += step) {
      const T* const pixel = pixels + places[at] * width;
      const auto scale = hn::Set(d, weight ? weight[at] : T(1));
      PERIGEE_UNROLL
      for (int64_t v = 0; v < kVectors; ++v)
        sums[v] = hn::Add(sums[v], hn::Mul(scale, hn::LoadU(d, pixel + v * kLanes)));
    }
    PERIGEE_UNROLL
    for (int64_t v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, to + p * kWidth + v * kLanes);
  }
}

template <class T>
void sample_pixels(const Sizes& s, const T* x, const int32_t* index, const T* weight, T* out) {
  const Pixels<T> pixels(s, x);
  s.by_blocks(kPoints, [&](int64_t n, int64_t first, int64_t count) {
    T points[kPoints * kChannels], rows[kChannels * kPoints];
    const int64_t at = n * s.taps * s.points + first;
    by_groups(s.channels, [&](auto width, int64_t c, int64_t channels) {
      poll_kernel();
      add_taps<width>(pixels.at(n, c), pixels.width(), index + at, weight ? weight + at : nullptr, s.taps, s.points,
                      count, points);
      transpose(count, width, points, width, rows, kPoints);
      for (int64_t i = 0; i < channels; ++i)
        std::copy_n(rows + i * kPoints, count, out + (n * s.channels + c + i) * s.points + first);
    });
  });
}

// sums[place] += dy, times `weight` if there is one, for pixels of kWidth channels.
template <int64_t kWidth, class T>
void add_to_places(const T* dy, const int32_t* places, const T* weight, int64_t count, T* sums) {
  const hn::CappedTag<T, kWidth> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  for (int64_t p = 0; p < count; ++p) {
    T* const to = sums + places[p] * kWidth;
    const auto scale = hn::Set(d, weight ? weight[p] : T(1));
    PERIGEE_UNROLL
    for (int64_t v = 0; v < kWidth; v += kLanes)
      hn::StoreU(hn::Add(hn::LoadU(d, to + v), hn::Mul(scale, hn::LoadU(d, dy + p * kWidth + v))), d, to + v);
  }
}

// One group of channels of an image.
template <int64_t kWidth, class T>
void sample_back_group(const Sizes& s, int64_t channels, const T* dy, const int32_t* index, const T* weight, T* out) {
  constexpr int64_t kPolled = 1 << 14;
  const Scratch<T> points(s.points * kWidth), sums((s.positions + 1) * kWidth);
  T* const first = sums.get() + kWidth;  // before it is place -1, which nobody reads
  in_polled_blocks(s.positions + 1, kPolled, [&](int64_t from, int64_t to) {
    std::fill_n(sums.get() + from * kWidth, (to - from) * kWidth, T(0));
  });
  in_polled_blocks(s.points, kPolled, [&](int64_t from, int64_t to) {
    if (channels < kWidth) std::fill_n(points.get() + from * kWidth, (to - from) * kWidth, T(0));
    transpose(channels, to - from, dy + from, s.points, points.get() + from * kWidth, kWidth);
  });
  for (int64_t k = 0; k < s.taps; ++k)
    in_polled_blocks(s.points, kPolled, [&](int64_t from, int64_t to) {
      const int64_t at = k * s.points + from;
      add_to_places<kWidth>(points.get() + from * kWidth, index + at, weight ? weight + at : nullptr, to - from, first);
    });
  in_polled_blocks(s.positions, kPolled, [&](int64_t from, int64_t to) {
    transpose(to - from, channels, first + from * kWidth, kWidth, out + from, s.positions);
  });
}

// Groups are as large as leaves one for each thread.
template <class T>
void sample_back_pixels(const Sizes& s, const T* dy, const int32_t* index, const T* weight, T* out) {
  int64_t most = kChannels;
  while (most > 4 && s.batch * ((s.channels + most - 1) / most) < num_threads()) most /= 2;
  const int64_t groups = (s.channels + most - 1) / most;
  const int64_t work = (s.points * s.taps + s.positions) * most;
  parallel_for(s.batch * groups, kGrain / work + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / groups, c = i % groups * most, channels = std::min(most, s.channels - c);
      const int64_t plane = n * s.channels + c, at = n * s.taps * s.points;
      visit_width(width_of(channels), [&](auto width) {
        sample_back_group<width>(s, channels, dy + plane * s.points, index + at, weight ? weight + at : nullptr,
                                 out + plane * s.positions);
      });
    }
  });
}

// to[p] = dy[p] times the pixel at its place.
template <int64_t kWidth, class T>
void multiply_pixels(const T* pixels, int64_t width, const int32_t* places, const T* dy, int64_t count, T* to) {
  const hn::CappedTag<T, kWidth> d;
  constexpr int64_t kLanes = hn::MaxLanes(d);
  for (int64_t p = 0; p < count; ++p) {
    const T* const pixel = pixels + places[p] * width;
    PERIGEE_UNROLL
    for (int64_t v = 0; v < kWidth; v += kLanes)
      hn::StoreU(hn::Mul(hn::LoadU(d, dy + p * kWidth + v), hn::LoadU(d, pixel + v)), d, to + p * kWidth + v);
  }
}

template <class T>
void sample_weight_pixels(const Sizes& s, const T* dy, const T* x, const int32_t* index, T* out) {
  const Pixels<T> pixels(s, x);
  s.by_blocks(kPoints, [&](int64_t n, int64_t first, int64_t count) {
    T points[kPoints * kChannels] = {}, products[kPoints * kChannels], rows[kChannels * kPoints];
    by_groups(s.channels, [&](auto width, int64_t c, int64_t channels) {
      poll_kernel();
      transpose(channels, count, dy + (n * s.channels + c) * s.points + first, s.points, points, width);
      for (int64_t k = 0; k < s.taps; ++k) {
        const int64_t at = (n * s.taps + k) * s.points + first;
        multiply_pixels<width>(pixels.at(n, c), pixels.width(), index + at, points, count, products);
        transpose(count, width, products, width, rows, kPoints);
        T* const to = out + at;
        if (c == 0) std::fill_n(to, count, T(0));
        for (int64_t i = 0; i < channels; ++i) {
          PERIGEE_INDEPENDENT
          for (int64_t p = 0; p < count; ++p) to[p] += rows[i * kPoints + p];
        }
      }
    });
  });
}

// --- The three kernels ---

template <class T>
void sample_typed(const Sizes& s, const T* x, const int32_t* index, const T* weight, T* out) {
  if (s.takes_pixels()) return sample_pixels(s, x, index, weight, out);
  s.by_blocks(kBlock, [&](int64_t n, int64_t first, int64_t count) {
    const int64_t at = n * s.taps * s.points + first;
    for (int64_t i = n * s.channels; i < (n + 1) * s.channels; ++i) {
      if (i % 64 == 63) poll_kernel();
      add_reads<T>({s.taps, x + i * s.positions, 0, index + at, s.points, weight ? weight + at : nullptr, s.points},
                   count, out + i * s.points + first);
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
  if (s.takes_pixels()) return sample_back_pixels(s, dy, index, weight, out);
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
  if (s.takes_pixels()) return sample_weight_pixels(s, dy, x, index, out);
  s.by_blocks(kBlock, [&](int64_t n, int64_t first, int64_t count) {
    const int64_t plane = n * s.channels;
    for (int64_t k = n * s.taps; k < (n + 1) * s.taps; ++k)
      add_reads<T>({s.channels, x + plane * s.positions, s.positions, index + k * s.points + first, 0,
                    dy + plane * s.points + first, s.points},
                   count, out + k * s.points + first);
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
static void sample(const KernelArgs& a) { HWY_DYNAMIC_DISPATCH(sample_kernel)(a); }
static void sample_back(const KernelArgs& a) { HWY_DYNAMIC_DISPATCH(sample_back_kernel)(a); }
static void sample_weight(const KernelArgs& a) { HWY_DYNAMIC_DISPATCH(sample_weight_kernel)(a); }
static void sample_taps(const KernelArgs& a) { HWY_DYNAMIC_DISPATCH(sample_taps_kernel)(a); }
}  // namespace cpu

void add_sample_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"sample_points", cpu::sample},
      {"sample_points_back", cpu::sample_back},
      {"sample_points_weight", cpu::sample_weight},
      {"sample_taps", cpu::sample_taps},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
#endif
