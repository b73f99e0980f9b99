// Optimizer updates of a run of elements. Each gradient, weight and state is read once and written once.
#pragma once
#include <cstdint>

namespace pg::cpu {

enum class UpdateRule : uint8_t { kSgd, kMomentum, kNag, kAdam, kAdamW };

// The numbers of one update.
struct UpdateRates {
  double lr, wd, rescale, clip;  // clip is infinity when nothing is clipped
  double momentum, beta1, beta2, epsilon;
  double correct1 = 1, correct2 = 1;  // 1 - beta1^t and 1 - beta2^t
};

// New weights and states may be written over the old ones. Rules without a state ignore m and v.
template <class T>
struct UpdateRun {
  const T *w, *g, *m, *v;
  T *w_out, *m_out, *v_out;
  int64_t n;
};

void update(UpdateRule rule, const UpdateRates& rates, const UpdateRun<float>& run);
void update(UpdateRule rule, const UpdateRates& rates, const UpdateRun<double>& run);

}  // namespace pg::cpu
