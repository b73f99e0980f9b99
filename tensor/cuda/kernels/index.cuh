// Kernels that read or write at the positions of index values. T: the dtype of the elements; I: of the index.
namespace pg::kernels {

// Returns the 0-based position that value i of the index means, or -1 after a report.
__device__ inline int64_t position_of(const IndexArgs& a, int64_t i) {
  const int64_t v = int64_t(static_cast<const I*>(a.values)[i]);
  if (v >= a.base && v - a.base < a.size) return v - a.base;
  if (a.negative && v < 0 && v >= -a.size) return v + a.size;
  report(a.fault, a.number, v, i);
  return -1;
}

PERIGEE_KERNEL(pick, PickArgs) {
  const T* x = static_cast<const T*>(a.x);
  T* out = static_cast<T*>(a.out);
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    int64_t from = 0, at = 0, rest = i;
    for (int d = a.rank - 1; d >= 0; --d) {
      const int64_t c = rest % a.dims[d].size;
      rest /= a.dims[d].size;
      from += c * a.dims[d].stride;
      at += c * a.dims[d].stride2;
    }
    const int64_t position = position_of(a.index, at);
    if (position >= 0) out[i] = x[from + position * a.step];
  }
}

template <class V>
__device__ inline V scaled_sum(V to, V from, double alpha) {
  if constexpr (sizeof(V) == 2) {
    return convert_one<V>(widen(to) + widen(from) * float(alpha));
  } else if constexpr (std::is_floating_point_v<V>) {
    return to + from * V(alpha);
  } else {
    return add(to, mul(from, V(alpha)));
  }
}

// to += alpha * from, also when other threads add to it.
template <class V>
__device__ inline void add_to(V* to, V from, double alpha) {
  if constexpr (std::is_same_v<V, float> || std::is_same_v<V, double> || std::is_same_v<V, int32_t>) {
    atomicAdd(to, std::is_floating_point_v<V> ? V(from * V(alpha)) : V(mul(from, V(alpha))));
  } else if constexpr (std::is_same_v<V, int64_t>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(mul(from, V(alpha))));
  } else {  // by the word that holds the element
    const uint64_t address = reinterpret_cast<uint64_t>(to);
    unsigned int* word = reinterpret_cast<unsigned int*>(address & ~uint64_t(3));
    const int shift = int(address & 3) * 8;
    const unsigned int mask = (sizeof(V) == 2 ? 0xffffu : 0xffu) << shift;
    using Bits = std::conditional_t<sizeof(V) == 2, uint16_t, uint8_t>;
    for (unsigned int seen = *word;;) {
      const V sum = scaled_sum(std::bit_cast<V>(Bits((seen & mask) >> shift)), from, alpha);
      const unsigned int next = (seen & ~mask) | (unsigned(std::bit_cast<Bits>(sum)) << shift);
      const unsigned int before = atomicCAS(word, seen, next);
      if (before == seen) return;
      seen = before;
    }
  }
}

template <bool kAdd>
__device__ inline void scatter(const ScatterArgs& a) {
  const T* x = static_cast<const T*>(a.from);
  T* out = static_cast<T*>(a.to);
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    int64_t from = 0, to = 0, at = 0, rest = i;
    for (int d = a.rank - 1; d >= 0; --d) {
      const int64_t c = rest % a.dims[d].size;
      rest /= a.dims[d].size;
      from += c * a.from_strides[d];
      to += c * a.dims[d].stride;
      at += c * a.dims[d].stride2;
    }
    const int64_t position = position_of(a.index, at);
    if (position < 0) continue;
    if constexpr (kAdd)
      add_to(out + to + position * a.step, x[from], a.alpha);
    else
      out[to + position * a.step] = x[from];
  }
}
PERIGEE_KERNEL(scatter_add, ScatterArgs) { scatter<true>(a); }
PERIGEE_KERNEL(scatter_set, ScatterArgs) { scatter<false>(a); }

// Sets a one in each row of zeros.
PERIGEE_KERNEL(one_hot, PickArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t position = position_of(a.index, i);
    if (position >= 0) static_cast<int64_t*>(a.out)[i * a.index.size + position] = 1;
  }
}

}  // namespace pg::kernels
