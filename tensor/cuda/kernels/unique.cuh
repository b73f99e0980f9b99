// Groups of equal neighbors in an order of slices. T: the dtype of the elements; R: of the ranks.
namespace pg::kernels {

__device__ inline int64_t slice_at(const UniqueArgs& a, int64_t i) { return a.order ? a.order[i] : i; }

// NaN is not equal to NaN.
__device__ inline bool same(const UniqueArgs& a, int64_t p, int64_t q) {
  const T* x = static_cast<const T*>(a.x);
  for (int64_t o = 0; o < a.outer; ++o)
    for (int64_t i = 0; i < a.inner; ++i)
      if (!(widen(x[(o * a.n + p) * a.inner + i]) == widen(x[(o * a.n + q) * a.inner + i]))) return false;
  return true;
}

PERIGEE_KERNEL(unique_starts, UniqueArgs) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count())
    a.starts[i] = i == 0 || !same(a, slice_at(a, i), slice_at(a, i - 1));
}

// Where the groups start, and the group of each slice.
PERIGEE_KERNEL(unique_groups, UniqueArgs) {
  for (int64_t i = thread_index(); i < a.n; i += thread_count()) {
    const int64_t group = int64_t(static_cast<const R*>(a.ranks)[i]) - 1;
    if (a.starts[i]) a.firsts[group] = i;
    if (a.inverse) a.inverse[slice_at(a, i)] = group + a.base;
  }
}

PERIGEE_KERNEL(unique_values, UniqueArgs) {
  for (int64_t k = thread_index(); k < a.outer * a.count * a.inner; k += thread_count()) {
    const int64_t i = k % a.inner, group = k / a.inner % a.count, o = k / a.inner / a.count;
    const int64_t slice = slice_at(a, a.firsts[group]);
    static_cast<T*>(a.values)[k] = static_cast<const T*>(a.x)[(o * a.n + slice) * a.inner + i];
  }
}

PERIGEE_KERNEL(unique_counts, UniqueArgs) {
  for (int64_t u = thread_index(); u < a.count; u += thread_count())
    a.counts[u] = (u + 1 < a.count ? a.firsts[u + 1] : a.n) - a.firsts[u];
}

}  // namespace pg::kernels
