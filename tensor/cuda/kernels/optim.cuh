// Updates of optimizers, of many parameters at once. T, G, M: the dtypes of weights, gradients and states; kRule.
namespace pg::kernels {

enum Rule { kSgd, kMomentum, kNag, kAdam, kAdamW };
using C = std::conditional_t<std::is_same_v<T, double>, double, float>;

struct Rates {
  double lr, wd, rescale, momentum, beta1, t;
};
__device__ inline Rates rates_of(const UpdateArgs& a, const UpdateParam& p) {
  if (!a.rates) return {p.lr, p.wd, a.rescale, a.momentum, a.beta1, p.t};
  const auto row = [&](int k) { return a.rates[k * a.columns + (a.columns == 1 ? 0 : p.number)]; };
  return {row(0), row(1), row(3), a.cycles ? row(4) : a.momentum, a.cycles ? row(4) : a.beta1, row(2)};
}

// 0 where a state is subnormal or next to it, as on the CPU.
__device__ inline C settled(C x) {
  constexpr C kSmallest = C(std::is_same_v<C, double> ? 0x1p-1022 : 0x1p-126);
  return std::fabs(x) <= kSmallest ? C(0) : x;
}

PERIGEE_KERNEL(update, UpdateArgs) {
  for (int k = 0; k < a.params; ++k) {
    const UpdateParam& p = a.param[k];
    const Rates r = rates_of(a, p);
    const double correct1 = kRule >= kAdam ? 1 - std::pow(r.beta1, r.t) : 1;
    const double correct2 = kRule >= kAdam ? 1 - std::pow(a.beta2, r.t) : 1;
    const C step = C(kRule == kAdam ? r.lr * std::sqrt(correct2) / correct1 : r.lr / correct1);
    const C root = C(1 / std::sqrt(correct2)), keep = C(1 - r.lr * r.wd), clip = C(a.clip), wd = C(r.wd);
    for (int64_t i = thread_index(); i < p.count; i += thread_count()) {
      C w = C(widen(static_cast<const T*>(p.in[0])[i])), g = C(widen(static_cast<const G*>(p.in[1])[i])) * C(r.rescale);
      if (kRule == kAdam) g = wd * w + g;
      g = g > clip ? clip : g < -clip ? -clip : g;  // keeps NaN
      if (kRule <= kNag) {
        g = wd * w + g;
        const C move = C(r.lr) * g;
        if (kRule == kSgd) {
          w = w - move;
        } else {
          const C m = settled(C(r.momentum) * C(widen(static_cast<const M*>(p.in[2])[i])) - move);
          w = kRule == kMomentum ? w + m : C(r.momentum) * m + w - move;
          static_cast<M*>(p.out[1])[i] = convert_one<M>(m);
        }
      } else {
        const C m = settled(C(r.beta1) * C(widen(static_cast<const M*>(p.in[2])[i])) + C(1 - r.beta1) * g);
        const C v = settled(C(a.beta2) * C(widen(static_cast<const M*>(p.in[3])[i])) + C(1 - a.beta2) * (g * g));
        w = kRule == kAdam ? w - step * m / (std::sqrt(v) + C(a.epsilon))
                           : w * keep - step * m / (std::sqrt(v) * root + C(a.epsilon));
        static_cast<M*>(p.out[1])[i] = convert_one<M>(m);
        static_cast<M*>(p.out[2])[i] = convert_one<M>(v);
      }
      static_cast<T*>(p.out[0])[i] = convert_one<T>(w);
    }
  }
}

}  // namespace pg::kernels
