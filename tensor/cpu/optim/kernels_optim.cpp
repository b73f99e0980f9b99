// Optimizer updates: one parallel pass over all parameters.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tensor/cpu/half.h"
#include "tensor/cpu/optim/optim_simd.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/op.h"
#include "tensor/parallel.h"
#include "tensor/runtime.h"

namespace pg {
namespace {

using cpu::UpdateRates;
using cpu::UpdateRule;
using cpu::UpdateRun;

constexpr int64_t kChunk = 8 << 10;
constexpr int64_t kFewestElements = 32 << 10;  // of a thread where lines are slow
constexpr int64_t kWorthWaking = 160 << 10;    // less uses only threads that are awake
constexpr int64_t kShareUnit = 64;             // shares begin at lines of the cache
constexpr int64_t kFewestShared = 256;         // elements of a share
constexpr int64_t kRegionElements = 1 << 18;   // of a thread, where regions are short

// The arrays of one parameter: w, g, then the states.
struct Parameter {
  const View *in[4], *out[3];
  int64_t n;
  UpdateRates rates;
};

template <class List>
double pick(const List& list, size_t i) {
  return double(list[list.size() == 1 ? 0 : i]);
}

UpdateRates rates_of(const KernelArgs& a, UpdateRule rule, size_t i) {
  UpdateRates r{};
  const View& given = a.in.back();
  const auto row = [&](int k) {
    return given.as<const double>()[k * given.size(1) + (given.size(1) == 1 ? 0 : int64_t(i))];
  };
  r.lr = given ? row(0) : pick(a.attr<Floats>("lr"), i);
  r.wd = given ? row(1) : pick(a.attr<Floats>("wd"), i);
  r.rescale = given ? row(3) : a.attr<double>("rescale_grad");
  r.clip = a.has_attr("clip_gradient") ? a.attr<double>("clip_gradient") : std::numeric_limits<double>::infinity();
  if (rule == UpdateRule::kMomentum || rule == UpdateRule::kNag) r.momentum = a.attr<double>("momentum");
  const bool cycles = given && given.size(0) == 5;  // a schedule of the momentum
  if (cycles) r.momentum = row(4);
  if (rule < UpdateRule::kAdam) return r;
  r.beta1 = cycles ? row(4) : a.attr<double>("beta1"), r.beta2 = a.attr<double>("beta2"),
  r.epsilon = a.attr<double>("epsilon");
  const double t = given ? row(2) : pick(a.attr<Ints>("t"), i);
  r.correct1 = 1 - std::pow(r.beta1, t), r.correct2 = 1 - std::pow(r.beta2, t);
  return r;
}

void load(const View& v, int64_t at, int64_t n, float* to) {
  switch (v.dtype()) {
    case DType::kFloat16:
      return cpu::to_float(v.as<const Half>() + at, to, n);
    case DType::kBFloat16:
      return cpu::to_float(v.as<const BFloat16>() + at, to, n);
    default:
      return void(std::copy_n(v.as<const float>() + at, n, to));
  }
}
void save(const View& v, int64_t at, int64_t n, const float* from) {
  switch (v.dtype()) {
    case DType::kFloat16:
      return cpu::from_float(from, v.as<Half>() + at, n);
    case DType::kBFloat16:
      return cpu::from_float(from, v.as<BFloat16>() + at, n);
    default:
      return void(std::copy_n(from, n, v.as<float>() + at));
  }
}

template <class T>
void update_direct(UpdateRule rule, const Parameter& p, int states, int64_t at, int64_t n) {
  const auto in = [&](int k) { return k < 2 + states ? p.in[k]->as<const T>() + at : nullptr; };
  const auto out = [&](int k) { return k < 1 + states ? p.out[k]->as<T>() + at : nullptr; };
  cpu::update(rule, p.rates, UpdateRun<T>{in(0), in(1), in(2), in(3), out(0), out(1), out(2), n});
}

// float16 and bfloat16 weights are updated in float. Their states may be float32 or of the weight's type.
void update_widened(UpdateRule rule, const Parameter& p, int states, int64_t at, int64_t n) {
  constexpr int64_t kPart = 1024;
  float buffer[4][kPart];
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t m = std::min(kPart, n - i);
    for (int k = 0; k < 2 + states; ++k) load(*p.in[k], at + i, m, buffer[k]);
    float *w = buffer[0], *m0 = buffer[2], *v = buffer[3];
    cpu::update(rule, p.rates, UpdateRun<float>{w, buffer[1], m0, v, w, m0, v, m});
    save(*p.out[0], at + i, m, w);
    for (int k = 0; k < states; ++k) save(*p.out[1 + k], at + i, m, buffer[2 + k]);
  }
}

template <UpdateRule rule, int states>
void update_part(const Parameter& p, int64_t at, int64_t n) {
  bool plain = true;
  for (int k = 0; k < 2 + states; ++k) plain &= p.in[k]->dtype() == DType::kFloat32;
  if (p.in[0]->dtype() == DType::kFloat64)
    update_direct<double>(rule, p, states, at, n);
  else if (plain)
    update_direct<float>(rule, p, states, at, n);
  else
    update_widened(rule, p, states, at, n);
}

// The elements of share i of `shares` of parameter `number`. Small parameters have one share, which is not of the same
// thread for all of them.
std::pair<int64_t, int64_t> share_of(size_t number, int64_t n, int64_t i, int64_t shares) {
  if (n < shares * kFewestShared) return {0, int64_t(number) % shares == i ? n : 0};
  const auto start = [&](int64_t k) { return k == shares ? n : n * k / shares / kShareUnit * kShareUnit; };
  return {start(i), start(i + 1)};
}

// Each thread updates a share of each parameter: of a weight's rows those that its products read and whose gradients
// it has computed.
template <UpdateRule rule, int states>
void update_kernel(const KernelArgs& a) {
  const size_t count = (a.in.size() - 1) / (2 + states);
  std::vector<Parameter> all(count);
  int64_t elements = 0;
  for (size_t i = 0; i < count; ++i) {
    Parameter& p = all[i];
    for (size_t k = 0; k < 2 + states; ++k) p.in[k] = &a.in[k * count + i];
    for (size_t k = 0; k < 1 + states; ++k) p.out[k] = &a.out[k * count + i];
    p.n = a.in[i].numel();
    p.rates = rates_of(a, rule, i);
    elements += p.n;
  }
  const int64_t fewest = std::min(kFewestElements, cpu::grain_bytes() / 2 / int64_t(sizeof(float)));
  const int64_t parts = std::clamp<int64_t>(elements / fewest, 1, num_threads());
  const bool stops = Runtime::current().threads().stops_between_regions();
  const int64_t rounds = stops ? elements / (parts * kRegionElements) + 1 : 1, shares = parts * rounds;
  for (int64_t round = 0; round < rounds; ++round)
    parallel_for(parts, elements < kWorthWaking ? 1 : 0, [&](int64_t begin, int64_t end) {
      Poller poll;
      for (int64_t part = begin; part < end; ++part)
        for (size_t i = 0; i < count; ++i) {
          auto [at, last] = share_of(i, all[i].n, part * rounds + round, shares);
          for (; at < last; at += kChunk, poll(kChunk))
            update_part<rule, states>(all[i], at, std::min(kChunk, last - at));
        }
    });
}

}  // namespace

void add_optim_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"sgd_update", update_kernel<UpdateRule::kSgd, 0>},
      {"sgd_momentum_update", update_kernel<UpdateRule::kMomentum, 1>},
      {"nag_update", update_kernel<UpdateRule::kNag, 1>},
      {"adam_update", update_kernel<UpdateRule::kAdam, 2>},
      {"adamw_update", update_kernel<UpdateRule::kAdamW, 2>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
