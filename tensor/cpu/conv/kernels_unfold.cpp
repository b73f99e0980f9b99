// Windows of images as columns, and the sum of such columns into images.
#include <algorithm>

#include "tensor/cpu/conv/arguments.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/register.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::conv_arguments::compute;

constexpr int64_t kGrain = 32 << 10;  // elements that take about 10 µs

int64_t ceil_div(int64_t a, int64_t b) { return a <= 0 ? 0 : (a - 1) / b + 1; }

// One spatial dim: window o reads element o * stride + tap * dilation - padding.
struct Axis {
  int64_t size, kernel, stride, padding, dilation, windows;

  int64_t start(int64_t tap) const { return tap * dilation - padding; }
  // The windows whose element number `tap` is inside the image.
  int64_t first(int64_t tap) const { return std::min(windows, ceil_div(-start(tap), stride)); }
  int64_t end(int64_t tap) const { return std::clamp<int64_t>(ceil_div(size - start(tap), stride), 0, windows); }
};

struct Windows {
  Axis rows, columns;
  int64_t planes;

  Windows(const KernelArgs& a, const View& image) {
    const AttrReader c(a.op, a.attrs);
    const int first = image.rank() - 2;
    rows = axis(c, 0, image.size(first)), columns = axis(c, 1, image.size(first + 1));
    planes = 1;
    for (int d = 0; d < first; ++d) planes *= image.size(d);
  }
  int64_t taps() const { return rows.kernel * columns.kernel; }
  int64_t plane() const { return rows.size * columns.size; }
  int64_t count() const { return rows.windows * columns.windows; }

  // Calls f(place in the image, place in the row of the columns, count) for the runs of elements that the windows from
  // `begin` to `end` - 1 of a row have at `tap`. Elements of the image are `columns.stride` apart.
  template <class F>
  void runs(int64_t tap, int64_t begin, int64_t end, F f) const {
    const int64_t ky = tap / columns.kernel, kx = tap % columns.kernel;
    const int64_t left = std::max(columns.first(kx), begin), width = std::min(columns.end(kx), end) - left;
    if (width <= 0) return;
    for (int64_t y = rows.first(ky); y < rows.end(ky); ++y)
      f((y * rows.stride + rows.start(ky)) * columns.size + left * columns.stride + columns.start(kx),
        y * columns.windows + left, width);
  }

 private:
  static Axis axis(const AttrReader& c, int d, int64_t size) {
    Axis a{size,
           spatial(c, "kernel_size", 2, 1)[d],
           spatial(c, "stride", 2, 1)[d],
           spatial(c, "padding", 2, 0)[d],
           spatial(c, "dilation", 2, 1)[d],
           0};
    a.windows = (size + 2 * a.padding - a.dilation * (a.kernel - 1) - 1) / a.stride + 1;
    return a;
  }
};

// Long windows inside the image are a transposed view. Others that are far apart are copied in blocks for several taps,
// so that these read the same lines of the cache.
template <class T>
void copy_windows(const Windows& w, const T* x, T* out) {
  constexpr int64_t kLong = 8;
  const Axis &rows = w.rows, &columns = w.columns;
  if (columns.kernel >= kLong && columns.stride > 1 && rows.padding == 0 && columns.padding == 0) {
    const Dims shape = {w.planes, rows.kernel, columns.kernel, rows.windows, columns.windows};
    return cpu::copy_block(
        sizeof(T), shape, x,
        {w.plane(), rows.dilation * columns.size, columns.dilation, rows.stride * columns.size, columns.stride}, out,
        contiguous_strides(shape));
  }
  const int64_t count = w.count(), taps = w.taps(), step = w.columns.stride, across = w.columns.windows;
  const int64_t block = step < 8 ? across : 64, tile = step < 8 ? 1 : 16;
  parallel_for(w.planes * taps, kGrain / count + 1, [&](int64_t begin, int64_t end) {
    Poller poll;
    if (w.rows.padding > 0 || w.columns.padding > 0)
      in_polled_blocks((end - begin) * count, 1 << 20, [&](int64_t from, int64_t to) {
        std::fill(out + begin * count + from, out + begin * count + to, T(0));
      });
    const auto copy = [&](int64_t i, int64_t first) {
      T* row = out + i * count;
      const T* plane = x + i / taps * w.plane();
      w.runs(i % taps, first, first + block, [&](int64_t from, int64_t to, int64_t n) {
        poll(n);
        if (step == 1) return void(std::copy_n(plane + from, n, row + to));
        for (int64_t k = 0; k < n; ++k) row[to + k] = plane[from + k * step];
      });
    };
    for (int64_t i = begin; i < end; i += tile)
      for (int64_t first = 0; first < across; first += block)
        for (int64_t k = i; k < std::min(i + tile, end); ++k) copy(k, first);
  });
}

template <class T>
void add_windows(const Windows& w, const T* x, T* out) {
  const int64_t count = w.count(), taps = w.taps(), step = w.columns.stride;
  parallel_for(w.planes, kGrain / std::max<int64_t>(1, count * taps) + 1, [&](int64_t begin, int64_t end) {
    Poller poll;
    for (int64_t i = begin; i < end; ++i) {
      T* plane = out + i * w.plane();
      std::fill_n(plane, w.plane(), T(0));
      for (int64_t tap = 0; tap < taps; ++tap) {
        const T* row = x + (i * taps + tap) * count;
        poll();
        w.runs(tap, 0, w.columns.windows, [&](int64_t to, int64_t from, int64_t n) {
          poll(n);
          for (int64_t k = 0; k < n; ++k) plane[to + k * step] += row[from + k];
        });
      }
    }
  });
}

template <bool kFold>
void unfold(const KernelArgs& a) {
  const View &x = a.in[0], &out = a.out[0];
  if (out.numel() == 0) return;
  const Windows w(a, kFold ? out : x);
  compute<1>(a, [&](const auto* from, auto* to) {
    if constexpr (kFold)
      add_windows(w, from, to);
    else
      copy_windows(w, from, to);
  });
}

}  // namespace

void add_unfold_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"unfold", unfold<false>},
      {"fold", unfold<true>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
