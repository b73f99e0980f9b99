// Bags of rows. T: the dtype of the elements; I: of the offsets.
namespace pg::kernels {

__device__ inline int64_t offset_at(const BagNumbersArgs& a, int64_t i) {
  return int64_t(static_cast<const I*>(a.offsets)[i]) - a.base;
}

PERIGEE_KERNEL(bag_check, BagNumbersArgs) {
  for (int64_t i = thread_index(); i < a.offset_count; i += thread_count()) {
    const int64_t v = offset_at(a, i);
    if (i == 0 && v != 0) report(a.fault, a.not_first, v + a.base, i);
    if (v < (i > 0 ? offset_at(a, i - 1) : 0) || v > a.length) report(a.fault, a.not_in_order, v + a.base, i);
    const bool end = i == a.offset_count - 1 && a.bags < a.offset_count;
    if (end && v != a.length) report(a.fault, a.not_last, v + a.base, i);
  }
}

// The last bag that starts at a position or before it.
PERIGEE_KERNEL(bag_numbers, BagNumbersArgs) {
  for (int64_t i = thread_index(); i < a.length; i += thread_count()) {
    int64_t low = 0, high = a.bags;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (offset_at(a, middle) <= i)
        low = middle + 1;
      else
        high = middle;
    }
    a.out[i] = low > 0 ? low - 1 : 0;
  }
}

// Calls f(key of the element, its row, its place in bags x columns).
template <class F>
__device__ inline void each_in_bag(const BagArgmaxArgs& a, F f) {
  for (int64_t i = thread_index(); i < a.rows * a.columns; i += thread_count()) {
    const int64_t row = i / a.columns, bag = a.bag[row];
    if (bag >= 0 && bag < a.bags)
      f(uint64_t(key_of(static_cast<const T*>(a.x)[i])), row, bag * a.columns + i % a.columns);
  }
}
PERIGEE_KERNEL(bag_largest, BagArgmaxArgs) {
  each_in_bag(a, [&](uint64_t key, int64_t, int64_t to) {
    atomicMax(reinterpret_cast<unsigned long long*>(a.keys + to), static_cast<unsigned long long>(key));
  });
}
// The first row with the largest key. As a number without a sign, -1 is larger than any row.
PERIGEE_KERNEL(bag_argmax, BagArgmaxArgs) {
  each_in_bag(a, [&](uint64_t key, int64_t row, int64_t to) {
    if (a.keys[to] == key)
      atomicMin(reinterpret_cast<unsigned long long*>(a.out + to), static_cast<unsigned long long>(row));
  });
}

}  // namespace pg::kernels
