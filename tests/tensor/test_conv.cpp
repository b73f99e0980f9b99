#include "tensor/runtime.h"
#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/conv/conv_primitives.h"
#include "tensor/cpu/conv/conv_unfolded.h"
#include "tensor/cpu/conv/conv_product.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "tensor/parallel.h"

using namespace pg::cpu;

namespace {

template <class T>
std::vector<T> numbers(int64_t n, unsigned seed = 1) {
  std::vector<T> v(n);
  for (auto& e : v) {
    seed = seed * 1664525u + 1013904223u;
    e = T(int(seed >> 16) % 1000 - 500) / T(500);
  }
  return v;
}

struct Dim {
  int64_t in = 1, kernel = 1, stride = 1, pad = 0, dilation = 1;
};

ConvShape shape(int64_t n, int64_t ic, int64_t oc, int64_t groups, Dim d, Dim h, Dim w) {
  ConvShape s;
  s.n = n, s.ic = ic, s.oc = oc, s.groups = groups;
  const Dim dims[] = {d, h, w};
  for (int i = 0; i < 3; ++i) {
    s.in[i] = dims[i].in, s.kernel[i] = dims[i].kernel, s.stride[i] = dims[i].stride;
    s.pad[i] = dims[i].pad, s.dilation[i] = dims[i].dilation;
    const int64_t room = s.in[i] + 2 * s.pad[i] - s.dilation[i] * (s.kernel[i] - 1) - 1;
    s.out[i] = room < 0 ? 0 : room / s.stride[i] + 1;
  }
  return s;
}

// Calls f(output, input, weight) with the flat positions of every product of the convolution.
template <class F>
void for_products(const ConvShape& s, F f) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, rows = s.out[1], cols = s.out[2];
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t o = 0; o < s.oc; ++o)
      for (int64_t p = 0; p < s.out_plane(); ++p)
        for (int64_t c = 0; c < icg; ++c)
          for (int64_t t = 0; t < s.taps(); ++t) {
            const int64_t at[] = {p / cols / rows, p / cols % rows, p % cols};
            const int64_t tap[] = {t / s.kernel[2] / s.kernel[1], t / s.kernel[2] % s.kernel[1], t % s.kernel[2]};
            int64_t place = n * s.ic + o / ocg * icg + c;
            bool inside = true;
            for (int i = 0; i < 3; ++i) {
              const int64_t q = at[i] * s.stride[i] - s.pad[i] + tap[i] * s.dilation[i];
              inside = inside && q >= 0 && q < s.in[i];
              place = place * s.in[i] + q;
            }
            if (inside) f((n * s.oc + o) * s.out_plane() + p, place, (o * icg + c) * s.taps() + t);
          }
}

template <class T>
int64_t differences(const std::vector<T>& got, const std::vector<double>& want, double tolerance) {
  int64_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(double(got[i]) - want[i]) <= tolerance)) ++wrong;
  return wrong;
}

template <class T>
struct Functions {
  void (*forward)(const ConvShape&, const T* x, const T* w, const T* bias, bool relu, T* y) = conv_forward<T>;
  void (*data)(const ConvShape&, const T* dy, const T* w, T* dx) = conv_backward_data<T>;
  void (*weights)(const ConvShape&, const T* x, const T* dy, T* dw) = conv_backward_weights<T>;
};

template <class T>
void check(const ConvShape& s, const Functions<T>& conv = {}) {
  CAPTURE(s.n);
  CAPTURE(s.ic);
  CAPTURE(s.oc);
  CAPTURE(s.in[2]);
  CAPTURE(s.kernel[2]);
  const int64_t nw = s.oc * (s.ic / s.groups) * s.taps();
  const auto x = numbers<T>(s.n * s.ic * s.in_plane()), w = numbers<T>(nw, 2), bias = numbers<T>(s.oc, 3);
  const auto dy = numbers<T>(s.n * s.oc * s.out_plane(), 4);
  std::vector<T> y(dy.size(), T(9)), plain(dy.size(), T(9)), dx(x.size(), T(9)), dw(nw, T(9));
  std::vector<double> want_y(y.size()), want_relu(y.size()), want_dx(x.size()), want_dw(nw);
  for_products(s, [&](int64_t o, int64_t i, int64_t k) {
    want_y[o] += double(x[i]) * w[k];
    want_dx[i] += double(dy[o]) * w[k];
    want_dw[k] += double(dy[o]) * x[i];
  });
  for (size_t o = 0; o < y.size(); ++o)
    want_relu[o] = std::max(0.0, want_y[o] + bias[int64_t(o) / s.out_plane() % s.oc]);
  conv.forward(s, x.data(), w.data(), nullptr, false, plain.data());
  conv.forward(s, x.data(), w.data(), bias.data(), true, y.data());
  conv.data(s, dy.data(), w.data(), dx.data());
  conv.weights(s, x.data(), dy.data(), dw.data());
  const double unit = sizeof(T) == 4 ? 2e-6 : 1e-13;
  const double over_k = unit * (4 + std::sqrt(double(s.ic / s.groups * s.taps())));
  const double over_positions = unit * (4 + 4 * std::sqrt(double(s.n * s.out_plane())));
  CHECK(differences(plain, want_y, over_k) == 0);
  CHECK(differences(y, want_relu, over_k) == 0);
  CHECK(differences(dx, want_dx, unit * (4 + std::sqrt(double(s.oc * s.taps())))) == 0);
  CHECK(differences(dw, want_dw, over_positions) == 0);
}

template <class T>
void check_shapes() {
  const Dim one;
  check<T>(shape(5, 1, 6, 1, one, {28, 5}, {28, 5}));
  check<T>(shape(3, 6, 16, 1, one, {12, 5}, {12, 5}));
  check<T>(shape(7, 1, 6, 1, one, {8, 3, 1, 1}, {8, 3, 1, 1}));
  check<T>(shape(9, 3, 5, 1, one, {7, 3}, {7, 3}));
  check<T>(shape(2, 3, 4, 1, one, {9, 3, 2, 1}, {10, 2, 3}));
  check<T>(shape(2, 3, 4, 1, one, {11, 2, 3}, {13, 2, 5}));             // stride > kernel
  check<T>(shape(2, 4, 6, 2, one, {9, 3, 1, 2, 2}, {17, 3, 2, 1, 3}));  // groups, dilation
  check<T>(shape(2, 6, 6, 6, one, {9, 3, 1, 1}, {16, 3, 1, 1}));        // depthwise
  check<T>(shape(3, 5, 7, 1, one, {6, 1}, {11, 1}));                    // 1 x 1
  check<T>(shape(3, 2, 3, 1, one, one, {40, 4, 3, 2, 2}));              // 1-d
  check<T>(shape(2, 2, 3, 1, {5, 2, 2, 1}, {6, 3, 1, 1}, {7, 2}));      // 3-d
  check<T>(shape(2, 3, 4, 1, one, {3, 3, 1, 4}, {3, 3, 1, 4}));         // padding wider than the kernel
  check<T>(shape(1, 1, 1, 1, one, {1, 1}, {1, 1}));
  check<T>(shape(0, 3, 4, 1, one, {8, 3}, {8, 3}));
  check<T>(shape(2, 0, 4, 1, one, {8, 3}, {8, 3}));
  check<T>(shape(2, 3, 0, 1, one, {8, 3}, {8, 3}));
  check<T>(shape(70, 2, 3, 1, one, {5, 3}, {5, 3}));
}

}  // namespace

TEST_CASE("convolution and its gradients agree with plain loops") {
  check_shapes<float>();
  check_shapes<double>();
}

TEST_CASE("large convolutions agree with plain loops") {
  const int before = pg::num_threads();
  for (int threads : {1, 2}) {
    pg::Runtime::current().threads().resize(threads);
    check<float>(shape(4, 16, 32, 1, {}, {18, 3, 1, 1}, {18, 3, 1, 1}));
    check<float>(shape(3, 32, 32, 2, {}, {18, 3, 1, 1}, {18, 3, 1, 1}));
    check<float>(shape(8, 32, 32, 32, {}, {15, 3, 1, 1}, {15, 3, 1, 1}));
    check<float>(shape(2, 16, 16, 1, {5, 3, 1, 1}, {9, 3, 1, 1}, {17, 3, 1, 1}));
    check<float>(shape(4, 16, 32, 1, {}, {}, {600, 5, 1, 2}));
    check<float>(shape(64, 6, 16, 1, {}, {12, 5}, {12, 5}));
    check<float>(shape(2, 128, 460, 1, {}, {7, 3, 2, 1}, {8, 3, 2, 1}));  // large weights
  }
  pg::Runtime::current().threads().resize(before);
}

namespace {

std::vector<pg::BFloat16> rounded(const std::vector<float>& v) {
  std::vector<pg::BFloat16> out;
  for (const float x : v) out.push_back(pg::BFloat16(x));
  return out;
}

// Results of sums in float32 that are rounded to 1 / 2^bits of them.
template <class T>
bool close(const std::vector<T>& got, const std::vector<double>& want, int bits) {
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(double(float(got[i])) - want[i]) <= std::ldexp(std::abs(want[i]), -bits) + 1e-3)) return false;
  return true;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct TileResults {
  std::vector<pg::BFloat16> y, relu, dx, last_dx, unfolded;
  std::vector<float> dw, last_dw;
};

// Images with the channels last, from (n, channels, plane).
template <class T>
std::vector<T> with_last(const std::vector<T>& images, int64_t n, int64_t channels, int64_t plane) {
  std::vector<T> out(images.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < plane; ++p)
        out[size_t((i * plane + p) * channels + c)] = images[size_t((i * channels + c) * plane + p)];
  return out;
}

void check_tiles(const ConvShape& s) {
  CAPTURE(s.ic);
  CAPTURE(s.oc);
  CAPTURE(s.in[2]);
  const size_t nw = size_t(s.oc * (s.ic / s.groups) * s.taps()), ny = size_t(s.n * s.oc * s.out_plane());
  const auto x = rounded(numbers<float>(s.n * s.ic * s.in_plane())), w = rounded(numbers<float>(int64_t(nw), 2));
  const auto dy = rounded(numbers<float>(int64_t(ny), 3));
  const auto bias = numbers<float>(s.oc, 4);
  std::vector<double> y(ny), relu(ny), dx(x.size()), dw(nw);
  for_products(s, [&](int64_t o, int64_t i, int64_t k) {
    y[size_t(o)] += double(x[size_t(i)]) * w[size_t(k)];
    dx[size_t(i)] += double(dy[size_t(o)]) * w[size_t(k)];
    dw[size_t(k)] += double(dy[size_t(o)]) * x[size_t(i)];
  });
  const auto last_x = with_last(x, s.n, s.ic, s.in_plane()), last_dy = with_last(dy, s.n, s.oc, s.out_plane());
  const auto want_last_dx = with_last(dx, s.n, s.ic, s.in_plane());
  for (size_t o = 0; o < ny; ++o) relu[o] = std::max(0.0, y[o] + bias[o / size_t(s.out_plane()) % size_t(s.oc)]);
  std::vector<TileResults> all;
  for (int threads : {1, 2, 3}) {
    pg::Runtime::current().threads().resize(threads);
    TileResults& r = all.emplace_back();
    r.y.resize(ny), r.relu.resize(ny), r.dx.resize(x.size()), r.dw.resize(nw);
    // The library gets windows wrong that leave out pixels, and gradients of weights in groups.
    const bool forward = s.stride[2] <= s.kernel[2] || s.taps() == 1, weights = s.groups == 1 || is_depthwise(s);
    CHECK(primitive_forward(s, x.data(), w.data(), nullptr, false, r.y.data()) == forward);
    CHECK(primitive_forward(s, x.data(), w.data(), bias.data(), true, r.relu.data()) == forward);
    CHECK(primitive_backward_data(s, dy.data(), w.data(), r.dx.data()));
    CHECK(primitive_backward_weights(s, x.data(), dy.data(), r.dw.data()) == weights);
    r.last_dx.resize(x.size()), r.last_dw.resize(nw), r.unfolded.resize(nw);
    if (weights) {
      CHECK((primitive_backward_data<pg::BFloat16, true>(s, last_dy.data(), w.data(), r.last_dx.data())));
      CHECK((primitive_backward_weights<pg::BFloat16, true>(s, last_x.data(), last_dy.data(), r.last_dw.data())));
      CHECK(close(r.last_dx, want_last_dx, 8));
      CHECK(close(r.last_dw, dw, 16));
    }
    if (s.groups == 1) {
      unfolded_backward_weights(s, true, last_x.data(), last_dy.data(), r.unfolded.data());
      CHECK(close(r.unfolded, dw, 8));
      std::vector<pg::BFloat16> first(nw);
      unfolded_backward_weights(s, false, x.data(), dy.data(), first.data());
      CHECK(same_bits(r.unfolded, first));
    }
    CHECK((!forward || (close(r.y, y, 8) && close(r.relu, relu, 8))));
    CHECK(close(r.dx, dx, 8));
    CHECK((!weights || close(r.dw, dw, 16)));
    const TileResults& one = all.front();
    CHECK((same_bits(r.y, one.y) && same_bits(r.relu, one.relu) && same_bits(r.dx, one.dx) && same_bits(r.dw, one.dw)));
    CHECK((same_bits(r.last_dx, one.last_dx) && same_bits(r.last_dw, one.last_dw) &&
           same_bits(r.unfolded, one.unfolded)));
  }
}

}  // namespace

TEST_CASE("convolutions of bfloat16 by tiles agree with plain loops, on any number of threads") {
  if (!has_primitives(pg::DType::kBFloat16)) return;
  const int before = pg::num_threads();
  check_tiles(shape(1, 32, 48, 1, {}, {18, 3, 1, 1}, {19, 3, 1, 1}));
  check_tiles(shape(3, 20, 33, 1, {}, {11, 3, 2, 1}, {13, 3, 2, 1}));
  check_tiles(shape(5, 3, 64, 1, {}, {24, 7, 2, 3}, {24, 7, 2, 3}));  // a first layer
  check_tiles(shape(2, 64, 32, 2, {}, {12, 3, 1, 1}, {12, 3, 1, 1}));
  check_tiles(shape(2, 48, 48, 1, {}, {30, 3, 2, 1}, {12, 3, 2, 1}));  // shares of 16 and 32 channels
  check_tiles(shape(4, 48, 48, 48, {}, {9, 3, 1, 1}, {9, 3, 1, 1}));
  check_tiles(shape(2, 70, 256, 1, {}, {9, 1}, {7, 1}));
  check_tiles(shape(2, 256, 320, 1, {}, {7, 3, 1, 1}, {7, 3, 1, 1}));  // large weights
  check_tiles(shape(4, 16, 32, 1, {}, {}, {60, 5, 1, 2}));
  check_tiles(shape(2, 16, 32, 1, {5, 3, 1, 1}, {6, 3, 1, 1}, {7, 3, 1, 1}));
  check_tiles(shape(2, 32, 32, 1, {}, {14, 3, 1, 2, 2}, {14, 3, 1, 2, 2}));  // dilation
  check_tiles(shape(2, 32, 64, 1, {}, {14, 1, 2}, {14, 1, 2}));              // the last pixels are not read
  check_tiles(shape(2, 32, 32, 1, {}, {15, 2, 3}, {16, 2, 3}));
  pg::Runtime::current().threads().resize(before);
}

TEST_CASE("convolutions of 1 x 1 as products agree with plain loops") {
  const Functions<float> products{pointwise_forward, pointwise_backward_data, pointwise_backward_weights};
  const int before = pg::num_threads();
  for (int threads : {1, 2, 5}) {
    pg::Runtime::current().threads().resize(threads);
    check(shape(1, 1, 1, 1, {}, {1, 1}, {1, 1}), products);
    check(shape(3, 17, 70, 1, {}, {1, 1}, {5, 1}), products);
    check(shape(7, 50, 33, 1, {}, {9, 1}, {11, 1}), products);
    check(shape(2, 300, 250, 1, {3, 1}, {4, 1}, {5, 1}), products);
  }
  pg::Runtime::current().threads().resize(before);
}

TEST_CASE("the input gradient serves output paddings of transposed convolutions") {
  ConvShape s = shape(2, 3, 4, 1, {}, {8, 3, 2, 1}, {8, 3, 2, 1});
  CHECK(s.out[1] == 4);
  s.in = {1, 8, 8};
  check<double>(s);
  s.in = {1, 7, 8};
  check<double>(s);
}
