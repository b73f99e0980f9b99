// A driver of CUDA that runs on the host, for tests of the device without a GPU. It exports the functions of the
// driver, of NVRTC and of cuBLASLt that the device uses. Streams do their work late (tests/device/queue.h); the host
// cannot read device memory; kernels are compiled by the host's compiler and run as loops over the grid.
#pragma once
#include <cstddef>

// A float16 that converts to and from float.
#ifdef __clang__
using HostHalf = __fp16;
#else
using HostHalf = _Float16;
#endif

namespace fake {

int arch();  // of the devices: $PERIGEE_FAKE_ARCH

// Device memory: a part of an area that faults unless work of a stream runs.
void* allocate(size_t bytes);  // null: there is no room
void release(void* data);
size_t room();      // bytes that are free
size_t capacity();  // of the area

// Runs the threads of a grid. `kernel` is a function of on_host.h in the library `module`.
void run_grid(void* module, void (*kernel)(const void*), bool waits, unsigned blocks, unsigned threads,
              const void* argument);

// A failure that a test asked for with fake_fail: the status that the next call of this function returns, or 0.
int failure(const char* function);

}  // namespace fake

extern "C" {
// The calls of `function` from number `nth` on, counted from 1, return `status`; `times` of them.
void fake_fail(const char* function, int nth, int status, int times);
void fake_limit(size_t bytes);         // of device memory; 0: no limit
int fake_calls(const char* function);  // of the libraries, or launches of a kernel
void fake_backwards(int on);           // the threads of a grid run from the last to the first
}
