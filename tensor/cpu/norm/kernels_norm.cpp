// Normalizations of rows.
#include <algorithm>
#include <cmath>

#include "tensor/cpu/converted.h"
#include "tensor/cpu/norm/norm_simd.h"
#include "tensor/cpu/norm/storage.h"
#include "tensor/cpu/norm/stream.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

constexpr int64_t kTile = 16 << 10;  // elements

int64_t row_length(const KernelArgs& a) {
  int64_t n = 1;
  for (int64_t d : a.attr<Ints>("normalized_shape")) n *= d;
  return n;
}

// Calls f(first, count, n) for parts of the rows of n elements.
template <class F>
void over_rows(const KernelArgs& a, const F& f) {
  const int64_t n = row_length(a), rows = n ? a.in[0].numel() / n : 0;
  parallel_for(rows, shared_grain(n * int64_t(sizeof(float))),
               [&](int64_t begin, int64_t end) { f(begin, end - begin, n); });
}

template <class H, class T = Arithmetic<H>>
void row_norm(const KernelArgs& a) {
  const Converted<T> weight(a.in[1], kArithmetic<H>), bias(a.in[2], kArithmetic<H>);
  const H* x = a.in[0].as<const H>();
  H* y = a.out[0].as<H>();
  T *mean = a.out[1].as<T>(), *rstd = a.out[2].as<T>();
  const bool centered = a.attr<bool>("centered");
  const double eps = a.attr<double>("eps");
  const NormLoops<H> loops = norm_loops<H>();
  if (a.in[0].numel() == 0) {
    std::fill(mean, mean + a.out[1].numel(), T(NAN));
    std::fill(rstd, rstd + a.out[2].numel(), T(NAN));
  }
  const auto run = writes_past_caches(y, row_length(a), a.in[0].numel()) ? loops.stream_rows : loops.rows;
  over_rows(a, [&](int64_t r, int64_t count, int64_t n) {
    run(x + r * n, y + r * n, count, n, centered, eps, weight.data(), bias.data(), mean + r, rstd + r);
  });
}

template <class H, class T = Arithmetic<H>>
void row_norm_dx(const KernelArgs& a) {
  const Converted<T> weight(a.in[4], kArithmetic<H>);
  const H *x = a.in[0].as<const H>(), *dy = a.in[3].as<const H>();
  const T *mean = a.in[1].as<const T>(), *rstd = a.in[2].as<const T>();
  H* dx = a.out[0].as<H>();
  const bool centered = a.attr<bool>("centered");
  const NormLoops<H> loops = norm_loops<H>();
  const auto run = writes_past_caches(dx, row_length(a), a.in[0].numel()) ? loops.stream_rows_dx : loops.rows_dx;
  over_rows(a, [&](int64_t r, int64_t count, int64_t n) {
    run(x + r * n, dy + r * n, dx + r * n, count, n, centered, mean + r, rstd + r, weight.data());
  });
}

// Rows in chunks of fixed size. Each chunk has its own sums, which are added in order.
template <class H, class T = Arithmetic<H>>
void row_norm_dw(const KernelArgs& a) {
  const int64_t n = row_length(a), rows = n ? a.in[0].numel() / n : 0;
  const H *x = a.in[0].as<const H>(), *dy = a.in[3].as<const H>();
  const T *mean = a.in[1].as<const T>(), *rstd = a.in[2].as<const T>();
  const bool centered = a.attr<bool>("centered");
  const NormLoops<H> loops = norm_loops<H>();
  const int64_t step = std::clamp<int64_t>(8 * kTile / std::max<int64_t>(n, 1), 16, 1024),
                chunks = (rows + step - 1) / step;
  WorkVector<T> sums(size_t(chunks * n * 2), T(0));
  parallel_parts(chunks, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t r = c * step; r < std::min(rows, (c + 1) * step); ++r)
        loops.row_dw(x + r * n, dy + r * n, &sums[c * n * 2], &sums[c * n * 2] + n, n, centered ? mean[r] : T(0),
                     rstd[r]);
  });
  T *weights = a.out[0].as<T>(), *biases = a.out[1].as<T>();
  for (int64_t i = 0; i < n; ++i) {
    double dw = 0, db = 0;
    for (int64_t c = 0; c < chunks; ++c) dw += sums[c * n * 2 + i], db += sums[c * n * 2 + n + i];
    weights[i] = T(dw);
    biases[i] = T(db);
  }
}

}  // namespace

void add_norm_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"row_norm", by_storage<[]<class H>(const KernelArgs& a) { row_norm<H>(a); }>},
      {"row_norm_dx", by_storage<[]<class H>(const KernelArgs& a) { row_norm_dx<H>(a); }>},
      {"row_norm_dw", by_storage<[]<class H>(const KernelArgs& a) { row_norm_dw<H>(a); }>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
