#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/move/index_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/move/index_simd.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {

template <class I>
bool inside(const I* values, int64_t n, int64_t low, int64_t high, int64_t negative_low) {
  // Mostly no value is negative: then the distances from both ends decide, of which one has its sign bit set outside,
  // also where the other one wraps around.
  uint64_t outside = 0;
  for (int64_t i = 0; i < n; ++i) {
    const auto v = uint64_t(int64_t(values[i]));
    outside |= (v - uint64_t(low)) | (uint64_t(high) - v);
  }
  if (int64_t(outside) >= 0) return true;
  bool bad = false;  // the exact test
  for (int64_t i = 0; i < n; ++i) {
    const int64_t v = int64_t(values[i]);
    bad |= v > high || (v < low && (v >= 0 || v < negative_low));
  }
  return !bad;
}

bool check(DType dtype, const void* values, int64_t n, int64_t low, int64_t high, int64_t negative_low) {
  switch (dtype) {
    case DType::kUInt8:
      return inside(static_cast<const uint8_t*>(values), n, low, high, negative_low);
    case DType::kInt8:
      return inside(static_cast<const int8_t*>(values), n, low, high, negative_low);
    case DType::kInt32:
      return inside(static_cast<const int32_t*>(values), n, low, high, negative_low);
    default:
      return inside(static_cast<const int64_t*>(values), n, low, high, negative_low);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(check);
bool all_inside(DType dtype, const void* values, int64_t n, int64_t low, int64_t high, int64_t negative_low) {
  return HWY_DYNAMIC_DISPATCH(check)(dtype, values, n, low, high, negative_low);
}
}  // namespace pg::cpu
#endif
