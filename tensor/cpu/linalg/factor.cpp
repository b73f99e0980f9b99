#include "tensor/cpu/linalg/factor.h"

#include "tensor/cpu/linalg/matrices.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>

namespace pg::cpu {
namespace {

template <class T>
void fill_some(T* x, int64_t count) {
  if (x) fill_nan(x, count);
}

constexpr int64_t kJacobi = 16;  // up to this size one-sided Jacobi rotations are as fast, and more exact

// Whether the element of a vector with the largest absolute value is negative.
template <class Vector>
bool points_down(const Vector& v) {
  Eigen::Index at = 0;
  v.cwiseAbs().maxCoeff(&at);
  return std::signbit(v(at));
}

// Turns the first `count` pairs of singular vectors so that their signs do not depend on the solver.
template <class T>
void fix_signs(Rows<T> u, Rows<T> vh, int64_t count) {
  for (int64_t j = 0; j < count; ++j)
    if (points_down(u.col(j))) u.col(j) *= -1, vh.row(j) *= -1;
}

template <class T, class Svd>
bool store_svd(const Svd& f, T* u, T* s, T* vh) {
  if (f.info() != Eigen::Success) return false;
  Rows<T>(s, f.singularValues().size(), 1) = f.singularValues();
  if (!u) return true;
  Rows<T> left(u, f.matrixU().rows(), f.matrixU().cols()), right(vh, f.matrixV().cols(), f.matrixV().rows());
  left = f.matrixU();
  right = f.matrixV().transpose();
  fix_signs<T>(left, right, f.singularValues().size());
  return true;
}

}  // namespace

template <class T>
void qr(int64_t m, int64_t n, int64_t k, const T* a, T* q, T* r) {
  if (!all_finite(a, m * n)) return fill_nan(q, m * k), fill_nan(r, k * n);
  const Eigen::HouseholderQR<Columns<T>> f{Columns<T>(ConstRows<T>(a, m, n))};
  Columns<T> vectors = Columns<T>::Identity(m, k);
  vectors.applyOnTheLeft(f.householderQ());
  Rows<T>(q, m, k) = vectors;
  Rows<T>(r, k, n) = f.matrixQR().topRows(k).template triangularView<Eigen::Upper>();
}

template <class T>
void svd(int64_t m, int64_t n, bool full, const T* a, T* u, T* s, T* vh) {
  const int64_t k = std::min(m, n);
  const unsigned options = !u     ? 0u
                           : full ? Eigen::ComputeFullU | Eigen::ComputeFullV
                                  : Eigen::ComputeThinU | Eigen::ComputeThinV;
  if (all_finite(a, m * n)) {
    const Columns<T> matrix = ConstRows<T>(a, m, n);
    // The divide-and-conquer solver does not converge for some matrices.
    if (k > kJacobi && store_svd(Eigen::BDCSVD<Columns<T>>(matrix, options), u, s, vh)) return;
    if (store_svd(Eigen::JacobiSVD<Columns<T>>(matrix, options), u, s, vh)) return;
  }
  fill_nan(s, k);
  fill_some(u, m * (full ? m : k));
  fill_some(vh, n * (full ? n : k));
}

template <class T>
void eigh(int64_t n, const T* a, T* values, T* vectors) {
  Columns<T> matrix = ConstRows<T>(a, n, n);
  matrix.template triangularView<Eigen::StrictlyUpper>().setZero();  // it is not read and may hold anything
  if (all_finite(matrix.data(), n * n)) {
    const Eigen::SelfAdjointEigenSolver<Columns<T>> f(matrix,
                                                      vectors ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
    if (f.info() == Eigen::Success) {
      Rows<T>(values, n, 1) = f.eigenvalues();
      if (!vectors) return;
      Rows<T> out(vectors, n, n);
      out = f.eigenvectors();
      for (int64_t j = 0; j < n; ++j)
        if (points_down(out.col(j))) out.col(j) *= -1;
      return;
    }
  }
  fill_nan(values, n);
  fill_some(vectors, n * n);
}

template void qr<float>(int64_t, int64_t, int64_t, const float*, float*, float*);
template void qr<double>(int64_t, int64_t, int64_t, const double*, double*, double*);
template void svd<float>(int64_t, int64_t, bool, const float*, float*, float*, float*);
template void svd<double>(int64_t, int64_t, bool, const double*, double*, double*, double*);
template void eigh<float>(int64_t, const float*, float*, float*);
template void eigh<double>(int64_t, const double*, double*, double*);

}  // namespace pg::cpu
