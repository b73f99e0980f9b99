// Templates that make span kernels out of functors, compiled once per target. Include after highway.h.
#if defined(PERIGEE_SPANS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_SPANS_INL_H
#undef PERIGEE_SPANS_INL_H
#else
#define PERIGEE_SPANS_INL_H
#endif

#include <array>
#include <type_traits>
#include <utility>

#include "hwy/highway.h"
#include "tensor/cpu/loops.h"
#include "tensor/cpu/pointwise/formulas-inl.h"
#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class F>
HWY_INLINE F make_functor(const double* params) {
  if constexpr (std::is_constructible_v<F, const double*>)
    return F(params);
  else
    return F{};
}

template <class R>
HWY_INLINE void fill_span(int64_t n, R* out, R value) {
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}

// Outputs alias inputs element for element or not at all, hence ivdep.
template <class F, class T>
void unary_span(int64_t n, void* to, const void* const* in, uint32_t scalars, const double* params) {
  const F f = make_functor<F>(params);
  const T* x = static_cast<const T*>(in[0]);
  using R = decltype(f(*x));
  R* out = static_cast<R*>(to);
  if (scalars) return fill_span<R>(n, out, f(*x));
  using Read = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;  // GCC makes no vectors of !x of loaded bools
  const Read* from = static_cast<const Read*>(in[0]);
  PERIGEE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = f(static_cast<T>(from[i]));
}

template <class F, class T>
void binary_span(int64_t n, void* to, const void* const* in, uint32_t scalars, const double* params) {
  const F f = make_functor<F>(params);
  const T* x = static_cast<const T*>(in[0]);
  const T* y = static_cast<const T*>(in[1]);
  using R = decltype(f(*x, *y));
  R* out = static_cast<R*>(to);
  if (scalars == 0) {
    PERIGEE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = f(x[i], y[i]);
  } else if (scalars == 2) {
    const T b = *y;
    PERIGEE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = f(x[i], b);
  } else if (scalars == 1) {
    const T a = *x;
    PERIGEE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = f(a, y[i]);
  } else {
    fill_span<R>(n, out, f(*x, *y));
  }
}

template <bool scalar, class T>
HWY_INLINE T pick(const T* p, int64_t i) {
  return p[scalar ? 0 : i];
}

template <class F, class C, class T, uint32_t scalars>
void ternary_loop(int64_t n, void* to, const void* const* in, const double* params) {
  const F f = make_functor<F>(params);
  const C* c = static_cast<const C*>(in[0]);
  const T* x = static_cast<const T*>(in[1]);
  const T* y = static_cast<const T*>(in[2]);
  T* out = static_cast<T*>(to);
  PERIGEE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i)
    out[i] = f(pick<(scalars & 1) != 0>(c, i), pick<(scalars & 2) != 0>(x, i), pick<(scalars & 4) != 0>(y, i));
}

// C is the type of the first input: T, or bool for a condition.
template <class F, class C, class T>
void ternary_span(int64_t n, void* out, const void* const* in, uint32_t scalars, const double* params) {
  static constexpr void (*kLoops[8])(int64_t, void*, const void* const*, const double*) = {
      ternary_loop<F, C, T, 0>, ternary_loop<F, C, T, 1>, ternary_loop<F, C, T, 2>, ternary_loop<F, C, T, 3>,
      ternary_loop<F, C, T, 4>, ternary_loop<F, C, T, 5>, ternary_loop<F, C, T, 6>, ternary_loop<F, C, T, 7>};
  kLoops[scalars](n, out, in, params);
}

// With a sanitizer's checks GCC takes minutes for formulas that are inlined ten times each.
#undef PERIGEE_INLINE_FORMULA
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PERIGEE_INLINE_FORMULA HWY_NOINLINE
#else
#define PERIGEE_INLINE_FORMULA HWY_INLINE
#endif

// A formula as a function of vectors; Value is what their lanes mean.
template <class F, template <class> class Value = formulas::Lanes>
struct OnVectors {
  F f;
  explicit OnVectors(const double* params) : f(make_functor<F>(params)) {}
  template <class D, class... V>
  PERIGEE_INLINE_FORMULA hn::Vec<D> operator()(D, V... x) const {
    return formulas::raw(f(Value<D>{x}...));
  }
};

// G maps vectors of T. The last, partial vector runs through the same code as the others, so that a value gives the
// same bits anywhere.
template <class G, class T, size_t... k>
void simd_span(int64_t n, void* to, const void* const* in, uint32_t scalars, const double* params) {
  const G g = make_functor<G>(params);
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  T repeated[sizeof...(k)][HWY_MAX_BYTES / sizeof(T)];
  const T* from[sizeof...(k)];
  int64_t step[sizeof...(k)];  // 0 for a scalar, whose vector is read again and again
  for (size_t j = 0; j < sizeof...(k); ++j) {
    from[j] = static_cast<const T*>(in[j]);
    step[j] = scalars >> j & 1 ? 0 : 1;
    if (step[j]) continue;
    hn::StoreU(hn::Set(d, *from[j]), d, repeated[j]);
    from[j] = repeated[j];
  }
  T* out = static_cast<T*>(to);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(g(d, hn::LoadU(d, from[k] + i * step[k])...), d, out + i);
  if (i == n) return;
  store_part(d, g(d, load_part(d, from[k] + i * step[k], n - i)...), out + i, n - i);
}

template <class F, const FormulaRow& row, class T>
constexpr SpanFn span_of() {
  constexpr bool kFloating = std::is_floating_point_v<T>, kSimd = kFloating && row.simd;
  using Lanes = formulas::Lanes<hn::ScalableTag<std::conditional_t<kFloating, T, float>>>;
  if constexpr (row.inputs == 3 && !row.condition && kFloating && std::is_invocable_v<F, Lanes, Lanes, Lanes>)
    return simd_span<OnVectors<F>, T, 0, 1, 2>;
  else if constexpr (row.inputs == 2 && kSimd)
    return simd_span<OnVectors<F>, T, 0, 1>;
  else if constexpr (kSimd)
    return simd_span<OnVectors<F>, T, 0>;
  else if constexpr (row.inputs == 1)
    return unary_span<F, T>;
  else if constexpr (row.inputs == 2)
    return binary_span<F, T>;
  else
    return ternary_span<F, std::conditional_t<row.condition, bool, T>, T>;
}

template <class F, const FormulaRow& row>
constexpr SpanRow span_row(int index) {
  SpanRow out{row, {}, index};
  if constexpr (row.on_floats()) {
    out.fn[int(DType::kFloat32)] = span_of<F, row, float>();
    out.fn[int(DType::kFloat64)] = span_of<F, row, double>();
  }
  if constexpr (row.signs)
    out.fn[int(DType::kFloat16)] = out.fn[int(DType::kBFloat16)] = span_of<F, row, formulas::HalfBits>();
  if constexpr (row.on_integers()) {
    out.fn[int(DType::kUInt8)] = span_of<F, row, uint8_t>();
    out.fn[int(DType::kInt8)] = span_of<F, row, int8_t>();
    out.fn[int(DType::kInt32)] = span_of<F, row, int32_t>();
    out.fn[int(DType::kInt64)] = span_of<F, row, int64_t>();
  }
  if constexpr (row.on_bools()) out.fn[int(DType::kBool)] = span_of<F, row, bool>();
  return out;
}
// The rows of a list, of which the first one has the index `first`.
template <class List, int... k>
constexpr std::array<SpanRow, sizeof...(k)> span_rows(int first, std::integer_sequence<int, k...>) {
  return {span_row<typename formulas::Listed<List, k>::F, formulas::Listed<List, k>::row>(first + k)...};
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
