// Losses over class labels. The labels are checked before anything is written.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/norm/tiles.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::WorkVector;

using cpu::Lines;

constexpr int64_t kIgnored = -1;

int class_dim(int rank) { return rank > 1 ? 1 : 0; }

// Returns the labels as 0-based classes, kIgnored for ignored samples. Throws for other labels.
WorkVector<int64_t> read_labels(const KernelArgs& a, const char* op, const View& labels, int64_t classes) {
  const int64_t ignore = a.attr<int64_t>("ignore_index"), base = a.attr<int64_t>("index_base");
  WorkVector<int64_t> out(size_t(labels.numel()));
  visit_dtype(labels.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      const T* from = labels.as<const T>();
      Poller poll;
      for (size_t i = 0; i < out.size(); ++i, poll()) {
        const int64_t label = int64_t(from[i]);
        if (label == ignore) {
          out[i] = kIgnored;
          continue;
        }
        if (label < base || label >= base + classes)
          bad_argument(op, "target",
                       fmt::format("labels from {} to {}, or ignore_index {}", base, classes - 1 + base, ignore),
                       fmt::format("{} at position {}{}", label, i + 1,
                                   label == 0 && base == 1 ? "; classes count from 1: write labels + 1" : ""));
        out[i] = label - base;
      }
    }
  });
  return out;
}

template <class T>
struct Classes {
  Lines lines;  // batch x classes x positions
  const T* weight;
  WorkVector<int64_t> labels;

  Classes(const KernelArgs& a, const char* op, const Dims& shape, const View& target, const View& w)
      : lines(shape, class_dim(shape.size())),
        weight(w ? w.as<const T>() : nullptr),
        labels(read_labels(a, op, target, lines.n)) {}
  int64_t samples() const { return lines.outer * lines.inner; }
  T factor(int64_t sample) const {  // 0 for an ignored sample
    const int64_t label = labels[size_t(sample)];
    return label == kIgnored ? T(0) : weight ? weight[label] : T(1);
  }
  // Returns the offset of class 0 of the sample. The other classes follow at distance lines.inner.
  int64_t place(int64_t sample) const { return sample / lines.inner * lines.n * lines.inner + sample % lines.inner; }
  T weight_sum() const { return weight ? T(std::accumulate(weight, weight + lines.n, 0.0)) : T(lines.n); }
};

// Writes the reduced losses, and the divisor of the mean.
template <class T>
void reduce_losses(const KernelArgs& a, const Classes<T>& k, const WorkVector<T>& losses, T* out, T* norm) {
  const std::string& how = a.attr<std::string>("reduction");
  *norm = 1;
  if (how == "none") return void(std::copy(losses.begin(), losses.end(), out));
  double sum = 0, share = 0;
  Poller poll;
  for (size_t i = 0; i < losses.size(); ++i, poll()) sum += losses[i], share += k.factor(int64_t(i));
  if (how == "mean") *norm = T(share);
  *out = T(how == "mean" ? sum / share : sum);
}

template <class T>
void nll(const KernelArgs& a) {
  const Classes<T> k(a, "nll_loss", a.in[0].shape(), a.in[1], a.in[2]);
  const T* x = a.in[0].as<const T>();
  WorkVector<T> losses(size_t(k.samples()), T(0));
  Poller poll;
  for (int64_t i = 0; i < k.samples(); ++i, poll())
    if (k.labels[size_t(i)] != kIgnored)
      losses[size_t(i)] = -x[k.place(i) + k.labels[size_t(i)] * k.lines.inner] * k.factor(i);
  reduce_losses(a, k, losses, a.out[0].as<T>(), a.out[1].as<T>());
}

template <class T>
void nll_dx(const KernelArgs& a) {
  const Classes<T> k(a, "nll_loss", a.out[0].shape(), a.in[0], a.in[1]);
  const T* scale = a.in[2].as<const T>();
  const bool one = a.in[2].rank() == 0;
  T* dx = a.out[0].as<T>();
  std::fill(dx, dx + a.out[0].numel(), T(0));
  Poller poll;
  for (int64_t i = 0; i < k.samples(); ++i, poll())
    if (k.labels[size_t(i)] != kIgnored)
      dx[k.place(i) + k.labels[size_t(i)] * k.lines.inner] = -scale[one ? 0 : i] * k.factor(i);
}

// The logsumexp of samples: lse + rest.
template <class T>
struct LogSums {
  T *lse, *rest;
  LogSums operator+(int64_t samples) const { return {lse + samples, rest + samples}; }
  T above(int64_t i, T x) const { return lse[i] - x + rest[i]; }
};

// even[j] = sum(w (lse - x)) over the classes of sample j
template <class T>
void sum_over_classes(const Classes<T>& k, const T* x, const LogSums<T>& sums, int64_t count, double* even) {
  std::fill(even, even + count, 0.0);
  Poller poll;
  for (int64_t c = 0; c < k.lines.n; ++c, x += k.lines.inner, poll(count)) {
    const T weight = k.weight ? k.weight[c] : T(1);
    for (int64_t j = 0; j < count; ++j) even[j] += double(weight * sums.above(j, x[j]));
  }
}

// (1 - s) w[t] (lse - x[t]) + s / C sum(w (lse - x)) for `count` <= kSoftmaxTile samples from i on, which are adjacent
// for each class.
template <class T>
void smoothed_losses(const Classes<T>& k, const T* x, const LogSums<T>& sums, int64_t i, int64_t count, T smoothing,
                     T* losses) {
  double even[cpu::kSoftmaxTile];
  if (smoothing != 0) sum_over_classes(k, x, sums, count, even);
  for (int64_t j = 0; j < count; ++j) {
    const int64_t label = k.labels[size_t(i + j)];
    if (label == kIgnored) continue;
    losses[j] = (1 - smoothing) * k.factor(i + j) * sums.above(j, x[label * k.lines.inner + j]);
    if (smoothing != 0) losses[j] += T(even[j]) * smoothing / T(k.lines.n);
  }
}

template <class T>
void cross_entropy(const KernelArgs& a) {
  const Classes<T> k(a, "cross_entropy", a.in[0].shape(), a.in[1], a.in[2]);
  const T* x = a.in[0].as<const T>();
  const LogSums<T> sums{a.out[1].as<T>(), a.out[3].as<T>()};
  const T smoothing = T(a.attr<double>("label_smoothing"));
  WorkVector<T> losses(size_t(k.samples()), T(0));
  const cpu::SoftmaxLoops<T> loops = cpu::softmax_loops<T>();
  const int64_t n = k.lines.n, inner = k.lines.inner;
  cpu::over_lines(
      k.lines,
      [&](int64_t first, int64_t count) {
        loops.log_sum_exp(x + first * n, sums.lse + first, sums.rest + first, count, n);
        for (int64_t i = first; i < first + count; ++i)
          smoothed_losses(k, x + i * n, sums + i, i, 1, smoothing, &losses[size_t(i)]);
      },
      [&](int64_t o, int64_t first, int64_t width) {
        const int64_t i = o * inner + first;
        const T* from = x + o * n * inner + first;
        loops.columns_log_sum_exp(from, sums.lse + i, sums.rest + i, n, inner, width);
        smoothed_losses(k, from, sums + i, i, width, smoothing, &losses[size_t(i)]);
      });
  reduce_losses(a, k, losses, a.out[0].as<T>(), a.out[2].as<T>());
}

// a exp(x - lse - rest) - b for one sample.
template <class T>
void scaled_exp(const T* x, T lse, T rest, T a, T b, T* dx, int64_t n) {
  static const cpu::SoftmaxLoops<T> loops = cpu::softmax_loops<T>();
  in_polled_blocks(n, 1 << 20, [&](int64_t begin, int64_t end) {
    loops.scaled_exp(x + begin, lse, rest, a, b, dx + begin, end - begin);
  });
}

template <class T>
struct EntropyGradient {
  const Classes<T>& k;
  T smoothing, even, weight_sum;
  const T *lse, *rest, *scale;
  bool one_scale;

  T scale_of(int64_t i) const { return scale[one_scale ? 0 : i]; }
  T hit(int64_t i) const { return (1 - smoothing) * k.factor(i); }
  // The factor of exp(x - lse), and what is subtracted for every class.
  T slope(int64_t i) const { return scale_of(i) * (hit(i) + even * weight_sum); }
  T shift(int64_t i) const { return k.weight ? T(0) : scale_of(i) * even; }

  // Completes dx of sample i, whose classes are k.lines.inner apart.
  void finish(int64_t i, T* dx) const {
    const int64_t label = k.labels[size_t(i)], n = k.lines.n, step = k.lines.inner;
    if (label == kIgnored)
      for (int64_t c = 0; c < n; ++c) dx[c * step] = 0;
    else
      dx[label * step] -= scale_of(i) * hit(i);
  }

  // Computes dx of sample i. Classes are adjacent in both arrays.
  void row(const T* x, int64_t i, T* dx) const {
    const int64_t n = k.lines.n;
    if (k.labels[size_t(i)] == kIgnored) return finish(i, dx);
    scaled_exp(x, lse[i], rest[i], slope(i), shift(i), dx, n);
    if (k.weight && even != 0)
      for (int64_t c = 0; c < n; ++c) dx[c] -= scale_of(i) * even * k.weight[c];
    finish(i, dx);
  }

  // The same for `width` <= kSoftmaxTile samples from i on, which are adjacent for each class.
  void columns(const T* x, int64_t i, int64_t width, T* dx) const {
    const int64_t n = k.lines.n, step = k.lines.inner;
    T a[cpu::kSoftmaxTile], b[cpu::kSoftmaxTile];
    for (int64_t j = 0; j < width; ++j) a[j] = slope(i + j), b[j] = shift(i + j);
    cpu::softmax_loops<T>().columns_scaled_exp(x, lse + i, rest + i, a, b, dx, n, step, width);
    if (k.weight && even != 0)
      for (int64_t c = 0; c < n; ++c)
        for (int64_t j = 0; j < width; ++j) dx[c * step + j] -= scale_of(i + j) * even * k.weight[c];
    Poller poll;
    for (int64_t j = 0; j < width; ++j, poll(n)) finish(i + j, dx + j);
  }
};

template <class T>
void cross_entropy_dx(const KernelArgs& a) {
  const Classes<T> k(a, "cross_entropy", a.in[0].shape(), a.in[1], a.in[2]);
  const T* x = a.in[0].as<const T>();
  T* dx = a.out[0].as<T>();
  const T smoothing = T(a.attr<double>("label_smoothing"));
  const EntropyGradient<T> gradient{k,
                                    smoothing,
                                    smoothing / T(k.lines.n),
                                    k.weight_sum(),
                                    a.in[3].as<const T>(),
                                    a.in[4].as<const T>(),
                                    a.in[5].as<const T>(),
                                    a.in[5].rank() == 0};
  const int64_t n = k.lines.n, inner = k.lines.inner;
  cpu::over_lines(
      k.lines,
      [&](int64_t first, int64_t count) {
        for (int64_t i = first; i < first + count; ++i) gradient.row(x + i * n, i, dx + i * n);
      },
      [&](int64_t o, int64_t first, int64_t width) {
        const int64_t at = o * n * inner + first;
        gradient.columns(x + at, o * inner + first, width, dx + at);
      });
}

// infer guarantees that all floats have the same type once they are widened.
template <KernelFn float_kernel, KernelFn double_kernel, int decider>
void dispatch(const KernelArgs& a) {
  cpu::run_widened(a, [](const KernelArgs& wide) {
    (wide.in[decider].dtype() == DType::kFloat64 ? double_kernel : float_kernel)(wide);
  });
}

}  // namespace

void add_loss_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"nll_fused", dispatch<nll<float>, nll<double>, 0>},
      {"nll_dx", dispatch<nll_dx<float>, nll_dx<double>, 2>},
      {"cross_entropy_fused", dispatch<cross_entropy<float>, cross_entropy<double>, 0>},
      {"cross_entropy_dx", dispatch<cross_entropy_dx<float>, cross_entropy_dx<double>, 0>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
