// Losses over class labels. T: the dtype of the elements; L: of the labels.
namespace pg::kernels {

using C = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ inline C at(const void* list, int64_t i) { return static_cast<const C*>(list)[i]; }
// The place of class 0 of a sample. The other classes follow at distance inner.
__device__ inline int64_t place_of(const LabelArgs& a, int64_t i) { return i / a.inner * a.n * a.inner + i % a.inner; }
// Returns the class of a sample, or -1 if it is ignored. Reports other labels, which count as ignored.
__device__ inline int64_t label_of(const LabelArgs& a, int64_t i, bool reports = true) {
  const int64_t label = int64_t(static_cast<const L*>(a.target)[i]);
  if (label == a.ignore) return -1;
  if (label >= a.base && label - a.base < a.n) return label - a.base;
  if (reports) report(a.fault, a.report, label, i);
  return -1;
}
__device__ inline C factor_of(const LabelArgs& a, int64_t label) {
  return label < 0 ? C(0) : a.weight ? at(a.weight, label) : C(1);
}

__device__ inline void store_loss(const LabelArgs& a, int64_t i, int64_t label, C loss) {
  a.losses[i] = double(loss);
  a.factors[i] = double(factor_of(a, label));
}

PERIGEE_KERNEL(nll, LabelArgs) {
  for (int64_t i = thread_index(); i < a.samples; i += thread_count()) {
    const int64_t label = label_of(a, i);
    const T* x = static_cast<const T*>(a.x) + place_of(a, i);
    store_loss(a, i, label, label < 0 ? C(0) : -C(widen(x[label * a.inner])) * factor_of(a, label));
  }
}

PERIGEE_KERNEL(nll_dx, LabelArgs) {
  for (int64_t i = thread_index(); i < a.samples; i += thread_count()) {
    const int64_t label = label_of(a, i);
    if (label < 0) continue;
    static_cast<T*>(a.out)[place_of(a, i) + label * a.inner] =
        convert_one<T>(-at(a.scale, a.one_scale ? 0 : i) * factor_of(a, label));
  }
}

struct Maximum {
  __device__ double operator()(double a, double b) const { return a > b || a != a ? a : b; }
};
struct Sum {
  __device__ double operator()(double a, double b) const { return a + b; }
};
// Joins the values of the threads that share a sample: one, or those of the block.
template <bool kBlock, class F>
__device__ inline double joined(double* shared, double value, F f) {
  return kBlock ? over_block(shared, value, f) : value;
}

// (1 - s) w[t] (lse - x[t]) + s / n sum(w (lse - x))
template <bool kBlock>
__device__ inline void entropy_of(const LabelArgs& a, int64_t i, int64_t first, int64_t step, double* shared) {
  const T* x = static_cast<const T*>(a.x) + place_of(a, i);
  const auto element = [&](int64_t c) { return C(widen(x[c * a.inner])); };
  C top = -std::numeric_limits<C>::infinity();
  for (int64_t c = first; c < a.n; c += step) top = C(Maximum()(double(element(c)), double(top)));
  top = C(joined<kBlock>(shared, double(top), Maximum()));
  const bool finite = std::fabs(top) < std::numeric_limits<C>::infinity();
  C sum = 0, even = 0;
  for (int64_t c = first; finite && c < a.n; c += step) sum += std::exp(element(c) - top);
  const C total = C(joined<kBlock>(shared, double(sum), Sum()));
  const C lse = finite ? top + std::log(total) : top;
  if (a.smoothing != 0) {
    for (int64_t c = first; c < a.n; c += step) even += (a.weight ? at(a.weight, c) : C(1)) * (lse - element(c));
    even = C(joined<kBlock>(shared, double(even), Sum()));
  }
  if (first > 0) return;
  const int64_t label = label_of(a, i);
  static_cast<C*>(a.lse)[i] = lse;
  if (label < 0) return store_loss(a, i, label, 0);
  C loss = (1 - C(a.smoothing)) * factor_of(a, label) * (lse - element(label));
  if (a.smoothing != 0) loss += even * C(a.smoothing) / C(a.n);
  store_loss(a, i, label, loss);
}

PERIGEE_KERNEL(entropy_threads, LabelArgs) {
  for (int64_t i = thread_index(); i < a.samples; i += thread_count()) entropy_of<false>(a, i, 0, 1, nullptr);
}
PERIGEE_BLOCK_KERNEL(entropy_blocks, LabelArgs) {
  __shared__ double shared[256];
  entropy_of<true>(a, blockIdx.x, threadIdx.x, blockDim.x, shared);
}

// One block: the reduced loss, and the divisor of the mean.
PERIGEE_BLOCK_KERNEL(reduce_losses, LabelArgs) {
  __shared__ double shared[512];
  double loss = 0, share = 0;
  for (int64_t i = threadIdx.x; i < a.samples; i += blockDim.x) loss += a.losses[i], share += a.factors[i];
  loss = joined<true>(shared, loss, Sum());
  share = joined<true>(shared, share, Sum());
  if (threadIdx.x > 0) return;
  static_cast<T*>(a.out)[0] = convert_one<T>(a.mean ? loss / share : loss);
  static_cast<C*>(a.norm)[0] = a.mean ? C(share) : C(1);
}

PERIGEE_KERNEL(copy_losses, LabelArgs) {
  for (int64_t i = thread_index(); i < a.samples; i += thread_count())
    static_cast<T*>(a.out)[i] = convert_one<T>(a.losses[i]);
}

// One block: the sum of the weights, in `losses`.
PERIGEE_BLOCK_KERNEL(sum_weights, LabelArgs) {
  __shared__ double shared[512];
  double sum = 0;
  for (int64_t c = threadIdx.x; c < a.n; c += blockDim.x) sum += double(at(a.weight, c));
  sum = joined<true>(shared, sum, Sum());
  if (threadIdx.x == 0) a.losses[0] = sum;
}

// scale (a exp(x - lse) - (1 - s) w[t] [class = t] - s w / n) with a = (1 - s) w[t] + s sum(w) / n
PERIGEE_KERNEL(entropy_dx, LabelArgs) {
  const C even = C(a.smoothing) / C(a.n),
          rest = a.smoothing == 0 ? C(0) : even * (a.weight ? C(*a.weight_sum) : C(a.n));
  for (int64_t k = thread_index(); k < a.samples * a.n; k += thread_count()) {
    const int64_t c = k / a.inner % a.n, i = k / (a.inner * a.n) * a.inner + k % a.inner;
    const int64_t label = label_of(a, i, c == 0);
    C v = 0;
    if (label >= 0) {
      const C hit = (1 - C(a.smoothing)) * factor_of(a, label), scale = at(a.scale, a.one_scale ? 0 : i);
      v = scale * (hit + rest) * std::exp(C(widen(static_cast<const T*>(a.x)[k])) - at(a.lse, i));
      if (a.smoothing != 0) v -= scale * even * (a.weight ? at(a.weight, c) : C(1));
      if (c == label) v -= scale * hit;
    }
    static_cast<T*>(a.out)[k] = convert_one<T>(v);
  }
}

}  // namespace pg::kernels
