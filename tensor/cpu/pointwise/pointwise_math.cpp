// Span kernels of elementary functions and activations: float32 in vectors where speed matters, the rest by libm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/pointwise_math.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/math_formulas-inl.h"
#include "tensor/cpu/pointwise/spans-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {

static constexpr auto kRows = span_rows<formulas::Math>(kMaxSpans, formulas::MathFormulas());
static_assert(kRows.size() <= kMaxSpans);
std::span<const SpanRow> math_table() { return kRows; }

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(math_table);
std::span<const SpanRow> math_spans() { return HWY_DYNAMIC_DISPATCH(math_table)(); }
}  // namespace pg::cpu
#endif
