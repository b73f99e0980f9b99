// What several families use. Every source starts with this text.
namespace pg::kernels {

// Returns the 0-based position that value i of the index means, or -1 after a report.
template <class I>
__device__ inline int64_t position_of(const IndexArgs& a, int64_t i) {
  const int64_t v = int64_t(static_cast<const I*>(a.values)[i]);
  if (v >= a.base && v - a.base < a.size) return v - a.base;
  if (a.negative && v < 0 && v >= -a.size) return v + a.size;
  if (a.number) report(a.fault, a.number, v, i);
  return -1;
}

// An unsigned number in the order of the value. -0 equals 0, and NaN is larger than everything.
template <class V>
__device__ inline auto key_of(V v) {
  using W = decltype(widen(v));
  using Key = std::conditional_t<sizeof(W) == 8, uint64_t, uint32_t>;
  constexpr Key kSign = Key(1) << (8 * sizeof(Key) - 1);
  if constexpr (std::is_floating_point_v<W>) {
    const W w = widen(v);
    if (w != w) return ~Key(0);
    const Key bits = std::bit_cast<Key>(w == 0 ? W(0) : w);
    return bits & kSign ? Key(~bits) : Key(bits | kSign);
  } else {
    return Key(Key(v) ^ (std::is_signed_v<W> ? kSign : Key(0)));
  }
}

// Joins the values of the threads of a block that have the same place among `width` neighbours; all of them get the
// result. All threads of the block call it, of which there is a power of two; `shared` has an element for each.
template <class V, class F>
__device__ inline V over_block(V* shared, V value, F join, int width = 1) {
  const int thread = int(threadIdx.x);
  __syncthreads();  // what was read of the last call
  shared[thread] = value;
  for (int half = int(blockDim.x) / 2; half >= width; half /= 2) {
    __syncthreads();
    if (thread < half) shared[thread] = join(shared[thread], shared[thread + half]);
  }
  __syncthreads();
  return shared[thread % width];
}

// The values of the threads of a block joined in their order: afterwards shared[t] has those of threads 0 to t. All
// threads of the block call it; `shared` has an element for each.
template <class V, class F>
__device__ inline void scan_block(V* shared, V value, F join) {
  const int thread = int(threadIdx.x), threads = int(blockDim.x);
  __syncthreads();  // what was read of the last call
  shared[thread] = value;
  for (int step = 1; step < threads; step *= 2) {
    __syncthreads();
    if (thread >= step) value = join(shared[thread - step], value);
    __syncthreads();
    shared[thread] = value;
  }
  __syncthreads();
}

// Atomic operations on numbers of 64 bits.
__device__ inline void add_atomic(int64_t* to, int64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
__device__ inline void add_atomic(double* to, double value) { atomicAdd(to, value); }
// to = f(to). f is called again when another thread was faster.
template <class A, class F>
__device__ inline void update_atomic(A* to, F f) {
  unsigned long long* const word = reinterpret_cast<unsigned long long*>(to);
  for (unsigned long long seen = *word;;) {
    const unsigned long long next = std::bit_cast<unsigned long long>(f(std::bit_cast<A>(seen)));
    const unsigned long long before = next == seen ? seen : atomicCAS(word, seen, next);
    if (before == seen) return;
    seen = before;
  }
}

}  // namespace pg::kernels
