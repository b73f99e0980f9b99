// Kernels of the Fourier transforms along one dim. Complex arrays have a last dim of 2: real and imaginary parts.
#include <algorithm>
#include <array>

#include "tensor/cpu/fft/fft.h"
#include "tensor/cpu/reduce/lines.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::FftPlan;
using cpu::Lanes;
using cpu::Lines;

constexpr int64_t kMaxLanes = 16;           // lines that are transformed side by side
constexpr int64_t kCacheBytes = 256 << 10;  // of their working memory
constexpr int64_t kGrain = 4096;            // elements that take about 10 µs
constexpr int64_t kApart = 80;              // elements between arrays, so that they do not share the sets of a cache

// The places of some lines in an array of `lines`; element j of line k is at first[k] + j * apart.
struct Places {
  std::array<int64_t, kMaxLanes> first;
  int64_t apart;
  Places(const Lines& lines, int64_t line, int64_t count) : apart(lines.inner) {
    for (int64_t k = 0; k < count; ++k)
      first[size_t(k)] = (line + k) / lines.inner * lines.n * lines.inner + (line + k) % lines.inner;
  }
  // Calls f(element number j, lane k, place) for the first n elements of `count` lines, so that neighbours in both
  // arrays come soon after each other.
  template <class F>
  void visit(int64_t n, int64_t count, F f) const {
    Poller poll;
    if (apart > 1 && first[size_t(count) - 1] == first[0] + count - 1) {
      for (int64_t j = 0; j < n; ++j, poll(count))
        for (int64_t k = 0; k < count; ++k) f(j, k, first[0] + j * apart + k);
      return;
    }
    constexpr int64_t kTile = 16;
    for (int64_t tile = 0; tile < n; tile += kTile, poll(kTile * count))
      for (int64_t k = 0; k < count; ++k)
        for (int64_t j = tile; j < std::min(n, tile + kTile); ++j) f(j, k, first[size_t(k)] + j * apart);
  }
};

// Calls f(x, y, line, count) for blocks of at most kMaxLanes of the lines, in parallel. x and y have room for the plan
// and for `least` elements a line.
template <class T, class F>
void by_blocks(const FftPlan<T>& plan, int64_t least, int64_t lines, F f) {
  const int64_t room = std::max(plan.room(1), least);
  const int64_t lanes = std::clamp<int64_t>(kCacheBytes / (room * 4 * int64_t(sizeof(T))), 1, kMaxLanes);
  parallel_for((lines + lanes - 1) / lanes, kGrain / (room * lanes) + 1, [&](int64_t begin, int64_t end) {
    const int64_t size = plus(room * lanes, kApart);
    T* memory = cpu::scratch<T>(cpu::ScratchSlot::kPanel, times(4, size));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t count = std::min(lanes, lines - i * lanes);
      f(Lanes<T>{memory, memory + size}, Lanes<T>{memory + 2 * size, memory + 3 * size}, i * lanes, count);
    }
  });
}

template <class T>
Lanes<T> exchanged(Lanes<T> v) {
  return {v.im, v.re};
}

// The transform, or the inverse one without a factor.
template <class T>
Lanes<T> transform(const FftPlan<T>& plan, bool inverse, Lanes<T> x, Lanes<T> y, int64_t count) {
  return inverse ? exchanged(plan.run(exchanged(x), exchanged(y), count)) : plan.run(x, y, count);
}

Lines lines_of(const KernelArgs& a, Dims shape) { return Lines(shape, int(a.attr<int64_t>("dim")) - 1); }
Lines complex_lines(const KernelArgs& a, const View& v) {
  Dims shape = v.shape();
  shape.pop_back();
  return lines_of(a, shape);
}

template <class T>
void complex_typed(const KernelArgs& a) {
  const Lines lines = complex_lines(a, a.in[0]);
  const auto plan = cpu::fft_plan<T>(lines.n);
  const bool inverse = a.attr<bool>("inverse");
  const T scale = T(a.attr<double>("scale")), *from = a.in[0].as<const T>();
  T* to = a.out[0].as<T>();
  by_blocks<T>(*plan, 0, lines.outer * lines.inner, [&](Lanes<T> x, Lanes<T> y, int64_t line, int64_t count) {
    const Places places(lines, line, count);
    places.visit(lines.n, count, [&](int64_t j, int64_t k, int64_t at) {
      x.re[j * count + k] = from[2 * at];
      x.im[j * count + k] = from[2 * at + 1];
    });
    const Lanes<T> done = transform(*plan, inverse, x, y, count);
    places.visit(lines.n, count, [&](int64_t j, int64_t k, int64_t at) {
      to[2 * at] = done.re[j * count + k] * scale;
      to[2 * at + 1] = done.im[j * count + k] * scale;
    });
  });
}

// The half spectra of even lengths come from transforms of half the length, of pairs of elements as complex numbers
// (Press et al., Numerical Recipes, 12.3).
template <class T>
void real_typed(const KernelArgs& a) {
  const Lines lines = lines_of(a, a.in[0].shape()), halves = complex_lines(a, a.out[0]);
  const int64_t n = lines.n, h = n / 2;
  const bool even = n % 2 == 0, doubled = a.attr<bool>("doubled");
  const auto plan = cpu::real_fft_plan<T>(n);
  const T scale = T(a.attr<double>("scale")), *from = a.in[0].as<const T>();
  T* to = a.out[0].as<T>();
  by_blocks<T>(plan->plan, 0, lines.outer * lines.inner, [&](Lanes<T> x, Lanes<T> y, int64_t line, int64_t count) {
    Places(lines, line, count).visit(n, count, [&](int64_t j, int64_t k, int64_t at) {
      if (even) {
        (j % 2 ? x.im : x.re)[j / 2 * count + k] = from[at];
      } else {
        x.re[j * count + k] = from[at];
        x.im[j * count + k] = 0;
      }
    });
    const Lanes<T> z = plan->plan.run(x, y, count);
    Places(halves, line, count).visit(halves.n, count, [&](int64_t j, int64_t k, int64_t at) {
      const T factor = doubled && j > 0 && 2 * j < n ? 2 * scale : scale;
      if (!even) {
        to[2 * at] = z.re[j * count + k] * factor;
        to[2 * at + 1] = z.im[j * count + k] * factor;
        return;
      }
      const int64_t p = (j == h ? 0 : j) * count + k, q = (j == 0 ? 0 : h - j) * count + k;
      const T sum_re = z.re[p] + z.re[q], sum_im = z.im[p] - z.im[q];  // of z[j] and the conjugate of z[h - j]
      const T odd_re = z.im[p] + z.im[q], odd_im = z.re[q] - z.re[p];
      const T c = plan->root_re[size_t(j)], s = plan->root_im[size_t(j)], half = factor / 2;
      to[2 * at] = half * (sum_re + c * odd_re - s * odd_im);
      to[2 * at + 1] = half * (sum_im + c * odd_im + s * odd_re);
    });
  });
}

template <class T>
void half_typed(const KernelArgs& a) {
  const Lines halves = complex_lines(a, a.in[0]), lines = lines_of(a, a.out[0].shape());
  const int64_t n = lines.n, h = n / 2;
  const bool even = n % 2 == 0, doubled = a.attr<bool>("doubled");
  const auto plan = cpu::real_fft_plan<T>(n);
  const T scale = T(a.attr<double>("scale")), inside = doubled ? scale : scale / 2, *from = a.in[0].as<const T>();
  T* to = a.out[0].as<T>();
  by_blocks<T>(plan->plan, h + 1, lines.outer * lines.inner, [&](Lanes<T> x, Lanes<T> y, int64_t line, int64_t count) {
    // The spectrum of even lengths goes to y, the elements of the shorter transform to x.
    const Lanes<T> v = even ? y : x;
    Places(halves, line, count).visit(halves.n, count, [&](int64_t j, int64_t k, int64_t at) {
      const bool edge = j == 0 || 2 * j == n;
      v.re[j * count + k] = from[2 * at] * (edge ? scale : inside);
      v.im[j * count + k] = edge ? T(0) : from[2 * at + 1] * inside;
    });
    Poller poll;
    for (int64_t j = even ? 0 : 1; j < (even ? h : h + 1); ++j, poll(count))
      for (int64_t k = 0; k < count; ++k) {
        const int64_t p = j * count + k, q = (even ? h - j : n - j) * count + k;
        if (!even) {
          v.re[q] = v.re[p];
          v.im[q] = -v.im[p];
          continue;
        }
        const T re = v.re[p] - v.re[q], im = v.im[p] + v.im[q];
        const T c = plan->root_re[size_t(j)], s = -plan->root_im[size_t(j)];
        x.re[p] = v.re[p] + v.re[q] - (c * im + s * re);
        x.im[p] = v.im[p] - v.im[q] + (c * re - s * im);
      }
    const Lanes<T> z = transform(plan->plan, true, x, y, count);
    Places(lines, line, count).visit(n, count, [&](int64_t j, int64_t k, int64_t at) {
      to[at] = even ? (j % 2 ? z.im : z.re)[j / 2 * count + k] : z.re[j * count + k];
    });
  });
}

template <KernelFn float_kernel, KernelFn double_kernel>
void dispatch(const KernelArgs& a) {
  if (a.out[0].numel() > 0) (a.out[0].dtype() == DType::kFloat64 ? double_kernel : float_kernel)(a);
}

}  // namespace

void add_fft_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"fft_complex", dispatch<complex_typed<float>, complex_typed<double>>},
      {"fft_real", dispatch<real_typed<float>, real_typed<double>>},
      {"fft_half", dispatch<half_typed<float>, half_typed<double>>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
