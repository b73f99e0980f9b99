// Distances of one row from many rows at once.
#pragma once
#include <cstdint>

namespace pg::cpu {

// Rows in a packed block: 256 bytes of each element. A block of n elements a row has element k of row j at
// [k * kDistanceRows<T> + j].
template <class T>
inline constexpr int64_t kDistanceRows = 256 / int64_t(sizeof(T));

template <class T>
struct DistanceLoops {
  // For the rows j < count of a block: out[j] = the sum or the largest over all k < n, of the differences d of x[k] and
  // element k of row j. NaN is the largest. out has kDistanceRows<T> elements. Sums are made of sums of 64.
  using Loop = void (*)(const T* x, const T* block, int64_t n, int64_t count, T* out);
  Loop absolute_sum, square_sum, largest;  // of |d|, d^2, |d|
  // dx[k] += (x[k] - rows[j, k]) share[j] for the rows j < count in turn.
  void (*pull)(const T* x, const T* rows, int64_t width, int64_t count, const T* share, T* dx);
};

DistanceLoops<float> distance_loops(float);
DistanceLoops<double> distance_loops(double);

}  // namespace pg::cpu
