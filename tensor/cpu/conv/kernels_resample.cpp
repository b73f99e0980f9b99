// Resizing along one dim. Each element of the result is a weighted sum of up to four elements of a line.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tensor/cpu/conv/arguments.h"
#include "tensor/cpu/reduce/lines.h"
#include "tensor/cpu/register.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg {
namespace {

using namespace cpu::conv_arguments;

// The input elements that one output element is made of, and their weights.
struct Tap {
  int count;
  int64_t from[4];
  double weight[4];
};

// Keys, Cubic convolution interpolation for digital image processing, 1981, with a = -0.75; the ends are repeated.
Tap cubic_tap(double at, int64_t in) {
  constexpr double a = -0.75;
  const auto near = [](double u) { return ((a + 2) * u - (a + 3)) * u * u + 1; };
  const auto far = [](double u) { return a * u * (1 - u) * (1 - u); };  // for the distance 1 + u
  at = std::clamp(at, -2.0, double(in) + 1);
  const double start = std::floor(at), t = at - start;
  Tap out{4, {}, {far(t), near(t), near(1 - t), far(1 - t)}};
  for (int k = 0; k < 4; ++k) out.from[k] = std::clamp<int64_t>(int64_t(start) + k - 1, 0, in - 1);
  return out;
}

Tap linear_tap(double at, int64_t in) {
  const int64_t i = std::clamp<int64_t>(int64_t(at), 0, in - 1);
  const double share = std::clamp(at - double(i), 0.0, 1.0);
  return {share == 0 ? 1 : 2, {i, std::min(i + 1, in - 1)}, {1 - share, share}};
}

std::vector<Tap> taps(const std::string& kind, int64_t in, int64_t out, double step) {
  const bool nearest = kind == "nearest", exact = kind == "nearest-exact", cubic = kind.starts_with("cubic");
  const bool corners = kind.ends_with("corners");
  std::vector<Tap> list;
  for (int64_t o = 0; o < out; ++o) {
    if (nearest || exact) {
      // Rounded to single precision, as in PyTorch, so that a product that should be a whole number is one.
      const float at = float((double(o) + (exact ? 0.5 : 0)) * step);
      list.push_back({1, {std::clamp<int64_t>(int64_t(std::min(at, 1e18f)), 0, in - 1)}, {1}});
      continue;
    }
    const double at = corners ? double(o) * step : (double(o) + 0.5) * step - 0.5;
    if (cubic)
      list.push_back(cubic_tap(at, in));
    else
      list.push_back(linear_tap(std::max(0.0, at), in));
  }
  return list;
}

// to = the sum of the elements of a tap, for `n` neighbours of each.
template <class T>
void gather_tap(const Tap& t, const T* x, int64_t n, T* to) {
  const T *a = x + t.from[0] * n, *b = x + t.from[1] * n, *c = x + t.from[2] * n, *d = x + t.from[3] * n;
  const T u = T(t.weight[0]), v = T(t.weight[1]), w = T(t.weight[2]), z = T(t.weight[3]);
  if (t.count == 1) return void(std::copy_n(a, n, to));
  if (t.count == 2)
    for (int64_t i = 0; i < n; ++i) to[i] = u * a[i] + v * b[i];
  else
    for (int64_t i = 0; i < n; ++i) to[i] = u * a[i] + v * b[i] + w * c[i] + z * d[i];
}

template <class T>
void scatter_tap(const Tap& t, const T* x, int64_t n, T* to) {
  for (int k = 0; k < t.count; ++k) {
    T* y = to + t.from[k] * n;
    const T weight = T(t.weight[k]);
    for (int64_t i = 0; i < n; ++i) y[i] += weight * x[i];
  }
}

// Taps whose elements are no neighbours of others: the line is the last dim.
template <class T>
class LineTaps {
 public:
  explicit LineTaps(const std::vector<Tap>& taps) {
    for (const Tap& t : taps) count_ = std::max(count_, t.count);
    for (int k = 0; k < count_; ++k)
      for (const Tap& t : taps) {
        places_[k].push_back(int32_t(t.from[k < t.count ? k : 0]));
        weights_[k].push_back(k < t.count ? T(t.weight[k]) : T(0));
      }
  }

  void gather(const T* x, int64_t begin, int64_t end, T* to) const {
    const int32_t *a = places_[0].data(), *b = places_[1].data(), *c = places_[2].data(), *d = places_[3].data();
    const T *u = weights_[0].data(), *v = weights_[1].data(), *w = weights_[2].data(), *z = weights_[3].data();
    if (count_ == 1)
      for (int64_t o = begin; o < end; ++o) to[o] = x[a[o]];
    else if (count_ == 2)
      for (int64_t o = begin; o < end; ++o) {
        const T one = x[a[o]], two = u[o] * one + v[o] * x[b[o]];
        to[o] = v[o] == 0 ? one : two;  // a copy, whatever the other element is
      }
    else
      for (int64_t o = begin; o < end; ++o) to[o] = u[o] * x[a[o]] + v[o] * x[b[o]] + w[o] * x[c[o]] + z[o] * x[d[o]];
  }

  // Adds x[o] to the elements that `gather` makes to[o] of.
  void scatter(const T* x, int64_t begin, int64_t end, T* to) const {
    if (count_ > 2) {
      for (int64_t o = begin; o < end; ++o)
        for (int k = 0; k < count_; ++k) to[places_[k][size_t(o)]] += weights_[k][size_t(o)] * x[o];
      return;
    }
    // The taps mostly move upward by one, so the sums of an element and of the next one stay in registers.
    int64_t at = places_[0][size_t(begin)];
    T sum = to[at], next = 0;
    const auto move_to = [&](int64_t place) {
      to[at] = sum;
      const bool up = place == at + 1;
      if (!up && next != 0) to[at + 1] += next;
      sum = up ? to[place] + next : to[place];
      at = place, next = 0;
    };
    for (int64_t o = begin; o < end; ++o) {
      const auto [a, b] = std::pair(places_[0][size_t(o)], places_[count_ - 1][size_t(o)]);
      const auto [u, v] = std::pair(weights_[0][size_t(o)], count_ == 1 ? T(0) : weights_[1][size_t(o)]);
      if (a != at) move_to(a);
      sum += u * x[o];
      if (v != 0) (b == a ? sum : next) += v * x[o];
    }
    to[at] = sum;
    if (next != 0) to[at + 1] += next;
  }

 private:
  int count_ = 1;
  std::vector<int32_t> places_[4];
  std::vector<T> weights_[4];
};

// Resizes the middle one of three dims. The backward form adds every output element to its inputs.
template <bool kBackward>
void resample(const KernelArgs& args) {
  const View &from = args.in[0], &to = args.out[0];
  const int dim = args.dim("dim", from.rank());
  const View &small = kBackward ? to : from, &large = kBackward ? from : to;  // input and output of the op
  if (to.numel() == 0) return;
  const cpu::Lines lines(from.shape(), dim);
  const int64_t outer = lines.outer, inner = lines.inner;
  const int64_t in = small.size(dim), out = large.size(dim);
  const std::vector<Tap> list = taps(args.attr<std::string>("kind"), in, out, args.attr<double>("step"));
  const bool last = inner == 1 && in < (int64_t(1) << 31);
  compute<1>(args, [&]<class T>(const T* source, T* result) {
    if (kBackward) std::fill_n(result, to.numel(), T(0));
    const LineTaps<T> line(last ? list : std::vector<Tap>());
    const int64_t grain = std::max<int64_t>(1, 32768 / std::max<int64_t>(1, out * inner));
    parallel_for(outer, grain, [&](int64_t begin, int64_t end) {
      Poller poll;
      for (int64_t q = begin; q < end; ++q) {
        const T* x = source + q * (kBackward ? out : in) * inner;
        T* y = result + q * (kBackward ? in : out) * inner;
        if (last) {
          in_polled_blocks(out, 1 << 20, [&](int64_t first, int64_t end_of_block) {
            kBackward ? line.scatter(x, first, end_of_block, y) : line.gather(x, first, end_of_block, y);
          });
          poll(out);
          continue;
        }
        for (int64_t o = 0; o < out; ++o, poll(inner)) {
          if (kBackward)
            scatter_tap(list[size_t(o)], x + o * inner, inner, y);
          else
            gather_tap(list[size_t(o)], x, inner, y + o * inner);
        }
      }
    });
  });
}

}  // namespace

void add_resample_kernels(Registry& r) {
  static const KernelRow kRows[] = {
      {"resample", resample<false>},
      {"resample_backward", resample<true>},
  };
  r.add_kernels(0, kRows);
}

}  // namespace pg
