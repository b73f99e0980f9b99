#include "tensor/cuda/cudnn.h"

#include <memory>

#include "tensor/error.h"

namespace pg::cuda {

static const Cudnn* open_cudnn() {
  std::unique_ptr<const Cudnn> table(new Cudnn("PERIGEE_CUDA_CUDNN", {"libcudnn.so.9"}));
  const size_t version = table->cudnnGetVersion.status();
  if (version < 90000) throw Error(fmt::format("cuDNN has version {}; 90000 is needed", version));
  return table.release();
}

const Cudnn& cudnn() try {
  static const Cudnn& instance = *open_cudnn();
  return instance;
} catch (const Error& e) {
  throw Error(fmt::format("convolutions on cuda need cuDNN 9: {}", e.what()));
}

void check_cudnn(int status, const char* function) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail_call(function, cudnn().cudnnGetErrorString.status(cudnnStatus_t(status)));
}

}  // namespace pg::cuda
