// Reads and writes at positions with weights, the same for all channels. T: float or double; OUTSIDE; kCorners.
namespace pg::kernels {

enum Outside { kZero, kBorder, kReflect };

// Returns the position, or -1 for none. Reports others.
__device__ inline int64_t position_of(const PointsArgs& a, int64_t at) {
  const int64_t i = a.index[at];
  if (i >= 0 && i < a.positions) return i;
  if (i != -1) report(a.fault, a.report, i, at);
  return -1;
}

PERIGEE_KERNEL(sample_points, PointsArgs) {
  for (int64_t i = thread_index(); i < a.batch * a.channels * a.points; i += thread_count()) {
    const int64_t p = i % a.points, plane = i / a.points;
    T sum = 0;
    for (int64_t k = 0; k < a.taps; ++k) {
      const int64_t at = (plane / a.channels * a.taps + k) * a.points + p, from = position_of(a, at);
      if (from < 0) continue;
      const T v = static_cast<const T*>(a.x)[plane * a.positions + from];
      sum += a.weight ? static_cast<const T*>(a.weight)[at] * v : v;
    }
    static_cast<T*>(a.out)[i] = sum;
  }
}

// Adds to the output, an array of doubles, in any order.
PERIGEE_KERNEL(sample_points_back, PointsArgs) {
  for (int64_t i = thread_index(); i < a.batch * a.channels * a.points; i += thread_count()) {
    const int64_t p = i % a.points, plane = i / a.points;
    const T dy = static_cast<const T*>(a.dy)[i];
    for (int64_t k = 0; k < a.taps; ++k) {
      const int64_t at = (plane / a.channels * a.taps + k) * a.points + p, to = position_of(a, at);
      if (to < 0) continue;
      atomicAdd(static_cast<double*>(a.out) + plane * a.positions + to,
                double(a.weight ? static_cast<const T*>(a.weight)[at] * dy : dy));
    }
  }
}

PERIGEE_KERNEL(sample_points_weight, PointsArgs) {
  for (int64_t i = thread_index(); i < a.batch * a.taps * a.points; i += thread_count()) {
    const int64_t p = i % a.points, image = i / a.points / a.taps, from = position_of(a, i);
    T sum = 0;
    for (int64_t c = 0; from >= 0 && c < a.channels; ++c) {
      const int64_t plane = image * a.channels + c;
      sum += static_cast<const T*>(a.dy)[plane * a.points + p] * static_cast<const T*>(a.x)[plane * a.positions + from];
    }
    static_cast<T*>(a.out)[i] = sum;
  }
}

// Turns an element number into one inside, or -1.
__device__ inline int64_t placed(int64_t i, int64_t size) {
  if constexpr (OUTSIDE == kBorder) return i < 0 ? 0 : i < size ? i : size - 1;
  if constexpr (OUTSIDE == kReflect) {
    const int64_t period = kCorners ? 2 * (size - 1) : 2 * size;
    if (period == 0) return 0;
    const int64_t at = (i % period + period) % period;
    return at < size ? at : kCorners ? period - at : period - 1 - at;
  }
  return i >= 0 && i < size ? i : -1;
}

// The taps of a point. The number of a tap has its number in each dim as digits, that of the last dim in the end.
PERIGEE_KERNEL(sample_taps, TapsArgs) {
  constexpr T kFar = 1 << 30;
  int all = 1;
  for (int d = 0; d < a.dims; ++d) all *= a.taps;
  for (int64_t i = thread_index(); i < a.batch * a.points; i += thread_count()) {
    int64_t start[3] = {};
    for (int d = 0; d < a.dims; ++d) {
      const T v = static_cast<const T*>(a.coordinates[d])[i];
      start[d] = int64_t(v > -kFar ? (v < kFar ? v : kFar) : -kFar) - (a.taps == 4);
    }
    for (int k = 0; k < all; ++k) {
      int64_t position = 0, scale = 1;
      int digits = k;
      for (int d = a.dims - 1; d >= 0; --d) {
        const int64_t at = placed(start[d] + digits % a.taps, a.size[d]);
        position = position < 0 || at < 0 ? -1 : position + at * scale;
        digits /= a.taps;
        scale *= a.size[d];
      }
      a.out[(i / a.points * all + k) * a.points + i % a.points] = int32_t(position);
    }
  }
}

}  // namespace pg::kernels
