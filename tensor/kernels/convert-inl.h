// Conversions of one element between dtypes. Included as values-inl.h is; pg::Half and pg::BFloat16 are declared
// before.
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace PERIGEE_FORMULAS {

PERIGEE_FORMULA_INLINE float widen(Half h) {
  const uint32_t magnitude = h.bits & 0x7fffu, sign = uint32_t(h.bits & 0x8000u) << 16;
  const uint32_t shifted = magnitude << 13;
  // Multiplying by 2^112 moves the exponent, subnormals included.
  const float scaled = std::bit_cast<float>(shifted) * 0x1p112f;
  const uint32_t finite = std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? shifted | 0x7f800000u : finite));
}
PERIGEE_FORMULA_INLINE float widen(BFloat16 b) { return std::bit_cast<float>(uint32_t(b.bits) << 16); }
template <class T>
PERIGEE_FORMULA_INLINE T widen(T v) {
  return v;
}

PERIGEE_FORMULA_INLINE Half narrow_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude + 0xc8000fffu + odd) >> 13;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0u);
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  Half h;
  h.bits = uint16_t(((bits >> 16) & 0x8000u) | (magnitude >= 0x477ff000u ? special : finite));
  return h;
}
PERIGEE_FORMULA_INLINE BFloat16 narrow_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  BFloat16 b;
  b.bits = uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
  return b;
}

template <class To, class From>
PERIGEE_FORMULA_INLINE To convert_one(From from) {
  const auto v = widen(from);
  using V = std::remove_const_t<decltype(v)>;
  if constexpr (std::is_same_v<To, Half>) {
    return narrow_half(float(v));
  } else if constexpr (std::is_same_v<To, BFloat16>) {
    return narrow_bfloat16(float(v));
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != V(0);
  } else if constexpr (std::is_floating_point_v<V> && std::is_integral_v<To>) {
    constexpr V low = V(std::numeric_limits<To>::min()), high = -low + V(std::is_signed_v<To> ? 0 : 256);
    static_assert(std::is_signed_v<To> || sizeof(To) == 1);
    if (v != v) return To(0);
    return v <= low ? std::numeric_limits<To>::min() : v >= high ? std::numeric_limits<To>::max() : To(v);
  } else {
    return To(v);
  }
}

}  // namespace PERIGEE_FORMULAS
