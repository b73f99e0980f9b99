// What the parts of the fake driver share.
#pragma once
#include <cuda.h>

#include "fake.h"

#define FAKE(function) \
  if (const int failed = fake::failure(#function)) return CUresult(failed)

namespace fake {

// The module of the kernel that sets the value of a condition. Only graphs run it.
CUmodule condition_module();
CUfunction condition_kernel();

}  // namespace fake
