#include "tensor/cpu/eigen_solve.h"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Cholesky>
#include <Eigen/LU>

namespace pg::cpu {
namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace

template <class T>
bool solve(int64_t n, int64_t columns, const T* a, const T* b, T* x) {
  if (n == 0 || columns == 0) return true;
  const Eigen::PartialPivLU<Matrix<T>> lu(Eigen::Map<const Matrix<T>>(a, n, n));
  for (int64_t i = 0; i < n; ++i)
    if (lu.matrixLU()(i, i) == T(0)) return false;
  Eigen::Map<Matrix<T>>(x, n, columns) = lu.solve(Eigen::Map<const Matrix<T>>(b, n, columns));
  return true;
}

template <class T>
bool cholesky(int64_t n, const T* a, T* l) {
  if (n == 0) return true;
  const Eigen::LLT<Matrix<T>, Eigen::Lower> llt(Eigen::Map<const Matrix<T>>(a, n, n));
  if (llt.info() != Eigen::Success) return false;
  Eigen::Map<Matrix<T>>(l, n, n) = llt.matrixL();
  return true;
}

template bool solve<float>(int64_t, int64_t, const float*, const float*, float*);
template bool solve<double>(int64_t, int64_t, const double*, const double*, double*);
template bool cholesky<float>(int64_t, const float*, float*);
template bool cholesky<double>(int64_t, const double*, double*);

}  // namespace pg::cpu
