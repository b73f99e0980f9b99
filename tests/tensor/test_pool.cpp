#include "tensor/cpu/conv/pool.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace pg::cpu;

namespace {

template <class T>
std::vector<T> numbers(int64_t n, unsigned seed = 1) {
  std::vector<T> v(n);
  for (auto& e : v) {
    seed = seed * 1664525u + 1013904223u;
    e = T(int(seed >> 16) % 1000) / T(250);
  }
  return v;
}

PoolShape shape(int64_t planes, std::array<int64_t, 3> in, std::array<int64_t, 3> kernel, std::array<int64_t, 3> stride,
                std::array<int64_t, 3> pad, std::array<int64_t, 3> dilation, bool ceil_mode) {
  PoolShape s{planes, in, kernel, {}, stride, pad, dilation};
  for (int i = 0; i < 3; ++i) s.out[i] = pool_out_dim(in[i], kernel[i], stride[i], pad[i], dilation[i], ceil_mode);
  return s;
}

// Calls f with the flat position in the plane for each element in the window of output (z, y, x).
template <class F>
void visit(const PoolShape& s, int64_t z, int64_t y, int64_t x, F f) {
  for (int64_t a = 0; a < s.kernel[0]; ++a)
    for (int64_t b = 0; b < s.kernel[1]; ++b)
      for (int64_t c = 0; c < s.kernel[2]; ++c) {
        const int64_t i = z * s.stride[0] - s.pad[0] + a * s.dilation[0];
        const int64_t j = y * s.stride[1] - s.pad[1] + b * s.dilation[1];
        const int64_t k = x * s.stride[2] - s.pad[2] + c * s.dilation[2];
        if (i >= 0 && j >= 0 && k >= 0 && i < s.in[0] && j < s.in[1] && k < s.in[2]) f((i * s.in[1] + j) * s.in[2] + k);
      }
}

template <class T>
void check(const PoolShape& s) {
  CAPTURE(s.in[1]);
  CAPTURE(s.in[2]);
  CAPTURE(s.kernel[2]);
  const auto x = numbers<T>(s.planes * s.in_plane());
  const auto dy = numbers<T>(s.planes * s.out_plane(), 7);
  std::vector<T> y(dy.size()), dx(x.size(), T(5)), mean(dy.size()), want_dx(x.size(), T(0));
  std::vector<int32_t> index(dy.size());
  max_pool_forward(s, x.data(), y.data(), index.data());
  max_pool_backward(s.planes, s.in_plane(), s.out_plane(), dy.data(), index.data(), dx.data());
  avg_pool_forward(s, {0, false}, x.data(), mean.data());
  std::vector<T> taken(dy.size());
  max_pool_take(s.planes, s.in_plane(), s.out_plane(), x.data(), index.data(), taken.data());
  int64_t o = 0, wrong = 0;
  for (int64_t p = 0; p < s.planes; ++p)
    for (int64_t a = 0; a < s.out[0]; ++a)
      for (int64_t b = 0; b < s.out[1]; ++b)
        for (int64_t c = 0; c < s.out[2]; ++c, ++o) {
          T best = -std::numeric_limits<T>::infinity(), sum = 0;
          int64_t at = -1, count = 0;
          visit(s, a, b, c, [&](int64_t i) {
            const T v = x[p * s.in_plane() + i];
            if (v > best) best = v, at = i;
            sum += v;
            ++count;
          });
          if (at >= 0) want_dx[p * s.in_plane() + at] += dy[o];
          if (taken[o] != (at < 0 ? T(0) : best)) ++wrong;
          const bool simple = s.dilation == std::array<int64_t, 3>{1, 1, 1};
          if (y[o] != best || index[o] != at || (simple && std::abs(mean[o] - sum / T(count)) > 1e-5)) ++wrong;
        }
  CHECK(wrong == 0);
  for (size_t i = 0; i < dx.size(); ++i)
    if (std::abs(dx[i] - want_dx[i]) > 1e-5) ++wrong;
  CHECK(wrong == 0);
}

template <class T>
void check_all() {
  check<T>(shape(3, {1, 24, 24}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, false));
  check<T>(shape(3, {1, 7, 41}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, false));
  check<T>(shape(3, {1, 7, 41}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, true));
  check<T>(shape(2, {1, 9, 10}, {1, 3, 3}, {1, 2, 2}, {0, 1, 1}, {1, 1, 1}, false));
  check<T>(shape(2, {1, 9, 10}, {1, 3, 2}, {1, 2, 3}, {0, 1, 1}, {1, 1, 1}, true));
  check<T>(shape(2, {1, 11, 12}, {1, 3, 3}, {1, 1, 2}, {0, 1, 0}, {1, 2, 3}, false));
  check<T>(shape(2, {1, 11, 12}, {1, 2, 2}, {1, 5, 4}, {0, 0, 0}, {1, 1, 1}, false));
  check<T>(shape(2, {5, 6, 7}, {2, 3, 2}, {2, 1, 2}, {1, 1, 0}, {1, 1, 1}, true));
  check<T>(shape(4, {1, 1, 17}, {1, 1, 4}, {1, 1, 3}, {0, 0, 2}, {1, 1, 1}, true));
  check<T>(shape(0, {1, 4, 4}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, false));
  check<T>(shape(2, {1, 7, 1}, {1, 1, 2}, {1, 2, 1}, {0, 0, 1}, {1, 1, 2}, false));  // windows of only padding
  check<T>(shape(2, {1, 1, 40}, {1, 2, 3}, {1, 1, 1}, {0, 1, 0}, {1, 2, 1}, false));
  check<T>(shape(2, {2, 3, 9}, {2, 1, 2}, {1, 1, 2}, {1, 0, 1}, {3, 1, 2}, true));
  check<T>(shape(3, {1, 200, 199}, {1, 190, 180}, {1, 5, 9}, {0, 2, 0}, {1, 1, 1}, false));  // large windows
  check<T>(shape(1, {1, 2052, 1026}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, false));    // a large plane
}

}  // namespace

TEST_CASE("pooling agrees with plain loops") {
  check_all<float>();
  check_all<double>();
}

TEST_CASE("the number of windows is that of PyTorch") {
  CHECK(pool_out_dim(5, 2, 2, 0, 1, false) == 2);
  CHECK(pool_out_dim(5, 2, 2, 0, 1, true) == 3);
  CHECK(pool_out_dim(5, 2, 3, 1, 1, true) == 2);
  CHECK(pool_out_dim(4, 1, 2, 0, 1, true) == 2);
  CHECK(pool_out_dim(4, 2, 3, 1, 1, true) == 2);
  CHECK(pool_out_dim(2, 3, 1, 0, 1, false) == 0);
}

TEST_CASE("the maximum of a window with NaN is NaN") {
  for (int64_t width : {8, 9, 34}) {
    const PoolShape s = shape(1, {1, 4, width}, {1, 2, 2}, {1, 2, 2}, {0, 0, 0}, {1, 1, 1}, false);
    auto x = numbers<float>(4 * width);
    x[width + 2] = std::nanf("");
    std::vector<float> y(s.out_plane());
    std::vector<int32_t> index(y.size());
    max_pool_forward(s, x.data(), y.data(), index.data());
    CHECK(std::isnan(y[1]));
    CHECK(index[1] == width + 2);
    CHECK_FALSE(std::isnan(y[0]));
  }
}

TEST_CASE("average pooling counts padding when asked") {
  const PoolShape s = shape(1, {1, 1, 4}, {1, 1, 3}, {1, 1, 2}, {0, 0, 1}, {1, 1, 1}, false);
  const std::vector<double> x = {1, 2, 3, 4};
  std::vector<double> y(2), dx(4);
  avg_pool_forward(s, {0, true}, x.data(), y.data());
  CHECK(y[0] == doctest::Approx(1));
  CHECK(y[1] == doctest::Approx(3));
  avg_pool_forward(s, {0, false}, x.data(), y.data());
  CHECK(y[0] == doctest::Approx(1.5));
  const std::vector<double> dy = {2, 3};
  avg_pool_backward(s, {0, false}, dy.data(), dx.data());
  CHECK(dx == std::vector<double>{1, 2, 1, 1});
}
