// Rows that a mask selects. T: the dtype of the elements; R: of the ranks.
namespace pg::kernels {

// The number of the row that a true element of the mask selects, from 0.
__device__ inline int64_t rank_of(const MaskArgs& a, int64_t r) {
  return int64_t(static_cast<const R*>(a.ranks)[r]) - 1;
}

// Calls f(element, its row, its column) for the elements of rows that the mask selects.
template <class F>
__device__ inline void each_selected(const MaskArgs& a, F f) {
  for (int64_t i = thread_index(); i < a.rows * a.row; i += thread_count()) {
    const int64_t r = i / a.row;
    if (a.mask[r]) f(i, r, i % a.row);
  }
}

PERIGEE_KERNEL(mask_read, MaskArgs) {
  each_selected(a, [&](int64_t i, int64_t r, int64_t j) {
    const int64_t p = rank_of(a, r);
    if (p < a.selected) static_cast<T*>(a.to)[p * a.row + j] = static_cast<const T*>(a.from)[i];
  });
}

template <bool kAdd>
__device__ inline void write(const MaskArgs& a) {
  each_selected(a, [&](int64_t i, int64_t r, int64_t j) {
    const int64_t p = a.one_row ? 0 : rank_of(a, r);
    if (p >= a.selected) return;
    T* const to = static_cast<T*>(a.to) + i;
    const T v = static_cast<const T*>(a.from)[p * a.row + j];
    *to = kAdd ? convert_one<T>(add(widen(*to), widen(v))) : v;
  });
}
PERIGEE_KERNEL(mask_write, MaskArgs) { write<false>(a); }
PERIGEE_KERNEL(mask_add, MaskArgs) { write<true>(a); }

// The positions of the true elements, one row each.
PERIGEE_KERNEL(mask_positions, MaskArgs) {
  for (int64_t i = thread_index(); i < a.rows; i += thread_count()) {
    if (!a.mask[i]) continue;
    int64_t* const to = static_cast<int64_t*>(a.to) + rank_of(a, i) * a.rank;
    int64_t left = i;
    for (int d = a.rank - 1; d >= 0; --d) {
      to[d] = left % a.size[d] + a.base;
      left /= a.size[d];
    }
  }
}

// One thread. Refuses another number of rows than the mask selects.
PERIGEE_KERNEL(mask_check, MaskArgs) {
  const int64_t count = a.rows > 0 ? rank_of(a, a.rows - 1) + 1 : 0;
  if (thread_index() == 0 && (a.at_least ? a.selected < count : a.selected != count))
    report(a.fault, a.report, count, 0);
}

}  // namespace pg::kernels
