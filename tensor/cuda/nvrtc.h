// The functions of NVRTC, the compiler of kernels.
#pragma once
#include <nvrtc.h>

#include "tensor/cuda/library.h"

// clang-format off
#define PERIGEE_NVRTC_FUNCTIONS(F) \
  F(nvrtcVersion) F(nvrtcCreateProgram) F(nvrtcDestroyProgram) F(nvrtcCompileProgram) F(nvrtcGetProgramLog) \
  F(nvrtcGetProgramLogSize) F(nvrtcGetCUBIN) F(nvrtcGetCUBINSize) F(nvrtcGetPTX) F(nvrtcGetPTXSize) \
  F(nvrtcGetNumSupportedArchs) F(nvrtcGetSupportedArchs)
// clang-format on

namespace pg::cuda {

PERIGEE_CUDA_TABLE(NvrtcTable, PERIGEE_NVRTC_FUNCTIONS, check_nvrtc)

struct Nvrtc : NvrtcTable {
  Nvrtc() : NvrtcTable("PERIGEE_CUDA_NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"}) {
    nvrtcVersion(&version[0], &version[1]);
  }
  int version[2] = {};
};

const Nvrtc& nvrtc();  // opens it at the first call

}  // namespace pg::cuda
