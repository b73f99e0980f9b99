// Span kernels of elementary functions and activations: in vectors where speed matters, the rest by libm.
#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/pointwise_math.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/math_formulas-inl.h"
#include "tensor/cpu/pointwise/spans-inl.h"

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
    if (exponent == 0.5) return unary_span<f::Root, T>(n, out, in, 0, params);
    if (exponent == -1) return unary_span<f::Reciprocal, T>(n, out, in, 0, params);
  }
  simd_span<OnVectors<f::Pow>, T, 0, 1>(n, out, in, scalars, params);
}

constexpr auto math_rows() {
  auto rows = span_rows<f::Math>(kMaxSpans, f::MathFormulas());
  static_assert(rows.size() <= kMaxSpans);
  for (SpanRow& row : rows) {
    if (std::string_view(row.op) != "pow") continue;
    row.fn[int(DType::kFloat32)] = pow_span<float>;
    row.fn[int(DType::kFloat64)] = pow_span<double>;
  }
  return rows;
}
static constexpr auto kRows = math_rows();
std::span<const SpanRow> math_table() { return kRows; }

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(math_table);
std::span<const SpanRow> math_spans() { return HWY_DYNAMIC_DISPATCH(math_table)(); }
}  // namespace pg::cpu
#endif
