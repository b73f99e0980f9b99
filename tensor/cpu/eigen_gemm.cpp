#include "tensor/cpu/eigen_gemm.h"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

namespace pg::cpu {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using ConstMap = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;
using Map = Eigen::Map<Matrix, Eigen::Unaligned, Stride>;

template <class A, class B>
void accumulate(const A& a, const B& b, double alpha, Map& c) {
  c.noalias() += alpha * (a * b);
}

}  // namespace

void eigen_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                    int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  const ConstMap ma(a, trans_a ? k : m, trans_a ? m : k, Stride(lda));
  const ConstMap mb(b, trans_b ? n : k, trans_b ? k : n, Stride(ldb));
  Map mc(c, m, n, Stride(ldc));
  if (beta == 0) mc.setZero();
  else if (beta != 1) mc *= beta;
  if (k == 0 || m == 0 || n == 0) return;
  if (trans_a && trans_b) accumulate(ma.transpose(), mb.transpose(), alpha, mc);
  else if (trans_a) accumulate(ma.transpose(), mb, alpha, mc);
  else if (trans_b) accumulate(ma, mb.transpose(), alpha, mc);
  else accumulate(ma, mb, alpha, mc);
}

}  // namespace pg::cpu
