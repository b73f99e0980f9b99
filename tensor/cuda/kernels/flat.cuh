// Positions in a flattened array that index values for each of its dims name.
namespace pg::kernels {

__device__ inline int64_t position_in(const FlatArgs& a, int k, int64_t i) {
  switch (a.bytes[k]) {
    case 0:
      return position_of<uint8_t>(a.index[k], i);
    case 1:
      return position_of<int8_t>(a.index[k], i);
    case 4:
      return position_of<int32_t>(a.index[k], i);
    default:
      return position_of<int64_t>(a.index[k], i);
  }
}

// -1 where a value was refused.
PERIGEE_KERNEL(flat_positions, FlatArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    int64_t flat = 0;
    for (int k = 0; k < a.inputs && flat >= 0; ++k) {
      int64_t at = 0, rest = i;
      for (int d = a.rank - 1; d >= 0; --d) {
        at += rest % a.sizes[d] * a.strides[k][d];
        rest /= a.sizes[d];
      }
      const int64_t position = position_in(a, k, at);
      flat = position < 0 ? -1 : flat * a.index[k].size + position;
    }
    a.out[i] = flat < 0 ? -1 : flat + a.base;
  }
}

}  // namespace pg::kernels
