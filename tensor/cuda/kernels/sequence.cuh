// Batches of sequences of different lengths. T: the dtype of the elements; L: of the lengths.
namespace pg::kernels {

// Returns the length of a sequence, or -1 after a report of one that is not allowed.
__device__ inline int64_t length_of(const SequenceArgs& a, int64_t b) {
  if (!a.lengths) return a.steps;
  const double v = double(widen(static_cast<const L*>(a.lengths)[b]));
  if (v >= double(a.least) && v <= double(a.steps) && v == std::floor(v)) return int64_t(v);
  report(a.fault, a.report, std::bit_cast<int64_t>(v), b);
  return -1;
}

// An element of (time, batch, rest) or (batch, time, rest).
struct Place {
  int64_t t, b, rest;
};
__device__ inline Place place_of(const SequenceArgs& a, int64_t i) {
  const int64_t row = i / a.rest;
  if (a.time_first) return {row / a.batch, row % a.batch, i % a.rest};
  return {row % a.steps, row / a.steps, i % a.rest};
}
__device__ inline int64_t offset_of(const SequenceArgs& a, const Place& p) {
  return (a.time_first ? p.t * a.batch + p.b : p.b * a.steps + p.t) * a.rest + p.rest;
}

PERIGEE_KERNEL(sequence_mask, SequenceArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const Place p = place_of(a, i);
    static_cast<T*>(a.out)[i] = p.t < length_of(a, p.b) ? static_cast<const T*>(a.x)[i] : convert_one<T>(a.value);
  }
}

PERIGEE_KERNEL(sequence_reverse, SequenceArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    Place p = place_of(a, i);
    const int64_t n = length_of(a, p.b);
    if (p.t < n) p.t = n - 1 - p.t;
    static_cast<T*>(a.out)[i] = static_cast<const T*>(a.x)[offset_of(a, p)];
  }
}

PERIGEE_KERNEL(sequence_last, SequenceArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t n = length_of(a, i / a.rest);
    if (n > 0) static_cast<T*>(a.out)[i] = static_cast<const T*>(a.x)[offset_of(a, {n - 1, i / a.rest, i % a.rest})];
  }
}

PERIGEE_KERNEL(sequence_last_backward, SequenceArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const Place p = place_of(a, i);
    static_cast<T*>(a.out)[i] =
        p.t == length_of(a, p.b) - 1 ? static_cast<const T*>(a.x)[p.b * a.rest + p.rest] : convert_one<T>(0.0);
  }
}

}  // namespace pg::kernels
