// Running sums, products and extremes, and y[i] = b[i] + a[i] y[i - 1], along the middle dim of outer x n x inner. T:
// the dtype of the elements; Out: of the results; kOp.
namespace pg::kernels {

enum ScanOp { kSum, kProd, kMax, kMin, kAffine };

constexpr bool kFloating = std::is_floating_point_v<T> || sizeof(T) == 2;
using Wide = std::conditional_t<kFloating, double, int64_t>;

// What elements of a line come to.
struct State {
  Wide value;
  Wide factor;  // kAffine: the product of the factors
  int64_t at;   // the position of the last element, or of the extreme; -1: there is no element
};
__device__ inline State none() { return {Wide(0), Wide(1), -1}; }

// Element k of a line, from its start or, with `reverse`, from its end.
__device__ inline int64_t place_of(const ScanArgs& a, int64_t line, int64_t k) {
  return (line / a.inner * a.n + (a.reverse ? a.n - 1 - k : k)) * a.inner + line % a.inner;
}
__device__ inline State state_of(const ScanArgs& a, int64_t line, int64_t k) {
  const Wide x = Wide(widen(static_cast<const T*>(a.x)[place_of(a, line, k)]));
  if constexpr (kOp == kAffine) {
    if (k == 0) return {x, Wide(0), k};
    return {x, Wide(widen(static_cast<const T*>(a.factors)[place_of(a, line, k - a.lag)])), k};
  }
  return {kOp == kSum ? add(Wide(0), x) : x, Wide(1), k};  // 0 + -0 = 0
}

// A product of finite numbers stays finite, so that 0 times it is 0.
__device__ inline Wide bounded_product(Wide a, Wide b) {
  constexpr Wide kMost = std::numeric_limits<Wide>::max();
  const Wide product = a * b;
  const bool finite = std::fabs(double(a)) <= kMost && std::fabs(double(b)) <= kMost;
  return finite && std::fabs(double(product)) > kMost ? Wide(std::copysign(double(kMost), double(product))) : product;
}

// The state of elements and of those that follow them.
struct Join {
  __device__ State operator()(const State& a, const State& b) const {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    if constexpr (kOp == kAffine) return {b.value + b.factor * a.value, bounded_product(a.factor, b.factor), b.at};
    if constexpr (kOp == kSum) return {add(a.value, b.value), Wide(1), b.at};
    if constexpr (kOp == kProd) return {mul(a.value, b.value), Wide(1), b.at};
    // The last of equal ones. NaN is never replaced but by NaN.
    const bool ahead = kOp == kMax ? b.value >= a.value : b.value <= a.value;
    return b.value != b.value || (a.value == a.value && ahead) ? b : a;
  }
};

__device__ inline void store_state(const ScanArgs& a, int64_t line, int64_t k, const State& s) {
  const int64_t i = place_of(a, line, k);
  static_cast<Out*>(a.out)[i] = convert_one<Out>(s.value);
  if constexpr (kOp == kMax || kOp == kMin) static_cast<int64_t*>(a.indices)[i] = s.at + a.base;
}

// One thread per line.
PERIGEE_KERNEL(scan_threads, ScanArgs) {
  for (int64_t line = thread_index(); line < a.outer * a.inner; line += thread_count()) {
    State s = none();
    for (int64_t k = 0; k < a.n; ++k) {
      s = Join()(s, state_of(a, line, k));
      store_state(a, line, k, s);
    }
  }
}

// One block per part of a line. Either stores the states of the elements, or returns that of the part.
template <bool kStore>
__device__ inline State scan_part(const ScanArgs& a) {
  __shared__ State shared[256];
  const Join join;
  const int64_t line = blockIdx.x / a.parts, part = blockIdx.x % a.parts, begin = part * a.length;
  const int64_t end = begin + a.length < a.n ? begin + a.length : a.n;
  State carry = kStore && part > 0 ? static_cast<const State*>(a.states)[blockIdx.x - 1] : none();
  for (int64_t tile = begin; tile < end; tile += int64_t(blockDim.x) * kScanItems) {
    const int64_t first = tile + int64_t(threadIdx.x) * kScanItems,
                  last = first + kScanItems < end ? first + kScanItems : end;
    State own = none();
    for (int64_t k = first; k < last; ++k) own = join(own, state_of(a, line, k));
    scan_block(shared, own, join);
    if constexpr (kStore) {
      State s = threadIdx.x > 0 ? join(carry, shared[threadIdx.x - 1]) : carry;
      for (int64_t k = first; k < last; ++k) {
        s = join(s, state_of(a, line, k));
        store_state(a, line, k, s);
      }
    }
    carry = join(carry, shared[blockDim.x - 1]);
  }
  return carry;
}

PERIGEE_BLOCK_KERNEL(scan_parts, ScanArgs) { scan_part<true>(a); }
PERIGEE_BLOCK_KERNEL(scan_totals, ScanArgs) {
  const State total = scan_part<false>(a);
  if (threadIdx.x == 0) static_cast<State*>(a.states)[blockIdx.x] = total;
}
// One block per line: the state of each part becomes that of all elements up to its end.
PERIGEE_BLOCK_KERNEL(scan_states, ScanArgs) {
  __shared__ State shared[256];
  const Join join;
  State* const states = static_cast<State*>(a.states) + int64_t(blockIdx.x) * a.parts;
  State carry = none();
  for (int64_t tile = 0; tile < a.parts; tile += blockDim.x) {
    const int64_t i = tile + threadIdx.x;
    scan_block(shared, i < a.parts ? states[i] : none(), join);
    if (i < a.parts) states[i] = join(carry, shared[threadIdx.x]);
    carry = join(carry, shared[blockDim.x - 1]);
  }
}

}  // namespace pg::kernels
