// Templates that make span kernels out of functors, compiled once a target. Include after highway.h.
#if defined(PERIGEE_SPANS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_SPANS_INL_H
#undef PERIGEE_SPANS_INL_H
#else
#define PERIGEE_SPANS_INL_H
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "tensor/cpu/loops.h"
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
  PERIGEE_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
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

// G maps vectors of float. The last, partial vector runs through the same code as the others, so that a value gives the
// same bits anywhere.
template <class G>
void simd_span(int64_t n, void* to, const void* const* in, uint32_t scalars, const double* params) {
  const G g = make_functor<G>(params);
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const float* x = static_cast<const float*>(in[0]);
  float* out = static_cast<float*>(to);
  if (scalars) return fill_span<float>(n, out, hn::GetLane(g(d, hn::Set(d, *x))));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(g(d, hn::LoadU(d, x + i)), d, out + i);
  if (i == n) return;
  store_part(d, g(d, load_part(d, x + i, n - i)), out + i, n - i);
}

// Rows: which compute dtypes a functor serves.
template <template <class, class> class Wrap, class F>
constexpr void fill_floats(SpanRow& row) {
  row.fn[int(DType::kFloat32)] = Wrap<F, float>::fn;
  row.fn[int(DType::kFloat64)] = Wrap<F, double>::fn;
}
template <template <class, class> class Wrap, class F>
constexpr void fill_integers(SpanRow& row) {
  row.fn[int(DType::kUInt8)] = Wrap<F, uint8_t>::fn;
  row.fn[int(DType::kInt8)] = Wrap<F, int8_t>::fn;
  row.fn[int(DType::kInt32)] = Wrap<F, int32_t>::fn;
  row.fn[int(DType::kInt64)] = Wrap<F, int64_t>::fn;
}
template <class F, class T>
struct UnaryOf {
  static constexpr SpanFn fn = unary_span<F, T>;
};
template <class F, class T>
struct BinaryOf {
  static constexpr SpanFn fn = binary_span<F, T>;
};
template <class F, class T>
struct TernaryOf {
  static constexpr SpanFn fn = ternary_span<F, T, T>;
};
template <class F, class T>
struct SelectOf {
  static constexpr SpanFn fn = ternary_span<F, bool, T>;
};

template <template <class, class> class Wrap, class F>
constexpr SpanRow float_row(const char* op, int cost = 100) {
  SpanRow row{op, cost, {}, SpanCheck::kNothing};
  fill_floats<Wrap, F>(row);
  return row;
}
template <template <class, class> class Wrap, class F>
constexpr SpanRow numeric_row(const char* op, SpanCheck check = SpanCheck::kNothing, int cost = 100) {
  SpanRow row = float_row<Wrap, F>(op, cost);
  fill_integers<Wrap, F>(row);
  row.check = check;
  return row;
}
template <template <class, class> class Wrap, class F>
constexpr SpanRow any_row(const char* op) {
  SpanRow row = numeric_row<Wrap, F>(op);
  row.fn[int(DType::kBool)] = Wrap<F, bool>::fn;
  return row;
}
template <template <class, class> class Wrap, class F>
constexpr SpanRow integer_row(const char* op) {
  SpanRow row{op, 100, {}, SpanCheck::kNothing};
  fill_integers<Wrap, F>(row);
  row.fn[int(DType::kBool)] = Wrap<F, bool>::fn;
  return row;
}
// float32 by the vector functor G, float64 by F.
template <class G, class F>
constexpr SpanRow simd_row(const char* op, int cost) {
  SpanRow row{op, cost, {}, SpanCheck::kNothing};
  row.fn[int(DType::kFloat32)] = simd_span<G>;
  row.fn[int(DType::kFloat64)] = unary_span<F, double>;
  return row;
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
