// The inner loops of softmax, log_softmax and their derivatives, for float and double. `log` chooses log_softmax.
#pragma once
#include <cstdint>

namespace pg::cpu {

template <class T>
struct SoftmaxLoops {
  // `count` rows of n contiguous elements.
  void (*rows)(bool log, const T* x, T* y, int64_t count, int64_t n);
  // The same past the caches, see writes_past_caches. n <= kStreamedRow.
  decltype(rows) stream_rows;
  void (*rows_backward)(bool log, const T* y, const T* dy, T* dx, int64_t count, int64_t n);
  decltype(rows_backward) stream_rows_backward;
  // logsumexp of each row, and in `rest`, unless it is null, what is missing from `out` because T rounds it.
  void (*log_sum_exp)(const T* x, T* out, T* rest, int64_t count, int64_t n);
  // dx = a exp(x - lse - rest) - b along a row: the part of the cross entropy gradient that does not depend on the
  // label.
  void (*scaled_exp)(const T* x, T lse, T rest, T a, T b, T* dx, int64_t n);
  // `width` <= kSoftmaxTile adjacent columns of n elements; rows are `stride` elements apart.
  void (*columns)(bool log, const T* x, T* y, int64_t n, int64_t stride, int64_t width);
  void (*columns_log_sum_exp)(const T* x, T* out, T* rest, int64_t n, int64_t stride, int64_t width);
  // scaled_exp of each column, with an lse, rest, a and b of its own.
  void (*columns_scaled_exp)(const T* x, const T* lse, const T* rest, const T* a, const T* b, T* dx, int64_t n,
                             int64_t stride, int64_t width);
  void (*columns_backward)(bool log, const T* y, const T* dy, T* dx, int64_t n, int64_t stride, int64_t width);
};

inline constexpr int64_t kSoftmaxTile = 1024, kStreamedRow = 8192;

template <class T>
SoftmaxLoops<T> softmax_loops();
template <>
SoftmaxLoops<float> softmax_loops();
template <>
SoftmaxLoops<double> softmax_loops();

}  // namespace pg::cpu
