#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/reduce/distance_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/reduce/distance_simd.h"

#include <algorithm>

#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// take: joins a difference to a partial result. join: two partial results.
struct Sum {
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::Add(a, b);
  }
};

struct AbsoluteSum : Sum {
  template <class V>
  static HWY_INLINE V take(V part, V d) {
    return hn::Add(part, hn::Abs(d));
  }
};

struct SquareSum : Sum {
  template <class V>
  static HWY_INLINE V take(V part, V d) {
    return hn::Add(part, hn::Mul(d, d));
  }
};

struct Largest {
  template <class V>
  static HWY_INLINE V take(V part, V d) {
    return join(part, hn::Abs(d));
  }
  template <class V>
  static HWY_INLINE V join(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
  }
};

constexpr int64_t kPart = 64;  // elements of a partial sum

// kVectors vectors of rows.
template <class Op, int kVectors, class T>
HWY_INLINE void fold_vectors(const T* HWY_RESTRICT x, const T* HWY_RESTRICT rows, int64_t n, T* HWY_RESTRICT out) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> total[kVectors], part[kVectors];
  for (int u = 0; u < kVectors; ++u) total[u] = hn::Zero(d);
  for (int64_t begin = 0; begin < n; begin += kPart) {
    for (int u = 0; u < kVectors; ++u) part[u] = hn::Zero(d);
    for (int64_t k = begin, end = std::min(n, begin + kPart); k < end; ++k) {
      const auto v = hn::Set(d, x[k]);
      const T* row = rows + k * kDistanceRows<T>;
      for (int u = 0; u < kVectors; ++u) part[u] = Op::take(part[u], hn::Sub(v, hn::LoadU(d, row + u * lanes)));
    }
    for (int u = 0; u < kVectors; ++u) total[u] = Op::join(total[u], part[u]);
  }
  for (int u = 0; u < kVectors; ++u) hn::StoreU(total[u], d, out + u * lanes);
}

template <class Op, class T>
void fold(const T* x, const T* block, int64_t n, int64_t count, T* out) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<T>());
  for (int64_t j = 0; j < count;) {
    if (count - j > lanes) {
      fold_vectors<Op, 4>(x, block + j, n, out + j);
      j += 4 * lanes;
    } else {
      fold_vectors<Op, 1>(x, block + j, n, out + j);
      j += lanes;
    }
  }
}

// kVectors vectors of columns, of which `left` elements are used.
template <int kVectors, class T>
HWY_INLINE void pull_vectors(const T* HWY_RESTRICT x, const T* HWY_RESTRICT rows, int64_t width, int64_t left,
                             int64_t count, const T* HWY_RESTRICT share, T* HWY_RESTRICT dx) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> from[kVectors], sum[kVectors];
  const bool part = left < lanes;
  const auto load = [&](const T* p) HWY_ATTR { return part ? load_part(d, p, left) : hn::LoadU(d, p); };
  for (int u = 0; u < kVectors; ++u) from[u] = load(x + u * lanes), sum[u] = load(dx + u * lanes);
  for (int64_t j = 0; j < count; ++j) {
    const auto g = hn::Set(d, share[j]);
    for (int u = 0; u < kVectors; ++u)
      sum[u] = hn::Add(sum[u], hn::Mul(hn::Sub(from[u], load(rows + j * width + u * lanes)), g));
  }
  for (int u = 0; u < kVectors; ++u)
    part ? store_part(d, sum[u], dx + u * lanes, left) : hn::StoreU(sum[u], d, dx + u * lanes);
}

template <class T>
void pull(const T* x, const T* rows, int64_t width, int64_t count, const T* share, T* dx) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<T>());
  for (int64_t k = 0; k < width;) {
    const bool wide = width - k >= 4 * lanes;
    const auto loop = wide ? pull_vectors<4, T> : pull_vectors<1, T>;
    loop(x + k, rows + k, width, width - k, count, share, dx + k);
    k += wide ? 4 * lanes : lanes;
  }
}

template <class T>
DistanceLoops<T> loops_for() {
  return {fold<AbsoluteSum, T>, fold<SquareSum, T>, fold<Largest, T>, pull<T>};
}
DistanceLoops<float> float_distances() { return loops_for<float>(); }
DistanceLoops<double> double_distances() { return loops_for<double>(); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {
HWY_EXPORT(float_distances);
HWY_EXPORT(double_distances);
DistanceLoops<float> distance_loops(float) { return HWY_DYNAMIC_DISPATCH(float_distances)(); }
DistanceLoops<double> distance_loops(double) { return HWY_DYNAMIC_DISPATCH(double_distances)(); }
}  // namespace pg::cpu
#endif
