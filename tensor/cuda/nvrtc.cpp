#include "tensor/cuda/nvrtc.h"

#include "tensor/error.h"

namespace pg::cuda {

const Nvrtc& nvrtc() {
  static const Nvrtc& instance = *new Nvrtc;
  return instance;
}

void check_nvrtc(int status, const char* function) {
  if (status == NVRTC_SUCCESS) return;
  fail_call(function, fmt::format("NVRTC error {}", status));
}

}  // namespace pg::cuda
