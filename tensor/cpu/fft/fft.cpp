#include "tensor/cpu/fft/fft.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>

#include "tensor/cpu/counted_work.h"
#include "tensor/cpu/lru_cache.h"
#include "tensor/parallel.h"
#include "tensor/thread_end.h"

namespace pg::cpu {
namespace {

constexpr int kLargestRadix = 31;
constexpr int64_t kKeptLength = 1 << 18;
constexpr double kTwoPi = 6.283185307179586476925;

// The radices of the stages of length n; empty when n has a prime factor above kLargestRadix.
std::vector<int> radices_of(int64_t n) {
  std::vector<int> out;
  for (int radix : {5, 3}) {
    while (n % radix == 0) out.push_back(radix), n /= radix;
  }
  for (int radix = 7; radix <= kLargestRadix; radix += 2)
    while (n % radix == 0) out.push_back(radix), n /= radix;
  while (n % 4 == 0) out.push_back(4), n /= 4;
  if (n == 2) out.push_back(2), n = 1;
  return n == 1 ? out : std::vector<int>{};
}

}  // namespace

void unit_root(int64_t k, int64_t n, double* re, double* im) {
  // Reduced to an eighth of a turn, where the argument is small.
  k %= n;
  const bool lower = 2 * k > n;
  if (lower) k = n - k;
  const bool left = 4 * k > n;
  if (left) k = n - 2 * k;  // in halves of the unit
  const double angle = kTwoPi * double(k) / double(left ? 2 * n : n);
  *re = left ? -std::cos(angle) : std::cos(angle);
  *im = lower ? std::sin(angle) : -std::sin(angle);
}

namespace {

// The n-th roots of unity, rounded to T. Many of them for float are products of two in double precision.
template <class T>
class UnitRoots {
 public:
  explicit UnitRoots(int64_t n) : n_(n) {
    if (!std::is_same_v<T, float> || n < kMany) return;
    for (; step_ * step_ < n; step_ *= 2) {}
    for (int64_t k = 0; k < step_; ++k) fine_.push_back(exact(k));
    for (int64_t k = 0; k < n; k += step_) coarse_.push_back(exact(k));
  }
  // For 0 <= k < n.
  void get(int64_t k, T* re, T* im) const {
    std::complex<double> root = fine_.empty() ? exact(k) : coarse_[size_t(k / step_)];
    if (!fine_.empty()) {
      const std::complex<double> a = root, b = fine_[size_t(k % step_)];
      root = {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    }
    *re = T(root.real()), *im = T(root.imag());
  }

 private:
  static constexpr int64_t kMany = 4096;
  std::complex<double> exact(int64_t k) const {
    double re, im;
    unit_root(k, n_, &re, &im);
    return {re, im};
  }
  const int64_t n_;
  int64_t step_ = 1;
  std::vector<std::complex<double>> fine_, coarse_;
};

}  // namespace

template <class T>
FftPlan<T>::FftPlan(int64_t n) : n_(n), radices_(radices_of(n)) {
  if (n == 1 || !radices_.empty()) {
    const UnitRoots<T> roots(n);
    int64_t left = n;
    for (int radix : radices_) {
      const size_t at = twiddle_re_.size(), size = at + size_t(left / radix * (radix - 1));
      twiddle_re_.resize(size);
      twiddle_im_.resize(size);
      parallel_for(left / radix, 1024 / radix, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          for (int k = 1; k < radix; ++k) {
            const size_t i = at + size_t(p * (radix - 1) + k - 1);
            roots.get(p * k * (n / left), &twiddle_re_[i], &twiddle_im_[i]);
          }
      });
      left /= radix;
    }
    return;
  }
  int64_t length = 1;
  while (length < 2 * n - 1) length *= 2;
  inner_ = std::make_unique<const FftPlan>(length);
  std::vector<T> conjugate_re(size_t(length), T(0)), conjugate_im(size_t(length), T(0));
  std::vector<T> other_re(size_t(length), T(0)), other_im(size_t(length), T(0));
  const UnitRoots<T> roots(2 * n);
  Poller poll;
  T re, im;
  int64_t square = 0;  // j² modulo 2 n
  for (int64_t j = 0; j < n; ++j, poll(32)) {
    roots.get(square, &re, &im);
    chirp_re_.push_back(re);
    chirp_im_.push_back(im);
    for (int64_t at : {j, (length - j) % length}) conjugate_re[size_t(at)] = re, conjugate_im[size_t(at)] = -im;
    square = (square + 2 * j + 1) % (2 * n);
  }
  const Lanes<T> filter =
      inner_->run({conjugate_re.data(), conjugate_im.data()}, {other_re.data(), other_im.data()}, 1);
  filter_re_.assign(filter.re, filter.re + length);
  filter_im_.assign(filter.im, filter.im + length);
}

template <class T>
Lanes<T> FftPlan<T>::run(Lanes<T> x, Lanes<T> y, int64_t lanes) const {
  return inner_ ? run_bluestein(x, y, lanes) : run_stages(x, y, lanes);
}

template <class T>
Lanes<T> FftPlan<T>::run_stages(Lanes<T> x, Lanes<T> y, int64_t lanes) const {
  int64_t left = n_, width = lanes, at = 0;
  for (int radix : radices_) {
    left /= radix;
    fft_stage(radix, left, width, twiddle_re_.data() + at, twiddle_im_.data() + at, x, y);
    at += left * (radix - 1);
    width *= radix;
    std::swap(x, y);
  }
  return x;
}

// X[k] = c[k] sum over j of (x[j] c[j]) conj(c[k - j]) with c[j] = exp(-pi i j² / n): a convolution, computed as a
// product of transforms of a length of a power of 2.
template <class T>
Lanes<T> FftPlan<T>::run_bluestein(Lanes<T> x, Lanes<T> y, int64_t lanes) const {
  const auto multiply = [lanes](Lanes<T> v, const std::vector<T>& re, const std::vector<T>& im, T scale) {
    Poller poll;
    for (size_t j = 0; j < re.size(); ++j, poll(lanes))
      for (int64_t k = int64_t(j) * lanes; k < int64_t(j + 1) * lanes; ++k) {
        const T a = v.re[k] * scale, b = v.im[k] * scale;
        v.re[k] = a * re[j] - b * im[j];
        v.im[k] = a * im[j] + b * re[j];
      }
  };
  const int64_t length = inner_->n_;
  multiply(x, chirp_re_, chirp_im_, T(1));
  for (T* part : {x.re, x.im}) std::fill(part + n_ * lanes, part + length * lanes, T(0));
  const Lanes<T> spectrum = inner_->run(x, y, lanes);
  multiply(spectrum, filter_re_, filter_im_, T(1));
  const Lanes<T> other = spectrum.re == x.re ? y : x;
  const Lanes<T> swapped = inner_->run({spectrum.im, spectrum.re}, {other.im, other.re}, lanes);
  const Lanes<T> out = {swapped.im, swapped.re};
  multiply(out, chirp_re_, chirp_im_, T(1) / T(length));
  return out;
}

template <class T>
RealFftPlan<T>::RealFftPlan(int64_t n) : plan(n % 2 == 0 ? n / 2 : n) {
  if (n % 2 != 0) return;
  const UnitRoots<T> roots(n);
  root_re.resize(size_t(n / 2 + 1));
  root_im.resize(root_re.size());
  parallel_for(n / 2 + 1, 512, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) roots.get(k, &root_re[size_t(k)], &root_im[size_t(k)]);
  });
}

namespace {

// The numbers that a plan takes at most, for the sizes with a factor that has no stage of its own.
constexpr int64_t kMostNumbers = 36, kUsualNumbers = 3;

template <class Plan, class T>
std::shared_ptr<const Plan> kept(int64_t n) {
  struct Large {
    explicit Large(int64_t n)
        : counted(times(times(radices_of(n).empty() ? kMostNumbers : kUsualNumbers, n), sizeof(T))), plan(n) {}
    const CountedWork counted;
    const Plan plan;
  };
  const auto make = [n] { return std::make_shared<const Plan>(n); };
  if (n > kKeptLength) {
    const auto large = std::make_shared<const Large>(n);
    return {large, &large->plan};
  }
  auto& cache = per_thread<Plan, LruCache<int64_t, std::shared_ptr<const Plan>>>(16);
  return cache.get(n, make);
}

}  // namespace

template <class T>
std::shared_ptr<const FftPlan<T>> fft_plan(int64_t n) {
  return kept<FftPlan<T>, T>(n);
}
template <class T>
std::shared_ptr<const RealFftPlan<T>> real_fft_plan(int64_t n) {
  return kept<RealFftPlan<T>, T>(n);
}

template class FftPlan<float>;
template class FftPlan<double>;
template std::shared_ptr<const FftPlan<float>> fft_plan(int64_t);
template std::shared_ptr<const FftPlan<double>> fft_plan(int64_t);
template std::shared_ptr<const RealFftPlan<float>> real_fft_plan(int64_t);
template std::shared_ptr<const RealFftPlan<double>> real_fft_plan(int64_t);

}  // namespace pg::cpu
