// Losses over class labels. The labels are checked before anything is written.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/cpu/reduce/reduce.h"
#include "tensor/cpu/register.h"
#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using cpu::WorkVector;

using cpu::Lines;

constexpr int64_t kGrain = 16 << 10;  // elements that make a thread worthwhile
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

// Computes logsumexp of the samples [begin, end).
template <class T>
void all_log_sum_exp(const T* x, T* lse, const Classes<T>& k, int64_t begin, int64_t end) {
  const cpu::SoftmaxLoops<T> loops = cpu::softmax_loops<T>();
  const int64_t n = k.lines.n;
  if (k.lines.inner == 1) return loops.log_sum_exp(x + begin * n, lse + begin, end - begin, n);
  WorkVector<T> line(size_t(n), T(0));
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t c = 0; c < n; ++c) line[size_t(c)] = x[k.place(i) + c * k.lines.inner];
    loops.log_sum_exp(line.data(), lse + i, 1, n);
  }
}

// (1 - s) w[t] (lse - x[t]) + s / C sum(w (lse - x))
template <class T>
T smoothed_loss(const T* x, T lse, const Classes<T>& k, int64_t sample, T smoothing) {
  const int64_t label = k.labels[size_t(sample)], stride = k.lines.inner;
  if (label == kIgnored) return 0;
  T loss = (1 - smoothing) * k.factor(sample) * (lse - x[label * stride]);
  if (smoothing == 0) return loss;
  double even = 0;
  Poller poll;
  for (int64_t c = 0; c < k.lines.n; ++c, poll())
    even += double((k.weight ? k.weight[c] : T(1)) * (lse - x[c * stride]));
  return loss + T(even) * smoothing / T(k.lines.n);
}

template <class T>
void cross_entropy(const KernelArgs& a) {
  const Classes<T> k(a, "cross_entropy", a.in[0].shape(), a.in[1], a.in[2]);
  const T* x = a.in[0].as<const T>();
  T* lse = a.out[1].as<T>();
  const T smoothing = T(a.attr<double>("label_smoothing"));
  WorkVector<T> losses(size_t(k.samples()), T(0));
  parallel_for(k.samples(), kGrain / std::max<int64_t>(k.lines.n, 1) + 1, [&](int64_t begin, int64_t end) {
    all_log_sum_exp(x, lse, k, begin, end);
    for (int64_t i = begin; i < end; ++i) losses[size_t(i)] = smoothed_loss(x + k.place(i), lse[i], k, i, smoothing);
  });
  reduce_losses(a, k, losses, a.out[0].as<T>(), a.out[2].as<T>());
}

// scale (a exp(x - lse) - b) for one sample.
template <class T>
void scaled_exp(const T* x, T lse, T a, T b, T* dx, int64_t n) {
  static const cpu::SoftmaxLoops<T> loops = cpu::softmax_loops<T>();
  in_polled_blocks(
      n, 1 << 20, [&](int64_t begin, int64_t end) { loops.scaled_exp(x + begin, lse, a, b, dx + begin, end - begin); });
}

template <class T>
struct EntropyGradient {
  const Classes<T>& k;
  T smoothing, weight_sum;

  // Computes dx of sample i. Classes are adjacent in both arrays.
  void row(const T* x, T lse, T scale, int64_t i, T* dx) const {
    const int64_t label = k.labels[size_t(i)], n = k.lines.n;
    if (label == kIgnored) return void(std::fill(dx, dx + n, T(0)));
    const T even = smoothing / T(n), hit = (1 - smoothing) * k.factor(i);
    const T a = hit + even * weight_sum;
    scaled_exp(x, lse, scale * a, k.weight ? T(0) : scale * even, dx, n);
    if (k.weight && even != 0)
      for (int64_t c = 0; c < n; ++c) dx[c] -= scale * even * k.weight[c];
    dx[label] -= scale * hit;
  }
};

template <class T>
void cross_entropy_dx(const KernelArgs& a) {
  const Classes<T> k(a, "cross_entropy", a.in[0].shape(), a.in[1], a.in[2]);
  const T *x = a.in[0].as<const T>(), *lse = a.in[3].as<const T>(), *scale = a.in[4].as<const T>();
  const bool one = a.in[4].rank() == 0;
  T* dx = a.out[0].as<T>();
  const EntropyGradient<T> gradient{k, T(a.attr<double>("label_smoothing")), k.weight_sum()};
  const int64_t n = k.lines.n, stride = k.lines.inner;
  parallel_for(k.samples(), kGrain / std::max<int64_t>(n, 1) + 1, [&](int64_t begin, int64_t end) {
    if (stride == 1) {
      for (int64_t i = begin; i < end; ++i) gradient.row(x + i * n, lse[i], scale[one ? 0 : i], i, dx + i * n);
      return;
    }
    WorkVector<T> from(size_t(n), T(0)), to(size_t(n), T(0));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = k.place(i);
      for (int64_t c = 0; c < n; ++c) from[size_t(c)] = x[at + c * stride];
      gradient.row(from.data(), lse[i], scale[one ? 0 : i], i, to.data());
      for (int64_t c = 0; c < n; ++c) dx[at + c * stride] = to[size_t(c)];
    }
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
