#include <algorithm>
#include <cmath>

#include "tensor/cpu/norm/norm_simd.h"
#include "tensor/cpu/norm/stream.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::WorkVector;

using cpu::norm_loops;
using cpu::NormLoops;
using cpu::writes_past_caches;

constexpr int64_t kGrain = 16 << 10;  // elements that make a thread worthwhile

template <class T>
const T* data_or_null(const View& v) {
  return v ? v.as<const T>() : nullptr;
}

// --- Rows ---

int64_t row_length(const KernelArgs& a) {
  int64_t n = 1;
  for (int64_t d : a.attr<Ints>("normalized_shape")) n *= d;
  return n;
}

// Calls f(first, count, n) for parts of the rows of n elements.
template <class F>
void over_rows(const KernelArgs& a, const F& f) {
  const int64_t n = row_length(a), rows = n ? a.in[0].numel() / n : 0;
  parallel_for(rows, kGrain / std::max<int64_t>(n, 1) + 1,
               [&](int64_t begin, int64_t end) { f(begin, end - begin, n); });
}

template <class T>
void row_norm(const KernelArgs& a) {
  const T *x = a.in[0].as<const T>(), *weight = data_or_null<T>(a.in[1]), *bias = data_or_null<T>(a.in[2]);
  T *y = a.out[0].as<T>(), *mean = a.out[1].as<T>(), *rstd = a.out[2].as<T>();
  const bool centered = a.attr<bool>("centered");
  const double eps = a.attr<double>("eps");
  const NormLoops<T> loops = norm_loops<T>();
  if (a.in[0].numel() == 0) {
    std::fill(mean, mean + a.out[1].numel(), T(NAN));
    std::fill(rstd, rstd + a.out[2].numel(), T(NAN));
  }
  const auto run = writes_past_caches(y, row_length(a), a.in[0].numel()) ? loops.stream_rows : loops.rows;
  over_rows(a, [&](int64_t r, int64_t count, int64_t n) {
    run(x + r * n, y + r * n, count, n, centered, eps, weight, bias, mean + r, rstd + r);
  });
}

template <class T>
void row_norm_dx(const KernelArgs& a) {
  const T *x = a.in[0].as<const T>(), *mean = a.in[1].as<const T>(), *rstd = a.in[2].as<const T>();
  const T *dy = a.in[3].as<const T>(), *weight = data_or_null<T>(a.in[4]);
  T* dx = a.out[0].as<T>();
  const bool centered = a.attr<bool>("centered");
  const NormLoops<T> loops = norm_loops<T>();
  const auto run = writes_past_caches(dx, row_length(a), a.in[0].numel()) ? loops.stream_rows_dx : loops.rows_dx;
  over_rows(a, [&](int64_t r, int64_t count, int64_t n) {
    run(x + r * n, dy + r * n, dx + r * n, count, n, centered, mean + r, rstd + r, weight);
  });
}

// Rows in chunks of fixed size. Each chunk has its own sums, which are added in order.
template <class T>
void row_norm_dw(const KernelArgs& a) {
  const int64_t n = row_length(a), rows = n ? a.in[0].numel() / n : 0;
  const T *x = a.in[0].as<const T>(), *mean = a.in[1].as<const T>(), *rstd = a.in[2].as<const T>(),
          *dy = a.in[3].as<const T>();
  const bool centered = a.attr<bool>("centered");
  const NormLoops<T> loops = norm_loops<T>();
  const int64_t step = std::clamp<int64_t>(8 * kGrain / std::max<int64_t>(n, 1), 16, 1024),
                chunks = (rows + step - 1) / step;
  WorkVector<T> sums(size_t(chunks * n * 2), T(0));
  parallel_parts(chunks, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c)
      for (int64_t r = c * step; r < std::min(rows, (c + 1) * step); ++r)
        loops.row_dw(x + r * n, dy + r * n, &sums[c * n * 2], &sums[c * n * 2] + n, n, centered ? mean[r] : T(0),
                     rstd[r]);
  });
  for (int64_t i = 0; i < n; ++i) {
    double dw = 0, db = 0;
    for (int64_t c = 0; c < chunks; ++c) dw += sums[c * n * 2 + i], db += sums[c * n * 2 + n + i];
    a.out[0].as<T>()[i] = T(dw);
    a.out[1].as<T>()[i] = T(db);
  }
}

// --- Channels ---

// batch x channels x positions. Without elements `batch` is 0, whatever its dim is.
struct Layout {
  int64_t batch, channels, positions;
  explicit Layout(const Dims& shape) : batch(numel(shape) ? shape[0] : 0), channels(shape[1]), positions(1) {
    for (int d = 2; d < shape.size(); ++d) positions *= shape[d];
  }
  int64_t count() const { return batch * positions; }  // elements per channel
};

constexpr int64_t kTile = 512;  // channels per tile, for rows without positions

// Sums over a tile of channels. Blocks of rows are added in double.
template <class T, class F>
void sum_rows(int64_t rows, int64_t width, double* totals, const F& add_row) {
  constexpr int64_t kRows = 256;
  T part[kTile];
  std::fill(totals, totals + width, 0.0);
  Poller poll;
  for (int64_t r = 0; r < rows; r += kRows, poll(kRows * width)) {
    std::fill(part, part + width, T(0));
    for (int64_t i = r; i < std::min(rows, r + kRows); ++i) add_row(i, part);
    for (int64_t j = 0; j < width; ++j) totals[j] += double(part[j]);
  }
}

// Calls body(first, count) for tiles of channels.
template <class F>
void over_channels(const Layout& l, const F& body) {
  if (l.positions > 1)
    return parallel_for(l.channels, kGrain / std::max<int64_t>(l.count(), 1) + 1,
                        [&](int64_t begin, int64_t end) { body(begin, end - begin); });
  parallel_for((l.channels + kTile - 1) / kTile, kGrain / std::max<int64_t>(l.batch * kTile, 1) + 1,
               [&](int64_t begin, int64_t end) {
                 for (int64_t t = begin; t < end; ++t) body(t * kTile, std::min(kTile, l.channels - t * kTile));
               });
}

template <class T>
void channel_moments(const T* x, const Layout& l, int64_t first, int64_t count, T* mean, double* var) {
  const NormLoops<T> loops = norm_loops<T>();
  const double n = double(l.count());
  if (l.positions == 1) {
    double sums[kTile];
    const auto row = [&](int64_t i) { return x + i * l.channels + first; };
    sum_rows<T>(l.batch, count, sums, [&](int64_t i, T* part) { loops.sum_row(row(i), part, count); });
    for (int64_t j = 0; j < count; ++j) mean[j] = T(sums[j] / n);
    sum_rows<T>(l.batch, count, sums, [&](int64_t i, T* part) { loops.deviation_row(row(i), mean, part, count); });
    for (int64_t j = 0; j < count; ++j) var[j] = sums[j] / n;
    return;
  }
  for (int64_t j = 0; j < count; ++j) {
    const auto run = [&](int64_t b) { return x + (b * l.channels + first + j) * l.positions; };
    double sum = 0, squares = 0;
    Poller poll;
    for (int64_t b = 0; b < l.batch; ++b, poll(l.positions)) sum += loops.sum(run(b), l.positions);
    mean[j] = T(sum / n);
    for (int64_t b = 0; b < l.batch; ++b, poll(l.positions)) squares += loops.deviation(run(b), l.positions, mean[j]);
    var[j] = squares / n;
  }
}

// y = x scale + shift for channels [first, first + count).
template <class T>
void scale_channels(const T* x, T* y, const Layout& l, int64_t first, int64_t count, const T* scale, const T* shift) {
  const NormLoops<T> loops = norm_loops<T>();
  Poller poll;
  for (int64_t b = 0; b < l.batch; ++b, poll(count * l.positions)) {
    const int64_t at = (b * l.channels + first) * l.positions;
    if (l.positions == 1) {
      loops.affine_row(x + at, y + at, count, scale, shift);
      continue;
    }
    for (int64_t j = 0; j < count; ++j)
      loops.affine(x + at + j * l.positions, y + at + j * l.positions, l.positions, scale[j], shift[j]);
  }
}

// Updates a running statistic.
void update_running(const View& old, const View& out, int64_t c, double batch, double keep) {
  const int64_t size = size_of(old.dtype());
  store_number(out.dtype(), out.as<char>() + c * size,
               load_number(old.dtype(), old.as<char>() + c * size) * keep + batch * (1 - keep));
}

// The coefficients of y = x scale + shift.
template <class T>
void coefficients(T mean, T rstd, const T* weight, const T* bias, T* scale, T* shift) {
  *scale = weight ? rstd * *weight : rstd;
  *shift = (bias ? *bias : T(0)) - mean * *scale;
}

template <class T>
void batch_norm_train(const KernelArgs& a) {
  const Layout l(a.in[0].shape());
  const T *x = a.in[0].as<const T>(), *weight = data_or_null<T>(a.in[3]), *bias = data_or_null<T>(a.in[4]);
  T *y = a.out[0].as<T>(), *means = a.out[1].as<T>(), *rstds = a.out[2].as<T>();
  const double eps = a.attr<double>("eps"), keep = a.attr<double>("momentum");
  const double n = double(l.count()), correction = a.attr<double>("running_var_correction");
  const double unbias = n > correction ? n / (n - correction) : 1;
  over_channels(l, [&](int64_t begin, int64_t total) {
    T scale[kTile], shift[kTile];
    double var[kTile];
    for (int64_t first = begin; first < begin + total; first += kTile) {
      const int64_t count = std::min(kTile, begin + total - first);
      if (n > 0) {
        channel_moments(x, l, first, count, means + first, var);
      } else {
        std::fill_n(means + first, count, T(0));
        std::fill_n(var, count, 0.0);
      }
      for (int64_t j = 0; j < count; ++j) {
        const int64_t c = first + j;
        rstds[c] = T(1 / std::sqrt(var[j] + eps));
        coefficients(means[c], rstds[c], weight ? weight + c : nullptr, bias ? bias + c : nullptr, &scale[j],
                     &shift[j]);
        if (!a.in[1]) continue;
        update_running(a.in[1], a.out[3], c, means[c], n > 0 ? keep : 1);
        update_running(a.in[2], a.out[4], c, var[j] * unbias, n > 0 ? keep : 1);
      }
      scale_channels(x, y, l, first, count, scale, shift);
    }
  });
}

template <class T>
void batch_norm_sums(const KernelArgs& a) {
  const Layout l(a.in[0].shape());
  const T *x = a.in[0].as<const T>(), *mean = a.in[1].as<const T>(), *rstd = a.in[2].as<const T>(),
          *dy = a.in[3].as<const T>();
  T *dw = a.out[0].as<T>(), *db = a.out[1].as<T>();
  const NormLoops<T> loops = norm_loops<T>();
  over_channels(l, [&](int64_t first, int64_t count) {
    if (l.positions == 1) {
      double dots[kTile], totals[kTile];
      T scratch[kTile];
      const auto at = [&](int64_t i) { return i * l.channels + first; };
      sum_rows<T>(l.batch, count, dots, [&](int64_t i, T* part) {
        loops.products_row(x + at(i), dy + at(i), mean + first, part, scratch, count);
      });
      sum_rows<T>(l.batch, count, totals, [&](int64_t i, T* part) { loops.sum_row(dy + at(i), part, count); });
      for (int64_t j = 0; j < count; ++j) dw[first + j] = T(dots[j] * rstd[first + j]), db[first + j] = T(totals[j]);
      return;
    }
    for (int64_t c = first; c < first + count; ++c) {
      double dot = 0, total = 0;
      Poller poll;
      for (int64_t b = 0; b < l.batch; ++b, poll(l.positions)) {
        const int64_t at = (b * l.channels + c) * l.positions;
        loops.products(x + at, dy + at, l.positions, mean[c], &dot, &total);
      }
      dw[c] = T(dot * rstd[c]);
      db[c] = T(total);
    }
  });
}

// dx = a dy + b x + c, with one a, b and c per channel.
template <class T>
void batch_norm_dx(const KernelArgs& args) {
  const Layout l(args.in[0].shape());
  const T *x = args.in[0].as<const T>(), *mean = args.in[1].as<const T>(), *rstd = args.in[2].as<const T>();
  const T *dy = args.in[3].as<const T>(), *dw = args.in[4].as<const T>(), *db = args.in[5].as<const T>();
  const T* weight = data_or_null<T>(args.in[6]);
  T* dx = args.out[0].as<T>();
  const NormLoops<T> loops = norm_loops<T>();
  const double n = double(l.count());
  WorkVector<T> a(size_t(l.channels)), b(a.size()), c(a.size());
  for (int64_t k = 0; k < l.channels; ++k) {
    const double r = rstd[k], scale = weight ? r * weight[k] : r;
    a[k] = T(scale);
    b[k] = T(-scale * dw[k] / n * r);
    c[k] = T(scale * (dw[k] / n * r * mean[k] - db[k] / n));
  }
  if (l.positions == 1)
    return parallel_for(l.batch, kGrain / std::max<int64_t>(l.channels, 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * l.channels; i < end * l.channels; i += l.channels)
        loops.blend_row(x + i, dy + i, dx + i, l.channels, a.data(), b.data(), c.data());
    });
  parallel_for(l.batch * l.channels, kGrain / std::max<int64_t>(l.positions, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * l.positions, k = i % l.channels;
      loops.blend(x + at, dy + at, dx + at, l.positions, a[k], b[k], c[k]);
    }
  });
}

template <class T>
void scale_and_shift(const T* x, T* y, const Layout& l, const T* scale, const T* shift) {
  const NormLoops<T> loops = norm_loops<T>();
  if (l.positions == 1)
    return parallel_for(l.batch, kGrain / std::max<int64_t>(l.channels, 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * l.channels; i < end * l.channels; i += l.channels)
        loops.affine_row(x + i, y + i, l.channels, scale, shift);
    });
  parallel_for(l.batch * l.channels, kGrain / std::max<int64_t>(l.positions, 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      loops.affine(x + i * l.positions, y + i * l.positions, l.positions, scale[i % l.channels], shift[i % l.channels]);
  });
}

template <class T>
void scale_shift(const KernelArgs& a) {
  scale_and_shift<T>(a.in[0].as<const T>(), a.out[0].as<T>(), Layout(a.in[0].shape()), a.in[1].as<const T>(),
                     a.in[2].as<const T>());
}

// Must return the same bits as batch_norm_train.
template <class T>
void batch_norm_apply(const KernelArgs& a) {
  const Layout l(a.in[0].shape());
  const T *mean = a.in[1].as<const T>(), *rstd = a.in[2].as<const T>();
  const T *weight = data_or_null<T>(a.in[3]), *bias = data_or_null<T>(a.in[4]);
  WorkVector<T> scale(size_t(l.channels)), shift(scale.size());
  for (size_t c = 0; c < scale.size(); ++c)
    coefficients(mean[c], rstd[c], weight ? weight + c : nullptr, bias ? bias + c : nullptr, &scale[c], &shift[c]);
  scale_and_shift<T>(a.in[0].as<const T>(), a.out[0].as<T>(), l, scale.data(), shift.data());
}

// infer guarantees that all arrays have the same type once they are widened.
template <KernelFn float_kernel, KernelFn double_kernel>
void dispatch(const KernelArgs& a) {
  cpu::run_widened(
      a, [](const KernelArgs& wide) { (wide.in[0].dtype() == DType::kFloat64 ? double_kernel : float_kernel)(wide); });
}

}  // namespace

void add_norm_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"row_norm", dispatch<row_norm<float>, row_norm<double>>},
      {"row_norm_dx", dispatch<row_norm_dx<float>, row_norm_dx<double>>},
      {"row_norm_dw", dispatch<row_norm_dw<float>, row_norm_dw<double>>},
      {"batch_norm_train", dispatch<batch_norm_train<float>, batch_norm_train<double>>},
      {"batch_norm_apply", dispatch<batch_norm_apply<float>, batch_norm_apply<double>>},
      {"batch_norm_sums", dispatch<batch_norm_sums<float>, batch_norm_sums<double>>},
      {"batch_norm_dx", dispatch<batch_norm_dx<float>, batch_norm_dx<double>>},
      {"scale_shift", dispatch<scale_shift<float>, scale_shift<double>>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
