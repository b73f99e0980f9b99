// Lets a host compiler build CUDA sources of perigee. A kernel `name` becomes a function of the address of its
// argument, which runs one thread. The caller sets the position of the thread, and the function that waits for the
// other threads of the block. Blocks run one after the other.
#pragma once
#include <math.h>
#include <stddef.h>

#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define PERIGEE_FMA(a, b, c) ((a) * (b) + (c))
struct Position {
  unsigned x;
};
struct HostKernel {
  size_t bytes;  // of the argument
  int waits;     // whether threads of a block wait for each other
};
extern "C" {
Position threadIdx, blockIdx, blockDim, gridDim;
void (*wait_for_block)();
}

inline void __syncthreads() { wait_for_block(); }
inline void __threadfence_system() {}
template <class T>
T atomicCAS(T* at, T expected, T next) {
  const T old = *at;
  if (old == expected) *at = next;
  return old;
}
template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = T(old + value);
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  if (value > old) *at = value;
  return old;
}
template <class T>
T atomicMin(T* at, T value) {
  const T old = *at;
  if (value < old) *at = value;
  return old;
}

#define PERIGEE_UNROLL
#define PERIGEE_HOST_KERNEL(name, waits, ...)                                                               \
  static void thread_##name(const __VA_ARGS__& a);                                                          \
  extern "C" void name(const void* argument) { thread_##name(*static_cast<const __VA_ARGS__*>(argument)); } \
  extern "C" const HostKernel kernel_##name = {sizeof(__VA_ARGS__), waits};                                 \
  static void thread_##name(const __VA_ARGS__& a)
#define PERIGEE_KERNEL(name, ...) PERIGEE_HOST_KERNEL(name, 0, __VA_ARGS__)
#define PERIGEE_BLOCK_KERNEL(name, ...) PERIGEE_HOST_KERNEL(name, 1, __VA_ARGS__)
