// Interpolation along one dim. T: the dtype of the elements; KIND; kCorners: whether the ends keep their positions.
namespace pg::kernels {

enum Kind { kNearest, kExact, kLinear, kCubic };
using C = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The elements that one element of the result is made of, and their weights. `last` is at most the last of them for a
// later element.
struct Tap {
  int count;
  int64_t from[4];
  double weight[4];
  int64_t last;
};

__device__ inline double clamped(double v, double low, double high) { return v < low ? low : v > high ? high : v; }
__device__ inline int64_t inside(int64_t i, int64_t in) { return i < 0 ? 0 : i >= in ? in - 1 : i; }

// Keys, Cubic convolution interpolation for digital image processing, 1981, with a = -0.75; the ends are repeated.
__device__ inline double near(double u) { return ((-0.75 + 2) * u - (-0.75 + 3)) * u * u + 1; }
__device__ inline double far(double u) { return -0.75 * u * (1 - u) * (1 - u); }  // for the distance 1 + u

__device__ inline Tap tap_of(const ResampleArgs& a, int64_t o) {
  if constexpr (KIND == kNearest || KIND == kExact) {
    // Rounded to single precision, so that a product that should be a whole number is one.
    const float at = float((double(o) + (KIND == kExact ? 0.5 : 0)) * a.step);
    const int64_t i = inside(at < 1e18f ? int64_t(at) : a.in, a.in);
    return {1, {i}, {1}, i};
  } else {
    double at = kCorners ? double(o) * a.step : (double(o) + 0.5) * a.step - 0.5;
    if constexpr (KIND == kCubic) {
      at = clamped(at, -2, double(a.in) + 1);
      const double start = std::floor(at), t = at - start;
      const int64_t i = int64_t(start);
      return {4,
              {inside(i - 1, a.in), inside(i, a.in), inside(i + 1, a.in), inside(i + 2, a.in)},
              {far(t), near(t), near(1 - t), far(1 - t)},
              inside(i + 2, a.in)};
    } else {
      at = clamped(at, 0, double(a.in));
      const int64_t i = inside(int64_t(at), a.in), next = inside(i + 1, a.in);
      const double share = clamped(at - double(i), 0, 1);
      return {share == 0 ? 1 : 2, {i, next}, {1 - share, share}, next};
    }
  }
}

PERIGEE_KERNEL(resample, ResampleArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t inner = i % a.inner, line = i / a.inner;
    const Tap tap = tap_of(a, line % a.out);
    const T* x = static_cast<const T*>(a.from) + line / a.out * a.in * a.inner + inner;
    C sum = C(widen(x[tap.from[0] * a.inner]));
    if (tap.count > 1) sum = C(tap.weight[0]) * sum;
    for (int k = 1; k < tap.count; ++k) sum += C(tap.weight[k]) * C(widen(x[tap.from[k] * a.inner]));
    static_cast<T*>(a.to)[i] = convert_one<T>(sum);
  }
}

// Each element of `in` adds up what the elements of `out` that read it have. These follow each other.
PERIGEE_KERNEL(resample_backward, ResampleArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t inner = i % a.inner, line = i / a.inner, own = line % a.in;
    const T* x = static_cast<const T*>(a.from) + line / a.in * a.out * a.inner + inner;
    int64_t first = 0, past = a.step < 0 ? 0 : a.out;
    while (first < past) {
      const int64_t middle = (first + past) / 2;
      if (tap_of(a, middle).last < own)
        first = middle + 1;
      else
        past = middle;
    }
    C sum = 0;
    for (int64_t o = first; o < a.out; ++o) {
      const Tap tap = tap_of(a, o);
      if (tap.from[0] > own && a.step >= 0) break;
      for (int k = 0; k < tap.count; ++k)
        if (tap.from[k] == own) sum += C(tap.weight[k]) * C(widen(x[o * a.inner]));
    }
    static_cast<T*>(a.to)[i] = convert_one<T>(sum);
  }
}

}  // namespace pg::kernels
