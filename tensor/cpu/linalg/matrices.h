// Shared by the kernels of linear algebra: the matrices of a batch in parallel, blocks of a matrix, products.
#pragma once
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_STACK_ALLOCATION_LIMIT 8192  // a thread of the host may have a stack of 128 KiB
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tensor/cpu/counted_work.h"
#include "tensor/cpu/gemm/gemm.h"
#include "tensor/parallel.h"
#include "tensor/size.h"

namespace pg::cpu {

// A row-major matrix of its own, and one in the rows of another array.
template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Block = Eigen::Map<Matrix<T>, 0, Eigen::OuterStride<>>;
template <class T>
Block<T> block(T* at, int64_t rows, int64_t columns, int64_t row_stride) {
  return {at, rows, columns, Eigen::OuterStride<>(row_stride)};
}

// The arrays of row-major matrices of kernels. Those with the layout of Eigen's factorizations are copies of them.
template <class T>
using Rows = Eigen::Map<Matrix<T>>;
template <class T>
using ConstRows = Eigen::Map<const Matrix<T>>;
template <class T>
using Columns = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;

// Counts the memory of matrices, which Eigen allocates, for the extent of a scope.
class CountedMatrices : CountedWork {
 public:
  CountedMatrices(int64_t elements, int64_t size) : CountedWork(times(elements, size)) {}
};

constexpr double kGrainWork = 2e4;  // multiply-adds of about 10 µs

// Calls f(i) for each of `count` matrices, on the threads of the pool. `work`: multiply-adds for one of them. Polls
// between matrices that take a millisecond; what Eigen does with one has no hook for a poll.
template <class F>
void each_matrix(int64_t count, double work, const F& f) {
  const int64_t grain = int64_t(std::max(1.0, kGrainWork / std::max(work, 1.0)));
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (work > 1e6) poll_kernel();
      f(i);
    }
  });
}

// to = from, with polls: some rows at a time, which is also faster where the layouts differ.
template <class To, class From>
void assign_polled(To&& to, const From& from) {
  constexpr int64_t kRows = 16;
  for (int64_t i = 0; i < to.rows(); i += kRows) {
    poll_kernel();
    const int64_t count = std::min<int64_t>(kRows, to.rows() - i);
    to.middleRows(i, count) = from.middleRows(i, count);
  }
}

// The multiply-adds of a factorization of an m x n matrix, up to a factor.
inline double cubic_work(int64_t m, int64_t n) { return double(m) * double(n) * double(std::min(m, n)); }

template <class T>
bool all_finite(const T* x, int64_t count) {
  return std::all_of(x, x + count, [](T v) { return std::isfinite(v); });
}
template <class T>
void fill_nan(T* x, int64_t count) {
  std::fill_n(x, count, std::numeric_limits<T>::quiet_NaN());
}

}  // namespace pg::cpu
