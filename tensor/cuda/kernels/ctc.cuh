// ctc_loss as in tensor/cpu/norm/kernels_ctc.cpp. T: the dtype of the elements; kDirections: how often the result is
// differentiated further. One block per sample; its threads share the states.
namespace pg::kernels {

constexpr int kSets = 1 << kDirections;
constexpr double kNever = -std::numeric_limits<double>::infinity();

// exp(log) (1 + the sum of part[S] e_S over the sets S of directions), see there.
struct Jet {
  double log;
  double part[kSets];

  __device__ static Jet of(double log) {
    Jet out = {log, {1}};
    return out;
  }
  __device__ double derivative() const { return std::exp(log) * part[kSets - 1]; }
};

// Calls f(U, S without U) for the subsets U of S other than S and the empty set.
template <class F>
__device__ inline void proper_subsets(int set, F f) {
  for (int u = (set - 1) & set; u > 0; u = (u - 1) & set) f(u, set & ~u);
}

__device__ inline Jet product(const Jet& a, const Jet& b) {
  Jet out = Jet::of(a.log + b.log);
  for (int s = 1; s < kSets; ++s) {
    double sum = a.part[s] + b.part[s];
    proper_subsets(s, [&](int u, int rest) { sum += a.part[u] * b.part[rest]; });
    out.part[s] = sum;
  }
  return out;
}
__device__ inline Jet inverse(const Jet& a) {
  Jet out = Jet::of(-a.log);
  for (int s = 1; s < kSets; ++s) {
    double sum = a.part[s];
    proper_subsets(s, [&](int u, int rest) { sum += a.part[u] * out.part[rest]; });
    out.part[s] = -sum;
  }
  return out;
}
__device__ inline Jet sum_of(const Jet& a, const Jet& b) {
  if (a.log == kNever) return b;
  if (b.log == kNever) return a;
  const double gap = std::exp(-std::fabs(a.log - b.log));
  const double x = a.log >= b.log ? 1 : gap, y = a.log >= b.log ? gap : 1;
  Jet out = Jet::of((a.log >= b.log ? a.log : b.log) + std::log(x + y));
  for (int s = 1; s < kSets; ++s) out.part[s] = (x * a.part[s] + y * b.part[s]) / (x + y);
  return out;
}

// exp of element i, moved along the directions.
__device__ inline Jet emission(const CtcArgs& a, int64_t i) {
  Jet out = Jet::of(double(static_cast<const T*>(a.x)[i]));
  for (int s = 1; s < kSets; ++s) {
    const int last = s & -s;
    int k = 0;
    while (last >> (k + 1)) ++k;
    out.part[s] = double(static_cast<const T*>(a.directions[k])[i]) * out.part[s ^ last];
  }
  return out;
}

// One sample. State s is a blank if s is even, else a label.
struct Sample {
  int64_t number, steps, labels, first;  // first: the place of its labels in `targets`
  int64_t good;                          // whether nothing was refused

  __device__ int64_t count() const { return 2 * labels + 1; }
  __device__ int64_t row(const CtcArgs& a, int64_t t) const { return (t * a.batch + number) * a.classes; }
  __device__ int64_t state(const CtcArgs& a, int64_t s) const {
    return s % 2 ? int64_t(a.targets[first + s / 2]) - 1 : a.blank;
  }
  // Whether a path may go from state s - 2 to state s.
  __device__ bool skips(const CtcArgs& a, int64_t s) const { return s % 2 && s >= 3 && state(a, s) != state(a, s - 2); }
  // Row r of the jets of this sample, of `rows`.
  __device__ Jet* jets(void* all, int64_t rows, int64_t r) const {
    return static_cast<Jet*>(all) + rows * (2 * first + number) + r * count();
  }
};

// Returns a length, or -1 after a report.
__device__ inline int64_t length_of(const CtcArgs& a, const double* lengths, int64_t n, int64_t most, int32_t number) {
  if (!lengths) return most;
  const double v = lengths[n];
  if (v >= 0 && v <= double(most) && v == std::floor(v)) return int64_t(v);
  report(a.fault, number, std::bit_cast<int64_t>(v), n);
  return -1;
}

__device__ inline Sample read_sample(const CtcArgs& a, int64_t n) {
  Sample s = {n, length_of(a, a.input_lengths, n, a.steps, a.bad_steps), 0, 0, 1};
  if (a.rows) {
    s.first = n * a.width;
    s.labels = length_of(a, a.target_lengths, n, a.width, a.bad_labels);
  } else {
    int64_t used = 0;
    for (int64_t i = 0; i < a.batch && s.good; ++i) {
      const int64_t labels = length_of(a, a.target_lengths, i, a.width, a.bad_labels);
      if (i == n) s.first = used, s.labels = labels;
      used += labels;
      s.good = labels >= 0 && used <= a.width;
    }
    if (s.steps >= 0 && used != a.width) {
      report(a.fault, a.bad_sum, used, 0);
      s.good = 0;
    }
  }
  if (s.steps < 0 || s.labels < 0) s.good = 0;
  return s;
}

// Reads and checks the sample of this block.
__device__ inline Sample checked_sample(const CtcArgs& a) {
  __shared__ Sample shared;
  if (threadIdx.x == 0) shared = read_sample(a, blockIdx.x);
  __syncthreads();
  const Sample s = shared;
  __syncthreads();
  for (int64_t i = threadIdx.x; s.good && i < s.labels; i += blockDim.x) {
    const double v = a.targets[s.first + i];
    if (v >= 1 && v <= double(a.classes) && v == std::floor(v) && v != double(a.blank + 1)) continue;
    report(a.fault, a.bad_target, std::bit_cast<int64_t>(v), s.first + i);
    shared.good = 0;
  }
  __syncthreads();
  return shared;
}

// The forward variables of all steps, of which the last `kept` stay.
__device__ inline void run_forward(const CtcArgs& a, const Sample& s) {
  for (int64_t t = 0; t < s.steps; ++t) {
    const Jet* before = s.jets(a.forward, a.kept, (t + a.kept - 1) % a.kept);
    Jet* now = s.jets(a.forward, a.kept, t % a.kept);
    for (int64_t i = threadIdx.x; i < s.count(); i += blockDim.x) {
      Jet sum = Jet::of(t > 0 || i > 1 ? kNever : 0.0);
      if (t > 0) {
        sum = before[i];
        if (i >= 1) sum = sum_of(sum, before[i - 1]);
        if (s.skips(a, i)) sum = sum_of(sum, before[i - 2]);
      }
      now[i] = sum.log == kNever ? sum : product(sum, emission(a, s.row(a, t) + s.state(a, i)));
    }
    __syncthreads();
  }
}
__device__ inline Jet path_total(const CtcArgs& a, const Sample& s) {
  const Jet* last = s.jets(a.forward, a.kept, (s.steps - 1) % a.kept);
  return s.count() > 1 ? sum_of(last[s.count() - 1], last[s.count() - 2]) : last[0];
}

PERIGEE_BLOCK_KERNEL(ctc_paths, CtcArgs) {
  const Sample s = checked_sample(a);
  if (!s.good) return;
  double loss = s.steps < s.labels ? -kNever : 0;
  if (loss == 0 && s.steps > 0) {
    run_forward(a, s);
    loss = -path_total(a, s).log;
  }
  if (threadIdx.x > 0) return;
  const T rounded = T(loss);
  static_cast<T*>(a.out)[s.number] = a.zero_infinity && rounded == std::numeric_limits<T>::infinity() ? T(0) : rounded;
}

// Sets the elements of the first `steps` steps. An element always belongs to the same thread.
template <class F>
__device__ inline void set_steps(const CtcArgs& a, const Sample& s, int64_t steps, F f) {
  for (int64_t k = threadIdx.x; k < steps * a.classes; k += blockDim.x) {
    const int64_t i = s.row(a, k / a.classes) + k % a.classes;
    static_cast<T*>(a.out)[i] = f(i);
  }
}

// Subtracts the probability that the path is in a state of the class at a step, given the labels.
__device__ inline void run_backward(const CtcArgs& a, const Sample& s, const Jet& scale) {
  double* const posterior = a.posterior + s.number * a.classes;
  const int64_t n = s.count();
  for (int64_t t = s.steps - 1; t >= 0; --t) {
    const Jet* later = s.jets(a.backward, 2, (t + 1) % 2);
    Jet* now = s.jets(a.backward, 2, t % 2);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      Jet sum = Jet::of(i + 2 >= n ? 0.0 : kNever);
      if (t < s.steps - 1) {
        sum = later[i];
        if (i + 1 < n) sum = sum_of(sum, later[i + 1]);
        if (i + 2 < n && s.skips(a, i + 2)) sum = sum_of(sum, later[i + 2]);
      }
      const Jet before = s.jets(a.forward, a.kept, t)[i];
      const int64_t state = s.state(a, i);
      if (before.log != kNever && sum.log != kNever)
        add_atomic(posterior + state, product(product(before, sum), scale).derivative());
      now[i] = sum.log == kNever ? sum : product(sum, emission(a, s.row(a, t) + state));
    }
    __syncthreads();
    for (int64_t c = threadIdx.x; c < a.classes; c += blockDim.x) {
      T* const to = static_cast<T*>(a.out) + s.row(a, t) + c;
      *to = T(double(*to) - posterior[c]);
      posterior[c] = 0;
    }
    __syncthreads();
  }
}

PERIGEE_BLOCK_KERNEL(ctc_slope, CtcArgs) {
  const Sample s = checked_sample(a);
  set_steps(a, s, a.steps, [](int64_t) { return T(0); });
  const bool never = s.steps < s.labels;
  if (!s.good || s.steps == 0 || (never && a.zero_infinity)) return;
  if (!never) run_forward(a, s);
  const Jet total = never ? Jet::of(kNever) : path_total(a, s);
  if (a.zero_infinity && total.log == kNever) return;
  // Where there is no path the loss is infinite. Else the probabilities of the classes are the derivative of the
  // normalization of log_probs.
  const bool fails = total.log == kNever;
  set_steps(a, s, s.steps, [&](int64_t i) {
    return fails ? std::numeric_limits<T>::quiet_NaN() : T(emission(a, i).derivative());
  });
  if (!fails) run_backward(a, s, inverse(total));
}

}  // namespace pg::kernels
