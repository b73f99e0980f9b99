#include "tensor/cuda/driver.h"

namespace pg::cuda {

const Driver& driver() {
  static const Driver& instance = *new Driver("PERIGEE_CUDA_DRIVER", {"libcuda.so.1"});
  return instance;
}

void check_driver(int status, const char* function) {
  if (status == CUDA_SUCCESS) return;
  const char* text = nullptr;
  if (driver().cuGetErrorString.status(CUresult(status), &text) != CUDA_SUCCESS || !text) text = "unknown error";
  fail_call(function, text);
}

}  // namespace pg::cuda
