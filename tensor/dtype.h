// Element types, their C++ representations and the promotion rules of the script API (section 1).
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace pg {

// Within a kind (integers, floats) in the order of promotion.
enum class DType : uint8_t { kBool, kUInt8, kInt8, kInt32, kInt64, kFloat16, kBFloat16, kFloat32, kFloat64 };
inline constexpr int kDTypeCount = 9;

// IEEE binary16. Arithmetic is done in float.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  operator float() const;
};

// The upper half of a float, rounded to nearest even.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

constexpr int size_of(DType t) {
  constexpr int sizes[kDTypeCount] = {1, 1, 1, 4, 8, 2, 2, 4, 8};
  return sizes[int(t)];
}
constexpr bool is_float(DType t) { return t >= DType::kFloat16; }
constexpr bool is_half(DType t) { return t == DType::kFloat16 || t == DType::kBFloat16; }
constexpr bool is_integer(DType t) { return t >= DType::kUInt8 && t <= DType::kInt64; }  // false for bool
const char* name_of(DType t);
std::optional<DType> dtype_from_name(std::string_view name);

// Returns the dtype of an operation on two tensors. For numbers, which are weak, see promote_number.
DType promote(DType a, DType b);

// Whether the integer or bool dtype t represents `number` exactly.
bool holds(DType t, double number);

// Returns the dtype of an operation on a tensor of dtype t and a Lua number. Returns nullopt when t is an integer dtype
// and the number is whole but does not fit.
std::optional<DType> promote_number(DType t, double number);

// The dtype of float results (division, mean, elementary functions) for operands of dtype t.
constexpr DType float_result(DType t) { return is_float(t) ? t : DType::kFloat32; }
// The dtype in which kernels of single elements compute.
constexpr DType work_dtype(DType t) { return is_half(t) ? DType::kFloat32 : t; }

template <class T>
struct TypeTag {
  using type = T;
};

// Calls f(TypeTag<T>{}) with the C++ type of t. bool is stored as one byte, 0 or 1.
template <class F>
decltype(auto) visit_dtype(DType t, F&& f) {
  switch (t) {
    case DType::kBool:
      return f(TypeTag<bool>{});
    case DType::kUInt8:
      return f(TypeTag<uint8_t>{});
    case DType::kInt8:
      return f(TypeTag<int8_t>{});
    case DType::kInt32:
      return f(TypeTag<int32_t>{});
    case DType::kInt64:
      return f(TypeTag<int64_t>{});
    case DType::kFloat16:
      return f(TypeTag<Half>{});
    case DType::kBFloat16:
      return f(TypeTag<BFloat16>{});
    case DType::kFloat32:
      return f(TypeTag<float>{});
    default:
      return f(TypeTag<double>{});
  }
}

// Read or write one element of dtype t. Writing to an integer truncates to 64 bits, with saturation and 0 for
// NaN, and then wraps.
double load_number(DType t, const void* at);
void store_number(DType t, void* at, double number);

}  // namespace pg
