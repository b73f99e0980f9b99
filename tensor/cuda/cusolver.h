// The functions of cuSOLVER that factorizations use.
#pragma once
#include <cusolverDn.h>

#include "tensor/cuda/library.h"

// clang-format off
#define PERIGEE_CUSOLVER_FUNCTIONS(F) \
  F(cusolverDnCreate) F(cusolverDnDestroy) F(cusolverDnSetStream) F(cusolverDnCreateParams) \
  F(cusolverDnDestroyParams) F(cusolverDnXpotrf_bufferSize) F(cusolverDnXpotrf) F(cusolverDnXgetrf_bufferSize) \
  F(cusolverDnXgetrf) F(cusolverDnXgetrs) F(cusolverDnXgeqrf_bufferSize) F(cusolverDnXgeqrf) \
  F(cusolverDnSorgqr_bufferSize) F(cusolverDnSorgqr) F(cusolverDnDorgqr_bufferSize) F(cusolverDnDorgqr) \
  F(cusolverDnXsyevd_bufferSize) F(cusolverDnXsyevd) F(cusolverDnXgesvd_bufferSize) F(cusolverDnXgesvd)
// clang-format on

namespace pg::cuda {

PERIGEE_CUDA_TABLE(Cusolver, PERIGEE_CUSOLVER_FUNCTIONS, check_cusolver)

// Opens the library at the first call. A failed try is repeated by the next call.
const Cusolver& cusolver();

}  // namespace pg::cuda
