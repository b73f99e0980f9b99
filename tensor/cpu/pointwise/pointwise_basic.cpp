// Span kernels of arithmetic, comparisons, logic and rounding, and the conversions between dtypes: plain loops that
// the compiler vectorises for each instruction set.
#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/pointwise_basic.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/spans-inl.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace f = formulas;

// Powers with a common scalar exponent are products.
template <class T>
void pow_span(int64_t n, void* out, const void* const* in, uint32_t scalars, const double* params) {
  if (scalars == 2) {
    const double exponent = double(*static_cast<const T*>(in[1]));
    if (exponent == 2) return unary_span<f::Square, T>(n, out, in, 0, params);
    if (exponent == 3) return unary_span<f::Cube, T>(n, out, in, 0, params);
    if (exponent == 0.5) return unary_span<f::Sqrt, T>(n, out, in, 0, params);
    if (exponent == -1) return unary_span<f::Reciprocal, T>(n, out, in, 0, params);
  }
  binary_span<f::Pow, T>(n, out, in, scalars, params);
}

constexpr auto basic_rows() {
  auto rows = span_rows<f::Basic>(0, f::BasicFormulas());
  static_assert(rows.size() <= kMaxSpans);
  for (SpanRow& row : rows) {
    if (std::string_view(row.op) != "pow") continue;
    row.fn[int(DType::kFloat32)] = pow_span<float>;
    row.fn[int(DType::kFloat64)] = pow_span<double>;
  }
  return rows;
}
static constexpr auto kRows = basic_rows();
std::span<const SpanRow> basic_table() { return kRows; }

// Half and BFloat16 with inline conversions.
HWY_INLINE float widen(Half h) {
  const uint32_t magnitude = h.bits & 0x7fffu, sign = uint32_t(h.bits & 0x8000u) << 16;
  const uint32_t shifted = magnitude << 13;
  // Multiplying by 2^112 moves the exponent, subnormals included.
  const float scaled = std::bit_cast<float>(shifted) * 0x1p112f;
  const uint32_t finite = std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(sign | (magnitude >= 0x7c00u ? shifted | 0x7f800000u : finite));
}
HWY_INLINE float widen(BFloat16 b) { return std::bit_cast<float>(uint32_t(b.bits) << 16); }
template <class T>
HWY_INLINE T widen(T v) {
  return v;
}

HWY_INLINE Half narrow_half(float value) {
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
HWY_INLINE BFloat16 narrow_bfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  BFloat16 b;
  b.bits = uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
  return b;
}

template <class To, class From>
HWY_INLINE To convert_one(From from) {
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

// Converts whole vectors of halves by the processor's instruction. Returns the number of converted elements.
HWY_INLINE int64_t convert_vectors(int64_t n, const Half* from, float* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_halves(d, reinterpret_cast<const uint16_t*>(from + i)), d, to + i);
  return i;
}
HWY_INLINE int64_t convert_vectors(int64_t n, const float* from, Half* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store_halves(d, hn::LoadU(d, from + i), reinterpret_cast<uint16_t*>(to + i));
  return i;
}
template <class From, class To>
HWY_INLINE int64_t convert_vectors(int64_t, const From*, To*) {
  return 0;
}

template <class From, class To>
void convert_span(int64_t n, const void* from, int64_t stride, void* to) {
  const From* in = static_cast<const From*>(from);
  To* out = static_cast<To*>(to);
  if (stride == 1) {
    const int64_t done = convert_vectors(n, in, out);
    PERIGEE_INDEPENDENT
    for (int64_t i = done; i < n; ++i) out[i] = convert_one<To>(in[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = convert_one<To>(in[i * stride]);
  }
}

ConvertFn converter_table(DType from, DType to) {
  return visit_dtype(from, [&](auto f) {
    return visit_dtype(
        to, [&](auto t) -> ConvertFn { return convert_span<typename decltype(f)::type, typename decltype(t)::type>; });
  });
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(basic_table);
HWY_EXPORT(converter_table);
std::span<const SpanRow> basic_spans() { return HWY_DYNAMIC_DISPATCH(basic_table)(); }
ConvertFn converter(DType from, DType to) { return HWY_DYNAMIC_DISPATCH(converter_table)(from, to); }
}  // namespace pg::cpu
#endif
