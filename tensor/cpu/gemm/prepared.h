// Prepared kernels (PreparedKernel) of the CPU, made of oneDNN primitives and of our own kernels.
#pragma once
#include <memory>
#include <optional>

#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/kernel.h"
#include "tensor/op.h"

namespace pg::cpu {

// The epilogue of a call: the activation of linear_act and conv_act; nothing for other ops.
class Finish {
 public:
  explicit Finish(const KernelArgs& args);
  void operator()(std::span<const View> out) const;
  void operator()(int64_t n, float* y) const;  // for a part of the result, only on this thread
  void operator()(int64_t n, BFloat16* y) const;
  bool relu() const { return relu_; }

 private:
  std::optional<Activation> activation_;  // other than relu
  bool relu_ = false;
};

// For inputs (x, w, bias): y[m, n] = x[m, k] * w[n, k]^T + bias[n], row-major float32. With `packs` w may be packed.
std::unique_ptr<const PreparedKernel> prepare_linear(int64_t m, int64_t n, int64_t k, bool packs, const Finish& finish);

// For inputs (a, b): c[m, n] = a[m, k] * b[k, n], with b packed. Returns null where that is not faster.
std::unique_ptr<const PreparedKernel> prepare_product(int64_t m, int64_t n, int64_t k, const Finish& finish);

// A convolution of inputs (x, w, bias) of float32 or bfloat16. Returns null when only packed weights would be faster
// and `packs` is false.
std::unique_ptr<const PreparedKernel> prepare_conv(DType type, const ConvShape& s, bool bias, bool packs,
                                                   const Finish& finish);

// A convolution of images (N, spatial..., C) of float32 or bfloat16. Returns null where the library has no
// implementation.
std::unique_ptr<const PreparedKernel> prepare_conv_last(DType type, const ConvShape& s, bool bias,
                                                        const Finish& finish);

// The gradients, of inputs (dy, w) or (x, dy). Returns null when the unprepared kernel is as fast.
std::unique_ptr<const PreparedKernel> prepare_conv_gradient(const ConvShape& s, ConvPart part);

}  // namespace pg::cpu
