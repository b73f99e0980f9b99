#include "tensor/cuda/cudnn.h"

#include "tensor/error.h"

namespace pg::cuda {

Cudnn::Cudnn() : library("PERIGEE_CUDA_CUDNN", {"libcudnn.so.9"}) {
#define F(name) name.bind(library, PERIGEE_CUDA_NAME(name));
  PERIGEE_CUDNN_FUNCTIONS(F)
#undef F
  const size_t version = cudnnGetVersion.status();
  if (version < 90000) throw Error(fmt::format("cuDNN has version {}; 90000 is needed", version));
}

const Cudnn& cudnn() try {
  static const Cudnn& instance = *new Cudnn;
  return instance;
} catch (const Error& e) {
  throw Error(fmt::format("convolutions on cuda need cuDNN 9: {}", e.what()));
}

void check_cudnn(int status, const char* function) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail_call(function, cudnn().cudnnGetErrorString.status(cudnnStatus_t(status)));
}

}  // namespace pg::cuda
