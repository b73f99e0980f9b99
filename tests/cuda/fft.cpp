// cuFFT by its definition, in the order of the stream.
#include <cufft.h>

#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "../device/queue.h"
#include "fake.h"

namespace {

struct Plan {
  cudaStream_t stream = nullptr;
  int type = -1;  // not made yet
  int64_t n = 0, in_stride = 0, in_distance = 0, out_stride = 0, out_distance = 0, batch = 0;
  bool automatic = true;
  size_t workspace = 0;
  void* area = nullptr;
};
std::mutex lock;
std::map<cufftHandle, Plan> plans;
cufftHandle last = 0;

using Complex = std::complex<double>;

Complex root(int64_t k, int64_t n) { return std::polar(1.0, -2 * M_PI * double(k) / double(n)); }

template <class T>
Complex load(const void* data, int64_t at, bool real) {
  const T* x = static_cast<const T*>(data);
  return real ? Complex(double(x[at])) : Complex(double(x[2 * at]), double(x[2 * at + 1]));
}

// The n points of a line of the input. Of half a spectrum, the imaginary parts that a real result cannot have are not
// ignored: callers must not leave any.
template <class T>
std::vector<Complex> line_of(const Plan& p, const void* in, int64_t line, bool real, bool half) {
  std::vector<Complex> x(size_t(p.n));
  const int64_t given = half ? p.n / 2 + 1 : p.n;
  for (int64_t j = 0; j < given; ++j) {
    x[size_t(j)] = load<T>(in, line * p.in_distance + j * p.in_stride, real);
    if (!half) continue;
    if (j == 0 || 2 * j == p.n)
      x[size_t(j)] += x[size_t(j)].imag();
    else
      x[size_t(p.n - j)] = std::conj(x[size_t(j)]);
  }
  return x;
}

template <class T>
void transform(const Plan& p, bool from_real, bool to_real, bool inverse, void* in, void* out) {
  std::vector<Complex> roots(size_t(p.n));
  for (int64_t k = 0; k < p.n; ++k) roots[size_t(k)] = inverse ? std::conj(root(k, p.n)) : root(k, p.n);
  for (int64_t line = 0; line < p.batch; ++line) {
    const std::vector<Complex> x = line_of<T>(p, in, line, from_real, to_real);
    for (int64_t k = 0; k < (from_real ? p.n / 2 + 1 : p.n); ++k) {
      Complex sum = 0;
      for (int64_t j = 0; j < p.n; ++j) sum += x[size_t(j)] * roots[size_t(j * k % p.n)];
      const int64_t at = line * p.out_distance + k * p.out_stride;
      T* to = static_cast<T*>(out);
      if (to_real) {
        to[at] = T(sum.real());
      } else {
        to[2 * at] = T(sum.real()), to[2 * at + 1] = T(sum.imag());
      }
    }
  }
  if (!to_real || in == out) return;
  for (int64_t line = 0; line < p.batch; ++line)  // the input of these transforms may be overwritten
    for (int64_t j = 0; j < p.n / 2 + 1; ++j)
      static_cast<T*>(in)[2 * (line * p.in_distance + j * p.in_stride)] = T(NAN);
}

bool is_gone(cufftHandle handle) {
  const std::lock_guard hold(lock);
  return !plans.count(handle);
}

cufftResult run(cufftHandle handle, int type, bool inverse, void* in, void* out) {
  const std::lock_guard hold(lock);
  const auto found = plans.find(handle);
  if (found == plans.end() || found->second.type < 0) return CUFFT_INVALID_PLAN;
  const Plan p = found->second;
  const bool wide = type == CUFFT_Z2Z || type == CUFFT_D2Z || type == CUFFT_Z2D;
  if (p.type != type || !in || !out) return CUFFT_INVALID_VALUE;
  const uintptr_t pair = wide ? 16 : 8;
  if (reinterpret_cast<uintptr_t>(in) % pair || reinterpret_cast<uintptr_t>(out) % pair) return CUFFT_INVALID_VALUE;
  if (!p.area || p.automatic) return CUFFT_NO_WORKSPACE;
  const bool from_real = type == CUFFT_R2C || type == CUFFT_D2Z, to_real = type == CUFFT_C2R || type == CUFFT_Z2D;
  queue::add(p.stream, [=] {
    std::memset(p.area, 0xff, p.workspace);
    if (is_gone(handle)) return void(std::memset(out, 0xff, wide ? 8 : 4));  // with its tables
    (wide ? transform<double> : transform<float>)(p, from_real, to_real, inverse || to_real, in, out);
  });
  return CUFFT_SUCCESS;
}

template <class F>
cufftResult change(cufftHandle handle, F f) {
  const std::lock_guard hold(lock);
  const auto found = plans.find(handle);
  return found == plans.end() ? CUFFT_INVALID_PLAN : f(found->second);
}

}  // namespace

#define FAKE(function) \
  if (const int failed = fake::failure(#function)) return cufftResult(failed)
#define EXEC(Name, type, From, To)                                \
  cufftResult cufftExec##Name(cufftHandle p, From* in, To* out) { \
    FAKE(cufftExec##Name);                                        \
    return run(p, type, false, in, out);                          \
  }
#define EXEC_BOTH(Name, type, Pair)                                                \
  cufftResult cufftExec##Name(cufftHandle p, Pair* in, Pair* out, int direction) { \
    FAKE(cufftExec##Name);                                                         \
    return run(p, type, direction == CUFFT_INVERSE, in, out);                      \
  }

#pragma GCC visibility push(default)
extern "C" {

cufftResult cufftCreate(cufftHandle* made) {
  FAKE(cufftCreate);
  const std::lock_guard hold(lock);
  plans[*made = ++last] = {};
  return CUFFT_SUCCESS;
}
cufftResult cufftDestroy(cufftHandle gone) {
  FAKE(cufftDestroy);
  queue::drain();  // as freeing memory does
  const std::lock_guard hold(lock);
  return plans.erase(gone) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}
cufftResult cufftSetStream(cufftHandle p, cudaStream_t stream) {
  return change(p, [=](Plan& plan) { return plan.stream = stream, CUFFT_SUCCESS; });
}
cufftResult cufftSetAutoAllocation(cufftHandle p, int on) {
  return change(p, [=](Plan& plan) {
    if (plan.type >= 0) return CUFFT_INVALID_PLAN;  // too late: memory was allocated
    return plan.automatic = on, CUFFT_SUCCESS;
  });
}
cufftResult cufftSetWorkArea(cufftHandle p, void* area) {
  return change(p, [=](Plan& plan) { return plan.area = area, CUFFT_SUCCESS; });
}
cufftResult cufftMakePlanMany64(cufftHandle p, int rank, long long* n, long long* in_sizes, long long in_stride,
                                long long in_distance, long long* out_sizes, long long out_stride,
                                long long out_distance, cufftType type, long long batch, size_t* workspace) {
  FAKE(cufftMakePlanMany64);
  if (rank != 1 || n[0] < 1 || batch < 1) return CUFFT_INVALID_SIZE;
  if (!in_sizes || !out_sizes || in_stride < 1 || out_stride < 1 || in_distance < 1 || out_distance < 1)
    return CUFFT_INVALID_VALUE;
  return change(p, [=](Plan& plan) {
    if (plan.type >= 0) return CUFFT_INVALID_PLAN;
    const cudaStream_t stream = plan.stream;
    plan = {stream,     type,         n[0],  in_stride,      in_distance,
            out_stride, out_distance, batch, plan.automatic, size_t(n[0]) * 16};
    return *workspace = plan.workspace, CUFFT_SUCCESS;
  });
}
EXEC_BOTH(C2C, CUFFT_C2C, cufftComplex)
EXEC_BOTH(Z2Z, CUFFT_Z2Z, cufftDoubleComplex)
EXEC(R2C, CUFFT_R2C, cufftReal, cufftComplex)
EXEC(D2Z, CUFFT_D2Z, cufftDoubleReal, cufftDoubleComplex)
EXEC(C2R, CUFFT_C2R, cufftComplex, cufftReal)
EXEC(Z2D, CUFFT_Z2D, cufftDoubleComplex, cufftDoubleReal)

}  // extern "C"
#pragma GCC visibility pop
