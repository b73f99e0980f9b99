#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/half_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/half_simd.h"

#include <bit>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void widen_half(const Half* from, float* to, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2  // which have the instruction; elsewhere the scalar conversion is as good
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> dh;
  const int64_t lanes = hn::Lanes(d);
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from + i))), d, to + i);
#endif
  for (; i < n; ++i) to[i] = from[i];
}

void narrow_half(const float* from, Half* to, int64_t n) {
  int64_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, hn::ScalableTag<float>> dh;
  const int64_t lanes = hn::Lanes(d);
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh, reinterpret_cast<hwy::float16_t*>(to + i));
#endif
  for (; i < n; ++i) to[i] = Half(from[i]);
}

void widen_bfloat(const BFloat16* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(uint32_t(from[i].bits) << 16);
}

// Rounds to nearest even; NaN stays NaN.
void narrow_bfloat(const float* from, BFloat16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(from[i]);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    to[i].bits = uint16_t((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(widen_half);
HWY_EXPORT(narrow_half);
HWY_EXPORT(widen_bfloat);
HWY_EXPORT(narrow_bfloat);
void to_float(const Half* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(widen_half)(from, to, n); }
void to_float(const BFloat16* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(widen_bfloat)(from, to, n); }
void from_float(const float* from, Half* to, int64_t n) { HWY_DYNAMIC_DISPATCH(narrow_half)(from, to, n); }
void from_float(const float* from, BFloat16* to, int64_t n) { HWY_DYNAMIC_DISPATCH(narrow_bfloat)(from, to, n); }
}  // namespace pg::cpu
#endif
