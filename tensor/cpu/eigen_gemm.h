// float64 products by Eigen, on the calling thread.
#pragma once
#include <cstdint>

namespace pg::cpu {

void eigen_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
                    int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace pg::cpu
