#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/norm/stream.h"
#include "tensor/cpu/norm/tiles.h"
#include "tensor/cpu/half.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

template <class T>
bool streams(const T* y, const Lines& lines) {
  return lines.inner == 1 && lines.n <= kStreamedRow && writes_past_caches(y, lines.n, lines.outer * lines.n);
}

template <bool kLog, class T>
void softmax(const KernelArgs& a) {
  const View& in = a.in[0];
  const Lines lines(in.shape(), a.dim("dim", in.rank()));
  if (in.numel() == 0) return;
  const T* x = in.as<const T>();
  T* y = a.out[0].as<T>();
  const SoftmaxLoops<T> loops = softmax_loops<T>();
  const auto run = streams(y, lines) ? loops.stream_rows : loops.rows;
  over_lines(
      lines, [&](int64_t r, int64_t count) { run(kLog, x + r * lines.n, y + r * lines.n, count, lines.n); },
      [&](int64_t o, int64_t first, int64_t width) {
        const int64_t at = o * lines.n * lines.inner + first;
        loops.columns(kLog, x + at, y + at, lines.n, lines.inner, width);
      });
}

template <bool kLog, class T>
void softmax_backward(const KernelArgs& a) {
  const View& in = a.in[0];
  const Lines lines(in.shape(), a.dim("dim", in.rank()));
  if (in.numel() == 0) return;
  const T *y = in.as<const T>(), *dy = a.in[1].as<const T>();
  T* dx = a.out[0].as<T>();
  const SoftmaxLoops<T> loops = softmax_loops<T>();
  const auto run = streams(dx, lines) ? loops.stream_rows_backward : loops.rows_backward;
  over_lines(
      lines,
      [&](int64_t r, int64_t count) {
        const int64_t at = r * lines.n;
        run(kLog, y + at, dy + at, dx + at, count, lines.n);
      },
      [&](int64_t o, int64_t first, int64_t width) {
        const int64_t at = o * lines.n * lines.inner + first;
        loops.columns_backward(kLog, y + at, dy + at, dx + at, lines.n, lines.inner, width);
      });
}

// Half types are computed in float32.
template <KernelFn of_float, KernelFn of_double>
void kernel(const KernelArgs& a) {
  a.in[0].dtype() == DType::kFloat64 ? of_double(a) : run_widened(a, of_float);
}

}  // namespace

void add_softmax_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"softmax", kernel<softmax<false, float>, softmax<false, double>>},
      {"log_softmax", kernel<softmax<true, float>, softmax<true, double>>},
      {"softmax_backward", kernel<softmax_backward<false, float>, softmax_backward<false, double>>},
      {"log_softmax_backward", kernel<softmax_backward<true, float>, softmax_backward<true, double>>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg::cpu
