// Prepared kernels of the CPU (PreparedKernel) around primitives of oneDNN.
#pragma once
#include <memory>

#include "tensor/cpu/conv/conv.h"
#include "tensor/kernel.h"
#include "tensor/op.h"

namespace pg::cpu {

// What happens to a finished result: the activation of linear_act and conv_act, if the call is one of those.
class Finish {
 public:
  explicit Finish(const KernelArgs& args);
  void operator()(std::span<const View> out) const;
  bool relu() const { return relu_; }

 private:
  const OpDef& op_;
  Attrs attrs_;
  bool activates_, relu_;
};

// Of (x, w, bias): y[m, n] = x[m, k] * w[n, k]^T + bias[n]; row-major float32.
std::unique_ptr<const PreparedKernel> prepare_linear(int64_t m, int64_t n, int64_t k, bool bias, bool packs,
                                                     const Finish& finish);

// Of (x, w, bias), a convolution. Null where only packed weights would make a difference and there are none.
std::unique_ptr<const PreparedKernel> prepare_conv(const ConvShape& s, bool bias, bool packs, const Finish& finish);

// Of (dy, w) and of (x, dy). Null where the kernel is as good.
std::unique_ptr<const PreparedKernel> prepare_conv_gradient(const ConvShape& s, ConvPart part);

}  // namespace pg::cpu
