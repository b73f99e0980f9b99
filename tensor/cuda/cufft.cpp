#include "tensor/cuda/cufft.h"

#include "tensor/error.h"

namespace pg::cuda {

Cufft::Cufft() : library("PERIGEE_CUDA_FFT", {"libcufft.so.12", "libcufft.so.11"}) {
#define F(name) name.bind(library, PERIGEE_CUDA_NAME(name));
  PERIGEE_CUFFT_FUNCTIONS(F)
#undef F
}

const Cufft& cufft() try {
  static const Cufft& instance = *new Cufft;
  return instance;
} catch (const Error& e) {
  throw Error(fmt::format("Fourier transforms on cuda need cuFFT: {}", e.what()));
}

void check_cufft(int status, const char* function) {
  if (status != CUFFT_SUCCESS) fail_call(function, fmt::format("cuFFT status {}", status));
}

}  // namespace pg::cuda
