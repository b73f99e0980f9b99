#include "tensor/cuda/cufft.h"

#include "tensor/error.h"

namespace pg::cuda {

const Cufft& cufft() try {
  static const Cufft& instance = *new Cufft("PERIGEE_CUDA_FFT", {"libcufft.so.12", "libcufft.so.11"});
  return instance;
} catch (const Error& e) {
  throw Error(fmt::format("Fourier transforms on cuda need cuFFT: {}", e.what()));
}

void check_cufft(int status, const char* function) {
  if (status != CUFFT_SUCCESS) fail_call(function, fmt::format("cuFFT status {}", status));
}

}  // namespace pg::cuda
