// Fused kernels are written for float and double; tensors of float16 and bfloat16 go through float copies.
#pragma once
#include "tensor/kernel.h"

namespace pg::cpu {

// Calls `kernel` with args in which float16 and bfloat16 arrays are float32; results are rounded back once.
// Inputs must be contiguous.
void run_widened(const KernelArgs& args, KernelFn kernel);

}  // namespace pg::cpu
