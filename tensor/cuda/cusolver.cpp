#include "tensor/cuda/cusolver.h"

#include "tensor/error.h"

namespace pg::cuda {

Cusolver::Cusolver() : library("PERIGEE_CUDA_SOLVER", {"libcusolver.so.12", "libcusolver.so.11"}) {
#define F(name) name.bind(library, PERIGEE_CUDA_NAME(name));
  PERIGEE_CUSOLVER_FUNCTIONS(F)
#undef F
}

const Cusolver& cusolver() try {
  static const Cusolver& instance = *new Cusolver;
  return instance;
} catch (const Error& e) {
  throw Error(fmt::format("factorizations of matrices on cuda need cuSOLVER: {}", e.what()));
}

void check_cusolver(int status, const char* function) {
  if (status != CUSOLVER_STATUS_SUCCESS) fail_call(function, fmt::format("cuSOLVER status {}", status));
}

}  // namespace pg::cuda
