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
      [&](int64_t at, int64_t width) { loops.columns(kLog, x + at, y + at, lines.n, lines.inner, width); });
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
      [&](int64_t at, int64_t width) {
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
