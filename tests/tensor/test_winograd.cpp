#include "tensor/cpu/conv/winograd.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tensor/cpu/conv/conv_choice.h"
#include "tensor/parallel.h"
#include "tensor/runtime.h"

using namespace pg::cpu;

namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Floats numbers(std::mt19937& random, int64_t n) {
  std::uniform_real_distribution<float> in(-1, 1);
  Floats v(static_cast<size_t>(n));
  for (float& e : v) e = in(random);
  return v;
}

ConvShape shape(int64_t n, int64_t ic, int64_t oc, int64_t h, int64_t w, int64_t pad_h, int64_t pad_w) {
  ConvShape s;
  s.n = n, s.ic = ic, s.oc = oc;
  s.in = {1, h, w}, s.kernel = {1, 3, 3}, s.pad = {0, pad_h, pad_w};
  s.out = {1, h + 2 * pad_h - 2, w + 2 * pad_w - 2};
  return s;
}

// Calls f(output, input, weight) with the flat positions of every product. Images have the channels first.
template <class F>
void for_products(const ConvShape& s, F f) {
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t o = 0; o < s.oc; ++o)
      for (int64_t c = 0; c < s.ic; ++c)
        for (int64_t t = 0; t < 9; ++t)
          for (int64_t y = 0; y < s.out[1]; ++y) {
            const int64_t row = y - s.pad[1] + t / 3;
            if (row < 0 || row >= s.in[1]) continue;
            for (int64_t x = 0; x < s.out[2]; ++x) {
              const int64_t col = x - s.pad[2] + t % 3;
              if (col < 0 || col >= s.in[2]) continue;
              f(((n * s.oc + o) * s.out[1] + y) * s.out[2] + x, ((n * s.ic + c) * s.in[1] + row) * s.in[2] + col,
                (o * s.ic + c) * 9 + t);
            }
          }
}

// Images (n, channels, plane) to (n, plane, channels), or back.
Floats swapped(const Floats& from, int64_t n, int64_t rows, int64_t cols) {
  Floats to(from.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c)
        to[size_t((i * cols + c) * rows + r)] = from[size_t((i * rows + r) * cols + c)];
  return to;
}

struct Error {
  double square = 0, most = 0;
  int64_t count = 0;

  void add(const Floats& got, const Doubles& want) {
    for (size_t i = 0; i < got.size(); ++i, ++count) {
      const double e = std::abs(double(got[i]) - want[i]);
      square += e * e;
      most = e <= most ? most : e;  // NaN stays
    }
  }
  double mean() const { return std::sqrt(square / double(count)); }
};

struct Case {
  ConvShape s;
  Floats x, w, bias, dy;
  Doubles y, dx, dw;

  Case(const ConvShape& shape, std::mt19937& random)
      : s(shape),
        x(numbers(random, s.n * s.ic * s.in_plane())),
        w(numbers(random, s.oc * s.ic * 9)),
        bias(numbers(random, s.oc)),
        dy(numbers(random, s.n * s.oc * s.out_plane())),
        y(dy.size()),
        dx(x.size()),
        dw(w.size()) {
    for_products(s, [&](int64_t o, int64_t i, int64_t k) {
      y[size_t(o)] += double(x[size_t(i)]) * w[size_t(k)];
      dx[size_t(i)] += double(dy[size_t(o)]) * w[size_t(k)];
      dw[size_t(k)] += double(dy[size_t(o)]) * x[size_t(i)];
    });
    for (size_t o = 0; o < y.size(); ++o) y[o] += bias[o / size_t(s.out_plane()) % size_t(s.oc)];
  }

  Floats forward(int tile, bool packs, bool relu = false) const {
    const Winograd conv(s, ConvPart::kForward, tile, ImageLayout::kChannelsFirst);
    Floats out(dy.size(), 9), packed(conv.packed_bytes() / sizeof(float) + 16);
    void* const aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(packed.data()) + 63) / 64 * 64);
    if (packs) conv.pack(w.data(), aligned);
    conv.run(x.data(), w.data(), packs ? aligned : nullptr, bias.data(), relu, out.data());
    return out;
  }
  Floats forward_last(int tile) const {
    const Winograd conv(s, ConvPart::kForward, tile, ImageLayout::kChannelsLast);
    Floats out(dy.size(), 9);
    conv.run(swapped(x, s.n, s.ic, s.in_plane()).data(), w.data(), nullptr, bias.data(), false, out.data());
    return swapped(out, s.n, s.out_plane(), s.oc);
  }
  Floats gradient(ConvPart part, int tile, ImageLayout layout = ImageLayout::kChannelsFirst) const {
    const Winograd conv(s, part, tile, layout);
    const bool last = layout == ImageLayout::kChannelsLast, input = part == ConvPart::kInputGradient;
    const Floats in = last ? swapped(x, s.n, s.ic, s.in_plane()) : x;
    const Floats grad = last ? swapped(dy, s.n, s.oc, s.out_plane()) : dy;
    Floats out(input ? x.size() : w.size(), 9);
    if (input)
      conv.run(grad.data(), w.data(), nullptr, nullptr, false, out.data());
    else
      conv.run(in.data(), grad.data(), nullptr, nullptr, false, out.data());
    return last && input ? swapped(out, s.n, s.in_plane(), s.ic) : out;
  }
};

// Direct sums of `terms` products of numbers up to 1: the partial sum of k products has the size sqrt(k) / 3, and
// rounding changes it by 0.4 * 2^-24 of that, which adds up to 5.6e-9 * terms (measured 5.8e-9). The transforms add up
// to 2e-7 for each term. F(2 x 2) has 0.6 times this error, F(4 x 4) 1.8 times, for many channels.
void check_error(const Error& e, int64_t terms, int tile) {
  CAPTURE(terms);
  CAPTURE(tile);
  const double unit = (5.6e-9 * double(terms) + 2e-7 * std::sqrt(double(terms))) * (tile == 2 ? 1.5 : 3);
  CHECK(e.mean() <= unit);
  CHECK(e.most <= 8 * unit);
}

void check(const Case& c, int tile) {
  const ConvShape& s = c.s;
  CAPTURE(s.n);
  CAPTURE(s.ic);
  CAPTURE(s.oc);
  CAPTURE(s.in[1]);
  CAPTURE(s.in[2]);
  CAPTURE(s.pad[1]);
  CAPTURE(s.pad[2]);
  Error y, dx, dw;
  const Floats out = c.forward(tile, false);
  y.add(out, c.y);
  check_error(y, 9 * s.ic + 1, tile);
  CHECK(c.forward(tile, true) == out);
  CHECK(c.forward_last(tile) == out);
  dx.add(c.gradient(ConvPart::kInputGradient, tile), c.dx);
  check_error(dx, 9 * s.oc, tile);
  dw.add(c.gradient(ConvPart::kWeightGradient, tile), c.dw);
  check_error(dw, s.n * s.out_plane(), tile);
  for (ConvPart part : {ConvPart::kInputGradient, ConvPart::kWeightGradient})
    CHECK(c.gradient(part, tile) == c.gradient(part, tile, ImageLayout::kChannelsLast));
}

const float kNaN = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("Winograd's convolutions and their gradients agree with plain loops in float64") {
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<ConvShape> shapes = {shape(1, 1, 1, 3, 3, 0, 0),   shape(1, 3, 5, 1, 2, 1, 1),
                                   shape(2, 3, 40, 9, 14, 1, 1), shape(1, 64, 64, 14, 14, 1, 1),
                                   shape(3, 33, 31, 7, 7, 1, 1), shape(1, 512, 200, 4, 5, 1, 1)};
  for (int i = 0; i < 20; ++i)
    shapes.push_back(shape(from(1, 3), from(1, 50), from(1, 70), from(3, 20), from(3, 30), from(0, 2), from(0, 2)));
  for (const ConvShape& s : shapes) {
    const Case c(s, random);
    for (int tile : {2, 4}) check(c, tile);
  }
}

TEST_CASE("the error of Winograd's convolutions is a small multiple of that of direct ones") {
  std::mt19937 random(1);
  const Case c(shape(1, 128, 32, 28, 28, 1, 1), random);
  Error direct;
  Floats sums(c.dy.size());
  for (size_t o = 0; o < sums.size(); ++o) sums[o] = c.bias[o / size_t(c.s.out_plane())];
  for_products(c.s, [&](int64_t o, int64_t i, int64_t k) {
    sums[size_t(o)] = std::fma(c.x[size_t(i)], c.w[size_t(k)], sums[size_t(o)]);
  });
  direct.add(sums, c.y);
  Error small, large;
  small.add(c.forward(2, false), c.y);
  large.add(c.forward(4, false), c.y);
  // 6.7e-6, 3.9e-6 and 1.2e-5; the largest errors are 7.1e-5, 2.0e-5 and 8.5e-5.
  CHECK(small.mean() < 1.5 * direct.mean());
  CHECK(large.mean() < 3 * direct.mean());
}

TEST_CASE("the bits of Winograd's convolutions do not depend on the number of threads") {
  std::mt19937 random(1);
  const int before = pg::num_threads();
  for (const ConvShape& s : {shape(1, 40, 100, 30, 41, 1, 1), shape(9, 70, 130, 7, 7, 1, 1)}) {
    const Case c(s, random);
    for (int tile : {2, 4}) {
      Floats y, dx, dw;
      for (int threads : {1, 2, 5}) {
        pg::Runtime::current().threads().resize(threads);
        const Floats now[] = {c.forward(tile, true), c.gradient(ConvPart::kInputGradient, tile),
                              c.gradient(ConvPart::kWeightGradient, tile)};
        if (threads == 1) y = now[0], dx = now[1], dw = now[2];
        CHECK(now[0] == y);
        CHECK(now[1] == dx);
        CHECK(now[2] == dw);
      }
    }
  }
  pg::Runtime::current().threads().resize(before);
}

TEST_CASE("NaN reaches all results of Winograd's convolutions that depend on it") {
  std::mt19937 random(1);
  Case c(shape(2, 17, 19, 10, 11, 1, 1), random);
  const int64_t row = 5, col = 6, plane = c.s.out_plane();
  const int64_t at = 3 * c.s.in_plane() + row * c.s.in[2] + col;
  c.x[size_t(at)] = c.dy[size_t(at)] = kNaN;
  for (int tile : {2, 4}) {
    const Floats y = c.forward(tile, false, true), dx = c.gradient(ConvPart::kInputGradient, tile);
    int64_t missing = 0;
    for (int64_t channel = 0; channel < 17; ++channel)
      for (int64_t p = 0; p < plane; ++p) {
        const bool held = std::abs(p / c.s.out[2] - row) <= 1 && std::abs(p % c.s.out[2] - col) <= 1;
        if (held && !std::isnan(y[size_t(channel * plane + p)])) ++missing;
        if (held && !std::isnan(dx[size_t(channel * plane + p)])) ++missing;
      }
    CHECK(missing == 0);
    for (size_t i = size_t(19 * plane); i < y.size(); ++i) REQUIRE(!std::isnan(y[i]));  // the other image
    const Floats dw = c.gradient(ConvPart::kWeightGradient, tile);
    for (int64_t k = 0; k < 9 * 19; ++k)
      if (std::isnan(dw[size_t(k / 9 * 17 * 9 + 3 * 9 + k % 9)]) == false) ++missing;
    CHECK(missing == 0);
  }
}

TEST_CASE("the choice of an algorithm is remembered and measured only where it may pay") {
  const auto choice = [](const ConvShape& s, ConvPart part = ConvPart::kForward) { return winograd_tile(s, part); };
  ConvShape strided = shape(1, 64, 64, 57, 57, 1, 1);
  strided.stride = {1, 2, 2}, strided.out = {1, 29, 29};
  CHECK(choice(strided) == 0);
  if (std::getenv("PERIGEE_CONV")) return;
  CHECK(choice(shape(1, 8, 64, 100, 100, 1, 1)) == 0);  // few channels
  CHECK(choice(shape(1, 32, 32, 8, 8, 1, 1)) == 0);     // little work
  for (ConvPart part : {ConvPart::kForward, ConvPart::kInputGradient, ConvPart::kWeightGradient}) {
    const ConvShape s = shape(3, 32, 32, 20, 20, 1, 1), more = shape(4, 32, 32, 20, 20, 1, 1);
    const int first = choice(s, part);
    for (int i = 0; i < 3; ++i) CHECK(choice(s, part) == first);
    CHECK(choice(more, part) == first);  // about as many images
  }
}
