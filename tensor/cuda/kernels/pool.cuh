// Pooling, and windows as columns. One thread an element of the result. T: the dtype of the elements; I: an integer
// that counts them.
namespace pg::kernels {

using C = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The plane of element i of an array whose planes have these sizes, and its coordinates. A position has `channels`
// elements, of which this is number `channel`.
struct Place {
  int64_t plane, at[3], channel;
};
template <int64_t WindowAxis::*size>
__device__ inline Place place_of(const WindowAxis* axis, int64_t i, int64_t channels = 1) {
  Place p;
  I rest = I(i);
  p.channel = rest % I(channels);
  rest /= I(channels);
  for (int d = 2; d >= 0; --d) {
    p.at[d] = rest % I(axis[d].*size);
    rest /= I(axis[d].*size);
  }
  p.plane = rest;
  return p;
}

// The part of a window that lies inside the input. full: its elements, with padding.
struct Span {
  int64_t first, last, full;
};
__device__ inline Span window(const WindowAxis& a, int64_t o) {
  int64_t first = o * a.stride - a.padding;
  const int64_t end = first + a.kernel, most = a.in + a.padding, reach = first + (a.kernel - 1) * a.dilation + 1;
  const int64_t full = (end < most ? end : most) - first;
  if (first < 0) first += (-first + a.dilation - 1) / a.dilation * a.dilation;
  return {first, reach < a.in ? reach : a.in, full};
}
// The windows that element i is in, without dilation.
__device__ inline Span windows_with(const WindowAxis& a, int64_t i) {
  const int64_t before = i + a.padding - a.kernel, last = (i + a.padding) / a.stride + 1;
  return {before < 0 ? 0 : before / a.stride + 1, last < a.out ? last : a.out, 0};
}
__device__ inline int64_t length(const Span& s) { return s.last - s.first; }
__device__ inline bool empty(const Span& s) { return s.first >= s.last; }

// Calls f(position in the plane) for the elements of window p of the input.
template <class F>
__device__ inline void each_element(const WindowAxis* axis, const Span* w, F f) {
  for (int64_t z = w[0].first; z < w[0].last; z += axis[0].dilation)
    for (int64_t y = w[1].first; y < w[1].last; y += axis[1].dilation)
      for (int64_t x = w[2].first; x < w[2].last; x += axis[2].dilation) f((z * axis[1].in + y) * axis[2].in + x);
}
__device__ inline int64_t in_plane(const WindowAxis* axis) { return axis[0].in * axis[1].in * axis[2].in; }

PERIGEE_KERNEL(max_pool, PoolArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const Place p = place_of<&WindowAxis::out>(a.axis, i, a.channels);
    const T* x = static_cast<const T*>(a.x) + p.plane * in_plane(a.axis) * a.channels + p.channel;
    Span w[3];
    for (int d = 0; d < 3; ++d) w[d] = window(a.axis[d], p.at[d]);
    C best = -std::numeric_limits<C>::infinity();
    int64_t at = (w[0].first * a.axis[1].in + w[1].first) * a.axis[2].in + w[2].first;
    if (empty(w[0]) || empty(w[1]) || empty(w[2])) at = -1;
    each_element(a.axis, w, [&](int64_t k) {
      const C v = C(widen(x[k * a.channels]));
      if (v > best || v != v) best = v, at = k;
    });
    static_cast<T*>(a.y)[i] = convert_one<T>(best);
    if (a.index) a.index[i] = int32_t(at);
  }
}

__device__ inline C divisor_of(const PoolArgs& a, const Span* w) {
  if (a.divisor) return C(a.divisor);
  return C(a.counts_padding ? w[0].full * w[1].full * w[2].full : length(w[0]) * length(w[1]) * length(w[2]));
}

PERIGEE_KERNEL(avg_pool, PoolArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const Place p = place_of<&WindowAxis::out>(a.axis, i, a.channels);
    const T* x = static_cast<const T*>(a.x) + p.plane * in_plane(a.axis) * a.channels + p.channel;
    Span w[3];
    for (int d = 0; d < 3; ++d) w[d] = window(a.axis[d], p.at[d]);
    C sum = 0;
    each_element(a.axis, w, [&](int64_t k) { sum += C(widen(x[k * a.channels])); });
    static_cast<T*>(a.y)[i] = convert_one<T>(sum / divisor_of(a, w));
  }
}

// x: the gradient of the means.
PERIGEE_KERNEL(avg_pool_backward, PoolArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const Place p = place_of<&WindowAxis::in>(a.axis, i);
    const T* x = static_cast<const T*>(a.x) + p.plane * a.axis[0].out * a.axis[1].out * a.axis[2].out;
    Span o[3], w[3];
    for (int d = 0; d < 3; ++d) o[d] = windows_with(a.axis[d], p.at[d]);
    C sum = 0;
    for (int64_t z = o[0].first; z < o[0].last; ++z)
      for (int64_t y = o[1].first; y < o[1].last; ++y)
        for (int64_t k = o[2].first; k < o[2].last; ++k) {
          w[0] = window(a.axis[0], z), w[1] = window(a.axis[1], y), w[2] = window(a.axis[2], k);
          sum += C(widen(x[(z * a.axis[1].out + y) * a.axis[2].out + k])) / divisor_of(a, w);
        }
    static_cast<T*>(a.y)[i] = convert_one<T>(sum);
  }
}

// Whether position `at` of the index is in a plane. Reports it if not, unless it is -1: a window with only padding.
__device__ inline bool valid(const MovePoolArgs& a, int64_t at) {
  if (a.index[at] >= 0 && a.index[at] < a.plane) return true;
  if (a.index[at] != -1) report(a.fault, a.report, a.index[at], at);
  return false;
}

// Where the maximum of element i of the index is.
__device__ inline int64_t place_of_maximum(const MovePoolArgs& a, int64_t i) {
  const I channel = I(i) % I(a.channels), plane = I(i) / I(a.channels) / I(a.index_plane);
  return (int64_t(plane) * a.plane + a.index[i]) * a.channels + channel;
}

PERIGEE_KERNEL(max_pool_take, MovePoolArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count())
    static_cast<T*>(a.y)[i] =
        valid(a, i) ? static_cast<const T*>(a.x)[place_of_maximum(a, i)] : convert_one<T>(C(0));
}

// Adds to y, an array of doubles, in any order.
PERIGEE_KERNEL(max_pool_backward, MovePoolArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count())
    if (valid(a, i))
      atomicAdd(static_cast<double*>(a.y) + place_of_maximum(a, i), double(widen(static_cast<const T*>(a.x)[i])));
}

// Columns (plane, tap, window) of images (plane, rows, columns); the first axis has size 1.
PERIGEE_KERNEL(unfold, PoolArgs) {
  const WindowAxis &rows = a.axis[1], &columns = a.axis[2];
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    I rest = I(i);
    const int64_t ox = rest % I(columns.out), oy = (rest /= I(columns.out)) % I(rows.out);
    const int64_t kx = (rest /= I(rows.out)) % I(columns.kernel), ky = (rest /= I(columns.kernel)) % I(rows.kernel);
    const int64_t y = oy * rows.stride + ky * rows.dilation - rows.padding,
                  x = ox * columns.stride + kx * columns.dilation - columns.padding;
    const bool inside = y >= 0 && y < rows.in && x >= 0 && x < columns.in;
    static_cast<T*>(a.y)[i] = inside
                                  ? static_cast<const T*>(a.x)[(rest / I(rows.kernel) * rows.in + y) * columns.in + x]
                                  : convert_one<T>(C(0));
  }
}

// The window whose element number `tap` is element i, or -1.
__device__ inline int64_t window_at(const WindowAxis& a, int64_t i, int64_t tap) {
  const int64_t from = i + a.padding - tap * a.dilation;
  return from >= 0 && from % a.stride == 0 && from / a.stride < a.out ? from / a.stride : -1;
}

// Images that are the sums of columns.
PERIGEE_KERNEL(fold, PoolArgs) {
  const WindowAxis &rows = a.axis[1], &columns = a.axis[2];
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const Place p = place_of<&WindowAxis::in>(a.axis, i);
    const int64_t taps = rows.kernel * columns.kernel, windows = rows.out * columns.out;
    const T* x = static_cast<const T*>(a.x) + p.plane * taps * windows;
    C sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t oy = window_at(rows, p.at[1], tap / columns.kernel);
      const int64_t ox = window_at(columns, p.at[2], tap % columns.kernel);
      if (oy >= 0 && ox >= 0) sum += C(widen(x[tap * windows + oy * columns.out + ox]));
    }
    static_cast<T*>(a.y)[i] = convert_one<T>(sum);
  }
}

}  // namespace pg::kernels
