// Implicitly shifted QR (Golub and Van Loan, Matrix Computations, 8.3.5, whose names these are).
#include "tensor/cpu/linalg/tridiagonal.h"

#include "tensor/cpu/linalg/rotations.h"

namespace pg::cpu {
namespace {

constexpr int64_t kSweeps = 60;  // for each eigenvalue; one or two are common

template <class T>
class Solver {
 public:
  Solver(int64_t n, T* d, T* e, Columns<T>* q) : n_(n), d_(d), e_(e), q_(q) {}

  bool run() {
    int64_t high = n_ - 1;
    for (int64_t sweeps = 0; sweeps < kSweeps * n_; ++sweeps) {
      for (; high > 0 && is_small(high - 1); --high) e_[high - 1] = 0;
      if (high <= 0) return q_.apply(), true;
      int64_t low = high - 1;
      while (low > 0 && !is_small(low - 1)) --low;
      poll_kernel();
      sweep(low, high);
    }
    return false;
  }

 private:
  bool is_small(int64_t i) const {
    return std::abs(e_[i]) <= std::numeric_limits<T>::epsilon() * (std::abs(d_[i]) + std::abs(d_[i + 1])) ||
           std::abs(e_[i]) < std::numeric_limits<T>::min();
  }

  // The eigenvalue of the last 2 x 2 block that is closer to its last element.
  T shift(int64_t high) const {
    const T half = (d_[high - 1] - d_[high]) / 2, b = e_[high - 1];
    return d_[high] - b * (b / (half + std::copysign(std::hypot(half, b), half)));
  }

  void sweep(int64_t low, int64_t high) {
    T y = d_[low] - shift(high), z = e_[low];
    for (int64_t k = low; k < high; ++k) {
      const Rotation<T> g(y, z);
      if (k > low) e_[k - 1] = g.r;
      const T a = d_[k], b = e_[k], f = d_[k + 1];
      const T upper = g.c * a + g.s * b, beside = g.c * b + g.s * f;  // row k of the rotated rows
      d_[k] = g.c * upper + g.s * beside;
      e_[k] = g.c * beside - g.s * upper;
      d_[k + 1] = g.c * (g.c * f - g.s * b) - g.s * (g.c * b - g.s * a);
      y = e_[k];
      if (k + 1 < high) z = g.s * e_[k + 1], e_[k + 1] *= g.c;
      q_.add(g, k, k + 1);
    }
  }

  int64_t n_;
  T *d_, *e_;
  ColumnRotations<T> q_;
};

}  // namespace

template <class T>
bool tridiagonal_eigen(int64_t n, T* d, T* e, Columns<T>* q) {
  return Solver<T>(n, d, e, q).run();
}

template bool tridiagonal_eigen<float>(int64_t, float*, float*, Columns<float>*);
template bool tridiagonal_eigen<double>(int64_t, double*, double*, Columns<double>*);

}  // namespace pg::cpu
