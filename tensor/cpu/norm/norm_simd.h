// The inner loops of normalizations, for arrays of float, double, Half and BFloat16.
#pragma once
#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

namespace pg::cpu {

// The arithmetic of a dtype: statistics, weights and sums have it.
template <class H>
using Arithmetic = std::conditional_t<sizeof(H) == 2, float, H>;

template <class H>
struct NormLoops {
  using T = Arithmetic<H>;
  // `count` rows of n elements: each row's mean (0 unless `centered`), rstd = 1 / sqrt(var + eps), and y = (x - mean)
  // rstd weight + bias. stream_rows writes y past the caches, see writes_past_caches.
  using Rows = void (*)(const H* x, H* y, int64_t count, int64_t n, bool centered, double eps, const T* weight,
                        const T* bias, T* mean, T* rstd);
  Rows rows, stream_rows;
  // dx of such rows.
  void (*rows_dx)(const H* x, const H* dy, H* dx, int64_t count, int64_t n, bool centered, const T* mean, const T* rstd,
                  const T* weight);
  decltype(rows_dx) stream_rows_dx;
  // dw += dy (x - mean) rstd and db += dy over a row.
  void (*row_dw)(const H* x, const H* dy, T* dw, T* db, int64_t n, T mean, T rstd);

  // One channel, as runs of n contiguous elements.
  double (*sum)(const H* x, int64_t n);
  double (*offset)(const H* x, int64_t n, T from);     // sum(x - from)
  double (*deviation)(const H* x, int64_t n, T mean);  // sum((x - mean)^2)
  void (*products)(const H* x, const H* dy, int64_t n, T mean, double* dot,
                   double* total);                                          // sums of dy (x - mean) and dy
  void (*affine)(const H* x, H* y, int64_t n, T scale, T shift);            // y = x scale + shift
  void (*blend)(const H* x, const H* dy, H* dx, int64_t n, T a, T b, T c);  // dx = a dy + b x + c

  // The same for rows in which every element belongs to a different channel.
  void (*offset_row)(const H* x, const H* from, T* sums, int64_t n);
  void (*deviation_row)(const H* x, const T* mean, T* sums, int64_t n);
  void (*affine_row)(const H* x, H* y, int64_t n, const T* scale, const T* shift);
  void (*blend_row)(const H* x, const H* dy, H* dx, int64_t n, const T* a, const T* b, const T* c);
  // The first n elements of `count` rows that are `stride` elements apart: sums += x - center, squares += (x -
  // center)^2; and dots += dy (x - mean), totals += dy.
  void (*moments_of_rows)(const H* x, int64_t count, int64_t stride, int64_t n, const T* center, T* sums, T* squares);
  void (*products_of_rows)(const H* x, const H* dy, int64_t count, int64_t stride, int64_t n, const T* mean, T* dots,
                           T* totals);
};

template <class H>
NormLoops<H> norm_loops();

}  // namespace pg::cpu
