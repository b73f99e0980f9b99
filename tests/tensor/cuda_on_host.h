// Lets a host compiler build the sources of tensor/kernels/cuda_source.h. The caller sets the position of the thread.
#pragma once
#include <math.h>

#define __device__
#define __global__
struct Position {
  unsigned x;
};
extern "C" {
Position threadIdx, blockIdx, blockDim, gridDim;
}
