#include "tensor/dtype.h"

#include <cmath>
#include <limits>
#include <type_traits>

namespace pg {

Half::Half(float value) {
  const uint32_t f = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (f >> 16) & 0x8000, magnitude = f & 0x7fffffff;
  if (magnitude >= 0x7f800000) {  // infinity or NaN
    bits = uint16_t(sign | 0x7c00 | (magnitude > 0x7f800000 ? 0x200 : 0));
  } else if (magnitude >= 0x477ff000) {  // rounds beyond 65504
    bits = uint16_t(sign | 0x7c00);
  } else if (magnitude < 0x38800000) {  // subnormal: let float addition round
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  } else {
    const uint32_t odd = (magnitude >> 13) & 1;
    bits = uint16_t(sign | ((magnitude + 0xc8000fff + odd) >> 13));
  }
}

Half::operator float() const {
  const uint32_t sign = uint32_t(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
  if (magnitude >= 0x400) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000));
  const float small = float(magnitude) * 0x1p-24f;
  return sign ? -small : small;
}

BFloat16::BFloat16(float value) {
  const uint32_t f = std::bit_cast<uint32_t>(value);
  if ((f & 0x7fffffff) > 0x7f800000)
    bits = uint16_t((f >> 16) | 0x40);
  else
    bits = uint16_t((f + 0x7fff + ((f >> 16) & 1)) >> 16);
}

static constexpr const char* kNames[kDTypeCount] = {"bool",    "uint8",    "int8",    "int32",  "int64",
                                                    "float16", "bfloat16", "float32", "float64"};

const char* name_of(DType t) { return kNames[int(t)]; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name == kNames[i]) return DType(i);
  return std::nullopt;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  const DType low = a < b ? a : b, high = a < b ? b : a;
  if (low == DType::kUInt8 && high == DType::kInt8) return DType::kInt32;
  if (low == DType::kFloat16 && high == DType::kBFloat16) return DType::kFloat32;
  return high;
}

// The least number that rounds to infinity.
static double overflow_of(DType t) {
  if (t == DType::kFloat16) return 0x1.ffep15;
  if (t == DType::kBFloat16) return 0x1.ffp127;
  return t == DType::kFloat32 ? 0x1.ffffffp127 : std::numeric_limits<double>::infinity();
}

bool holds(DType t, double number) {
  switch (t) {
    case DType::kBool:
      return number == 0 || number == 1;
    case DType::kUInt8:
      return number >= 0 && number <= 255 && number == std::floor(number);
    case DType::kInt8:
      return number >= -128 && number <= 127 && number == std::floor(number);
    case DType::kInt32:
      return number >= -0x1p31 && number < 0x1p31 && number == std::floor(number);
    case DType::kInt64:
      return number >= -0x1p63 && number < 0x1p63 && number == std::floor(number);
    default:
      return !std::isfinite(number) || std::fabs(number) < overflow_of(t);
  }
}

std::optional<DType> promote_number(DType t, double number) {
  if (is_float(t)) return t;
  const bool whole = number == std::floor(number) && std::isfinite(number);
  if (!whole) return DType::kFloat32;
  const DType target = t == DType::kBool ? DType::kInt64 : t;
  if (!holds(target, number)) return std::nullopt;
  return target;
}

double load_number(DType t, const void* at) {
  return visit_dtype(t, [&](auto tag) { return double(*static_cast<const typename decltype(tag)::type*>(at)); });
}

static int64_t saturated(double number) {
  if (number != number) return 0;
  return number >= 0x1p63 ? INT64_MAX : number <= -0x1p63 ? INT64_MIN : int64_t(number);
}

void store_number(DType t, void* at, double number) {
  visit_dtype(t, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>)
      *static_cast<T*>(at) = number != 0;
    else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>)
      *static_cast<T*>(at) = T(float(number));
    else if constexpr (std::is_integral_v<T>)
      *static_cast<T*>(at) = T(saturated(number));
    else
      *static_cast<T*>(at) = T(number);
  });
}

}  // namespace pg
