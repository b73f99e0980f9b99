// The error function and its relatives on Highway vectors of float. The result of a lane does not depend on the other
// lanes. Include after highway.h, once per target.
#if defined(PERIGEE_SIMD_ERF_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_SIMD_ERF_INL_H
#undef PERIGEE_SIMD_ERF_INL_H
#else
#define PERIGEE_SIMD_ERF_INL_H
#endif

#include "tensor/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class V = hn::Vec<D>>
HWY_INLINE V verf(D d, V x) {
  const V one = hn::Set(d, 1.0f), a = hn::Abs(x);
  const V small =
      hn::MulAdd(x,
                 polynomial(d, hn::Mul(x, x), hn::Set(d, 7.882497112e-05f), -8.018854993e-04f, 5.189311943e-03f,
                            -2.685432880e-02f, 1.128359746e-01f, -3.761262690e-01f, 1.283791659e-01f),
                 x);
  const V t = hn::Min(a, hn::Set(d, 4.0f));
  const V log_erfc =
      polynomial(d, t, hn::Set(d, 1.614061609e-06f), -4.559062256e-05f, 5.927695389e-04f, -4.740222347e-03f,
                 2.636471738e-02f, -1.099782452e-01f, -6.319370936e-01f, -1.130166676e+00f, 3.032129751e-04f);
  const V large = hn::CopySign(hn::Sub(one, vexp(d, log_erfc)), x);
  return keep_nan<D>(x, hn::IfThenElse(hn::Lt(a, one), small, large));
}

// x y - xy for xy = Mul(x, y).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V product_error([[maybe_unused]] D d, V x, V y, V xy) {
#if HWY_NATIVE_FMA
  return hn::MulSub(x, y, xy);
#else  // Dekker, A floating-point technique for extending the available precision, 1971
  const V mask = hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), 0xfffff000u));
  const V xh = hn::And(x, mask), yh = hn::And(y, mask), xl = hn::Sub(x, xh), yl = hn::Sub(y, yh);
  const V cross = hn::Add(hn::Mul(xh, yl), hn::Mul(xl, yh));
  return hn::Add(hn::Add(hn::Sub(hn::Mul(xh, yh), xy), cross), hn::Mul(xl, yl));
#endif
}

// A sum of two numbers, low far below high.
template <class V>
struct Pair {
  V high, low;
};
// c + x y, for |c| above |x y|.
template <class D, class V = hn::Vec<D>>
HWY_INLINE Pair<V> add_product(D d, Pair<V> c, V x, Pair<V> y) {
  const V t = hn::Mul(x, y.high), high = hn::Add(c.high, t);
  const V lost = hn::MulAdd(x, y.low, hn::Add(product_error(d, x, y.high, t), c.low));
  return {high, hn::Add(hn::Sub(t, hn::Sub(high, c.high)), lost)};
}

// exp(a^2) erfc(a) times a where a is at least 2: polynomials in a - 1 for a in [0.5, 2] and in 1 / a^2 for [2, 10.2],
// minimax with respect to the relative error, from the highest coefficient; the rest of the last two.
inline constexpr float kErfcNear[] = {6.127470988e-05f, -3.453103127e-04f, 1.075912267e-03f, -2.798872069e-03f,
                                      6.971323397e-03f, -1.665573008e-02f, 3.757129982e-02f, -7.922742516e-02f,
                                      1.543716341e-01f, -2.732120156e-01f, 4.275835752e-01f, 1.027948e-08f,
                                      1.650843e-10f};
inline constexpr float kErfcFar[] = {0,
                                     -9.417060852e+01f,
                                     1.384494324e+02f,
                                     -9.307917023e+01f,
                                     3.916072083e+01f,
                                     -1.230564308e+01f,
                                     3.442276955e+00f,
                                     -1.047592402e+00f,
                                     4.228999913e-01f,
                                     -2.820918262e-01f,
                                     5.641895533e-01f,
                                     -1.430654e-08f,
                                     1.667258e-08f};

// erfc(a) for a in [0.5, 10.2]: the product of exp(-a^2) = (1 + p) 2^n, the polynomial and, far from 0, 1 / a. What
// each of them loses is added before the last rounding.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erfc_tail(D d, V a) {
  const V one = hn::Set(d, 1.0f);
  const auto far = hn::Ge(a, hn::Set(d, 2.0f));
  const auto coefficient = [&](int k) HWY_ATTR {
    return hn::IfThenElse(far, hn::Set(d, kErfcFar[k]), hn::Set(d, kErfcNear[k]));
  };
  const V inverse = hn::IfThenElse(far, hn::Div(one, a), one);
  const V v = hn::IfThenElse(far, hn::Mul(inverse, inverse), hn::Sub(a, one));
  V q = coefficient(0);
  for (int k = 1; k < 9; ++k) q = hn::MulAdd(q, v, coefficient(k));
  const Pair<V> inner = add_product(d, {coefficient(9), coefficient(11)}, v, Pair<V>{q, hn::Zero(d)});
  const Pair<V> g = add_product(d, {coefficient(10), coefficient(12)}, v, inner);
  // a^2 = square + square_low, -square = n ln(2) + r + r_low
  const V square = hn::Mul(a, a), square_low = product_error(d, a, a, square);
  const V n = hn::Round(hn::Mul(square, hn::Set(d, -1.442695041f))), c2 = hn::Set(d, -2.12194440e-4f);
  const V reduced = hn::Neg(hn::MulAdd(n, hn::Set(d, 0.693359375f), square)), r = hn::NegMulAdd(n, c2, reduced);
  const V r_low = hn::Sub(hn::NegMulAdd(n, c2, hn::Sub(reduced, r)), square_low);
  // exp(r) = 1 + p + p_low
  const V r2 = hn::Mul(r, r), rest = expm1_rest(d, r);
  const V p = hn::MulAdd(r2, rest, r), p_low = hn::MulAdd(r2, rest, hn::Sub(r, p));
  // their product with g: (1 + p) g.high and what is small
  const V small = hn::MulAdd(hn::MulAdd(r_low, p, hn::Add(r_low, p_low)), g.high, hn::MulAdd(p, g.low, g.low));
  const Pair<V> w = add_product(d, {g.high, small}, p, Pair<V>{g.high, hn::Zero(d)});
  // 1 / a = inverse (1 + error)
  const V ratio = hn::Mul(a, inverse);
  const V error = hn::IfThenElseZero(far, hn::Sub(hn::Sub(one, ratio), product_error(d, a, inverse, ratio)));
  const V out = hn::MulAdd(inverse, w.high, hn::Mul(inverse, hn::MulAdd(error, w.high, w.low)));
  return scale(d, out, n);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V verfc(D d, V x) {
  const V one = hn::Set(d, 1.0f), half = hn::Set(d, 0.5f), a = hn::Abs(x);
  V tail = erfc_tail(d, hn::Max(half, at_most(d, a, 10.2f)));
  tail = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 2.0f), tail), tail);
  // 1 - erf(x), where erf(x) = x + x p; `top` loses `rest`
  const V p = polynomial(d, hn::Mul(x, x), hn::Set(d, 4.717988165e-03f), -2.675718343e-02f, 1.128282280e-01f,
                         -3.761260857e-01f, 1.283791656e-01f);
  const V top = hn::Sub(one, x), rest = hn::Sub(hn::Sub(one, top), x);
  const V small = hn::Add(top, hn::NegMulAdd(x, p, rest));
  return keep_nan<D>(x, hn::IfThenElse(hn::Lt(a, half), small, tail));
}

// The parts of Q(a), the upper tail of the normal distribution, for a in [0, 15]: q (1 + p) 2^n, where
// (1 + p) 2^n = exp(-a^2 / 2). q is a polynomial in (a - c) / (a + c) with c = 3.375, minimax with respect to the
// relative error up to 14.5. Shepherd and Laframboise, Chebyshev approximation of (1 + 2 x) exp(x^2) erfc(x) (Math.
// Comp. 36, 1981) use that variable.
template <class V>
struct NormalTail {
  V q, p, n;
};
template <class D, class V = hn::Vec<D>>
HWY_INLINE NormalTail<V> normal_tail(D d, V a) {
  const V one = hn::Set(d, 1.0f), square = hn::Mul(a, a);
  const V inverse = hn::Div(one, hn::Add(a, hn::Set(d, 3.375f)));
  NormalTail<V> tail;
  tail.q = polynomial(d, hn::MulAdd(inverse, hn::Set(d, -6.75f), one), hn::Set(d, 1.535554475e-04f), 1.804307976e-04f,
                      -1.486163354e-03f, -1.226693275e-04f, 1.586582884e-02f, -5.833617598e-02f, 1.256843060e-01f,
                      -1.917144060e-01f, 1.097896695e-01f);
  // a^2 = -2 n ln(2) + r, and p is expm1(-r / 2), the polynomial of expm1_reduced with its coefficients scaled
  tail.n = hn::Round(hn::Mul(square, hn::Set(d, -0.7213475204f)));
  V r = hn::MulAdd(tail.n, hn::Set(d, 2 * 0.693359375f), square);
  r = hn::MulAdd(tail.n, hn::Set(d, 2 * -2.12194440e-4f), r);
  r = hn::Add(r, product_error(d, a, a, square));
  tail.p = hn::Mul(r, polynomial(d, r, hn::Set(d, 2.177138806e-05f), -2.613501709e-04f, 2.604154036e-03f,
                                 -2.083322103e-02f, 1.250000004e-01f, -0.5f));
  return tail;
}

// x times the normal distribution function: max(x, 0) - |x| Q(|x|), which keeps its digits below zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vtimes_normal(D d, V x) {
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 14.5f));  // beyond it Q is 0
  const auto [q, p, n] = normal_tail(d, a);
  const V g = hn::Mul(a, q), above = hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);  // keeps NaN and -0
  return hn::Sub(above, scale(d, hn::MulAdd(p, g, g), n));
}

// Its derivative, which is Q(a) - a phi(a) below zero and 1 less that above, with a = |x|.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V vnormal_slope(D d, V x) {
  const V a = hn::Min(hn::Abs(x), hn::Set(d, 15.0f));  // beyond it both are 0
  const auto [q, p, n] = normal_tail(d, a);
  const V g = hn::NegMulAdd(a, hn::Set(d, 0.39894228f), q);
  const V below = scale(d, hn::MulAdd(p, g, g), n);
  return keep_nan<D>(x, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), below, hn::Sub(hn::Set(d, 1.0f), below)));
}

// Giles, Approximating the erfinv function, 2011: x times a polynomial in w = -log(1 - x^2), for large w in its square
// root. The degree is one higher, with coefficients that are minimax with respect to the relative error.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V verfinv(D d, V x) {
  const V one = hn::Set(d, 1.0f), a = hn::Abs(x);
  const V w = hn::Neg(vlog(d, hn::Mul(hn::Sub(one, a), hn::Add(one, a))));
  V p = polynomial(d, w, hn::Set(d, -8.791013482e-09f), 2.210304407e-07f, -1.976460703e-06f, 3.983235725e-06f,
                   4.456522009e-05f, -1.274816519e-04f, -2.334296182e-03f, 1.154865390e-02f, 2.320138180e-01f,
                   8.862269205e-01f);
  const auto near = hn::Lt(w, hn::Set(d, 5.0f));
  if (!hn::AllTrue(d, near)) {
    const V t = hn::Sub(hn::Sqrt(w), hn::Set(d, 3.0f));
    const V far = polynomial(d, t, hn::Set(d, 1.289641702e-04f), -3.187235861e-04f, -7.661939926e-05f, 1.495857132e-03f,
                             -3.586987679e-03f, 5.683172222e-03f, -7.639410040e-03f, 9.445684199e-03f, 1.001675087e+00f,
                             2.832976796e+00f);
    p = hn::IfThenElse(near, p, hn::IfThenElse(hn::Eq(a, one), w, far));  // 1 has infinity
  }
  return hn::Mul(x, p);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
