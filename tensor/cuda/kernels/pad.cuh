// Arrays whose dims are widened or cut. T: the dtype of the elements; MODE: what lies outside.
namespace pg::kernels {

enum Mode { kConstant, kReplicate, kReflect, kCircular };

// Returns the offset in the source of element i of the padded array, or -1.
__device__ inline int64_t source_of(const PadArgs& a, int64_t i) {
  int64_t offset = 0;
  for (int d = a.rank - 1; d >= 0; --d) {
    const PadDim& dim = a.dims[d];
    int64_t s = i % dim.size - dim.before;
    i /= dim.size;
    if (s < 0 || s >= dim.source) {
      const bool low = s < 0;
      if constexpr (MODE == kConstant) return -1;
      if constexpr (MODE == kReplicate) s = low ? 0 : dim.source - 1;
      if constexpr (MODE == kReflect) s = low ? -s : 2 * (dim.source - 1) - s;
      if constexpr (MODE == kCircular) s = low ? s + dim.source : s - dim.source;
    }
    offset += s * dim.stride;
  }
  return offset;
}

PERIGEE_KERNEL(pad, PadArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t s = source_of(a, i);
    static_cast<T*>(a.to)[i] = s < 0 ? convert_one<T>(a.value) : static_cast<const T*>(a.from)[s];
  }
}

// Adds the elements of the padded array `from` to those that they came from, in any order; `to` holds doubles.
PERIGEE_KERNEL(pad_backward, PadArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t s = source_of(a, i);
    if (s >= 0) atomicAdd(static_cast<double*>(a.to) + s, double(widen(static_cast<const T*>(a.from)[i])));
  }
}

}  // namespace pg::kernels
