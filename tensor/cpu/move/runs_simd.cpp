#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/move/runs_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/move/runs_simd.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> reversed(D d, hn::Vec<D> v) {
  if constexpr (sizeof(T) > 1 || hn::MaxLanes(D()) == 1) {
    return hn::Reverse(d, v);
  } else {
    const hn::Repartition<uint16_t, D> pairs;
    const auto p = hn::Reverse(pairs, hn::BitCast(pairs, v));
    return hn::BitCast(d, hn::Or(hn::ShiftLeft<8>(p), hn::ShiftRight<8>(p)));
  }
}

// A vector of the elements from number i of a run on, by the step of the run.
template <int kStep, class D, class T>
HWY_INLINE hn::Vec<D> load_run(D d, const T* from, int64_t i) {
  if constexpr (kStep == 0) return hn::Set(d, *from);
  if constexpr (kStep == 1) return hn::LoadU(d, from + i);
  if constexpr (kStep == -1) return reversed(d, hn::LoadU(d, from - i - (int64_t(hn::Lanes(d)) - 1)));
}

// A run is a sequence of vectors, of which the last one may overlap its neighbour. Here it is one or two of them.
template <int kStep, int kVectors, class D, class T>
HWY_INLINE void copy_short(D d, int64_t n, int64_t count, const T* from, int64_t from_run, T* to, int64_t to_run) {
  const int64_t last = n - int64_t(hn::Lanes(d));
  PERIGEE_UNROLL_BY_4
  for (int64_t r = 0; r < count; ++r, from += from_run, to += to_run) {
    if constexpr (kVectors == 2) hn::StoreU(load_run<kStep>(d, from, 0), d, to);
    hn::StoreU(load_run<kStep>(d, from, last), d, to + last);
  }
}

// Of runs that are no shorter than a vector of kBytes.
template <int kStep, size_t kBytes, class T>
void copy_vectors(int64_t n, int64_t count, const T* from, int64_t, int64_t from_run, T* to, int64_t to_run) {
  const hn::CappedTag<T, kBytes / sizeof(T)> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  if (n == lanes) return copy_short<kStep, 1>(d, n, count, from, from_run, to, to_run);
  if (n <= 2 * lanes) return copy_short<kStep, 2>(d, n, count, from, from_run, to, to_run);
  const int64_t last = n - lanes;
  for (int64_t r = 0; r < count; ++r, from += from_run, to += to_run) {
    for (int64_t i = 0; i < last; i += lanes) hn::StoreU(load_run<kStep>(d, from, i), d, to + i);
    hn::StoreU(load_run<kStep>(d, from, last), d, to + last);
  }
}

template <int kStep, class T, size_t kBytes = std::min<size_t>(HWY_MAX_BYTES, 64)>
CopyRuns<T> vector_copier(int64_t n) {
  if constexpr (kBytes > sizeof(T))
    if (n * sizeof(T) < kBytes) return vector_copier<kStep, T, kBytes / 2>(n);
  return copy_vectors<kStep, kBytes, T>;
}

// The first elements of a run whose step is `kStep`: as many as vectors hold that reach no further than to the element
// after them. Returns how many.
template <int kStep, class T>
HWY_INLINE int64_t copy_spread(int64_t n, const T* from, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (hn::Vec<decltype(d)> v[4]; i + lanes < n; i += lanes, from += kStep * lanes) {
    if constexpr (kStep == 2) hn::LoadInterleaved2(d, from, v[0], v[1]);
    if constexpr (kStep == 3) hn::LoadInterleaved3(d, from, v[0], v[1], v[2]);
    if constexpr (kStep == 4) hn::LoadInterleaved4(d, from, v[0], v[1], v[2], v[3]);
    hn::StoreU(v[0], d, to + i);
  }
  return i;
}

// Of runs of any step.
template <class T>
void copy_elements(int64_t n, int64_t count, const T* from, int64_t step, int64_t from_run, T* to, int64_t to_run) {
  for (int64_t r = 0; r < count; ++r, from += from_run, to += to_run) {
    int64_t i = 0;
    if (step == 2) i = copy_spread<2>(n, from, to);
    if (step == 3) i = copy_spread<3>(n, from, to);
    if (step == 4) i = copy_spread<4>(n, from, to);
    for (; i < n; ++i) to[i] = from[i * step];
  }
}

template <class T>
CopyRuns<T> copier(int64_t n, int64_t step) {
  if (step == 1) return vector_copier<1, T>(n);
  if (step == 0) return vector_copier<0, T>(n);
  if (step == -1) return vector_copier<-1, T>(n);
  return copy_elements<T>;
}

// For Highway's table, which has no templates.
CopyRuns<uint8_t> bytes(int64_t n, int64_t step) { return copier<uint8_t>(n, step); }
CopyRuns<uint16_t> halves(int64_t n, int64_t step) { return copier<uint16_t>(n, step); }
CopyRuns<uint32_t> words(int64_t n, int64_t step) { return copier<uint32_t>(n, step); }
CopyRuns<uint64_t> long_words(int64_t n, int64_t step) { return copier<uint64_t>(n, step); }

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

#define PERIGEE_COPIER(name, T)                         \
  HWY_EXPORT(name);                                     \
  template <>                                           \
  CopyRuns<T> runs_copier<T>(int64_t n, int64_t step) { \
    return HWY_DYNAMIC_DISPATCH(name)(n, step);         \
  }
PERIGEE_COPIER(bytes, uint8_t)
PERIGEE_COPIER(halves, uint16_t)
PERIGEE_COPIER(words, uint32_t)
PERIGEE_COPIER(long_words, uint64_t)
#undef PERIGEE_COPIER

}  // namespace pg::cpu
#endif
