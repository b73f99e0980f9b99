// The activation at the end of linear_act and conv_act.
#pragma once
#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/kernel.h"

namespace pg::cpu {

// Whether the call asks for relu, which the products do themselves.
bool asks_relu(const KernelArgs& args);

// The activation of a call's attributes, with the bits that the op of that name gives.
class Activation {
 public:
  explicit Activation(const KernelArgs& args);
  void operator()(const View& y) const;        // in place
  void operator()(int64_t n, float* y) const;  // the same for a part, only on this thread
 private:
  const OpDef* op_;
  Attrs attrs_;
  const SpanRow& row_;
  double params_[kMaxSpanParams] = {};
};

// y[i] = relu(y[i]); NaN stays.
template <class T>
void rectify(int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] <= T(0) ? T(0) : y[i];
}

}  // namespace pg::cpu
