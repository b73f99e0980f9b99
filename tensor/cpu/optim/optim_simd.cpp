#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/optim/optim_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/optim/optim_simd.h"

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The constants of one update as vectors of tag D.
template <class D>
struct Consts {
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  D d;
  V lr, wd, rescale, high, low, momentum, beta1, rest1, beta2, rest2, epsilon, step, root, keep;
  HWY_INLINE Consts(UpdateRule rule, const UpdateRates& r) {
    const auto set = [this](double x) HWY_ATTR { return hn::Set(d, T(x)); };
    lr = set(r.lr), wd = set(r.wd), rescale = set(r.rescale), high = set(r.clip), low = set(-r.clip);
    momentum = set(r.momentum), beta1 = set(r.beta1), rest1 = set(1 - r.beta1), beta2 = set(r.beta2),
    rest2 = set(1 - r.beta2);
    epsilon = set(r.epsilon);
    step = set(rule == UpdateRule::kAdam ? r.lr * std::sqrt(r.correct2) / r.correct1 : r.lr / r.correct1);
    root = set(1 / std::sqrt(r.correct2));
    keep = set(1 - r.lr * r.wd);
  }
  HWY_INLINE V clip(V g) const {  // keeps NaN
    return hn::IfThenElse(hn::Gt(g, high), high, hn::IfThenElse(hn::Lt(g, low), low, g));
  }
};

// 0 where |x| is at most the smallest normal number: the state of a weight without a gradient decays to subnormal
// numbers and no further, and each step with them takes a hundred cycles.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V settled(D d, V x) {
  return hn::IfThenZeroElse(hn::Le(hn::Abs(x), hn::Set(d, std::numeric_limits<hn::TFromD<D>>::min())), x);
}

// Updates one vector of each array; w, m and v are overwritten. `plain`: no clipping and no weight decay in the
// gradient.
template <UpdateRule rule, bool plain, class D, class V = hn::Vec<D>>
HWY_INLINE void step(const Consts<D>& c, V g, V& w, V& m, V& v) {
  g = hn::Mul(g, c.rescale);
  if constexpr (!plain && rule == UpdateRule::kAdam) g = hn::MulAdd(c.wd, w, g);
  if constexpr (!plain) g = c.clip(g);
  if constexpr (rule == UpdateRule::kSgd || rule == UpdateRule::kMomentum || rule == UpdateRule::kNag) {
    if constexpr (!plain) g = hn::MulAdd(c.wd, w, g);
    const V move = hn::Mul(c.lr, g);
    if constexpr (rule == UpdateRule::kSgd) return void(w = hn::Sub(w, move));
    m = settled(c.d, hn::Sub(hn::Mul(c.momentum, m), move));
    w = rule == UpdateRule::kMomentum ? hn::Add(w, m) : hn::Sub(hn::MulAdd(c.momentum, m, w), move);
  } else {
    m = settled(c.d, hn::MulAdd(c.beta1, m, hn::Mul(c.rest1, g)));
    v = settled(c.d, hn::MulAdd(c.beta2, v, hn::Mul(c.rest2, hn::Mul(g, g))));
    if constexpr (rule == UpdateRule::kAdam) {
      w = hn::Sub(w, hn::Div(hn::Mul(c.step, m), hn::Add(hn::Sqrt(v), c.epsilon)));
    } else {
      const V bottom = hn::MulAdd(hn::Sqrt(v), c.root, c.epsilon);
      w = hn::Sub(hn::Mul(w, c.keep), hn::Div(hn::Mul(c.step, m), bottom));
    }
  }
}

constexpr int states(UpdateRule rule) { return rule == UpdateRule::kSgd ? 0 : rule >= UpdateRule::kAdam ? 2 : 1; }

template <UpdateRule rule, bool plain, class D, class T>
HWY_INLINE void step_at(const Consts<D>& c, const UpdateRun<T>& r, int64_t i) {
  const D d;
  auto w = hn::LoadU(d, r.w + i);
  auto m = w, v = w;
  if constexpr (states(rule) > 0) m = hn::LoadU(d, r.m + i);
  if constexpr (states(rule) > 1) v = hn::LoadU(d, r.v + i);
  step<rule, plain, D>(c, hn::LoadU(d, r.g + i), w, m, v);
  hn::StoreU(w, d, r.w_out + i);
  if constexpr (states(rule) > 0) hn::StoreU(m, d, r.m_out + i);
  if constexpr (states(rule) > 1) hn::StoreU(v, d, r.v_out + i);
}

template <UpdateRule rule, bool plain, class T>
void run_steps(const UpdateRates& rates, const UpdateRun<T>& r) {
  using D = hn::ScalableTag<T>;
  using One = hn::CappedTag<T, 1>;
  const Consts<D> c(rule, rates);
  const Consts<One> one(rule, rates);
  const int64_t lanes = hn::Lanes(D());
  int64_t i = 0;
  for (; i + lanes <= r.n; i += lanes) step_at<rule, plain, D>(c, r, i);
  for (; i < r.n; ++i) step_at<rule, plain, One>(one, r, i);
}

template <UpdateRule rule, class T>
void run_rule(const UpdateRates& rates, const UpdateRun<T>& r) {
  const bool joined = rates.wd != 0 && rule != UpdateRule::kAdamW;
  if (joined || !std::isinf(rates.clip))
    run_steps<rule, false>(rates, r);
  else
    run_steps<rule, true>(rates, r);
}

template <class T>
void run_any(UpdateRule rule, const UpdateRates& rates, const UpdateRun<T>& r) {
  switch (rule) {
    case UpdateRule::kSgd:
      return run_rule<UpdateRule::kSgd>(rates, r);
    case UpdateRule::kMomentum:
      return run_rule<UpdateRule::kMomentum>(rates, r);
    case UpdateRule::kNag:
      return run_rule<UpdateRule::kNag>(rates, r);
    case UpdateRule::kAdam:
      return run_rule<UpdateRule::kAdam>(rates, r);
    default:
      return run_rule<UpdateRule::kAdamW>(rates, r);
  }
}
void run_float(UpdateRule rule, const UpdateRates& rates, const UpdateRun<float>& r) { run_any(rule, rates, r); }
void run_double(UpdateRule rule, const UpdateRates& rates, const UpdateRun<double>& r) { run_any(rule, rates, r); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(run_float);
HWY_EXPORT(run_double);
void update(UpdateRule rule, const UpdateRates& rates, const UpdateRun<float>& run) {
  HWY_DYNAMIC_DISPATCH(run_float)(rule, rates, run);
}
void update(UpdateRule rule, const UpdateRates& rates, const UpdateRun<double>& run) {
  HWY_DYNAMIC_DISPATCH(run_double)(rule, rates, run);
}
}  // namespace pg::cpu
#endif
