// ctc_loss by the forward-backward algorithm (Graves et al., Connectionist temporal classification, 2006), over numbers
// that carry derivatives, so that one algorithm gives the derivatives of all orders. The numbers have exponents of
// their own, which costs less than logarithms.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>

#include "tensor/cpu/half.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::WorkVector;

enum Input { kLogProbs, kTargets, kSteps, kLabels, kDirections };

constexpr int kBits = 256;  // of the unit of exponents
constexpr double kUnit = 0x1p256, kLogUnit = kBits * 0.693147180559945309417;
constexpr int64_t kLow = -(int64_t(1) << 60);  // the exponent of 0, so that sums need not ask for it

template <int N>
struct Parts : std::array<double, size_t(N)> {};
template <>
struct Parts<0> {  // a std::array would have a size
  constexpr size_t size() const { return 0; }
  double& operator[](size_t) const { std::abort(); }
};

// mantissa 2^(256 exponent) (1 + the sum of part[S - 1] e_S over the sets S of directions, bit i for direction i),
// where e_S is the product of infinitesimals e_i with e_i² = 0. The coefficient of the whole set is the mixed
// derivative. Products bring the mantissa near to 2^-128 to 2^128, so sums need not.
template <int K>
struct Jet {
  static constexpr int kSets = 1 << K;
  double mantissa = 0;
  int64_t exponent = kLow;
  [[no_unique_address]] Parts<kSets - 1> part = {};

  static Jet exp(double x) {
    if (x == -std::numeric_limits<double>::infinity()) return {};
    if (!(std::abs(x) > kLogUnit / 2 && std::abs(x) < 1e15)) return {std::exp(x), 0};
    const double units = std::round(x / kLogUnit);
    return {std::exp(x - units * kLogUnit), int64_t(units)};
  }
  bool is_zero() const { return mantissa == 0; }
  double at(int set) const { return set == 0 ? 1 : part[size_t(set) - 1]; }
  double log() const { return std::log(mantissa) + double(exponent) * kLogUnit; }
  double derivative() const {
    return std::ldexp(mantissa, int(kBits * std::clamp<int64_t>(exponent, -8, 8))) * at(kSets - 1);
  }
};

// Calls f(U, S without U) for the subsets U of S other than S and the empty set.
template <class F>
void proper_subsets(int set, F f) {
  for (int u = (set - 1) & set; u > 0; u = (u - 1) & set) f(u, set & ~u);
}

template <int K>
Jet<K> operator*(const Jet<K>& a, const Jet<K>& b) {
  Jet<K> out{a.mantissa * b.mantissa, a.exponent + b.exponent};
  if (out.mantissa >= 0x1p128) {
    out.mantissa /= kUnit, ++out.exponent;
  } else if (out.mantissa < 0x1p-128) {
    out.mantissa *= kUnit, --out.exponent;
  }
  for (int s = 1; s < Jet<K>::kSets; ++s) {
    double sum = a.at(s) + b.at(s);
    proper_subsets(s, [&](int u, int rest) { sum += a.at(u) * b.at(rest); });
    out.part[size_t(s) - 1] = sum;
  }
  return out;
}

template <int K>
Jet<K> inverse(const Jet<K>& a) {
  Jet<K> out{1 / a.mantissa, -a.exponent};
  for (int s = 1; s < Jet<K>::kSets; ++s) {
    double sum = a.at(s);
    proper_subsets(s, [&](int u, int rest) { sum += a.at(u) * out.at(rest); });
    out.part[size_t(s) - 1] = -sum;
  }
  return out;
}

template <int K>
Jet<K> operator+(const Jet<K>& a, const Jet<K>& b) {
  if constexpr (K > 0) {
    if (a.is_zero()) return b;
    if (b.is_zero()) return a;
  }
  const auto scaled = [](double v, int64_t gap) { return v * (gap == 0 ? 1.0 : gap == 1 ? 1 / kUnit : 0.0); };
  const int64_t exponent = std::max(a.exponent, b.exponent);
  const double x = scaled(a.mantissa, exponent - a.exponent), y = scaled(b.mantissa, exponent - b.exponent);
  Jet<K> out{x + y, exponent};
  for (size_t s = 0; s < out.part.size(); ++s) out.part[s] = (x * a.part[s] + y * b.part[s]) / (x + y);
  return out;
}

// One sample: its steps and its labels with a blank before, between and after them, as classes from 0.
struct Sample {
  int64_t number, steps;
  WorkVector<int64_t> states;
  int64_t count() const { return int64_t(states.size()); }
  // Whether a path may go from state s - 2 to state s.
  bool skips(int64_t s) const { return s % 2 == 1 && s >= 3 && states[size_t(s)] != states[size_t(s) - 2]; }
  // Fewer steps than labels: no path.
  bool hopeless() const { return steps < count() / 2; }
};

double number_at(const View& v, int64_t i) {
  return load_number(v.dtype(), v.as<const char>() + i * size_of(v.dtype()));
}

// The arguments that all kernels share, checked.
struct Problem {
  int64_t steps, batch, classes, blank;
  WorkVector<Sample> samples;

  explicit Problem(const KernelArgs& a) {
    const View& x = a.in[kLogProbs];
    steps = x.size(0), batch = x.rank() == 2 ? 1 : x.size(1), classes = x.size(x.rank() - 1);
    blank = a.attr<int64_t>("blank") - 1;
    const View& targets = a.in[kTargets];
    const bool rows = targets.rank() == 2;
    const int64_t width = targets.size(targets.rank() - 1);
    int64_t used = 0;
    Poller poll;
    for (int64_t n = 0; n < batch; ++n, poll()) {
      Sample& s = samples.emplace_back(Sample{n, length(a.in[kSteps], "input_lengths", n, steps), {}});
      const int64_t labels = length(a.in[kLabels], "target_lengths", n, rows ? width : width - used);
      read_labels(targets, rows ? n * width : used, labels, s);
      used += labels;
    }
    if (!rows && used != width)
      bad_argument("ctc_loss", "target_lengths", fmt::format("lengths that sum to the {} labels", width),
                   fmt::format("a sum of {}", used));
  }

  static int64_t length(const View& lengths, const char* name, int64_t n, int64_t most) {
    if (!lengths) return most;
    const double v = number_at(lengths, n);
    if (!(v >= 0 && v <= double(most)) || v != std::floor(v))
      bad_argument("ctc_loss", name, fmt::format("whole numbers from 0 to {}", most),
                   fmt::format("{} at position {}", v, n + 1));
    return int64_t(v);
  }

  void read_labels(const View& targets, int64_t first, int64_t count, Sample& s) const {
    s.states.assign(size_t(2 * count + 1), blank);
    Poller poll;
    for (int64_t i = 0; i < count; ++i, poll()) {
      const double v = number_at(targets, first + i);
      if (!(v >= 1 && v <= double(classes)) || v != std::floor(v) || v == double(blank + 1))
        bad_argument("ctc_loss", "targets", fmt::format("labels from 1 to {} other than blank {}", classes, blank + 1),
                     fmt::format("{} at position {}", v, first + i + 1));
      s.states[size_t(2 * i + 1)] = int64_t(v) - 1;
    }
  }

  int64_t row(const Sample& s, int64_t t) const { return (t * batch + s.number) * classes; }
};

// log_probs and the K directions.
template <class T, int K>
struct Emissions {
  const T* x;
  std::array<const T*, size_t(K)> directions;

  explicit Emissions(const KernelArgs& a) : x(a.in[kLogProbs].as<const T>()) {
    for (size_t i = 0; i < directions.size(); ++i) directions[i] = a.in[kDirections + i].as<const T>();
  }
  // exp of element i, moved along the directions.
  Jet<K> at(int64_t i) const {
    Jet<K> out = Jet<K>::exp(double(x[i]));
    for (int s = 1; s < Jet<K>::kSets; ++s) {
      const int last = s & -s;
      int k = 0;
      while (last >> (k + 1)) ++k;
      out.part[size_t(s) - 1] = double(directions[size_t(k)][i]) * out.at(s ^ last);
    }
    return out;
  }
};

// The forward variables of one step from those of the step before.
template <class T, int K>
void forward_step(const Emissions<T, K>& e, const Sample& s, int64_t row, const Jet<K>* before, Jet<K>* now) {
  const Jet<K> blank = e.at(row + s.states[0]);
  for (int64_t i = 0; i < s.count(); ++i) {
    Jet<K> sum = before[i];
    if (i >= 1) sum = sum + before[i - 1];
    if (s.skips(i)) sum = sum + before[i - 2];
    now[i] = sum.is_zero() ? sum : sum * (i % 2 ? e.at(row + s.states[size_t(i)]) : blank);
  }
}

template <class T, int K>
void forward_start(const Emissions<T, K>& e, const Sample& s, int64_t row, Jet<K>* now) {
  std::fill_n(now, s.count(), Jet<K>{});
  for (int64_t i = 0; i < std::min<int64_t>(2, s.count()); ++i) now[i] = e.at(row + s.states[size_t(i)]);
}

template <int K>
Jet<K> path_total(const Sample& s, const Jet<K>* last) {
  return s.count() > 1 ? last[s.count() - 1] + last[s.count() - 2] : last[0];
}

template <class T>
double loss_of(const Problem& p, const Emissions<T, 0>& e, const Sample& s) {
  if (s.hopeless()) return std::numeric_limits<double>::infinity();
  if (s.steps == 0) return 0;
  WorkVector<Jet<0>> before(s.states.size()), now(s.states.size());
  Poller poll;
  for (int64_t t = 0; t < s.steps; ++t, poll(8 * s.count())) {
    const int64_t row = p.row(s, t);
    t == 0 ? forward_start(e, s, row, now.data()) : forward_step(e, s, row, before.data(), now.data());
    std::swap(before, now);
  }
  return -path_total(s, before.data()).log();
}

template <class T>
void paths_typed(const KernelArgs& a) {
  const Problem p(a);
  const Emissions<T, 0> e(a);
  const bool zero = a.attr<bool>("zero_infinity");
  T* out = a.out[0].as<T>();
  parallel_for(p.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const T loss = T(loss_of(p, e, p.samples[size_t(n)]));
      out[n] = zero && loss == std::numeric_limits<T>::infinity() ? T(0) : loss;
    }
  });
}

// Steps backward from `later`, which includes the emissions of the later step; empty at the end of the sample.
template <int K>
void backward_step(const Sample& s, const WorkVector<Jet<K>>& later, WorkVector<Jet<K>>& now) {
  const int64_t n = s.count();
  for (int64_t i = 0; i < n; ++i) {
    if (later.empty()) {
      now[size_t(i)] = i + 2 >= n ? Jet<K>{1, 0} : Jet<K>{};
      continue;
    }
    Jet<K> sum = later[size_t(i)];
    if (i + 1 < n) sum = sum + later[size_t(i) + 1];
    if (i + 2 < n && s.skips(i + 2)) sum = sum + later[size_t(i) + 2];
    now[size_t(i)] = sum;
  }
}

template <class T, int K>
class Slope {
 public:
  Slope(const KernelArgs& a, const Problem& p)
      : p_(p), e_(a), zero_(a.attr<bool>("zero_infinity")), out_(a.out[0].as<T>()) {}

  void run(const Sample& s) {
    for (int64_t t = 0; t < p_.steps; ++t) std::fill_n(out_ + p_.row(s, t), p_.classes, T(0));
    if (s.steps == 0) return;
    const bool never = s.hopeless();
    if (never && zero_) return;
    if (!never) run_forward(s);
    const Jet<K> total = never ? Jet<K>{} : path_total(s, &forward_[size_t((s.steps - 1) * s.count())]);
    if (zero_ && total.is_zero()) return;
    for (int64_t t = 0; t < s.steps; ++t) add_classes(s, t);
    if (total.is_zero()) return fail(s);
    run_backward(s, inverse(total));
  }

 private:
  void run_forward(const Sample& s) {
    forward_.resize(size_t(times(s.steps, s.count())));
    for (int64_t t = 0; t < s.steps; ++t, poll_(16 * s.count())) {
      Jet<K>* now = &forward_[size_t(t * s.count())];
      t == 0 ? forward_start(e_, s, p_.row(s, t), now) : forward_step(e_, s, p_.row(s, t), now - s.count(), now);
    }
  }

  // The probabilities of the classes: the derivative of the normalization of log_probs.
  void add_classes(const Sample& s, int64_t t) {
    const int64_t row = p_.row(s, t);
    for (int64_t c = 0; c < p_.classes; ++c) out_[row + c] = T(e_.at(row + c).derivative());
    poll_(8 * p_.classes);
  }

  // Minus the probability that the path is in a state of the class at that step, given the labels.
  void run_backward(const Sample& s, const Jet<K>& scale) {
    WorkVector<Jet<K>> later, now(s.states.size());
    WorkVector<double> posterior(size_t(p_.classes), 0.0);
    for (int64_t t = s.steps - 1; t >= 0; --t, poll_(32 * s.count())) {
      const int64_t row = p_.row(s, t);
      backward_step(s, later, now);
      const Jet<K> blank = e_.at(row + s.states[0]);
      for (int64_t i = 0; i < s.count(); ++i) {
        const Jet<K>& before = forward_[size_t(t * s.count() + i)];
        const size_t state = size_t(s.states[size_t(i)]);
        if (now[size_t(i)].is_zero()) continue;
        if (!before.is_zero()) posterior[state] += (before * now[size_t(i)] * scale).derivative();
        now[size_t(i)] = now[size_t(i)] * (i % 2 ? e_.at(row + int64_t(state)) : blank);
      }
      for (int64_t state : s.states) {
        out_[row + state] = T(double(out_[row + state]) - posterior[size_t(state)]);
        posterior[size_t(state)] = 0;
      }
      if (later.empty()) later.resize(now.size());
      std::swap(later, now);
    }
  }

  // There is no path: the loss is infinite.
  void fail(const Sample& s) {
    for (int64_t t = 0; t < s.steps; ++t)
      std::fill_n(out_ + p_.row(s, t), p_.classes, std::numeric_limits<T>::quiet_NaN());
  }

  const Problem& p_;
  const Emissions<T, K> e_;
  const bool zero_;
  T* out_;
  WorkVector<Jet<K>> forward_;
  Poller poll_;
};

template <class T, int K>
void slope_typed(const KernelArgs& a) {
  const auto directions =
      size_t(std::count_if(a.in.begin() + kDirections, a.in.end(), [](const View& v) { return bool(v); }));
  if constexpr (K < 4)
    if (directions > size_t(K)) return slope_typed<T, K + 1>(a);
  const Problem p(a);
  parallel_for(p.batch, 1, [&](int64_t begin, int64_t end) {
    Slope<T, K> slope(a, p);
    for (int64_t n = begin; n < end; ++n) slope.run(p.samples[size_t(n)]);
  });
}

template <KernelFn float_kernel, KernelFn double_kernel>
void dispatch(const KernelArgs& a) {
  cpu::run_widened(a, [](const KernelArgs& wide) {
    (wide.in[kLogProbs].dtype() == DType::kFloat64 ? double_kernel : float_kernel)(wide);
  });
}

}  // namespace

void add_ctc_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"ctc_paths", dispatch<paths_typed<float>, paths_typed<double>>},
      {"ctc_slope", dispatch<slope_typed<float, 0>, slope_typed<double, 0>>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
