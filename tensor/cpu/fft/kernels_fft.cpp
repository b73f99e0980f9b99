// Kernels of the Fourier transforms along one dim. Complex arrays have a last dim of 2: real and imaginary parts.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/fft/kernels_fft.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <algorithm>
#include <array>

#include "tensor/cpu/fft/fft.h"
#include "tensor/cpu/loops.h"
#include "tensor/cpu/reduce/lines.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kMaxLanes = 16;           // lines that are transformed side by side
constexpr int64_t kCacheBytes = 256 << 10;  // of their working memory
constexpr int64_t kGrain = 4096;            // elements that take about 10 µs
constexpr int64_t kApart = 80;              // elements between arrays, so that they do not share the sets of a cache

// Calls f(k) for the lanes k. The loop over all of them has a known length and is vectorized.
template <class F>
void each_lane(int64_t count, F f) {
  if (count == kMaxLanes) {
    PERIGEE_INDEPENDENT
    for (int64_t k = 0; k < kMaxLanes; ++k) f(k);
  } else {
    for (int64_t k = 0; k < count; ++k) f(k);
  }
}

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
        each_lane(count, [&, at = first[0] + j * apart](int64_t k) { f(j, k, at + k); });
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
    const Scratch<T> memory(times(4, size));
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
Lanes<T> run_plan(const FftPlan<T>& plan, bool inverse, Lanes<T> x, Lanes<T> y, int64_t count) {
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
  const auto plan = fft_plan<T>(lines.n);
  const bool inverse = a.attr<bool>("inverse");
  const T scale = T(a.attr<double>("scale")), *from = a.in[0].as<const T>();
  T* to = a.out[0].as<T>();
  by_blocks<T>(*plan, 0, lines.outer * lines.inner, [&](Lanes<T> x, Lanes<T> y, int64_t line, int64_t count) {
    const Places places(lines, line, count);
    places.visit(lines.n, count, [&](int64_t j, int64_t k, int64_t at) {
      x.re[j * count + k] = from[2 * at];
      x.im[j * count + k] = from[2 * at + 1];
    });
    const Lanes<T> done = run_plan(*plan, inverse, x, y, count);
    places.visit(lines.n, count, [&](int64_t j, int64_t k, int64_t at) {
      to[2 * at] = done.re[j * count + k] * scale;
      to[2 * at + 1] = done.im[j * count + k] * scale;
    });
  });
}

// Spectra of real lines. Those of even lengths come from transforms of half the length, of pairs of elements as complex
// numbers (Press et al., Numerical Recipes, 12.3).
template <class T>
class RealLines {
 public:
  RealLines(const KernelArgs& a, const View& real, const View& spectrum)
      : lines_(lines_of(a, real.shape())),
        halves_(complex_lines(a, spectrum)),
        n_(lines_.n),
        h_(n_ / 2),
        plan_(real_fft_plan<T>(n_)),
        scale_(T(a.attr<double>("scale"))),
        doubled_(a.attr<bool>("doubled")) {}

  void transform(const T* from, T* to) const {
    by_blocks<T>(plan_->plan, h_ + 1, lines_.outer * lines_.inner,
                 [&](Lanes<T> x, Lanes<T> y, int64_t line, int64_t count) {
                   visit_real(
                       line, count,
                       [&](int64_t at, T* re, T* im) {
                         *re = from[at];
                         *im = even() ? from[at + lines_.inner] : T(0);
                       },
                       x);
                   const Lanes<T> z = plan_->plan.run(x, y, count), v = z.re == x.re ? y : x;
                   if (even()) unpack(z, v, count);
                   const Lanes<T> out = even() ? v : z;
                   Places(halves_, line, count).visit(h_ + 1, count, [&](int64_t j, int64_t k, int64_t at) {
                     const T factor = (even() ? T(0.5) : T(1)) * (doubled_ && inside(j) ? 2 * scale_ : scale_);
                     to[2 * at] = out.re[j * count + k] * factor;
                     to[2 * at + 1] = out.im[j * count + k] * factor;
                   });
                 });
  }

  void invert(const T* from, T* to) const {
    by_blocks<T>(plan_->plan, h_ + 1, lines_.outer * lines_.inner,
                 [&](Lanes<T> x, Lanes<T> y, int64_t line, int64_t count) {
                   const Lanes<T> v = even() ? y : x;
                   const T part = doubled_ ? scale_ : scale_ / 2;
                   Places(halves_, line, count).visit(h_ + 1, count, [&](int64_t j, int64_t k, int64_t at) {
                     v.re[j * count + k] = from[2 * at] * (inside(j) ? part : scale_);
                     v.im[j * count + k] = inside(j) ? from[2 * at + 1] * part : T(0);
                   });
                   if (even())
                     pack(v, x, count);
                   else
                     mirror(v, count);
                   const Lanes<T> z = run_plan(plan_->plan, true, x, y, count);
                   visit_real(
                       line, count,
                       [&](int64_t at, const T* re, const T* im) {
                         to[at] = *re;
                         if (even()) to[at + lines_.inner] = *im;
                       },
                       z);
                 });
  }

 private:
  bool even() const { return n_ % 2 == 0; }
  // Whether frequency j and its conjugate are different elements of the spectrum.
  bool inside(int64_t j) const { return j > 0 && 2 * j != n_; }

  // Calls f(place, re, im) for the elements, or the pairs of elements of an even length: the place of the first one.
  template <class F>
  void visit_real(int64_t line, int64_t count, F f, Lanes<T> v) const {
    Places places(lines_, line, count);
    if (even()) places.apart *= 2;
    places.visit(even() ? h_ : n_, count,
                 [&](int64_t j, int64_t k, int64_t at) { f(at, v.re + j * count + k, v.im + j * count + k); });
  }

  // v[j] = z[j] + conj(z[h - j]) - i w^j (z[j] - conj(z[h - j])) with w = exp(-2 pi i / n) and z[h] = z[0].
  void unpack(Lanes<T> z, Lanes<T> v, int64_t count) const {
    Poller poll;
    for (int64_t j = 0; j <= h_; ++j, poll(count)) {
      const int64_t p = (j == h_ ? 0 : j) * count, q = (j == 0 ? 0 : h_ - j) * count, o = j * count;
      const T c = plan_->root_re[size_t(j)], s = plan_->root_im[size_t(j)];
      each_lane(count, [=](int64_t k) {
        const T re = z.im[p + k] + z.im[q + k], im = z.re[q + k] - z.re[p + k];
        v.re[o + k] = z.re[p + k] + z.re[q + k] + c * re - s * im;
        v.im[o + k] = z.im[p + k] - z.im[q + k] + c * im + s * re;
      });
    }
  }

  // z[j] = v[j] + conj(v[h - j]) + i w^-j (v[j] - conj(v[h - j])).
  void pack(Lanes<T> v, Lanes<T> z, int64_t count) const {
    Poller poll;
    for (int64_t j = 0; j < h_; ++j, poll(count)) {
      const int64_t p = j * count, q = (h_ - j) * count;
      const T c = plan_->root_re[size_t(j)], s = -plan_->root_im[size_t(j)];
      each_lane(count, [=](int64_t k) {
        const T re = v.re[p + k] - v.re[q + k], im = v.im[p + k] + v.im[q + k];
        z.re[p + k] = v.re[p + k] + v.re[q + k] - (c * im + s * re);
        z.im[p + k] = v.im[p + k] - v.im[q + k] + (c * re - s * im);
      });
    }
  }

  // The frequencies above h, for odd lengths.
  void mirror(Lanes<T> v, int64_t count) const {
    for (int64_t j = 1; j <= h_; ++j)
      for (int64_t k = 0; k < count; ++k) {
        v.re[(n_ - j) * count + k] = v.re[j * count + k];
        v.im[(n_ - j) * count + k] = -v.im[j * count + k];
      }
  }

  const Lines lines_, halves_;
  const int64_t n_, h_;
  const std::shared_ptr<const RealFftPlan<T>> plan_;
  const T scale_;
  const bool doubled_;
};

template <class T>
void real_typed(const KernelArgs& a) {
  RealLines<T>(a, a.in[0], a.out[0]).transform(a.in[0].as<const T>(), a.out[0].as<T>());
}

template <class T>
void half_typed(const KernelArgs& a) {
  RealLines<T>(a, a.out[0], a.in[0]).invert(a.in[0].as<const T>(), a.out[0].as<T>());
}

void complex_kernel(const KernelArgs& a) {
  a.out[0].dtype() == DType::kFloat64 ? complex_typed<double>(a) : complex_typed<float>(a);
}
void real_kernel(const KernelArgs& a) {
  a.out[0].dtype() == DType::kFloat64 ? real_typed<double>(a) : real_typed<float>(a);
}
void half_kernel(const KernelArgs& a) {
  a.out[0].dtype() == DType::kFloat64 ? half_typed<double>(a) : half_typed<float>(a);
}

}  // namespace
}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg {
namespace cpu {
HWY_EXPORT(complex_kernel);
HWY_EXPORT(real_kernel);
HWY_EXPORT(half_kernel);
}  // namespace cpu

void add_fft_kernels(Registry& r) {
  using namespace cpu;
  static const KernelRow kRows[] = {
      {"fft_complex",
       [](const KernelArgs& a) {
         if (a.out[0].numel() > 0) HWY_DYNAMIC_DISPATCH(complex_kernel)(a);
       }},
      {"fft_real",
       [](const KernelArgs& a) {
         if (a.out[0].numel() > 0) HWY_DYNAMIC_DISPATCH(real_kernel)(a);
       }},
      {"fft_half",
       [](const KernelArgs& a) {
         if (a.out[0].numel() > 0) HWY_DYNAMIC_DISPATCH(half_kernel)(a);
       }},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
#endif
