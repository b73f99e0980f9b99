// Running reductions. Along the last dim a scan is a chain of dependent steps; along other dims it works on whole rows.
// 16-bit floats are scanned as float32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tensor/cpu/half.h"
#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/reduce/reduce_simd.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/cpu/wrap.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kTile = 256;       // columns per tile
constexpr int64_t kLinesAtOnce = 4;  // so that the steps of one do not wait for each other
constexpr int64_t kBlock = 1 << 20;  // elements between two polls

template <class T>
using Running = std::conditional_t<std::is_floating_point_v<T>, double, int64_t>;

// Runs f(TypeTag<T>(), args) with the dtype of the first input, with float32 copies of arrays of 16-bit floats.
template <class F>
void visit_wide(const KernelArgs& a, const F&) {
  run_widened(a, [](const KernelArgs& wide) {
    visit_dtype(wide.in[0].dtype(), [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) F()(tag, wide);
    });
  });
}

template <bool kProduct, class A>
A advance(A total, A v) {
  return kProduct ? wrapped_product(total, v) : wrapped_sum(total, v);
}

// Calls f(offset, width) for every tile of columns; offset is that of the first element. Threads share the columns of
// an outer position only where rows are long: the caches of two cores hand over what lies near a common border.
template <class F>
void over_columns(const Lines& lines, const F& f) {
  constexpr int64_t kWide = 2 << 10;  // elements
  const int64_t tiles = (lines.inner + kTile - 1) / kTile, width = std::min(kTile, lines.inner);
  const int64_t share = lines.inner >= kWide ? tiles : 1, parts = tiles / share;  // tiles per part
  parallel_for(lines.outer * share, shared_grain(lines.n * width * parts * int64_t(sizeof(float))),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin * parts; i < end * parts; ++i) {
                   const int64_t first = i % tiles * kTile;
                   f(i / tiles * lines.n * lines.inner + first, std::min(kTile, lines.inner - first));
                 }
               });
}

// For scans along the last dim: calls f(std::integral_constant<int64_t, count>(), first) for `count` lines from line
// `first` on.
template <class F>
void over_lines(const Lines& lines, const F& f) {
  const int64_t groups = (lines.outer + kLinesAtOnce - 1) / kLinesAtOnce;
  parallel_for(groups, shared_grain(lines.n * kLinesAtOnce * int64_t(sizeof(float))), [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const int64_t first = g * kLinesAtOnce, count = std::min(kLinesAtOnce, lines.outer - first);
      if (count == kLinesAtOnce) {
        f(std::integral_constant<int64_t, kLinesAtOnce>(), first);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) f(std::integral_constant<int64_t, 1>(), first + i);
    }
  });
}

// Scans `count` elements of lines at a distance of n, starting with the totals; `step` is 1 or -1. What comes before
// the totals is joined to each result; without `y` only the totals are computed.
// Not inlined: inside a lambda GCC treats the loop as cold and keeps a false dependency between its conversions. Totals
// are copied by loops: with std::copy_n they stay in memory.
template <bool kProduct, int64_t kCount, bool kWrite, class In, class Out, class A>
[[gnu::noinline]] void running_block(const In* x, Out* y, int64_t n, int64_t count, int64_t step, const A* before,
                                     A* totals) {
  A total[kCount], base[kCount];
  for (int64_t i = 0; i < kCount; ++i) total[i] = totals[i], base[i] = before[i];
  for (int64_t k = 0; k < count; ++k, x += step, y += kWrite ? step : 0)
    for (int64_t i = 0; i < kCount; ++i) {
      total[i] = advance<kProduct>(total[i], A(x[i * n]));
      if constexpr (kWrite) y[i * n] = static_cast<Out>(advance<kProduct>(base[i], total[i]));
    }
  for (int64_t i = 0; i < kCount; ++i) totals[i] = total[i];
}

// Few long lines are scanned in blocks, whatever the number of threads: totals of all blocks first, then the blocks:
// sums each as a scan of its own to which the total of those before it is joined, products from that total on.
struct LineBlocks {
  static constexpr int64_t length = 4 << 10;
  int64_t n, count;
  explicit LineBlocks(int64_t n) : n(n), count((n + length - 1) / length) {}
  static bool pay(const Lines& lines) { return lines.inner == 1 && lines.outer < 8 && lines.n >= 64 << 10; }
  int64_t size(int64_t b) const { return std::min(length, n - b * length); }
};

template <bool kProduct, class In, class Out>
void running_lines(const In* x, Out* y, const Lines& lines, bool reverse) {
  using A = Running<In>;
  over_lines(lines, [&]<int64_t kCount>(std::integral_constant<int64_t, kCount>, int64_t line) {
    A totals[kCount], none[kCount];
    std::fill_n(totals, kCount, A(kProduct ? 1 : 0));
    std::fill_n(none, kCount, A(kProduct ? 1 : 0));
    in_polled_blocks(lines.n, kBlock, [&](int64_t begin, int64_t end) {
      const int64_t first = line * lines.n + (reverse ? lines.n - 1 - begin : begin);
      running_block<kProduct, kCount, true>(x + first, y + first, lines.n, end - begin, reverse ? -1 : 1, none, totals);
    });
  });
}

// Calls f(k) for rows 0 to lines.n - 1 of a tile.
template <class F>
void over_rows(const Lines& lines, int64_t width, const F& f) {
  in_polled_blocks(lines.n, kBlock / width, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) f(k);
  });
}

// Whether a product from `before` on may be another than `before` times `total`, the product of the same factors from 1
// on, which has left the range of doubles.
bool left_range(double before, double total) {
  return std::abs(before) > 1 ? std::abs(total) < std::numeric_limits<double>::min()
                              : std::abs(before) < 1 && !std::isfinite(total);
}

template <bool kProduct, class In, class Out>
void running_in_blocks(const In* x, Out* y, int64_t n, bool reverse) {
  using A = Running<In>;
  const LineBlocks blocks(n);
  const int64_t step = reverse ? -1 : 1, distance = step * blocks.length;
  const auto start_of = [=](int64_t b) { return (reverse ? n - 1 : 0) + b * distance; };
  WorkVector<A> before(size_t(blocks.count), A(kProduct ? 1 : 0)), totals = before;
  const auto run = [&]<bool kWrite>(std::bool_constant<kWrite>) {
    const auto scan = [&]<int64_t kCount>(std::integral_constant<int64_t, kCount>, int64_t b) {
      running_block<kProduct, kCount, kWrite>(x + start_of(b), y + start_of(b), distance, blocks.size(b), step,
                                              &before[size_t(b)], &totals[size_t(b)]);
    };
    parallel_for((blocks.count + kLinesAtOnce - 1) / kLinesAtOnce, 2, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin * kLinesAtOnce; b < std::min(end * kLinesAtOnce, blocks.count); b += kLinesAtOnce)
        if (b + kLinesAtOnce < blocks.count)  // the last block may be shorter
          scan(std::integral_constant<int64_t, kLinesAtOnce>(), b);
        else
          for (int64_t i = b; i < blocks.count; ++i) scan(std::integral_constant<int64_t, 1>(), i);
    });
  };
  run(std::false_type());
  Poller poll;
  const A none = A(kProduct ? 1 : 0);
  for (int64_t b = 1; b < blocks.count; ++b) {
    const A last = before[size_t(b - 1)], total = totals[size_t(b - 1)];
    A& next = before[size_t(b)] = advance<kProduct>(last, total);
    if (!kProduct || !std::is_floating_point_v<In> || !left_range(double(last), double(total))) continue;
    running_block<kProduct, 1, false>(x + start_of(b - 1), y, 0, blocks.length, step, &none, &(next = last));
    poll(blocks.length);
  }
  std::fill(totals.begin(), totals.end(), none);
  if (kProduct) totals.swap(before);  // so that no product but those of the whole line leaves the range
  run(std::true_type());
}

template <bool kProduct, class In, class Out>
void running(const In* x, Out* y, const Lines& lines, bool reverse) {
  using A = Running<In>;
  if (LineBlocks::pay(lines)) {
    for (int64_t i = 0; i < lines.outer * lines.n; i += lines.n)
      running_in_blocks<kProduct>(x + i, y + i, lines.n, reverse);
    return;
  }
  if (lines.inner == 1) return running_lines<kProduct>(x, y, lines, reverse);
  over_columns(lines, [&](int64_t offset, int64_t width) {
    A total[kTile];
    std::fill(total, total + width, A(kProduct ? 1 : 0));
    over_rows(lines, width, [&](int64_t k) {
      const int64_t row = offset + (reverse ? lines.n - 1 - k : k) * lines.inner;
      for (int64_t j = 0; j < width; ++j) {
        total[j] = advance<kProduct>(total[j], A(x[row + j]));
        y[row + j] = static_cast<Out>(total[j]);
      }
    });
  });
}

template <bool kProduct>
void running_kernel(const KernelArgs& args) {
  visit_wide(args, [](auto tag, const KernelArgs& a) {
    using In = typename decltype(tag)::type;
    using Out = std::conditional_t<std::is_integral_v<In>, int64_t, In>;
    const Lines lines(a.in[0].shape(), a.dim("dim", a.in[0].rank()));
    running<kProduct>(a.in[0].as<const In>(), a.out[0].as<Out>(), lines, a.attr<bool>("reverse"));
  });
}

// Whether v, which comes after best, replaces it: equal elements do, and a NaN all elements.
template <bool kMax, class T>
bool replaces(T v, T best) {
  return int(v != v) | (int(best == best) & int(kMax ? v >= best : v <= best));
}

// Returns the position of the best of `count` elements and of the one at `at` before x[0], whose position is `first`.
template <bool kMax, class T>
[[gnu::noinline]] int64_t extreme_block(const T* x, T* values, int64_t* indices, int64_t count, int64_t first,
                                        int64_t at) {
  T best = x[at - first];
  for (int64_t k = 0; k < count; ++k) {
    const bool better = replaces<kMax>(x[k], best);
    best = better ? x[k] : best;
    at = better ? first + k : at;
    values[k] = best;
    indices[k] = at;
  }
  return at;
}

// The best of count >= 1 elements, NaN if one is NaN.
template <bool kMax, class T>
T extreme_of(PlainRows rows, const T* x, int64_t count) {
  constexpr int64_t kWidth = 64;
  const int64_t whole = count / kWidth;
  T best[kWidth];
  std::fill_n(best, kWidth, x[0]);
  if (whole > 0) rows(best, true, x, kWidth, whole, kWidth);
  T all = best[0];
  const auto add = [&](T v) {
    if (replaces<kMax>(v, all)) all = v;
  };
  for (T v : best) add(v);
  for (int64_t i = whole * kWidth; i < count; ++i) add(x[i]);
  return all;
}

// The best element of each block first, then the blocks from the best of those before, whose place is looked up only
// where one replaces it.
template <bool kMax, class T>
void running_extreme_in_blocks(PlainRows rows, const T* x, T* values, int64_t* indices, const LineBlocks& blocks,
                               int64_t base) {
  WorkVector<T> best(size_t(blocks.count));
  WorkVector<int64_t> before(best.size());
  parallel_for(blocks.count, 8, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      best[size_t(b)] = extreme_of<kMax>(rows, x + b * blocks.length, blocks.size(b));
  });
  int64_t at = 0;
  for (int64_t b = 0; b < blocks.count; ++b) {
    before[size_t(b)] = at + base;
    const T own = best[size_t(b)];
    if (!replaces<kMax>(own, x[at])) continue;
    at = b * blocks.length + blocks.size(b) - 1;
    while (own == own ? x[at] != own : x[at] == x[at]) --at;
  }
  parallel_for(blocks.count, 2, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t i = b * blocks.length;
      extreme_block<kMax>(x + i, values + i, indices + i, blocks.size(b), base + i, before[size_t(b)]);
    }
  });
}

template <bool kMax, class T>
void running_extreme(DType type, const T* x, T* values, int64_t* indices, const Lines& lines, int64_t base) {
  if (LineBlocks::pay(lines)) {
    for (int64_t i = 0; i < lines.outer * lines.n; i += lines.n)
      running_extreme_in_blocks<kMax>(plain_rows(kMax ? ReduceOp::kMax : ReduceOp::kMin, type), x + i, values + i,
                                      indices + i, LineBlocks(lines.n), base);
    return;
  }
  if (lines.inner == 1)
    return over_columns(lines, [&](int64_t offset, int64_t) {
      int64_t at = base;
      in_polled_blocks(lines.n, kBlock, [&](int64_t begin, int64_t end) {
        const int64_t i = offset + begin;
        at = extreme_block<kMax>(x + i, values + i, indices + i, end - begin, base + begin, at);
      });
    });
  over_columns(lines, [&](int64_t offset, int64_t width) {
    T best[kTile];
    int64_t at[kTile];
    std::copy_n(x + offset, lines.n > 0 ? width : 0, best);
    std::fill_n(at, width, base);
    over_rows(lines, width, [&](int64_t k) {
      const int64_t row = offset + k * lines.inner;
      for (int64_t j = 0; j < width; ++j) {
        const bool better = replaces<kMax>(x[row + j], best[j]);
        values[row + j] = best[j] = better ? x[row + j] : best[j];
        indices[row + j] = at[j] = better ? k + base : at[j];
      }
    });
  });
}

template <bool kMax>
void running_extreme_kernel(const KernelArgs& args) {
  visit_wide(args, [](auto tag, const KernelArgs& a) {
    using T = typename decltype(tag)::type;
    const Lines lines(a.in[0].shape(), a.dim("dim", a.in[0].rank()));
    running_extreme<kMax>(a.in[0].dtype(), a.in[0].as<const T>(), a.out[0].as<T>(), a.out[1].as<int64_t>(), lines,
                          a.attr<int64_t>("index_base"));
  });
}

// Steps of lines at a distance of n; a precedes the first step by its lag.
template <int64_t kCount, class T>
[[gnu::noinline]] void affine_block(const T* a, const T* b, T* y, int64_t n, int64_t count, int64_t step,
                                    double* carries) {
  double carry[kCount];
  for (int64_t i = 0; i < kCount; ++i) carry[i] = carries[i];
  for (int64_t k = 0; k < count; ++k, a += step, b += step, y += step)
    for (int64_t i = 0; i < kCount; ++i) {
      carry[i] = double(b[i * n]) + double(a[i * n]) * carry[i];
      y[i * n] = static_cast<T>(carry[i]);
    }
  for (int64_t i = 0; i < kCount; ++i) carries[i] = carry[i];
}

template <class T>
void affine_lines(const T* a, const T* b, T* y, const Lines& lines, bool reverse, int64_t lag) {
  const int64_t n = lines.n, step = reverse ? -1 : 1;
  over_lines(lines, [&]<int64_t kCount>(std::integral_constant<int64_t, kCount>, int64_t line) {
    const int64_t start = line * n + (reverse ? n - 1 : 0);
    double carries[kCount] = {};
    for (int64_t i = 0; i < kCount && n > 0; ++i) {
      carries[i] += double(b[start + i * n]);
      y[start + i * n] = static_cast<T>(carries[i]);
    }
    in_polled_blocks(n - 1, kBlock, [&](int64_t begin, int64_t end) {
      const int64_t first = start + (begin + 1) * step;
      affine_block<kCount>(a + first - lag * step, b + first, y + first, n, end - begin, step, carries);
    });
  });
}

template <class T>
void scan_affine(const T* a, const T* b, T* y, const Lines& lines, bool reverse, int64_t lag) {
  if (lines.inner == 1) return affine_lines(a, b, y, lines, reverse, lag);
  over_columns(lines, [&](int64_t offset, int64_t width) {
    double carry[kTile];
    std::fill(carry, carry + width, 0.0);
    over_rows(lines, width, [&](int64_t k) {
      const int64_t row = offset + (reverse ? lines.n - 1 - k : k) * lines.inner;
      const int64_t factor = row + (reverse ? lag : -lag) * lines.inner;
      for (int64_t j = 0; j < width; ++j) {
        carry[j] = double(b[row + j]) + (k == 0 ? 0.0 : double(a[factor + j]) * carry[j]);
        y[row + j] = static_cast<T>(carry[j]);
      }
    });
  });
}

void scan_affine_kernel(const KernelArgs& args) {
  visit_wide(args, [](auto tag, const KernelArgs& a) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_floating_point_v<T>) {
      const Lines lines(a.in[0].shape(), a.dim("dim", a.in[0].rank()));
      scan_affine(a.in[0].as<const T>(), a.in[1].as<const T>(), a.out[0].as<T>(), lines, a.attr<bool>("reverse"),
                  a.attr<int64_t>("lag"));
    }
  });
}

}  // namespace

void add_scan_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"cumsum", running_kernel<false>},        {"cumprod", running_kernel<true>},
      {"cummax", running_extreme_kernel<true>}, {"cummin", running_extreme_kernel<false>},
      {"scan_affine", scan_affine_kernel},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg::cpu
