// Functors of the elementary functions and of the activations built on them, on vectors of float: what the span kernels
// and the steps of chains are made of. Include after highway.h, once a target.
#if defined(PERIGEE_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_VECTOR_MATH_INL_H
#undef PERIGEE_VECTOR_MATH_INL_H
#else
#define PERIGEE_VECTOR_MATH_INL_H
#endif

#include "tensor/cpu/simd_math-inl.h"
#include "tensor/kernels/math_ops.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace s = pg::scalar;

#define PERIGEE_VECTOR_FUNCTOR(Name, function) \
  struct Name {                                \
    template <class D, class V>                \
    HWY_INLINE V operator()(D d, V x) const {  \
      return function(d, x);                   \
    }                                          \
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
  // max(x, 0) - |x| Q(|x|) with the upper tail Q of the normal distribution from a polynomial for log(Q): one
  // exponential, and no bits are lost below zero as they are in 1 + erf(x).
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

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
