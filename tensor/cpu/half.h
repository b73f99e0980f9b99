// Converts many elements per call between float and float16 or bfloat16, and runs float32 kernels on such tensors.
#pragma once
#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/dtype.h"
#include "tensor/kernel.h"

namespace pg::cpu {

inline void to_float(const Half* from, float* to, int64_t n) {
  converter(DType::kFloat16, DType::kFloat32)(n, from, 1, to);
}
inline void to_float(const BFloat16* from, float* to, int64_t n) {
  converter(DType::kBFloat16, DType::kFloat32)(n, from, 1, to);
}
inline void from_float(const float* from, Half* to, int64_t n) {
  converter(DType::kFloat32, DType::kFloat16)(n, from, 1, to);
}
inline void from_float(const float* from, BFloat16* to, int64_t n) {
  converter(DType::kFloat32, DType::kBFloat16)(n, from, 1, to);
}

// Calls `kernel` with contiguous float32 copies in place of float16 and bfloat16 arrays, and rounds the results back
// once.
void run_widened(const KernelArgs& args, KernelFn kernel);

// The same for one input only.
void run_widened_input(const KernelArgs& args, size_t input, KernelFn kernel);

}  // namespace pg::cpu
