#include "tensor/cuda/nvrtc.h"

#include "tensor/error.h"

namespace pg::cuda {

Nvrtc::Nvrtc() : library("PERIGEE_CUDA_NVRTC", {"libnvrtc.so.13", "libnvrtc.so.12"}) {
#define F(name) name.bind(library, PERIGEE_CUDA_NAME(name));
  PERIGEE_NVRTC_FUNCTIONS(F)
#undef F
  nvrtcVersion(&version[0], &version[1]);
}

const Nvrtc& nvrtc() {
  static const Nvrtc& instance = *new Nvrtc;
  return instance;
}

void check_nvrtc(int status, const char* function) {
  if (status == NVRTC_SUCCESS) return;
  fail_call(function, fmt::format("NVRTC error {}", status));
}

}  // namespace pg::cuda
