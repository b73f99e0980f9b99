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

void check_nvrtc(int status, const char* function);

struct Nvrtc {
  Nvrtc();
  Library library;
  int version[2] = {};
#define F(name) Function<decltype(::name), check_nvrtc> name;
  PERIGEE_NVRTC_FUNCTIONS(F)
#undef F
};

const Nvrtc& nvrtc();  // opens it at the first call

}  // namespace pg::cuda
