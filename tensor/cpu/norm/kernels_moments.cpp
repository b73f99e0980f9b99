// var, std and logsumexp: reductions that read each element twice while it is in the cache.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/norm/norm_simd.h"
#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/norm/tiles.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg::cpu {
namespace {

constexpr int64_t kChunk = 128 << 10;  // elements per part when threads share one output
constexpr int64_t kBlock = 4096;       // elements that fit the cache
constexpr int64_t kTile = 1024;        // columns per tile
constexpr int64_t kRows = 64;          // rows of a tile that fit the cache

// A contiguous input as outer x n x inner, where n counts the reduced elements. It is copied when the reduced dims are
// not adjacent.
struct Reduced {
  int64_t outer = 1, n = 1, inner = 1;
  const void* data = nullptr;
  WorkVector<char> copy;
};

Reduced bring_together(const View& in, const Dims& dims) {
  uint32_t mask = 0;
  for (int64_t d : dims) mask |= 1u << d;
  Reduced r;
  r.data = in.data;
  bool before = true, together = true;
  for (int d = 0; d < in.rank(); ++d) {
    if (in.size(d) == 1) continue;
    if (mask >> d & 1) {
      together &= r.inner == 1;
      r.n *= in.size(d);
      before = false;
    } else {
      (before ? r.outer : r.inner) *= in.size(d);
    }
  }
  if (together) return r;
  Dims shape, strides;
  for (const bool reduced : {false, true})
    for (int d = 0; d < in.rank(); ++d)
      if (bool(mask >> d & 1) == reduced) shape.push_back(in.size(d)), strides.push_back((*in.strides)[d]);
  r.outer *= r.inner;
  r.inner = 1;
  r.copy.resize(size_t(in.numel() * size_of(in.dtype())));
  copy_block(int(size_of(in.dtype())), shape, in.data, strides, r.copy.data(), contiguous_strides(shape));
  r.data = r.copy.data();
  return r;
}

// Count, mean and sum of squared deviations of some elements. join uses the formula of Chan, Golub and LeVeque.
struct Moments {
  double n = 0, mean = 0, squares = 0;

  void join(double more, double more_mean, double more_squares) {
    if (more == 0) return;
    const double all = n + more, step = more_mean - mean;
    mean += step * (more / all);
    squares += more_squares + step * step * (n * more / all);
    n = all;
  }
  void join(const Moments& m) { join(m.n, m.mean, m.squares); }
};

// Corrects the sum of squares, because deviations were taken from the mean rounded to T.
double corrected(double squares, double n, double mean, double rounded) {
  return std::max(squares - n * (mean - rounded) * (mean - rounded), squares * 0);
}

// Whether a sum of squares in T may have lost digits because squares of T overflowed or underflowed. It is added up in
// double then.
template <class T>
bool out_of_range(T squares) {
  if constexpr (std::is_same_v<T, double>) return false;
  return !(squares > T(1e-27) && squares < std::numeric_limits<T>::infinity());
}

template <class T>
double deviation_in_double(const T* x, int64_t n, double mean) {
  const Scratch<double> wide(kBlock);
  std::copy_n(x, n, wide.get());
  return norm_loops<double>().deviation(wide, n, mean);
}

// squares[j] = sum((x[i, j] - means[j])^2) over the rows.
template <class T>
void column_deviations_in_double(const T* x, int64_t rows, int64_t stride, int64_t width, const T* means,
                                 double* squares) {
  double wide[kTile], wide_means[kTile];
  std::copy_n(means, width, wide_means);
  std::fill_n(squares, width, 0.0);
  const auto add = norm_loops<double>().deviation_row;
  for (int64_t i = 0; i < rows; ++i) add(std::copy_n(x + i * stride, width, wide) - width, wide_means, squares, width);
}

// The sums for the means are of differences from the first element, since a large mean would leave them few digits.
template <class T>
Moments moments_of_run(const NormLoops<T>& loops, const T* x, int64_t n) {
  Moments all;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    const double mean = double(x[i]) + loops.offset(x + i, m, x[i]) / double(m), rounded = double(T(mean));
    double squares = loops.deviation(x + i, m, T(mean));
    if (out_of_range(T(squares))) squares = deviation_in_double(x + i, m, rounded);
    all.join(double(m), mean, corrected(squares, double(m), mean, rounded));
  }
  return all;
}

// Columns [0, width) of `rows` rows at x. They share their count, so a join takes few products.
template <class T>
void moments_of_columns(const NormLoops<T>& loops, const T* x, int64_t rows, int64_t stride, int64_t width,
                        Moments* out) {
  const Scratch<T> narrow(3 * kTile);
  T *const sums = narrow, *const means = sums + kTile, *const squares = means + kTile;
  const Scratch<double> wide_scratch(3 * kTile);
  double *const mean = wide_scratch, *const all = mean + kTile, *const wide = all + kTile;
  std::fill_n(mean, width, 0.0);
  std::fill_n(all, width, 0.0);
  for (int64_t r = 0; r < rows; r += kRows) {
    const int64_t m = std::min(kRows, rows - r);
    std::fill_n(sums, width, T(0));
    std::fill_n(squares, width, T(0));
    const T* first = x + r * stride;
    for (int64_t i = r + 1; i < r + m; ++i) loops.offset_row(x + i * stride, first, sums, width);
    for (int64_t j = 0; j < width; ++j) means[j] = first[j] + sums[j] / T(m);
    for (int64_t i = r; i < r + m; ++i) loops.deviation_row(x + i * stride, means, squares, width);
    std::copy_n(squares, width, wide);
    if (std::any_of(squares, squares + width, out_of_range<T>))
      column_deviations_in_double(first, m, stride, width, means, wide);
    const double count = double(m), inverse = 1 / count, share = count / double(r + m), both = double(r) * share;
    for (int64_t j = 0; j < width; ++j) {
      const double own = double(first[j]) + double(sums[j]) * inverse, off = own - double(means[j]),
                   step = own - mean[j];
      mean[j] += step * share;
      all[j] += (wide[j] - count * off * off) + step * step * both;
    }
  }
  for (int64_t j = 0; j < width; ++j) out[j] = {double(rows), mean[j], std::max(all[j], all[j] * 0)};
}

// The variance, or its root.
template <class T, bool kRoot>
void var_of(const KernelArgs& a) {
  const View& in = a.in[0];
  if (a.out[0].numel() == 0) return;
  const Reduced r = bring_together(in, a.dims("dim", in.rank()));
  const double left = double(r.n) - a.attr<double>("correction");
  const NormLoops<T> loops = norm_loops<T>();
  const T* x = static_cast<const T*>(r.data);
  T* y = a.out[0].as<T>();
  // A part is a tile of columns (one column when rows are runs) and a chunk of n.
  const int64_t width = std::min(r.inner, kTile), tiles = (r.inner + width - 1) / width;
  const int64_t length = (kChunk / width + kRows - 1) / kRows * kRows,
                chunks = std::max<int64_t>((r.n + length - 1) / length, 1);
  WorkVector<Moments> parts(size_t(r.outer * tiles * chunks * width));
  parallel_for(
      r.outer * tiles * chunks, shared_grain(std::min(r.n, length) * width * int64_t(sizeof(float))),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t o = i / chunks / tiles, column = i / chunks % tiles * width, first = i % chunks * length;
          const T* from = x + (o * r.n + first) * r.inner + column;
          const int64_t n = std::min(length, r.n - first);
          if (r.inner == 1)
            parts[size_t(i)] = moments_of_run(loops, from, n);
          else
            moments_of_columns(loops, from, n, r.inner, std::min(width, r.inner - column), &parts[size_t(i * width)]);
        }
      });
  parallel_for(r.outer * r.inner, shared_grain(16 * chunks * int64_t(sizeof(float))), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i / r.inner, column = i % r.inner;
      const size_t at = size_t((o * tiles + column / width) * chunks * width + column % width);
      Moments all = parts[at];
      for (int64_t c = 1; c < chunks; ++c) all.join(parts[at + size_t(c * width)]);
      const double variance = all.squares / (left > 0 ? left : 0.0);
      y[i] = T(kRoot ? std::sqrt(variance) : variance);
    }
  });
}

template <bool kRoot>
void var_kernel(const KernelArgs& a) {
  run_widened(a, [](const KernelArgs& w) {
    w.in[0].dtype() == DType::kFloat64 ? var_of<double, kRoot>(w) : var_of<float, kRoot>(w);
  });
}

template <class T>
void log_sum_exp_of(const T* x, T* y, const Reduced& r) {
  const SoftmaxLoops<T> loops = softmax_loops<T>();
  // What is fetched ahead of a narrow tile is mostly of the next one, which the same thread takes.
  const int64_t width = num_threads() > 1 ? tile_width(r.n) : kSoftmaxTile;
  over_lines(
      r.outer, r.n, r.inner, width,
      [&](int64_t first, int64_t count) { loops.log_sum_exp(x + first * r.n, y + first, nullptr, count, r.n); },
      [&](int64_t o, int64_t first, int64_t count) {
        loops.columns_log_sum_exp(x + o * r.n * r.inner + first, y + o * r.inner + first, nullptr, r.n, r.inner, count);
      });
}

void log_sum_exp_kernel(const KernelArgs& a) {
  if (a.out[0].numel() == 0) return;
  run_widened(a, [](const KernelArgs& w) {
    View in = w.in[0];
    Type type = *in.type;
    WorkVector<float> floats;
    if (!is_float(in.dtype())) {
      floats.resize(size_t(in.numel()));
      convert(in.dtype(), in.data, DType::kFloat32, floats.data(), in.numel());
      type.dtype = DType::kFloat32;
      in = {&type, in.strides, floats.data()};
    }
    const Reduced r = bring_together(in, w.dims("dim", in.rank()));
    if (in.dtype() == DType::kFloat64)
      log_sum_exp_of(static_cast<const double*>(r.data), w.out[0].as<double>(), r);
    else
      log_sum_exp_of(static_cast<const float*>(r.data), w.out[0].as<float>(), r);
  });
}

}  // namespace

void add_moment_kernels(Registry& registry) {
  static const KernelRow kRows[] = {
      {"var", var_kernel<false>}, {"std", var_kernel<true>}, {"logsumexp", log_sum_exp_kernel}};
  registry.add_kernels(0, kRows);
}

}  // namespace pg::cpu
