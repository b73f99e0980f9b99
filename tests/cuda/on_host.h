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
void (*wait_for_warp)();
}

inline void __syncthreads() { wait_for_block(); }

// Gives a value to the threads of the warp. Returns theirs by lane, which stay until the next call but one.
template <class T>
const T* over_warp(const T& value) {
  static T given[2][1024];
  static unsigned calls[1024];
  const unsigned thread = threadIdx.x;
  T* const all = given[calls[thread]++ % 2];
  all[thread] = value;
  wait_for_warp();
  return all + thread / 32 * 32;
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  const unsigned lane = threadIdx.x % 32;
  return over_warp(value)[lane ^ unsigned(mask)];
}

// mma.sync.m16n8k16: sums += a b for fragments as PTX lays them out. widen(bits) is the value of a half.
#define PERIGEE_HOST_WARP
struct Fragments {
  unsigned a[4], b[2];
};
template <class F>
void multiply_fragments(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, F widen) {
  const unsigned lane = threadIdx.x % 32;
  const Fragments* const of = over_warp(Fragments{{a[0], a[1], a[2], a[3]}, {b0, b1}});
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned row = lane / 4, column = lane % 4 * 2 + e % 2, below = e / 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned with = k % 8 / 2, shift = k % 2 * 16, right = k / 8;
      const unsigned x = of[row * 4 + with].a[below + 2 * right], y = of[column * 4 + with].b[right];
      sums[e] += widen(x >> shift & 0xffff) * widen(y >> shift & 0xffff);
    }
  }
}
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
#define PERIGEE_BOUNDED_KERNEL(name, threads, blocks, ...) PERIGEE_HOST_KERNEL(name, 1, __VA_ARGS__)
