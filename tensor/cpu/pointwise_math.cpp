// Span kernels of elementary functions and activations: float32 in vectors where speed matters, the rest by libm.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/pointwise_math.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "tensor/cpu/simd_math-inl.h"
#include "tensor/cpu/spans-inl.h"
#include "tensor/kernels/math_ops.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace s = pg::scalar;

#define PERIGEE_VECTOR_FUNCTOR(Name, function)      \
  struct Name {                                     \
    template <class D, class V>                     \
    HWY_INLINE V operator()(D d, V x) const {       \
      return function(d, x);                        \
    }                                               \
  };
PERIGEE_VECTOR_FUNCTOR(VectorExp, vexp)
PERIGEE_VECTOR_FUNCTOR(VectorExp2, vexp2)
PERIGEE_VECTOR_FUNCTOR(VectorExpm1, vexpm1)
PERIGEE_VECTOR_FUNCTOR(VectorLog, vlog)
PERIGEE_VECTOR_FUNCTOR(VectorLog2, vlog2)
PERIGEE_VECTOR_FUNCTOR(VectorLog1p, vlog1p)
PERIGEE_VECTOR_FUNCTOR(VectorTanh, vtanh)
PERIGEE_VECTOR_FUNCTOR(VectorSigmoid, vsigmoid)
PERIGEE_VECTOR_FUNCTOR(VectorErf, verf)
PERIGEE_VECTOR_FUNCTOR(VectorSin, vsin)
PERIGEE_VECTOR_FUNCTOR(VectorCos, vcos)
#undef PERIGEE_VECTOR_FUNCTOR

struct VectorTan {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Div(vsin(d, x), vcos(d, x));
  }
};
struct VectorSilu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Mul(x, vsigmoid(d, x));
  }
};
struct VectorMish {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V two = hn::Set(d, 2.0f), limit = hn::Set(d, 20.0f);
    const V e = vexp(d, hn::Min(x, limit)), m = hn::Mul(e, hn::Add(e, two));
    const V y = hn::Mul(x, hn::Div(m, hn::Add(m, two)));
    return hn::IfThenElse(hn::Gt(x, limit), x, keep_nan<D>(x, y));
  }
};
struct VectorGelu {
  bool tanh_form;
  explicit VectorGelu(const double* params) : tanh_form(params[0] != 0) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return tanh_form ? with_tanh(d, x) : with_erf(d, x);
  }

 private:
  // max(x, 0) - |x| Q(|x|) with the upper tail Q of the normal distribution from a polynomial for log(Q): one exponential,
  // and no bits are lost below zero as they are in 1 + erf(x).
  template <class D, class V>
  static HWY_INLINE V with_erf(D d, V x) {
    const V a = hn::Min(hn::Abs(x), hn::Set(d, 14.0f));  // beyond it Q is 0
    const V log_q = polynomial(d, a, hn::Set(d, -1.65782412e-08f), 5.01783177e-07f, -6.53526240e-06f, 4.64251386e-05f,
                               -1.70080020e-04f, -5.14487911e-05f, 4.88041621e-03f, -3.63949649e-02f, -3.18292230e-01f,
                               -7.97886550e-01f, -6.93147123e-01f);
    V n;
    const V r = reduce_ln2(d, hn::Max(log_q, hn::Set(d, -88.02f)), &n);
    const V q = hn::Mul(hn::Add(hn::Set(d, 1.0f), expm1_reduced(d, r)), power_of_two(d, hn::ConvertTo(IntOf<D>(), n)));
    return keep_nan<D>(x, hn::NegMulAdd(a, q, hn::Max(x, hn::Zero(d))));
  }
  // x (1 + tanh(t)) / 2 = x / (1 + exp(-2 t))
  template <class D, class V>
  static HWY_INLINE V with_tanh(D d, V x) {
    const V square = hn::Mul(x, x), minus_two_root = hn::Set(d, -2 * 0.797884561f);
    const V exponent = hn::Mul(hn::Mul(minus_two_root, x), hn::MulAdd(hn::Set(d, 0.044715f), square, hn::Set(d, 1.0f)));
    return hn::Div(x, hn::Add(hn::Set(d, 1.0f), vexp(d, exponent)));
  }
};
// x above zero, `scale` (e^(x / width) - 1) below, times `above` above.
template <class D, class V>
HWY_INLINE V exponential_linear(D d, V x, float above, float scale, float width) {
  const V low = hn::Mul(hn::Set(d, scale), vexpm1(d, width == 1.0f ? x : hn::Div(x, hn::Set(d, width))));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Mul(x, hn::Set(d, above)), low);
}
struct VectorElu {
  float alpha;
  explicit VectorElu(const double* params) : alpha(float(params[0])) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return exponential_linear(d, x, 1.0f, alpha, 1.0f);
  }
};
struct VectorCelu {
  float alpha;
  explicit VectorCelu(const double* params) : alpha(float(params[0])) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return exponential_linear(d, x, 1.0f, alpha, alpha);
  }
};
struct VectorSelu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return exponential_linear(d, x, float(s::kSeluScale), float(s::kSeluScale * s::kSeluAlpha), 1.0f);
  }
};
struct VectorSoftplus {
  float beta, threshold;
  explicit VectorSoftplus(const double* params) : beta(float(params[0])), threshold(float(params[1])) {}
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V scaled = hn::Mul(x, hn::Set(d, beta));
    const V soft = hn::Div(vlog1p(d, vexp(d, scaled)), hn::Set(d, beta));
    return hn::IfThenElse(hn::Gt(scaled, hn::Set(d, threshold)), x, soft);
  }
};
struct VectorLogsigmoid {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V low = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN stays
    return hn::Sub(low, vlog1p(d, vexp(d, hn::Neg(hn::Abs(x)))));
  }
};

static constexpr SpanRow kRows[] = {
    simd_row<VectorExp, s::Exp>("exp", 400),
    simd_row<VectorExp2, s::Exp2>("exp2", 400),
    simd_row<VectorExpm1, s::Expm1>("expm1", 400),
    simd_row<VectorLog, s::Log>("log", 500),
    simd_row<VectorLog2, s::Log2>("log2", 500),
    simd_row<VectorLog1p, s::Log1p>("log1p", 600),
    simd_row<VectorTanh, s::Tanh>("tanh", 500),
    simd_row<VectorSigmoid, s::Sigmoid>("sigmoid", 500),
    simd_row<VectorErf, s::Erf>("erf", 800),
    simd_row<VectorSin, s::Sin>("sin", 600),
    simd_row<VectorCos, s::Cos>("cos", 600),
    simd_row<VectorTan, s::Tan>("tan", 1300),
    simd_row<VectorSilu, s::Silu>("silu", 500),
    simd_row<VectorMish, s::Mish>("mish", 600),
    simd_row<VectorGelu, s::Gelu>("gelu", 800),
    simd_row<VectorElu, s::Elu>("elu", 400),
    simd_row<VectorCelu, s::Celu>("celu", 400),
    simd_row<VectorSelu, s::Selu>("selu", 400),
    simd_row<VectorSoftplus, s::Softplus>("softplus", 900),
    simd_row<VectorLogsigmoid, s::Logsigmoid>("logsigmoid", 900),
    float_row<UnaryOf, s::Log10>("log10", 6000),
    float_row<UnaryOf, s::Asin>("asin", 6000),
    float_row<UnaryOf, s::Acos>("acos", 6000),
    float_row<UnaryOf, s::Atan>("atan", 6000),
    float_row<UnaryOf, s::Sinh>("sinh", 9000),
    float_row<UnaryOf, s::Cosh>("cosh", 9000),
    float_row<UnaryOf, s::Asinh>("asinh", 9000),
    float_row<UnaryOf, s::Acosh>("acosh", 9000),
    float_row<UnaryOf, s::Atanh>("atanh", 9000),
    float_row<UnaryOf, s::Erfc>("erfc", 9000),
    float_row<UnaryOf, s::Erfinv>("erfinv", 60000),
    float_row<UnaryOf, s::Lgamma>("lgamma", 20000),
    float_row<UnaryOf, s::Digamma>("digamma", 30000),
    float_row<UnaryOf, s::Polygamma>("polygamma", 300000),
    float_row<BinaryOf, s::Atan2>("atan2", 15000),
    float_row<BinaryOf, s::Hypot>("hypot", 5000),
    float_row<BinaryOf, s::Copysign>("copysign", 100),
    float_row<BinaryOf, s::Logaddexp>("logaddexp", 15000),
};
std::span<const SpanRow> math_table() { return kRows; }

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(math_table);
std::span<const SpanRow> math_spans() { return HWY_DYNAMIC_DISPATCH(math_table)(); }
}  // namespace pg::cpu
#endif
