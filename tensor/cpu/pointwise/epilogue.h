// The activation at the end of linear_act and conv_act.
#pragma once
#include "tensor/kernel.h"

namespace pg::cpu {

// Whether the call asks for relu, which the products do themselves.
bool asks_relu(const KernelArgs& args);

// Applies the activation of the call's attributes to its output in place, with the bits that the op of that name gives.
void activate(const KernelArgs& args);

// y[i] = relu(y[i]); NaN stays.
template <class T>
void rectify(int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = y[i] <= T(0) ? T(0) : y[i];
}

}  // namespace pg::cpu
