#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/norm/stream.h"
#include "tensor/cpu/half.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kGrain = 16 << 10;  // elements that make a thread worthwhile

// Returns the columns per tile: few enough to fit the cache, and enough to use the pages that they touch.
int64_t tile_width(int64_t n) {
  return std::clamp<int64_t>((32 << 10) / std::max<int64_t>(n, 1) / 16 * 16, 256, kSoftmaxTile);
}

// Calls row(first, count) for rows, or column(offset, width) for tiles of columns.
template <class Rows, class Columns>
void over_lines(const Lines& lines, const Rows& rows, const Columns& columns) {
  if (lines.inner == 1)
    return parallel_for(lines.outer, kGrain / std::max<int64_t>(lines.n, 1) + 1,
                        [&](int64_t begin, int64_t end) { rows(begin, end - begin); });
  const int64_t width = tile_width(lines.n), tiles = (lines.inner + width - 1) / width;
  parallel_for(lines.outer * tiles, kGrain / std::max<int64_t>(lines.n * width, 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t first = i % tiles * width;
                   columns(i / tiles * lines.n * lines.inner + first, std::min(width, lines.inner - first));
                 }
               });
}

// The same in double, line by line.
template <class F>
void over_strided_lines(const Lines& lines, const F& f) {
  parallel_for(lines.outer * lines.inner, kGrain / 8 / std::max<int64_t>(lines.n, 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) f(i / lines.inner * lines.n * lines.inner + i % lines.inner);
               });
}

constexpr int64_t kExpWork = 8;  // an exponential costs more than a simple loop's element

void softmax_line(bool log, const double* x, double* y, int64_t n, int64_t stride) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  Poller poll;
  for (int64_t i = 0; i < n; ++i, poll())
    if (x[i * stride] > top || x[i * stride] != x[i * stride]) top = x[i * stride];
  for (int64_t i = 0; i < n; ++i, poll(kExpWork)) {
    const double e = std::exp(x[i * stride] - top);
    if (!log) y[i * stride] = e;
    sum += e;
  }
  const double shift = std::log(sum);
  for (int64_t i = 0; i < n; ++i, poll()) {
    if (log)
      y[i * stride] = x[i * stride] - top - shift;
    else
      y[i * stride] /= sum;
  }
}

void softmax_backward_line(bool log, const double* y, const double* dy, double* dx, int64_t n, int64_t stride) {
  double sum = 0;
  Poller poll;
  for (int64_t i = 0; i < n; ++i, poll()) sum += log ? dy[i * stride] : dy[i * stride] * y[i * stride];
  for (int64_t i = 0; i < n; ++i, poll(kExpWork)) {
    const double g = dy[i * stride], v = y[i * stride];
    dx[i * stride] = log ? g - std::exp(v) * sum : v * (g - sum);
  }
}

bool streams(const float* y, const Lines& lines) {
  return lines.inner == 1 && lines.n <= kStreamedRow && writes_past_caches(y, lines.n, lines.outer * lines.n);
}

template <bool kLog>
void softmax_of(const KernelArgs& a) {
  const View& in = a.in[0];
  const Lines lines(in.shape(), a.dim("dim", in.rank()));
  if (in.numel() == 0) return;
  if (in.dtype() == DType::kFloat64) {
    const double* x = in.as<const double>();
    double* y = a.out[0].as<double>();
    return over_strided_lines(lines, [&](int64_t at) { softmax_line(kLog, x + at, y + at, lines.n, lines.inner); });
  }
  const float* x = in.as<const float>();
  float* y = a.out[0].as<float>();
  const SoftmaxLoops loops = softmax_loops();
  const auto run = streams(y, lines) ? loops.stream_rows : loops.rows;
  over_lines(
      lines, [&](int64_t r, int64_t count) { run(kLog, x + r * lines.n, y + r * lines.n, count, lines.n); },
      [&](int64_t at, int64_t width) { loops.columns(kLog, x + at, y + at, lines.n, lines.inner, width); });
}

template <bool kLog>
void softmax_backward_of(const KernelArgs& a) {
  const View& in = a.in[0];
  const Lines lines(in.shape(), a.dim("dim", in.rank()));
  if (in.numel() == 0) return;
  if (in.dtype() == DType::kFloat64) {
    const double *y = in.as<const double>(), *dy = a.in[1].as<const double>();
    double* dx = a.out[0].as<double>();
    return over_strided_lines(
        lines, [&](int64_t at) { softmax_backward_line(kLog, y + at, dy + at, dx + at, lines.n, lines.inner); });
  }
  const float *y = in.as<const float>(), *dy = a.in[1].as<const float>();
  float* dx = a.out[0].as<float>();
  const SoftmaxLoops loops = softmax_loops();
  const auto run = streams(dx, lines) ? loops.stream_rows_backward : loops.rows_backward;
  over_lines(
      lines,
      [&](int64_t r, int64_t count) {
        const int64_t at = r * lines.n;
        run(kLog, y + at, dy + at, dx + at, count, lines.n);
      },
      [&](int64_t at, int64_t width) {
        loops.columns_backward(kLog, y + at, dy + at, dx + at, lines.n, lines.inner, width);
      });
}

}  // namespace

void add_softmax_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"softmax", [](const KernelArgs& a) { run_widened(a, softmax_of<false>); }},
      {"log_softmax", [](const KernelArgs& a) { run_widened(a, softmax_of<true>); }},
      {"softmax_backward", [](const KernelArgs& a) { run_widened(a, softmax_backward_of<false>); }},
      {"log_softmax_backward", [](const KernelArgs& a) { run_widened(a, softmax_backward_of<true>); }},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg::cpu
