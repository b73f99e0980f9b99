#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gemm/integers_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/gemm/integers_simd.h"

#include <algorithm>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/move/index.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {

// Four rows of b at a time, over columns that stay in the cache. T is unsigned, which wraps around as two's complement.
template <class T>
void multiply_row(int64_t n, int64_t k, const T* a, int64_t a_step, const T* b, int64_t b_row, T* c) {
  constexpr int64_t kColumns = 1024;
  for (int64_t first = 0; first < n; first += kColumns) {
    const int64_t count = std::min(kColumns, n - first);
    T* to = c + first;
    std::fill_n(to, count, T(0));
    int64_t l = 0;
    for (; l + 4 <= k; l += 4) {
      const T u = a[l * a_step], v = a[(l + 1) * a_step], w = a[(l + 2) * a_step], z = a[(l + 3) * a_step];
      const T *p = b + l * b_row + first, *q = p + b_row, *r = q + b_row, *s = r + b_row;
      PERIGEE_INDEPENDENT
      for (int64_t j = 0; j < count; ++j) to[j] = T(to[j] + u * p[j] + v * q[j] + w * r[j] + z * s[j]);
    }
    for (; l < k; ++l) {
      const T u = a[l * a_step], *p = b + l * b_row + first;
      PERIGEE_INDEPENDENT
      for (int64_t j = 0; j < count; ++j) to[j] = T(to[j] + u * p[j]);
    }
  }
}

void multiply(int size, int64_t n, int64_t k, const void* a, int64_t a_step, const void* b, int64_t b_row, void* c) {
  visit_size(size, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) != 2)  // no integer dtype has two bytes
      multiply_row(n, k, static_cast<const T*>(a), a_step, static_cast<const T*>(b), b_row, static_cast<T*>(c));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(multiply);
void multiply_integers(int size, int64_t n, int64_t k, const void* a, int64_t a_step, const void* b, int64_t b_row,
                       void* c) {
  HWY_DYNAMIC_DISPATCH(multiply)(size, n, k, a, a_step, b, b_row, c);
}
}  // namespace pg::cpu
#endif
