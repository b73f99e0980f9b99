// Implicitly shifted QR (Golub and Van Loan, Matrix Computations, 8.6.2, whose names these are). Eigen's BDCSVD gives
// wrong results for matrices with many equal singular values, such as a sparse matrix of zeros and ones.
#include "tensor/cpu/linalg/bidiagonal.h"

#include "tensor/cpu/linalg/rotations.h"

namespace pg::cpu {
namespace {

constexpr int64_t kSweeps = 60;  // for each singular value; two or three are common

template <class T>
class Solver {
 public:
  Solver(int64_t n, T* d, T* e, Columns<T>* u, Columns<T>* v) : n_(n), d_(d), e_(e), u_(u), v_(v) {
    T norm = 0;
    for (int64_t i = 0; i < n; ++i) norm = std::max(norm, std::abs(d[i]) + (i + 1 < n ? std::abs(e[i]) : T(0)));
    negligible_ = kEpsilon * norm;
  }

  bool run() {
    int64_t high = n_ - 1;
    for (int64_t sweeps = 0; sweeps < kSweeps * n_; ++sweeps) {
      const int64_t low = unreduced(high);
      if (high <= 0) return u_.apply(), v_.apply(), true;
      poll_kernel();
      if (!drop_zeros(low, high)) sweep(low, high);
    }
    return false;
  }

 private:
  static constexpr T kEpsilon = std::numeric_limits<T>::epsilon();

  // Moves `high` down to the last row that has an element above the next diagonal one, and returns the first row of
  // the block that ends there.
  int64_t unreduced(int64_t& high) {
    for (; high > 0 && is_small(high - 1); --high) e_[high - 1] = 0;
    int64_t low = high;
    while (low > 0 && !is_small(low - 1)) --low;
    return low;
  }
  bool is_small(int64_t i) const {
    return std::abs(e_[i]) <= kEpsilon * (std::abs(d_[i]) + std::abs(d_[i + 1])) ||
           std::abs(e_[i]) < std::numeric_limits<T>::min();
  }

  // With a 0 on the diagonal its row, or for the last one its column, can be made 0. Returns whether there was one.
  bool drop_zeros(int64_t low, int64_t high) {
    bool any = false;
    for (int64_t i = low; i < high; ++i)
      if (std::abs(d_[i]) <= negligible_) clear_row(i, high), any = true;
    if (!any && std::abs(d_[high]) <= negligible_) clear_column(low, high), any = true;
    return any;
  }

  void clear_row(int64_t i, int64_t high) {
    T f = e_[i];
    d_[i] = e_[i] = 0;
    for (int64_t j = i + 1; j <= high && f != 0; ++j) {
      const Rotation<T> g(d_[j], f);
      d_[j] = g.r;
      if (j < high) f = -g.s * e_[j], e_[j] *= g.c;
      u_.add(g, j, i);
    }
  }

  void clear_column(int64_t low, int64_t high) {
    T f = e_[high - 1];
    d_[high] = e_[high - 1] = 0;
    for (int64_t j = high - 1; j >= low && f != 0; --j) {
      const Rotation<T> g(d_[j], f);
      d_[j] = g.r;
      if (j > low) f = -g.s * e_[j - 1], e_[j - 1] *= g.c;
      v_.add(g, j, high);
    }
  }

  // The eigenvalue of the last 2 x 2 block of B^T B that is closer to its last element.
  T shift(int64_t low, int64_t high) const {
    const T before = high - 1 > low ? e_[high - 2] : T(0), a = d_[high - 1] * d_[high - 1] + before * before;
    const T b = d_[high - 1] * e_[high - 1], c = d_[high] * d_[high] + e_[high - 1] * e_[high - 1];
    const T half = (a - c) / 2, root = std::hypot(half, b);
    const T sum = half < 0 ? half - root : half + root;
    return sum == 0 ? c : c - b * (b / sum);
  }

  void sweep(int64_t low, int64_t high) {
    T y = d_[low] * d_[low] - shift(low, high), z = d_[low] * e_[low];
    for (int64_t k = low; k < high; ++k) {
      const Rotation<T> right(y, z);
      if (k > low) e_[k - 1] = right.r;
      y = right.c * d_[k] + right.s * e_[k];
      e_[k] = right.c * e_[k] - right.s * d_[k];
      z = right.s * d_[k + 1];
      d_[k + 1] *= right.c;
      v_.add(right, k, k + 1);
      const Rotation<T> left(y, z);
      d_[k] = left.r;
      y = left.c * e_[k] + left.s * d_[k + 1];
      d_[k + 1] = left.c * d_[k + 1] - left.s * e_[k];
      e_[k] = y;
      if (k + 1 < high) z = left.s * e_[k + 1], e_[k + 1] *= left.c;
      u_.add(left, k, k + 1);
    }
  }

  int64_t n_;
  T *d_, *e_, negligible_;
  ColumnRotations<T> u_, v_;
};

}  // namespace

template <class T>
bool bidiagonal_svd(int64_t n, T* d, T* e, Columns<T>* u, Columns<T>* v) {
  return Solver<T>(n, d, e, u, v).run();
}

template bool bidiagonal_svd<float>(int64_t, float*, float*, Columns<float>*, Columns<float>*);
template bool bidiagonal_svd<double>(int64_t, double*, double*, Columns<double>*, Columns<double>*);

}  // namespace pg::cpu
