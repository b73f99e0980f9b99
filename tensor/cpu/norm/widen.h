// Runs float32 kernels on float16 and bfloat16 tensors, through float copies.
#pragma once
#include "tensor/kernel.h"

namespace pg::cpu {

// Calls `kernel` with float32 copies in place of float16 and bfloat16 arrays, and rounds the results back once. Inputs
// must be contiguous.
void run_widened(const KernelArgs& args, KernelFn kernel);

}  // namespace pg::cpu
