// The arguments of kernels/reflect.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

constexpr int kReflectThreads = 32;

// Column-major matrices of m rows, `step` elements apart, and `reflectors` factors tau for each.
struct ReflectArgs {
  void *a, *tau;
  int64_t m, n, step, reflectors;
};

}  // namespace pg::kernels
