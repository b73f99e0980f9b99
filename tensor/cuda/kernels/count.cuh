// Counts of labels. L: the dtype of the labels.
namespace pg::kernels {

__device__ inline int64_t label_at(const CountArgs& a, int64_t i) {
  return int64_t(static_cast<const L*>(a.labels)[i]);
}

PERIGEE_BLOCK_KERNEL(count_range, CountArgs) {
  __shared__ int64_t shared[256];
  const auto larger = [](int64_t x, int64_t y) { return x > y ? x : y; };
  int64_t largest = std::numeric_limits<int64_t>::min(), left = 0;
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t label = label_at(a, i);
    if (label > largest) largest = label;
    if (left == 0 && (label < a.base || label >= a.base + a.limit)) left = a.count - i;
  }
  scan_block(shared, largest, larger);
  if (threadIdx.x == 0) atomicMax(a.seen, shared[blockDim.x - 1]);
  scan_block(shared, left, larger);
  if (threadIdx.x == 0) atomicMax(a.seen + 1, shared[blockDim.x - 1]);
}

PERIGEE_KERNEL(count_labels, CountArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t bin = label_at(a, i) - a.base;
    if (a.weights)
      add_atomic(static_cast<double*>(a.bins) + bin, a.weights[i]);
    else
      add_atomic(static_cast<int64_t*>(a.bins) + bin, int64_t(1));
  }
}

}  // namespace pg::kernels
