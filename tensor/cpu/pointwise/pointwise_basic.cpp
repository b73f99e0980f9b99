// Span kernels of arithmetic, comparisons, logic and rounding, and the conversions between dtypes: plain loops that
// the compiler vectorises for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise/pointwise_basic.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/pointwise/spans-inl.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace f = formulas;

static constexpr auto kRows = span_rows<f::Basic>(0, f::BasicFormulas());
static_assert(kRows.size() <= kMaxSpans);
std::span<const SpanRow> basic_table() { return kRows; }

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
  using Read = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;  // see unary_span
  const Read* in = static_cast<const Read*>(from);
  To* out = static_cast<To*>(to);
  if (stride == 1) {
    const int64_t done = convert_vectors(n, in, out);
    PERIGEE_INDEPENDENT
    for (int64_t i = done; i < n; ++i) out[i] = f::convert_one<To>(static_cast<From>(in[i]));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = f::convert_one<To>(static_cast<From>(in[i * stride]));
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
