// The inner loops of normalizations, for float and double. Moments take two passes over data that is in the cache:
// first the sum, then the squared deviations.
#pragma once
#include <cstdint>

namespace pg::cpu {

template <class T>
struct NormLoops {
  // `count` rows of n elements: each row's mean (0 unless `centered`), rstd = 1 / sqrt(var + eps), and y = (x - mean)
  // rstd weight + bias. stream_rows writes y past the caches, see writes_past_caches.
  using Rows = void (*)(const T* x, T* y, int64_t count, int64_t n, bool centered, double eps, const T* weight,
                        const T* bias, T* mean, T* rstd);
  Rows rows, stream_rows;
  // dx of such rows.
  void (*rows_dx)(const T* x, const T* dy, T* dx, int64_t count, int64_t n, bool centered, const T* mean, const T* rstd,
                  const T* weight);
  decltype(rows_dx) stream_rows_dx;
  // dw += dy (x - mean) rstd and db += dy over a row.
  void (*row_dw)(const T* x, const T* dy, T* dw, T* db, int64_t n, T mean, T rstd);

  // One channel, as runs of n contiguous elements.
  double (*sum)(const T* x, int64_t n);
  double (*offset)(const T* x, int64_t n, T from);     // sum(x - from)
  double (*deviation)(const T* x, int64_t n, T mean);  // sum((x - mean)^2)
  void (*products)(const T* x, const T* dy, int64_t n, T mean, double* dot,
                   double* total);                                          // sums of dy (x - mean) and dy
  void (*affine)(const T* x, T* y, int64_t n, T scale, T shift);            // y = x scale + shift
  void (*blend)(const T* x, const T* dy, T* dx, int64_t n, T a, T b, T c);  // dx = a dy + b x + c

  // The same for rows in which every element belongs to a different channel.
  void (*sum_row)(const T* x, T* sums, int64_t n);
  void (*offset_row)(const T* x, const T* from, T* sums, int64_t n);
  void (*deviation_row)(const T* x, const T* mean, T* sums, int64_t n);
  void (*products_row)(const T* x, const T* dy, const T* mean, T* dots, T* totals, int64_t n);
  void (*affine_row)(const T* x, T* y, int64_t n, const T* scale, const T* shift);
  void (*blend_row)(const T* x, const T* dy, T* dx, int64_t n, const T* a, const T* b, const T* c);
};

template <class T>
NormLoops<T> norm_loops();

}  // namespace pg::cpu
