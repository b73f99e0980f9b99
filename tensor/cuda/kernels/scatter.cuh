// Writes at the positions of index values. T: the dtype of the elements; I: of the index; W: counts the elements.
namespace pg::kernels {

// What element i of the index tells to write.
struct Target {
  int64_t from, to;  // the places of the elements
  int64_t last;      // in `last`
  W number;          // larger for what is written later
};
// Calls f(target) for the elements of the index.
template <class F>
__device__ inline void each_target(const ScatterArgs& a, F f) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    Target t = {};
    int64_t at = 0, rest = i;
    for (int d = a.rank - 1; d >= 0; --d) {
      const ScatterDim& dim = a.dims[d];
      const int64_t c = rest % dim.size;
      rest /= dim.size;
      t.from += c * dim.from;
      t.to += c * dim.to;
      t.last += c * dim.last;
      t.number += W(c * dim.number);
      at += c * dim.index;
    }
    const int64_t position = position_of<I>(a.index, at);
    if (position < 0) continue;
    t.to += position * a.step;
    t.last += position * a.last_step;
    f(t);
  }
}

// Of several elements for one place the last is written: its number is the largest in `last`.
PERIGEE_KERNEL(scatter_last, ScatterArgs) {
  each_target(a, [&](const Target& t) { atomicMax(static_cast<W*>(a.last) + t.last, t.number); });
}
PERIGEE_KERNEL(scatter_set, ScatterArgs) {
  each_target(a, [&](const Target& t) {
    if (!a.last || static_cast<const W*>(a.last)[t.last] == t.number)
      static_cast<T*>(a.to)[t.to] = static_cast<const T*>(a.from)[t.from];
  });
}

// to += alpha * from, also when other threads add to it.
template <class V>
__device__ inline void add_to(V* to, V from, double alpha) {
  if constexpr (std::is_same_v<V, float> || std::is_same_v<V, double> || std::is_same_v<V, int32_t>) {
    atomicAdd(to, std::is_floating_point_v<V> ? V(from * V(alpha)) : V(mul(from, V(alpha))));
  } else if constexpr (std::is_same_v<V, int64_t>) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(mul(from, V(alpha))));
  } else {  // of one byte, by the word that holds it
    static_assert(sizeof(V) == 1);
    const uint64_t address = reinterpret_cast<uint64_t>(to);
    unsigned int* word = reinterpret_cast<unsigned int*>(address & ~uint64_t(3));
    const int shift = int(address & 3) * 8;
    const unsigned int mask = 0xffu << shift;
    for (unsigned int seen = *word;;) {
      const V sum = add(std::bit_cast<V>(uint8_t((seen & mask) >> shift)), mul(from, V(alpha)));
      const unsigned int next = (seen & ~mask) | (unsigned(std::bit_cast<uint8_t>(sum)) << shift);
      const unsigned int before = atomicCAS(word, seen, next);
      if (before == seen) return;
      seen = before;
    }
  }
}

constexpr bool kFloating = std::is_floating_point_v<T> || sizeof(T) == 2;

// Sums of 16-bit floats are float32, which `to` has.
PERIGEE_KERNEL(scatter_add, ScatterArgs) {
  using Sum = std::conditional_t<sizeof(T) == 2, float, T>;
  each_target(a, [&](const Target& t) {
    add_to(static_cast<Sum*>(a.to) + t.to, Sum(widen(static_cast<const T*>(a.from)[t.from])), a.alpha);
  });
}

// scatter_reduce in numbers of 64 bits, which `to` has.
using A = std::conditional_t<kFloating, double, int64_t>;

__device__ inline A neutral(int32_t reduce) {
  if (reduce == kReduceProduct) return A(1);
  constexpr uint64_t kInfinity = 0x7ff0000000000000u, kSign = 0x8000000000000000u;
  if (reduce == kReduceLargest) return std::bit_cast<A>(kFloating ? kInfinity | kSign : kSign);
  if (reduce == kReduceSmallest) return std::bit_cast<A>(kFloating ? kInfinity : ~kSign);
  return A(0);
}

// The element of x does not count where the index names its place.
PERIGEE_KERNEL(reduce_clear, ScatterArgs) {
  each_target(a, [&](const Target& t) { static_cast<A*>(a.to)[t.to] = neutral(a.reduce); });
}

PERIGEE_KERNEL(reduce_into, ScatterArgs) {
  each_target(a, [&](const Target& t) {
    A* const to = static_cast<A*>(a.to) + t.to;
    const A from = A(widen(static_cast<const T*>(a.from)[t.from]));
    if (a.counts) add_atomic(a.counts + t.to, int64_t(1));
    if (a.reduce == kReduceProduct) return update_atomic(to, [&](A v) { return mul(v, from); });
    if (a.reduce == kReduceLargest) return update_atomic(to, [&](A v) { return maximum(v, from); });
    if (a.reduce == kReduceSmallest) return update_atomic(to, [&](A v) { return minimum(v, from); });
    add_atomic(to, from);
  });
}

__device__ inline double mean_of(double sum, int64_t count) { return sum / double(count); }
// Rounded down. The sum is that of the dtype.
__device__ inline int64_t mean_of(int64_t sum, int64_t count) {
  const int64_t own = int64_t(widen(convert_one<T>(sum)));
  return own / count - (own % count < 0);
}

// Elements [0, count) of `from`, which are numbers of 64 bits, or their means.
PERIGEE_KERNEL(reduce_finish, ScatterArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const A v = static_cast<const A*>(a.from)[i];
    static_cast<T*>(a.to)[i] = convert_one<T>(a.counts && a.counts[i] > 1 ? mean_of(v, a.counts[i]) : v);
  }
}

}  // namespace pg::kernels
