// The steps of loops that the device counts. T: an unsigned integer.
namespace pg::kernels {

// One thread.
PERIGEE_KERNEL(loop_next, LoopArgs) {
  const int64_t steps = a.first ? 0 : *a.steps + 1;
  const int64_t most = a.count && *a.count < a.limit ? *a.count : a.limit;
  *a.steps = steps;
  *a.more = steps < most && (!a.flag || *a.flag);
  if (*a.more) *a.number = a.reverse ? most - steps : steps + 1;
}

PERIGEE_KERNEL(loop_row, RowArgs) {
  const int64_t start = (*a.number - 1) * a.count;
  T* const to = static_cast<T*>(a.to) + (a.writes ? start : 0);
  const T* const from = static_cast<const T*>(a.from) + (a.writes ? 0 : start);
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) to[i] = from[i];
}

}  // namespace pg::kernels
