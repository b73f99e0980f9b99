#include "tensor/cuda/cusolver.h"

#include "tensor/error.h"

namespace pg::cuda {

const Cusolver& cusolver() try {
  static const Cusolver& instance = *new Cusolver("PERIGEE_CUDA_SOLVER", {"libcusolver.so.12", "libcusolver.so.11"});
  return instance;
} catch (const Error& e) {
  throw Error(fmt::format("factorizations of matrices on cuda need cuSOLVER: {}", e.what()));
}

void check_cusolver(int status, const char* function) {
  if (status != CUSOLVER_STATUS_SUCCESS) fail_call(function, fmt::format("cuSOLVER status {}", status));
}

}  // namespace pg::cuda
