// Prepared kernels of the CPU (PreparedKernel) around primitives of oneDNN.
#pragma once
#include <memory>

#include "tensor/cpu/conv.h"
#include "tensor/kernel.h"
#include "tensor/op.h"

namespace pg::cpu {

// What happens to a finished result: the activation of linear_act and conv_act, if the call is one of those.
class Finish {
 public:
  explicit Finish(const KernelArgs& args);
  void operator()(std::span<const View> out) const;

 private:
  const OpDef& op_;
  Attrs attrs_;
  bool activates_, relu_;
};

// Of (x, w, bias): y[m, n] = x[m, k] * w[n, k]^T + bias[n]; row-major float32. Null where the kernel computes with something
// else than a primitive.
std::unique_ptr<const PreparedKernel> prepare_linear(int64_t m, int64_t n, int64_t k, bool bias, bool packs, const Finish& finish);

// Of (x, w, bias), a convolution; only with packed weights.
std::unique_ptr<const PreparedKernel> prepare_conv(const ConvShape& s, bool bias, const Finish& finish);

}  // namespace pg::cpu
