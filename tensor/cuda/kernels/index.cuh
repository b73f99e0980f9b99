// Reads at the positions of index values. T: the dtype of the elements; I: of the index.
namespace pg::kernels {

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
    const int64_t position = position_of<I>(a.index, at);
    if (position >= 0) out[i] = x[from + position * a.step];
  }
}

// Sets a one in each row of zeros.
PERIGEE_KERNEL(one_hot, PickArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t position = position_of<I>(a.index, i);
    if (position >= 0) static_cast<int64_t*>(a.out)[i * a.index.size + position] = 1;
  }
}

}  // namespace pg::kernels
