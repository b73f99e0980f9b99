// The functions of cuFFT that transforms use.
#pragma once
#include <cufft.h>

#include "tensor/cuda/library.h"

// clang-format off
#define PERIGEE_CUFFT_FUNCTIONS(F) \
  F(cufftCreate) F(cufftDestroy) F(cufftSetStream) F(cufftSetAutoAllocation) F(cufftSetWorkArea) \
  F(cufftMakePlanMany64) F(cufftExecC2C) F(cufftExecR2C) F(cufftExecC2R) F(cufftExecZ2Z) F(cufftExecD2Z) \
  F(cufftExecZ2D)
// clang-format on

namespace pg::cuda {

PERIGEE_CUDA_TABLE(Cufft, PERIGEE_CUFFT_FUNCTIONS, check_cufft)

// Opens the library at the first call. A failed try is repeated by the next call.
const Cufft& cufft();

}  // namespace pg::cuda
