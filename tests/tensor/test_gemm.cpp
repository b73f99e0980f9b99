#include "tensor/runtime.h"
#include "tensor/cpu/gemm/gemm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/dtype.h"
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

struct Case {
  bool ta, tb;
  int64_t m, n, k;
};

// Leading dims are longer than the rows, to test that strides are used and nothing outside c is written.
template <class T, class Product>
void check(const Case& q, Product product) {
  CAPTURE(q.ta);
  CAPTURE(q.tb);
  CAPTURE(q.m);
  CAPTURE(q.n);
  CAPTURE(q.k);
  const int64_t lda = (q.ta ? q.m : q.k) + 3, ldb = (q.tb ? q.k : q.n) + 5, ldc = q.n + 2;
  const auto a = numbers<T>((q.ta ? q.k : q.m) * lda + 1), b = numbers<T>((q.tb ? q.n : q.k) * ldb + 1, 9);
  auto c = numbers<T>(q.m * ldc, 3);
  const auto before = c;
  for (int64_t i = 0; i < q.m; ++i)
    for (int64_t j = 0; j < q.n; ++j) c[i * ldc + j] = std::numeric_limits<T>::quiet_NaN();
  product(q, a.data(), lda, b.data(), ldb, c.data(), ldc);
  int64_t wrong = 0;
  for (int64_t i = 0; i < q.m; ++i)
    for (int64_t j = 0; j < ldc; ++j) {
      const T got = c[i * ldc + j], old = before[i * ldc + j];
      if (j >= q.n) {
        wrong += got != old;
        continue;
      }
      double sum = 0;
      for (int64_t l = 0; l < q.k; ++l)
        sum += double(q.ta ? a[l * lda + i] : a[i * lda + l]) * double(q.tb ? b[j * ldb + l] : b[l * ldb + j]);
      const double tolerance = (sizeof(T) == 4 ? 3e-6 : 1e-13) * (2 + std::sqrt(double(q.k)));
      if (!(std::abs(sum - double(got)) <= tolerance)) ++wrong;
    }
  CHECK(wrong == 0);
}

template <class T>
void check(const Case& q) {
  check<T>(q, [&](const Case& c, const T* a, int64_t lda, const T* b, int64_t ldb, T* to, int64_t ldc) {
    gemm(c.ta, c.tb, c.m, c.n, c.k, a, lda, b, ldb, to, ldc);
  });
}

template <class T>
void check_simd(const Case& q) {
  check<T>(q, [&](const Case& c, const T* a, int64_t lda, const T* b, int64_t ldb, T* to, int64_t ldc) {
    gemm_simd(c.ta, c.tb, c.m, c.n, c.k, a, lda, b, ldb, to, ldc);
  });
}

template <class T>
void check_sizes() {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      for (int64_t m : {1, 2, 3, 4, 5, 17})
        for (int64_t n : {1, 3, 8, 70, 131})
          for (int64_t k : {1, 7, 16, 100}) check<T>({ta, tb, m, n, k});
      check<T>({ta, tb, 64, 120, 84});
      check<T>({ta, tb, 33, 3, 40});
      check<T>({ta, tb, 4, 5, 0});
      check<T>({ta, tb, 0, 5, 3});
      check<T>({ta, tb, 5, 0, 3});
    }
}

}  // namespace

TEST_CASE("gemm agrees with plain loops") {
  check_sizes<float>();
  check_sizes<double>();
}

// Uses sizes below, at and above those of the register tile and of the packed blocks, in each of the three dims.
TEST_CASE_TEMPLATE("the Highway product handles every remainder of its blocks", T, float, double) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      for (int64_t m = 1; m <= 25; ++m) check_simd<T>({ta, tb, m, 2 * m + 9, m + 3});
      for (int64_t m : {119, 120, 121, 245}) check_simd<T>({ta, tb, m, 37, 20});
      for (int64_t n : {2047, 2048, 2049}) check_simd<T>({ta, tb, 5, n, 6});
      for (int64_t k : {255, 256, 257, 600}) check_simd<T>({ta, tb, 13, 33, k});
    }
}

TEST_CASE("large gemm has the same result on one and on two threads") {
  const int before = pg::num_threads();
  for (int threads : {1, 2}) {
    pg::Runtime::current().threads().resize(threads);
    for (bool ta : {false, true})
      for (bool tb : {false, true}) check<float>({ta, tb, 130, 220, 190});
    check<double>({false, true, 130, 220, 190});
  }
  pg::Runtime::current().threads().resize(before);
}

TEST_CASE("batched gemm reuses operands with stride 0") {
  const int64_t m = 5, n = 6, k = 7, count = 4;
  const auto a = numbers<float>(count * m * k), b = numbers<float>(k * n, 4);
  std::vector<float> c(count * m * n), one(m * n);
  gemm_batched(count, {m * k, 0, m * n}, false, false, m, n, k, a.data(), k, b.data(), n, c.data(), n);
  for (int64_t i = 0; i < count; ++i) {
    gemm(false, false, m, n, k, a.data() + i * m * k, k, b.data(), n, one.data(), n);
    CHECK(std::vector<float>(c.begin() + i * m * n, c.begin() + (i + 1) * m * n) == one);
  }
  gemm_batched<double>(0, {}, false, false, m, n, k, nullptr, k, nullptr, n, nullptr, n);
}

TEST_CASE("linear adds the bias and applies relu") {
  for (int64_t m : {1, 2, 3, 4, 9, 64}) {
    const int64_t n = 37, k = 50;
    const auto x = numbers<float>(m * k), w = numbers<float>(n * k, 5), bias = numbers<float>(n, 6);
    std::vector<float> y(m * n);
    for (bool relu : {false, true}) {
      linear(m, n, k, x.data(), w.data(), bias.data(), relu, y.data());
      int64_t wrong = 0;
      for (int64_t i = 0; i < m * n; ++i) {
        double want = bias[i % n];
        for (int64_t l = 0; l < k; ++l) want += double(x[i / n * k + l]) * w[i % n * k + l];
        if (relu && want < 0) want = 0;
        if (std::abs(want - y[i]) > 1e-4) ++wrong;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a packed product has the bits of the plain one, for any columns of it") {
  for (int64_t m : {1, 5, 12, 13, 64, 130})
    for (int64_t n : {1, 31, 32, 33, 100, 2081})
      for (int64_t k : {1, 37, 512, 530}) {
        const auto x = numbers<float>(m * k), w = numbers<float>(n * k, 5);
        for (const bool trans : {false, true}) {
          std::vector<float> packed(packed_size(n, k)), want(m * n), got(m * n, 1.f);
          gemm_simd<float>(false, trans, m, n, k, x.data(), k, w.data(), trans ? k : n, want.data(), n);
          pack_right(trans, n, k, w.data(), packed.data());
          for (int64_t first = 0; first < n; first += 3 * kPackedColumns)
            multiply_packed(m, n, k, x.data(), packed.data(), first, std::min(3 * kPackedColumns, n - first),
                            got.data() + first);
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CAPTURE(trans);
          CHECK(got == want);
        }
      }
}

TEST_CASE("a bias and relu at the end of a product have the bits of the ops one after the other") {
  for (int64_t m : {1, 4, 12, 13, 121})
    for (int64_t n : {1, 16, 31, 32, 33, 100})
      for (int64_t k : {1, 37, 530}) {
        const auto x = numbers<float>(m * k), w = numbers<float>(n * k, 5);
        auto bias = numbers<float>(n, 6);
        bias[n / 2] = NAN;
        std::vector<float> plain(m * n), packed(packed_size(n, k));
        gemm_simd<float>(false, true, m, n, k, x.data(), k, w.data(), k, plain.data(), n);
        pack_right(true, n, k, w.data(), packed.data());
        for (const Epilogue<float> finish :
             {Epilogue<float>{bias.data(), false}, {nullptr, true}, {bias.data(), true}}) {
          std::vector<float> want = plain, got(m * n), from_packed(m * n);
          for (int64_t i = 0; i < m * n; ++i) {
            if (finish.bias) want[i] += bias[i % n];
            if (finish.relu && want[i] <= 0) want[i] = 0;
          }
          gemm_simd<float>(false, true, m, n, k, x.data(), k, w.data(), k, got.data(), n, false, finish);
          multiply_packed(m, n, k, x.data(), packed.data(), 0, n, from_packed.data(), finish);
          CAPTURE(m);
          CAPTURE(n);
          CAPTURE(k);
          CHECK(std::memcmp(want.data(), got.data(), want.size() * sizeof(float)) == 0);
          CHECK(std::memcmp(want.data(), from_packed.data(), want.size() * sizeof(float)) == 0);
        }
      }
}

TEST_CASE("linear with packed weights has the same bits on one and on two threads") {
  const int before = pg::num_threads();
  const int64_t k = 600;
  for (int64_t m : {14, 100, 700})
    for (int64_t n : {33, 300}) {
      const auto x = numbers<float>(m * k), w = numbers<float>(n * k, 5), bias = numbers<float>(n, 6);
      std::vector<float> packed(packed_size(n, k)), y(m * n);
      linear(m, n, k, x.data(), w.data(), bias.data(), true, y.data());
      pack_right(true, n, k, w.data(), packed.data());
      for (int threads : {1, 2, 3}) {
        pg::Runtime::current().threads().resize(threads);
        std::vector<float> got(m * n);
        linear(m, n, k, x.data(), w.data(), bias.data(), true, got.data(),
               right_packs(true, m, n, k) ? packed.data() : nullptr);
        CHECK(got == y);
      }
    }
  pg::Runtime::current().threads().resize(before);
}

// Products with all transpositions, sizes that are no multiple of a tile and gaps between rows, with an epilogue.
template <class H>
void check_half(double unit, int64_t m, int64_t n, int64_t k) {
  const auto halves = [](int64_t count, int seed) {
    std::vector<H> out;
    for (const float x : numbers<float>(count, seed)) out.push_back(H(x));
    return out;
  };
  const int64_t gap = 3;
  for (int trans = 0; trans < 4; ++trans) {
    const bool trans_a = trans & 1, trans_b = trans & 2;
    const int64_t lda = (trans_a ? m : k) + gap, ldb = (trans_b ? k : n) + gap, ldc = n + gap;
    const std::vector<H> a = halves((trans_a ? k : m) * lda, 1), b = halves((trans_b ? n : k) * ldb, 2);
    const std::vector<float> bias = numbers<float>(n, 3);
    std::vector<H> c(size_t(m * ldc), H(7.f));
    gemm_half(trans_a, trans_b, m, n, k, a.data(), lda, b.data(), ldb, c.data(), ldc, {bias.data(), true});
    int64_t wrong = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < ldc; ++j) {
        double sum = 7, size = 0;
        if (j < n) {
          sum = double(bias[size_t(j)]);
          for (int64_t l = 0; l < k; ++l) {
            const double product = double(float(a[size_t(trans_a ? l * lda + i : i * lda + l)])) *
                                   double(float(b[size_t(trans_b ? j * ldb + l : l * ldb + j)]));
            sum += product, size += std::abs(product);
          }
          sum = std::max(sum, 0.0);
        }
        const double got = double(float(c[size_t(i * ldc + j)]));
        if (std::abs(sum - got) > unit * std::max(std::abs(sum), 1e-4 * size)) ++wrong;
      }
    INFO("m " << m << ", n " << n << ", k " << k << ", trans_a " << trans_a << ", trans_b " << trans_b);
    CHECK(wrong == 0);
  }
}

const int64_t kHalfSizes[][3] = {{1, 1, 1},      {1, 5, 3},       {20, 20, 20},   {16, 16, 32},
                                 {17, 33, 31},   {128, 128, 128}, {1, 100, 64},   {100, 2, 65},
                                 {33, 700, 520}, {700, 33, 260},  {40, 40, 2100}, {2100, 20, 40}};

TEST_CASE("16-bit products are accumulated in float32") {
  for (const auto& s : kHalfSizes) check_half<pg::Half>(1e-3, s[0], s[1], s[2]);
  const Bf16Unit usual = bf16_unit();
  for (const Bf16Unit unit : {Bf16Unit::kNone, Bf16Unit::kPairs, Bf16Unit::kTiles}) {
    if (!use_bf16_unit(unit)) continue;
    CAPTURE(int(unit));
    for (const auto& s : kHalfSizes) check_half<pg::BFloat16>(8e-3, s[0], s[1], s[2]);
  }
  use_bf16_unit(usual);
}

TEST_CASE("bfloat16 products round a float32 side and add to float32 sums") {
  if (!multiplies_bf16()) return;
  const int64_t m = 45, n = 70, k = 90;
  const std::vector<float> wide = numbers<float>(m * k), b = numbers<float>(n * k, 2);
  std::vector<pg::BFloat16> narrow, right;
  for (const float x : wide) narrow.push_back(pg::BFloat16(x));
  for (const float x : b) right.push_back(pg::BFloat16(x));
  for (int trans = 0; trans < 4; ++trans) {
    const bool trans_a = trans & 1, trans_b = trans & 2;
    const int64_t lda = trans_a ? m : k, ldb = trans_b ? k : n;
    std::vector<float> sum(size_t(m * n)), twice;
    gemm_bf16(trans_a, trans_b, m, n, k, narrow.data(), lda, right.data(), ldb, Bf16Result<float>{sum.data(), n});
    twice = sum;
    gemm_bf16(trans_a, trans_b, m, n, k, wide.data(), lda, right.data(), ldb, Bf16Result<float>{twice.data(), n, true});
    int64_t wrong = 0;
    for (size_t i = 0; i < sum.size(); ++i) wrong += std::abs(twice[i] - 2 * sum[i]) > 1e-5f;
    CHECK(wrong == 0);
  }
}
