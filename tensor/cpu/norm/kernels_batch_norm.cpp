// Batch normalization: statistics of channels, and what follows from them. Images are (N, C, spatial...), or rows
// (N, C), which are also images whose channels are the last dim.
#include <algorithm>
#include <cmath>

#include "tensor/cpu/converted.h"
#include "tensor/cpu/norm/norm_simd.h"
#include "tensor/cpu/norm/storage.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu;

constexpr int64_t kGrain = 16 << 10;  // elements that make a thread worthwhile

// batch x channels x positions. Without elements `batch` is 0, whatever its dim is.
struct Layout {
  int64_t batch, channels, positions;
  explicit Layout(const Dims& shape) : batch(numel(shape) ? shape[0] : 0), channels(shape[1]), positions(1) {
    for (int d = 2; d < shape.size(); ++d) positions *= shape[d];
  }
  bool has_rows() const { return positions == 1; }
  int64_t count() const { return batch * positions; }  // elements per channel
};

// Calls body(begin, end) for shares of the channels, or of the rows if there are no positions.
template <class F>
void over_channels(const Layout& l, const F& body) {
  parallel_for(l.channels, kGrain / std::max<int64_t>(l.count(), 1) + 1, body);
}
template <class F>
void over_rows(const Layout& l, const F& body) {
  parallel_for(l.batch, kGrain / std::max<int64_t>(l.channels, 1) + 1, body);
}

// --- Sums over rows ---

constexpr int64_t kTile = 512;       // channels of a tile
constexpr int64_t kBlock = 8 << 10;  // elements of a block, whose sums have the precision of T
constexpr int64_t kBlockRows = 256;  // of a block, at most
constexpr int64_t kPart = 64 << 10;  // elements of a part of the rows of a tile, whose sums are in double
constexpr int64_t kMostParts = 64;

// The parts of the rows, and their blocks. They depend only on the shape, so that the bits do, too.
struct Parts {
  int64_t rows, channels, width, block, count;
  explicit Parts(const Layout& l)
      : rows(l.batch),
        channels(l.channels),
        width(std::clamp<int64_t>(l.channels, 1, kTile)),
        block(std::min(kBlock / width, kBlockRows)),
        count(std::clamp<int64_t>(rows * width / kPart, 1, std::min(kMostParts, all_blocks()))) {}
  int64_t all_blocks() const { return std::max<int64_t>((rows + block - 1) / block, 1); }
  int64_t begin(int64_t part) const { return std::min(rows, all_blocks() * part / count * block); }
  size_t size() const { return size_t(channels * count); }  // of an array with an element per channel and part

  // Calls body(part, first channel, channels, poll) for all parts of the tiles of channels.
  template <class F>
  void each(const F& body) const {
    const int64_t tiles = (channels + kTile - 1) / kTile,
                  grain = kGrain / std::max<int64_t>(rows * width / count, 1) + 1;
    parallel_for(tiles * count, grain, [&](int64_t first, int64_t last) {
      Poller poll;
      for (int64_t i = first; i < last; ++i) {
        const int64_t c = i / count * kTile;
        body(i % count, c, std::min(kTile, channels - c), poll);
      }
    });
  }
  // Calls body(first row, rows) for the blocks of a part.
  template <class F>
  void blocks(int64_t part, Poller& poll, const F& body) const {
    for (int64_t r = begin(part), end = begin(part + 1); r < end; r += block, poll(block * width))
      body(r, std::min(block, end - r));
  }
};

// Calls body(channel) for all channels. `work`: of a call, in elements.
template <class F>
void each_channel(int64_t channels, int64_t work, const F& body) {
  parallel_for(channels, kGrain / work + 1, [&](int64_t begin, int64_t end) {
    Poller poll;
    for (int64_t c = begin; c < end; ++c, poll(work)) body(c);
  });
}

// The mean and the sum of squared deviations of each channel, by the formula of Chan, Golub and LeVeque. Within a part
// they are those of differences from the mean of its first block, or from 0 if that is not finite.
template <class H, class T = Arithmetic<H>>
void moments_of_rows(const H* x, const Layout& l, double* mean, double* squares) {
  const NormLoops<H> loops = norm_loops<H>();
  const Parts parts(l);
  WorkVector<double> means(parts.size()), deviations(parts.size());
  parts.each([&](int64_t part, int64_t c, int64_t width, Poller& poll) {
    T center[kTile] = {}, sums[kTile], terms[kTile];
    double all[kTile] = {}, all_terms[kTile] = {};
    const int64_t first = parts.begin(part), rows = parts.begin(part + 1) - first, some = std::min(rows, parts.block);
    const H* const from = x + first * l.channels + c;
    for (int64_t j = 0; j < width; ++j) center[j] = T(from[j]), sums[j] = terms[j] = T(0);
    loops.moments_of_rows(from, some, l.channels, width, center, sums, terms);
    for (int64_t j = 0; j < width; ++j) {
      center[j] += sums[j] / T(some);
      if (!std::isfinite(center[j])) center[j] = 0;  // differences from an infinity are NaN, and so would be the mean
    }
    poll(some * width);
    parts.blocks(part, poll, [&](int64_t r, int64_t count) {
      std::fill_n(sums, width, T(0));
      std::fill_n(terms, width, T(0));
      loops.moments_of_rows(x + r * l.channels + c, count, l.channels, width, center, sums, terms);
      for (int64_t j = 0; j < width; ++j) all[j] += double(sums[j]), all_terms[j] += double(terms[j]);
    });
    for (int64_t j = 0; j < width; ++j) {
      const size_t at = size_t(part * l.channels + c + j);
      const double off = all[j] / double(rows), left = all_terms[j] - off * all[j];
      means[at] = double(center[j]) + off;
      deviations[at] = std::max(left, left * 0);  // keeps NaN
    }
  });
  each_channel(l.channels, parts.count, [&](int64_t c) {
    mean[c] = means[size_t(c)], squares[c] = deviations[size_t(c)];
    for (int64_t p = 1; p < parts.count; ++p) {
      const size_t at = size_t(p * l.channels + c);
      const double before = double(parts.begin(p)), all = double(parts.begin(p + 1)), share = (all - before) / all;
      const double step = means[at] - mean[c];
      mean[c] += std::isfinite(step) ? step * share : means[at];  // an infinity stays, two that differ give NaN
      squares[c] += deviations[at] + step * step * (before * share);
    }
  });
}

// The sums of dy (x - mean) and of dy of each channel.
template <class H, class T = Arithmetic<H>>
void products_of_rows(const H* x, const H* dy, const T* mean, const Layout& l, double* dots, double* totals) {
  const NormLoops<H> loops = norm_loops<H>();
  const Parts parts(l);
  WorkVector<double> all_dots(parts.size(), 0.0), all_totals(parts.size(), 0.0);
  parts.each([&](int64_t part, int64_t c, int64_t width, Poller& poll) {
    T dot[kTile], total[kTile];
    double *const sum = &all_dots[size_t(part * l.channels + c)], *const sum_dy =
                                                                      &all_totals[size_t(part * l.channels + c)];
    parts.blocks(part, poll, [&](int64_t r, int64_t count) {
      std::fill_n(dot, width, T(0));
      std::fill_n(total, width, T(0));
      const int64_t at = r * l.channels + c;
      loops.products_of_rows(x + at, dy + at, count, l.channels, width, mean + c, dot, total);
      for (int64_t j = 0; j < width; ++j) sum[j] += double(dot[j]), sum_dy[j] += double(total[j]);
    });
  });
  each_channel(l.channels, parts.count, [&](int64_t c) {
    dots[c] = totals[c] = 0;
    for (int64_t p = 0; p < parts.count; ++p) {
      dots[c] += all_dots[size_t(p * l.channels + c)];
      totals[c] += all_totals[size_t(p * l.channels + c)];
    }
  });
}

// --- Sums over runs of positions ---

template <class H, class T = Arithmetic<H>>
void moments_of_runs(const H* x, const Layout& l, double* mean, double* squares) {
  const NormLoops<H> loops = norm_loops<H>();
  over_channels(l, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const auto run = [&](int64_t b) { return x + (b * l.channels + c) * l.positions; };
      double sum = 0;
      Poller poll;
      for (int64_t b = 0; b < l.batch; ++b, poll(l.positions)) sum += loops.sum(run(b), l.positions);
      mean[c] = sum / double(l.count());
      squares[c] = 0;
      for (int64_t b = 0; b < l.batch; ++b, poll(l.positions))
        squares[c] += loops.deviation(run(b), l.positions, T(mean[c]));
    }
  });
}

template <class H, class T = Arithmetic<H>>
void products_of_runs(const H* x, const H* dy, const T* mean, const Layout& l, double* dots, double* totals) {
  const NormLoops<H> loops = norm_loops<H>();
  over_channels(l, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      dots[c] = totals[c] = 0;
      Poller poll;
      for (int64_t b = 0; b < l.batch; ++b, poll(l.positions)) {
        const int64_t at = (b * l.channels + c) * l.positions;
        loops.products(x + at, dy + at, l.positions, mean[c], &dots[c], &totals[c]);
      }
    }
  });
}

// --- Kernels ---

// y = x scale + shift
template <class H, class T = Arithmetic<H>>
void scale_and_shift(const H* x, H* y, const Layout& l, const T* scale, const T* shift) {
  const NormLoops<H> loops = norm_loops<H>();
  if (l.has_rows())
    return over_rows(l, [&](int64_t begin, int64_t end) {
      Poller poll;
      for (int64_t i = begin * l.channels; i < end * l.channels; i += l.channels, poll(l.channels))
        loops.affine_row(x + i, y + i, l.channels, scale, shift);
    });
  parallel_for(l.batch * l.channels, kGrain / std::max<int64_t>(l.positions, 1) + 1, [&](int64_t begin, int64_t end) {
    Poller poll;
    for (int64_t i = begin; i < end; ++i, poll(l.positions))
      loops.affine(x + i * l.positions, y + i * l.positions, l.positions, scale[i % l.channels], shift[i % l.channels]);
  });
}

// Updates a running statistic.
void update_running(const View& old, const View& out, int64_t c, double batch, double keep) {
  const int64_t size = size_of(old.dtype());
  store_number(out.dtype(), out.as<char>() + c * size,
               load_number(old.dtype(), old.as<char>() + c * size) * keep + batch * (1 - keep));
}

// batch_norm_apply must return the same bits as batch_norm_train.
template <class H, class T = Arithmetic<H>>
void normalize(const KernelArgs& a, const T* mean, const T* rstd) {
  const Layout l(a.in[0].shape());
  const Converted<T> weight(a.in[3], kArithmetic<H>), bias(a.in[4], kArithmetic<H>);
  WorkVector<T> scale(size_t(l.channels)), shift(scale.size());
  each_channel(l.channels, 1, [&](int64_t c) {
    const T factor = weight.data() ? rstd[c] * weight.data()[c] : rstd[c];
    scale[size_t(c)] = factor;
    shift[size_t(c)] = (bias.data() ? bias.data()[c] : T(0)) - mean[c] * factor;
  });
  scale_and_shift(a.in[0].as<const H>(), a.out[0].as<H>(), l, scale.data(), shift.data());
}

template <class H, class T = Arithmetic<H>>
void batch_norm_train(const KernelArgs& a) {
  const Layout l(a.in[0].shape());
  T *mean = a.out[1].as<T>(), *rstd = a.out[2].as<T>();
  const double eps = a.attr<double>("eps"), keep = a.attr<double>("momentum");
  const double n = double(l.count()), correction = a.attr<double>("running_var_correction");
  const double unbias = n > correction ? n / (n - correction) : 1;
  WorkVector<double> means(size_t(l.channels), 0.0), squares(means.size(), 0.0);
  if (n > 0)
    (l.has_rows() ? moments_of_rows<H> : moments_of_runs<H>)(a.in[0].as<const H>(), l, means.data(), squares.data());
  each_channel(l.channels, 16, [&](int64_t c) {
    const double var = n > 0 ? squares[size_t(c)] / n : 0;
    mean[c] = T(means[size_t(c)]);
    rstd[c] = T(1 / std::sqrt(var + eps));
    if (!a.in[1]) return;
    update_running(a.in[1], a.out[3], c, mean[c], n > 0 ? keep : 1);
    update_running(a.in[2], a.out[4], c, var * unbias, n > 0 ? keep : 1);
  });
  normalize<H>(a, mean, rstd);
}

template <class H, class T = Arithmetic<H>>
void batch_norm_apply(const KernelArgs& a) {
  normalize<H>(a, a.in[1].as<const T>(), a.in[2].as<const T>());
}

template <class H, class T = Arithmetic<H>>
void batch_norm_sums(const KernelArgs& a) {
  const Layout l(a.in[0].shape());
  const T *mean = a.in[1].as<const T>(), *rstd = a.in[2].as<const T>();
  WorkVector<double> dots(size_t(l.channels)), totals(dots.size());
  (l.has_rows() ? products_of_rows<H> : products_of_runs<H>)(a.in[0].as<const H>(), a.in[3].as<const H>(), mean, l,
                                                             dots.data(), totals.data());
  T *dw = a.out[0].as<T>(), *db = a.out[1].as<T>();
  each_channel(l.channels, 1, [&](int64_t c) {
    dw[c] = T(dots[size_t(c)] * rstd[c]);
    db[c] = T(totals[size_t(c)]);
  });
}

// dx = a dy + b x + c, with one a, b and c per channel.
template <class H, class T = Arithmetic<H>>
void batch_norm_dx(const KernelArgs& args) {
  const Layout l(args.in[0].shape());
  const H *x = args.in[0].as<const H>(), *dy = args.in[3].as<const H>();
  const T *mean = args.in[1].as<const T>(), *rstd = args.in[2].as<const T>();
  const Converted<T> dw(args.in[4], kArithmetic<H>), db(args.in[5], kArithmetic<H>), weight(args.in[6], kArithmetic<H>);
  H* dx = args.out[0].as<H>();
  const NormLoops<H> loops = norm_loops<H>();
  const double n = double(l.count());
  WorkVector<T> a(size_t(l.channels)), b(a.size()), c(a.size());
  each_channel(l.channels, 4, [&](int64_t channel) {
    const size_t k = size_t(channel);
    const double r = rstd[k], scale = weight.data() ? r * weight.data()[k] : r;
    a[k] = T(scale);
    b[k] = T(-scale * dw.data()[k] / n * r);
    c[k] = T(scale * (dw.data()[k] / n * r * mean[k] - db.data()[k] / n));
  });
  if (l.has_rows())
    return over_rows(l, [&](int64_t begin, int64_t end) {
      Poller poll;
      for (int64_t i = begin * l.channels; i < end * l.channels; i += l.channels, poll(l.channels))
        loops.blend_row(x + i, dy + i, dx + i, l.channels, a.data(), b.data(), c.data());
    });
  parallel_for(l.batch * l.channels, kGrain / std::max<int64_t>(l.positions, 1) + 1, [&](int64_t begin, int64_t end) {
    Poller poll;
    for (int64_t i = begin; i < end; ++i, poll(l.positions)) {
      const int64_t at = i * l.positions, k = i % l.channels;
      loops.blend(x + at, dy + at, dx + at, l.positions, a[size_t(k)], b[size_t(k)], c[size_t(k)]);
    }
  });
}

template <class H, class T = Arithmetic<H>>
void scale_shift(const KernelArgs& a) {
  const Converted<T> scale(a.in[1], kArithmetic<H>), shift(a.in[2], kArithmetic<H>);
  scale_and_shift(a.in[0].as<const H>(), a.out[0].as<H>(), Layout(a.in[0].shape()), scale.data(), shift.data());
}

}  // namespace

void add_batch_norm_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"batch_norm_train", by_storage<[]<class H>(const KernelArgs& a) { batch_norm_train<H>(a); }>},
      {"batch_norm_apply", by_storage<[]<class H>(const KernelArgs& a) { batch_norm_apply<H>(a); }>},
      {"batch_norm_sums", by_storage<[]<class H>(const KernelArgs& a) { batch_norm_sums<H>(a); }>},
      {"batch_norm_dx", by_storage<[]<class H>(const KernelArgs& a) { batch_norm_dx<H>(a); }>},
      {"scale_shift", by_storage<[]<class H>(const KernelArgs& a) { scale_shift<H>(a); }>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
