// Sums and products of elements outside formulas, with the same results: integers wrap around, bools are or and and,
// half types round once.
#pragma once
#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

namespace pg::cpu {

template <class T>
[[gnu::always_inline]] inline T wrapped_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(uint64_t(a) + uint64_t(b));
  else if constexpr (std::is_floating_point_v<T>)
    return a + b;
  else
    return T(float(a) + float(b));
}

template <class T>
[[gnu::always_inline]] inline T wrapped_product(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return T(uint64_t(a) * uint64_t(b));
  else if constexpr (std::is_floating_point_v<T>)
    return a * b;
  else
    return T(float(a) * float(b));
}

}  // namespace pg::cpu
