// Discrete Fourier transforms of many lines at once.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace pg::cpu {

// Lines are transformed side by side: element j of line k is at j * lanes + k, real and imaginary parts apart.
template <class T>
struct Lanes {
  T *re, *im;
};

// Computes y[k] = sum over j of x[j] exp(-2 pi i j k / n) for lines of n elements. Immutable.
//
// Lengths without a prime factor above 31 by Stockham's form of the mixed-radix algorithm (Van Loan, Computational
// Frameworks for the Fast Fourier Transform, 1992, 1.7), others by Bluestein's (A linear filtering approach to the
// computation of discrete Fourier transform, 1970).
template <class T>
class FftPlan {
 public:
  explicit FftPlan(int64_t n);
  int64_t length() const { return n_; }
  // The elements that `run` needs in each of the arrays x and y.
  int64_t room(int64_t lanes) const { return (inner_ ? inner_->n_ : n_) * lanes; }
  // Transforms x; the result is in the returned array, x or y. Both are overwritten. For the inverse transform,
  // exchange re and im of both.
  Lanes<T> run(Lanes<T> x, Lanes<T> y, int64_t lanes) const;

 private:
  Lanes<T> run_stages(Lanes<T> x, Lanes<T> y, int64_t lanes) const;
  Lanes<T> run_bluestein(Lanes<T> x, Lanes<T> y, int64_t lanes) const;

  int64_t n_;
  std::vector<int> radices_;
  // For each stage and each of its m groups: the factors of outputs 1 to radix - 1.
  std::vector<T> twiddle_re_, twiddle_im_;
  // For Bluestein's algorithm: exp(-pi i j² / n), and the transform of its conjugate over the length of `inner_`.
  std::unique_ptr<const FftPlan> inner_;
  std::vector<T> chirp_re_, chirp_im_, filter_re_, filter_im_;
};

// Returns the plan of length n. Each thread keeps those of small lengths that it used last.
template <class T>
std::shared_ptr<const FftPlan<T>> fft_plan(int64_t n);

// For transforms of n real numbers: the plan of n / 2 pairs of them, or of n if n is odd, and exp(-2 pi i k / n) for k
// up to n / 2.
template <class T>
struct RealFftPlan {
  FftPlan<T> plan;
  std::vector<T> root_re, root_im;
  explicit RealFftPlan(int64_t n);
};
template <class T>
std::shared_ptr<const RealFftPlan<T>> real_fft_plan(int64_t n);

// cos and -sin of 2 pi k / n.
void unit_root(int64_t k, int64_t n, double* re, double* im);

// One stage of Stockham's algorithm over m * radix rows of `width` elements: y[p * radix + k] is factor (p, k) times
// the sum over j of x[p + m * j] exp(-2 pi i j k / radix).
void fft_stage(int radix, int64_t m, int64_t width, const float* factor_re, const float* factor_im, Lanes<float> x,
               Lanes<float> y);
void fft_stage(int radix, int64_t m, int64_t width, const double* factor_re, const double* factor_im, Lanes<double> x,
               Lanes<double> y);

}  // namespace pg::cpu
