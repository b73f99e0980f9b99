// The butterflies of the Fourier transform. Their loops run over elements of different lines or transforms, so that the
// compiler vectorizes them.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/fft/fft_simd.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include <array>

#include "tensor/cpu/fft/fft.h"
#include "tensor/cpu/loops.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace {

template <class T>
struct Complex {
  T re, im;
};
template <class T>
HWY_INLINE Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class T>
HWY_INLINE Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class T>
HWY_INLINE Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}
template <class T>
HWY_INLINE Complex<T> scaled(Complex<T> a, T s) {
  return {a.re * s, a.im * s};
}
template <class T>
HWY_INLINE Complex<T> minus_i(Complex<T> a) {  // -i a
  return {a.im, -a.re};
}

// Transforms of R elements in place.
template <class T>
HWY_INLINE void butterfly(Complex<T> (&v)[2]) {
  const Complex<T> a = v[0];
  v[0] = a + v[1];
  v[1] = a - v[1];
}
template <class T>
HWY_INLINE void butterfly(Complex<T> (&v)[3]) {
  constexpr T kSin = T(0.86602540378443864676);
  const Complex<T> sum = v[1] + v[2], turn = scaled(minus_i(v[1] - v[2]), kSin), mid = v[0] - scaled(sum, T(0.5));
  v[0] = v[0] + sum;
  v[1] = mid + turn;
  v[2] = mid - turn;
}
template <class T>
HWY_INLINE void butterfly(Complex<T> (&v)[4]) {
  const Complex<T> a = v[0] + v[2], b = v[0] - v[2], c = v[1] + v[3], d = minus_i(v[1] - v[3]);
  v[0] = a + c;
  v[1] = b + d;
  v[2] = a - c;
  v[3] = b - d;
}
template <class T>
HWY_INLINE void butterfly(Complex<T> (&v)[5]) {
  constexpr T kC1 = T(0.30901699437494742410), kC2 = T(-0.80901699437494742410);
  constexpr T kS1 = T(0.95105651629515357212), kS2 = T(0.58778525229247312917);
  const Complex<T> a = v[1] + v[4], b = v[2] + v[3], c = minus_i(v[1] - v[4]), d = minus_i(v[2] - v[3]);
  const Complex<T> p = v[0] + scaled(a, kC1) + scaled(b, kC2), q = v[0] + scaled(a, kC2) + scaled(b, kC1);
  const Complex<T> s = scaled(c, kS1) + scaled(d, kS2), t = scaled(c, kS2) - scaled(d, kS1);
  v[0] = v[0] + a + b;
  v[1] = p + s;
  v[2] = q + t;
  v[3] = q - t;
  v[4] = p - s;
}

template <int R, class T>
void group(int64_t apart, int64_t width, const T* factor_re, const T* factor_im, Lanes<T> x, Lanes<T> y) {
  Complex<T> factor[R];
  for (int k = 1; k < R; ++k) factor[k] = {factor_re[k - 1], factor_im[k - 1]};
  PERIGEE_INDEPENDENT
  for (int64_t q = 0; q < width; ++q) {
    Complex<T> v[R];
    PERIGEE_UNROLL
    for (int j = 0; j < R; ++j) v[j] = {x.re[j * apart + q], x.im[j * apart + q]};
    butterfly(v);
    y.re[q] = v[0].re;
    y.im[q] = v[0].im;
    PERIGEE_UNROLL
    for (int k = 1; k < R; ++k) {
      const Complex<T> out = v[k] * factor[k];
      y.re[k * width + q] = out.re;
      y.im[k * width + q] = out.im;
    }
  }
}

template <int R, class T>
void fixed_stage(int64_t m, int64_t width, const T* factor_re, const T* factor_im, Lanes<T> x, Lanes<T> y) {
  Poller poll;
  for (int64_t p = 0; p < m; ++p, poll(R * width))
    group<R>(m * width, width, factor_re + p * (R - 1), factor_im + p * (R - 1),
             Lanes<T>{x.re + p * width, x.im + p * width}, Lanes<T>{y.re + p * R * width, y.im + p * R * width});
}

// For an odd prime radix: sums over the pairs of elements j and radix - j.
template <class T>
void prime_group(int radix, int64_t apart, int64_t width, const T* root_re, const T* root_im, const T* factor_re,
                 const T* factor_im, Lanes<T> x, Lanes<T> y) {
  for (int k = 0; k < radix; ++k) {
    const Complex<T> factor = k == 0 ? Complex<T>{1, 0} : Complex<T>{factor_re[k - 1], factor_im[k - 1]};
    T *re = y.re + k * width, *im = y.im + k * width;
    for (int64_t q = 0; q < width; ++q) re[q] = x.re[q], im[q] = x.im[q];
    for (int j = 1; j < radix; ++j) {
      const int at = j * k % radix;
      const T c = root_re[at], s = root_im[at];
      const T *from_re = x.re + j * apart, *from_im = x.im + j * apart;
      PERIGEE_INDEPENDENT
      for (int64_t q = 0; q < width; ++q) {
        re[q] += from_re[q] * c - from_im[q] * s;
        im[q] += from_re[q] * s + from_im[q] * c;
      }
    }
    PERIGEE_INDEPENDENT
    for (int64_t q = 0; q < width; ++q) {
      const Complex<T> out = Complex<T>{re[q], im[q]} * factor;
      re[q] = out.re;
      im[q] = out.im;
    }
  }
}

template <class T>
void stage(int radix, int64_t m, int64_t width, const T* factor_re, const T* factor_im, Lanes<T> x, Lanes<T> y) {
  if (radix == 2) return fixed_stage<2>(m, width, factor_re, factor_im, x, y);
  if (radix == 3) return fixed_stage<3>(m, width, factor_re, factor_im, x, y);
  if (radix == 4) return fixed_stage<4>(m, width, factor_re, factor_im, x, y);
  if (radix == 5) return fixed_stage<5>(m, width, factor_re, factor_im, x, y);
  std::array<T, 32> root_re, root_im;
  for (int k = 0; k < radix; ++k) {
    double re, im;
    unit_root(k, radix, &re, &im);
    root_re[size_t(k)] = T(re), root_im[size_t(k)] = T(im);
  }
  Poller poll;
  for (int64_t p = 0; p < m; ++p, poll(int64_t(radix) * radix * width))
    prime_group(radix, m * width, width, root_re.data(), root_im.data(), factor_re + p * (radix - 1),
                factor_im + p * (radix - 1), Lanes<T>{x.re + p * width, x.im + p * width},
                Lanes<T>{y.re + p * radix * width, y.im + p * radix * width});
}

void stage_float(int radix, int64_t m, int64_t width, const float* a, const float* b, Lanes<float> x, Lanes<float> y) {
  stage(radix, m, width, a, b, x, y);
}
void stage_double(int radix, int64_t m, int64_t width, const double* a, const double* b, Lanes<double> x,
                  Lanes<double> y) {
  stage(radix, m, width, a, b, x, y);
}

}  // namespace
}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(stage_float);
HWY_EXPORT(stage_double);

void fft_stage(int radix, int64_t m, int64_t width, const float* factor_re, const float* factor_im, Lanes<float> x,
               Lanes<float> y) {
  HWY_DYNAMIC_DISPATCH(stage_float)(radix, m, width, factor_re, factor_im, x, y);
}
void fft_stage(int radix, int64_t m, int64_t width, const double* factor_re, const double* factor_im, Lanes<double> x,
               Lanes<double> y) {
  HWY_DYNAMIC_DISPATCH(stage_double)(radix, m, width, factor_re, factor_im, x, y);
}

}  // namespace pg::cpu
#endif
