// The functions of CUDA's driver that the device uses.
#pragma once
#include <cuda.h>

#include "tensor/cuda/library.h"

// clang-format off
#define PERIGEE_DRIVER_FUNCTIONS(F) \
  F(cuInit) F(cuDriverGetVersion) F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetName) \
  F(cuDeviceGetAttribute) F(cuDevicePrimaryCtxRetain) F(cuCtxSetCurrent) F(cuGetErrorString) \
  F(cuStreamCreate) F(cuStreamDestroy) F(cuStreamSynchronize) F(cuStreamWaitEvent) F(cuEventCreate) \
  F(cuEventDestroy) F(cuEventRecord) F(cuEventSynchronize) F(cuMemAlloc) F(cuMemFree) F(cuMemGetInfo) \
  F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemcpyHtoDAsync) F(cuMemcpyDtoHAsync) F(cuMemcpyDtoDAsync) \
  F(cuMemcpyPeerAsync) F(cuMemsetD8Async) F(cuModuleLoadData) F(cuModuleGetFunction) F(cuLaunchKernel) \
  F(cuStreamBeginCapture) F(cuStreamEndCapture) F(cuGraphCreate) F(cuGraphGetNodes) F(cuGraphAddChildGraphNode) \
  F(cuGraphInstantiate) F(cuGraphExecChildGraphNodeSetParams) F(cuGraphLaunch) F(cuGraphExecDestroy) F(cuGraphDestroy)
// clang-format on

namespace pg::cuda {

PERIGEE_CUDA_TABLE(Driver, PERIGEE_DRIVER_FUNCTIONS, check_driver)

// Opens the driver at the first call. A failed try is repeated by the next call.
const Driver& driver();

}  // namespace pg::cuda
