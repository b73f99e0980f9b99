#include "tensor/cpu/conv/pool.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tensor/cpu/scratch.h"
#include "tensor/dtype.h"
#include "tensor/parallel.h"
#include "tensor/size.h"

namespace pg::cpu {
namespace {

constexpr int64_t kElementsPerTask = 1 << 15;
constexpr int64_t kPolledElements = 1 << 20;  // elements of simple loops between two polls

int64_t window_size(const PoolShape& s) { return s.kernel[0] * s.kernel[1] * s.kernel[2]; }

int64_t planes_per_task(const PoolShape& s) {
  return std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, times(s.out_plane(), window_size(s))));
}

Span window(const PoolShape& s, int dim, int64_t o) {
  const int64_t step = s.dilation[dim];
  int64_t first = o * s.stride[dim] - s.pad[dim];
  const int64_t full = std::min(first + s.kernel[dim], s.in[dim] + s.pad[dim]) - first;
  const int64_t last = std::min(first + (s.kernel[dim] - 1) * step + 1, s.in[dim]);
  if (first < 0) first += (-first + step - 1) / step * step;
  return {first, last, step, full};
}

// Windows without a common kernel for adjacent ones.
constexpr auto kOneByOne = [](const Span&, const Span&, const Span&, int64_t, int64_t, int64_t) { return int64_t(0); };

// Calls f(wz, wy, wx, output position, polls) for the rows [begin, end) of windows of a plane. `work`: of one window,
// in elements. Polls between windows; `polls` says whether f has to poll inside them. No call comes between windows
// that are small, so that what the loops read stays in registers. Calls many(wz, wy, wx, first column, count, output
// position) before, for adjacent windows that lie inside of a row, wx being that of the first; it returns how many of
// them it computed.
template <class F, class Many = decltype(kOneByOne)>
void for_rows_of_windows(const PoolShape& s, int64_t work, int64_t begin, int64_t end, const F& f,
                         const Many& many = kOneByOne) {
  const bool large = work > kElementsPerTask;
  const int64_t block = kElementsPerTask / std::max<int64_t>(work, 1) + 1;
  const int64_t room = s.in[2] + s.pad[2] - (s.kernel[2] - 1) * s.dilation[2] - 1;  // for the last window's start
  const int64_t inside = (s.pad[2] + s.stride[2] - 1) / s.stride[2];
  const int64_t inside_end = room < 0 ? 0 : std::min(s.out[2], room / s.stride[2] + 1);
  Poller poll;
  for (int64_t r = begin; r < end; ++r) {
    const Span wz = window(s, 0, r / s.out[1]), wy = window(s, 1, r % s.out[1]);
    for (int64_t x = 0; x < s.out[2];) {
      const int64_t first = x, last = std::min(x < inside ? std::min(inside, s.out[2]) : s.out[2], x + block);
      if (large) {
        for (; x < last; ++x) f(wz, wy, window(s, 2, x), r * s.out[2] + x, std::true_type());
      } else {
        if (x >= inside && x < inside_end)
          x += many(wz, wy, window(s, 2, x), x * s.stride[2] - s.pad[2], std::min(last, inside_end) - x,
                    r * s.out[2] + x);
        for (; x < last; ++x) f(wz, wy, window(s, 2, x), r * s.out[2] + x, std::false_type());
      }
      poll((last - first) * work);
    }
  }
}

template <class F>
void visit_elements(const PoolShape& s, const Span& wz, const Span& wy, const Span& wx, const F& f) {
  for (int64_t z = wz.first; z < wz.last; z += wz.step)
    for (int64_t y = wy.first; y < wy.last; y += wy.step) {
      const int64_t row = (z * s.in[1] + y) * s.in[2];
      for (int64_t x = wx.first; x < wx.last; x += wx.step) f(row + x);
    }
}

// Calls f(position in the plane) for the elements of a window. `work`: of a call.
template <bool kPolls, class F>
void for_elements(const PoolShape& s, const Span& wz, const Span& wy, const Span& wx, std::bool_constant<kPolls>,
                  int64_t work, const F& f) {
  if constexpr (!kPolls) return visit_elements(s, wz, wy, wx, f);
  Poller poll;
  visit_elements(s, wz, wy, wx, [&](int64_t i) {
    f(i);
    poll(work);
  });
}

bool is_2x2(const PoolShape& s) {
  const auto plain = [&](int i) {
    return s.kernel[i] == 2 && s.stride[i] == 2 && s.pad[i] == 0 && s.dilation[i] == 1 && 2 * s.out[i] <= s.in[i];
  };
  return s.in[0] == 1 && s.kernel[0] == 1 && s.pad[0] == 0 && s.out[0] == 1 && plain(1) && plain(2);
}

int64_t divisor_of(Divisor d, const Span& wz, const Span& wy, const Span& wx) {
  if (d.fixed) return d.fixed;
  if (d.count_include_pad) return wz.full * wy.full * wx.full;
  return (wz.last - wz.first) * (wy.last - wy.first) * (wx.last - wx.first);
}

}  // namespace

int64_t pool_out_dim(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil_mode) {
  const int64_t room = in + 2 * pad - plus(times(dilation, kernel - 1), 1);
  if (room < 0 && !(ceil_mode && room > -stride)) return 0;
  int64_t out = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && times(out - 1, stride) >= in + pad) --out;
  return out;
}

// Calls f(plane or image, begin, end) for the rows of windows of all of them, on several threads. `elements`: of a
// task; `work`: of one window.
template <class F>
void for_rows(const PoolShape& s, int64_t count, int64_t work, int64_t elements, const F& f) {
  const int64_t rows = s.out[0] * s.out[1];
  if (rows == 0) return;
  parallel_for(times(count, rows), std::max<int64_t>(1, elements / std::max<int64_t>(1, times(s.out[2], work))),
               [&](int64_t begin, int64_t end) {
                 while (begin < end) {
                   const int64_t p = begin / rows, first = p * rows, last = std::min(end, first + rows);
                   f(p, begin - first, last - first);
                   begin = last;
                 }
               });
}

void max_pool_2x2(const PoolShape& s, const float* x, float* y, int32_t* index) {
  parallel_for(s.planes, planes_per_task(s), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t out = p * s.out_plane();
      in_polled_blocks(s.out[1], kPolledElements / (s.in[2] + 1) + 1, [&](int64_t first, int64_t last) {
        max_pool_2x2_rows(x + p * s.in_plane(), s.in[2], first, last, s.out[2], y + out, index ? index + out : nullptr);
      });
    }
  });
}

template <class T>
void max_pool_forward(const PoolShape& s, const T* x, T* y, int32_t* index) {
  if constexpr (std::is_same_v<T, float>)
    if (is_2x2(s)) return max_pool_2x2(s, x, y, index);
  const int64_t work = window_size(s);
  for_rows(s, s.planes, work, kElementsPerTask, [&](int64_t p, int64_t begin, int64_t end) {
    const T* from = x + p * s.in_plane();
    T* to = y + p * s.out_plane();
    int32_t* places = index ? index + p * s.out_plane() : nullptr;
    for_rows_of_windows(
        s, work, begin, end,
        [&](const Span& wz, const Span& wy, const Span& wx, int64_t o, auto polls) {
          T best = -std::numeric_limits<T>::infinity();
          int64_t at = first_place(s, wz, wy, wx);
          for_elements(s, wz, wy, wx, polls, 1, [&](int64_t i) {
            if (from[i] > best || std::isnan(from[i])) {
              best = from[i];
              at = i;
            }
          });
          to[o] = best;
          if (places) places[o] = static_cast<int32_t>(at);
        },
        [&](const Span& wz, const Span& wy, const Span&, int64_t column, int64_t count, int64_t o) {
          if constexpr (std::is_same_v<T, float>)
            return largest_of_windows({s, from, wz, wy, column, count}, to + o, places ? places + o : nullptr);
          return int64_t(0);
        });
  });
}

template <class T>
void zero_plane(T* to, int64_t n) {
  in_polled_blocks(n, kPolledElements, [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, T(0)); });
}

static int64_t planes_of_task(int64_t plane) {
  return std::max<int64_t>(1, kElementsPerTask / std::max<int64_t>(1, plane));
}

bool places_within(int64_t planes, int64_t in_plane, int64_t out_plane, const int32_t* index) {
  std::atomic<bool> within{true};
  const uint32_t limit = uint32_t(std::min<int64_t>(in_plane, INT32_MAX));
  parallel_for(planes, planes_of_task(in_plane), [&](int64_t first, int64_t last) {
    uint32_t signs = 0;  // the highest bit: some position is below -1 or not below the limit
    in_polled_blocks((last - first) * out_plane, kPolledElements, [&](int64_t begin, int64_t end) {
      for (int64_t o = first * out_plane + begin; o < first * out_plane + end; ++o)
        signs |= (uint32_t(index[o]) + 1) | (limit - (uint32_t(index[o]) + 1));
    });
    if (signs >> 31) within = false;
  });
  return within;
}

template <class T>
void max_pool_backward(int64_t planes, int64_t in_plane, int64_t out_plane, const T* dy, const int32_t* index, T* dx) {
  parallel_for(planes, planes_of_task(in_plane), [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) {
      T* to = dx + p * in_plane;
      zero_plane(to, in_plane);
      in_polled_blocks(out_plane, kPolledElements, [&](int64_t begin, int64_t end) {
        for (int64_t o = p * out_plane + begin; o < p * out_plane + end; ++o)
          if (index[o] >= 0) to[index[o]] += dy[o];
      });
    }
  });
}

template <class T>
void max_pool_take(int64_t planes, int64_t in_plane, int64_t out_plane, const T* x, const int32_t* index, T* out) {
  Poller poll;
  for (int64_t p = 0; p < planes; ++p)
    for (int64_t o = p * out_plane; o < (p + 1) * out_plane; ++o, poll())
      out[o] = index[o] < 0 ? T(0) : x[p * in_plane + index[o]];
}

template <class H>
void max_pool_last(const PoolShape& s, int64_t channels, const H* x, H* y, int32_t* index) {
  constexpr int64_t kAtOnce = 16;  // channels between two polls, if windows are large
  if (s.planes == 0) return;
  const int64_t images = s.planes / channels, work = times(window_size(s), channels);
  for_rows(s, images, work, 4 * kElementsPerTask, [&](int64_t n, int64_t begin, int64_t end) {
    const H* from = x + n * s.in_plane() * channels;
    for_rows_of_windows(
        s, work, begin, end, [&](const Span& wz, const Span& wy, const Span& wx, int64_t o, auto polls) {
          const PixelWindow w{s, wz, wy, wx, channels};
          const int64_t at = (n * s.out_plane() + o) * channels, step = polls ? kAtOnce : channels;
          Poller poll;
          for (int64_t c = 0; c < channels; c += step, poll(polls ? window_size(s) * kAtOnce : 0))
            largest_of_pixels(w, from, c, std::min(step, channels - c), y + at, index ? index + at : nullptr);
        });
  });
}

// Sums of 16-bit numbers are added up in float, for some channels of an image at a time.
template <class H>
void max_pool_backward_last(int64_t images, int64_t channels, int64_t in_plane, int64_t out_plane, const H* dy,
                            const int32_t* index, H* dx) {
  constexpr bool kRounds = sizeof(H) == 2;
  constexpr int64_t kSums = 1 << 19, kMost = 32;
  using T = std::conditional_t<kRounds, float, H>;
  const int64_t width = kRounds ? std::clamp<int64_t>(kSums / std::max<int64_t>(in_plane, 1), 1, kMost) : channels;
  const int64_t groups = channels ? (channels + width - 1) / width : 0;
  parallel_for(images * groups, planes_of_task(times(in_plane, width)), [&](int64_t begin, int64_t end) {
    const Scratch<T> memory(kRounds ? in_plane * width : 0);
    Poller poll;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / groups, first = i % groups * width, count = std::min(width, channels - first);
      H* const out = dx + image * in_plane * channels + first;
      T* sums = memory;
      if constexpr (!kRounds) sums = out;
      zero_plane(sums, in_plane * count);
      for (int64_t o = image * out_plane; o < (image + 1) * out_plane; ++o, poll(count))
        for (int64_t c = 0; c < count; ++c) {
          const int64_t at = o * channels + first + c;
          if (index[at] >= 0) sums[index[at] * count + c] += T(dy[at]);
        }
      if constexpr (kRounds)
        in_polled_blocks(in_plane, kPolledElements / width, [&](int64_t from, int64_t to) {
          round_rows(sums + from * count, to - from, count, out + from * channels, channels);
        });
    }
  });
}

template <class T>
void avg_pool_last(const PoolShape& s, int64_t channels, Divisor divisor, const T* x, T* y) {
  if (s.planes == 0) return;
  const int64_t images = s.planes / channels, work = times(window_size(s), channels);
  for_rows(s, images, work, 4 * kElementsPerTask, [&](int64_t n, int64_t begin, int64_t end) {
    const T* from = x + n * s.in_plane() * channels;
    for_rows_of_windows(
        s, work, begin, end, [&](const Span& wz, const Span& wy, const Span& wx, int64_t o, auto polls) {
          T* to = y + (n * s.out_plane() + o) * channels;
          std::fill_n(to, channels, T(0));
          for_elements(s, wz, wy, wx, polls, channels, [&](int64_t i) { add_row(channels, from + i * channels, to); });
          divide_row(channels, T(divisor_of(divisor, wz, wy, wx)), to);
        });
  });
}

template <class T>
void avg_pool_forward(const PoolShape& s, Divisor divisor, const T* x, T* y) {
  const int64_t work = window_size(s);
  for_rows(s, s.planes, work, kElementsPerTask, [&](int64_t p, int64_t begin, int64_t end) {
    const T* from = x + p * s.in_plane();
    T* to = y + p * s.out_plane();
    for_rows_of_windows(
        s, work, begin, end,
        [&](const Span& wz, const Span& wy, const Span& wx, int64_t o, auto polls) {
          T sum = 0;
          for_elements(s, wz, wy, wx, polls, 1, [&](int64_t i) { sum += from[i]; });
          to[o] = sum / T(divisor_of(divisor, wz, wy, wx));
        },
        [&](const Span& wz, const Span& wy, const Span& wx, int64_t column, int64_t count, int64_t o) {
          if constexpr (std::is_same_v<T, float>)
            return means_of_windows({s, from, wz, wy, column, count}, float(divisor_of(divisor, wz, wy, wx)), to + o);
          return int64_t(0);
        });
  });
}

template <class T>
void avg_pool_backward(const PoolShape& s, Divisor divisor, const T* dy, T* dx) {
  parallel_for(s.planes, planes_per_task(s), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const T* from = dy + p * s.out_plane();
      T* to = dx + p * s.in_plane();
      zero_plane(to, s.in_plane());
      for_rows_of_windows(s, window_size(s), 0, s.out[0] * s.out[1],
                          [&](const Span& wz, const Span& wy, const Span& wx, int64_t o, auto polls) {
                            const T share = from[o] / T(divisor_of(divisor, wz, wy, wx));
                            for_elements(s, wz, wy, wx, polls, 1, [&](int64_t i) { to[i] += share; });
                          });
    }
  });
}

#define PG_POOL(T)                                                                             \
  template void max_pool_forward<T>(const PoolShape&, const T*, T*, int32_t*);                 \
  template void max_pool_backward<T>(int64_t, int64_t, int64_t, const T*, const int32_t*, T*); \
  template void max_pool_take<T>(int64_t, int64_t, int64_t, const T*, const int32_t*, T*);     \
  template void avg_pool_last<T>(const PoolShape&, int64_t, Divisor, const T*, T*);            \
  template void avg_pool_forward<T>(const PoolShape&, Divisor, const T*, T*);                  \
  template void avg_pool_backward<T>(const PoolShape&, Divisor, const T*, T*);
PG_POOL(float)
PG_POOL(double)
#undef PG_POOL

#define PG_POOL_LAST(H)                                                              \
  template void max_pool_last<H>(const PoolShape&, int64_t, const H*, H*, int32_t*); \
  template void max_pool_backward_last<H>(int64_t, int64_t, int64_t, int64_t, const H*, const int32_t*, H*);
PG_POOL_LAST(float)
PG_POOL_LAST(double)
PG_POOL_LAST(Half)
PG_POOL_LAST(BFloat16)
#undef PG_POOL_LAST

}  // namespace pg::cpu
