// Products and matrices whose intermediate results would leave the range of T. Scaling is by powers of two, so it
// rounds nothing.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tensor/cpu/linalg/matrices.h"
#include "tensor/cpu/scratch.h"

namespace pg::cpu {

template <class T>
T times_power(T v, int64_t exponent) {
  return std::ldexp(v, int(std::clamp<int64_t>(exponent, -100000, 100000)));
}

// A product of any number of factors, as mantissa 2^exponent.
template <class T>
struct Product {
  T mantissa = 1;
  int64_t exponent = 0;

  void multiply(T factor) {
    int own = 0, both = 0;
    mantissa = std::frexp(mantissa * std::frexp(factor, &own), &both);
    exponent += own + both;
  }
  T value() const { return times_power(mantissa, exponent); }
};

// A row-major n x n matrix a with a_ij = b_ij 2^(row(i) + column(j)). Where a is finite and its elements are so large
// or small that products of three might leave the range of T, the largest element of each row and column of b is near
// 1; else b is a. `a` must live longer.
template <class T>
class Scaled {
 public:
  Scaled(int64_t n, const T* a) : n_(n), a_(a) {
    if (is_safe(a, n * n) || !all_finite(a, n * n)) return;
    rows_ = extremes([](int64_t i, int64_t) { return i; });
    columns_ = extremes([](int64_t, int64_t j) { return j; });
    scaled_.resize(size_t(n * n));
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) scaled_[size_t(i * n + j)] = times_power(a[i * n + j], -row(i) - column(j));
    a_ = scaled_.data();
  }
  Scaled(const Scaled&) = delete;

  bool changed() const { return !scaled_.empty(); }
  const T* data() const { return a_; }
  int64_t row(int64_t i) const { return rows_.empty() ? 0 : rows_[size_t(i)]; }
  int64_t column(int64_t j) const { return columns_.empty() ? 0 : columns_[size_t(j)]; }
  int64_t total() const {
    int64_t sum = 0;
    for (size_t i = 0; i < rows_.size(); ++i) sum += rows_[i] + columns_[i];
    return sum;
  }

 private:
  static bool is_safe(const T* a, int64_t count) {
    constexpr int kSafe = std::numeric_limits<T>::max_exponent / 3 - 1;
    const T low = std::ldexp(T(1), -kSafe), high = std::ldexp(T(1), kSafe);
    int extreme = 0;  // one loop without branches
    for (int64_t k = 0; k < count; ++k) {
      const T v = std::abs(a[k]);
      extreme |= int(!(v <= high)) | (int(v < low) & int(v != T(0)));
    }
    return extreme == 0;
  }

  // The exponents of the largest elements of each row or column, after what is scaled already; 0 for one of zeros.
  template <class F>
  std::vector<int> extremes(const F& line_of) const {
    constexpr int kNone = std::numeric_limits<int>::min();
    std::vector<int> out(size_t(n_), kNone);
    for (int64_t i = 0; i < n_; ++i)
      for (int64_t j = 0; j < n_; ++j) {
        if (a_[i * n_ + j] == T(0)) continue;
        int& line = out[size_t(line_of(i, j))];
        line = std::max(line, std::ilogb(a_[i * n_ + j]) - int(row(i)));
      }
    for (int& e : out) e = e == kNone ? 0 : e;
    return out;
  }

  int64_t n_;
  const T* a_;
  std::vector<int> rows_, columns_;
  WorkVector<T> scaled_;
};

}  // namespace pg::cpu
