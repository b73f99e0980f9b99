// Optimizer updates of a run of elements: gradient, weight and states are read once and written once.
#pragma once
#include <cstdint>

namespace pg::cpu {

enum class UpdateRule : uint8_t { kSgd, kMomentum, kNag, kAdam, kAdamW };

// The numbers of an update of one weight.
struct UpdateRates {
  double lr, wd, rescale, clip;  // clip is infinite where nothing is clipped
  double momentum, beta1, beta2, epsilon;
  double correct1 = 1, correct2 = 1;  // 1 - beta^t
};

// New weights and states may stand in the place of the old ones. Rules without a state ignore m and v.
template <class T>
struct UpdateRun {
  const T *w, *g, *m, *v;
  T *w_out, *m_out, *v_out;
  int64_t n;
};

void update(UpdateRule rule, const UpdateRates& rates, const UpdateRun<float>& run);
void update(UpdateRule rule, const UpdateRates& rates, const UpdateRun<double>& run);

}  // namespace pg::cpu
