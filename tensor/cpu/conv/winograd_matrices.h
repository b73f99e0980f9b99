// The matrices of Winograd's convolutions F(m x m, 3 x 3): Lavin and Gray, Fast algorithms for convolutional neural
// networks (2016). Highway's targets and tests use them.
#pragma once
#include <array>

namespace pg::cpu {

// A constant matrix of kRows x kCols. Its rows but the first and the last come in pairs, of the points p and -p: they
// differ in the signs of the odd columns only, so that a pair costs one even and one odd sum.
template <int R, int C>
struct PairedRows {
  static constexpr int kRows = R, kCols = C;
  std::array<std::array<float, size_t(C)>, size_t(R)> at{};
};

// Outputs M x M of tiles (M + 2) x (M + 2). The points are 0, p and -p for each of kPoints, and infinity.
template <int M>
struct WinogradMatrices {
  static constexpr int kOut = M, kIn = M + 2, kPairs = M / 2;
  // Of F(4 x 4): the squares are 1/2 and 2. The points 1 and 2, or 1 and 1/2, have twice the error.
  static constexpr std::array<double, 2> kPoints = {M == 2 ? 1 : 0.70710678118654752440, 1.41421356237309504880};

  // The coefficients of the product of (x^2 - p^2) over all pairs but `skipped`, by powers of x.
  static constexpr std::array<double, 6> product(int skipped) {
    std::array<double, 6> c{1};
    for (int q = 0; q < kPairs; ++q) {
      if (q == skipped) continue;
      for (int i = 5; i >= 0; --i) c[size_t(i)] = (i >= 2 ? c[size_t(i - 2)] : 0) - square(q) * c[size_t(i)];
    }
    return c;
  }
  static constexpr double square(int q) { return kPoints[size_t(q)] * kPoints[size_t(q)]; }
  static constexpr double point(int row) {  // rows 1 and 2 are p and -p of the first pair
    return row == 0 || row == kIn - 1 ? 0 : kPoints[size_t((row - 1) / 2)] * (row % 2 ? 1 : -1);
  }

  // Of a tile of the input: row i has the coefficients of the product of (x - p) over the other points.
  static constexpr PairedRows<kIn, kIn> input() {
    PairedRows<kIn, kIn> b;
    for (int i = 0; i < kIn; ++i)
      for (int j = 0; j < kIn; ++j) {
        const bool end = i == 0 || i == kIn - 1;
        const auto c = product(end ? -1 : (i - 1) / 2);
        double v = 0;
        if (i == 0) v = c[size_t(j)];
        if (i == kIn - 1) v = j ? c[size_t(j - 1)] : 0;
        if (!end) v = (j >= 2 ? c[size_t(j - 2)] : 0) + (j ? point(i) * c[size_t(j - 1)] : 0);
        b.at[size_t(i)][size_t(j)] = float(v);
      }
    return b;
  }

  // Row i holds the powers of point i. The results are the products with its transpose.
  static constexpr PairedRows<kIn, M> output() {
    PairedRows<kIn, M> a;
    for (int i = 0; i < kIn; ++i) {
      double power = 1;
      for (int j = 0; j < M; ++j, power *= point(i)) a.at[size_t(i)][size_t(j)] = float(power);
    }
    a.at[kIn - 1] = {};
    a.at[kIn - 1][M - 1] = 1;
    return a;
  }

  // Of the weights: the powers of the point, divided by the product of its distances to the other points.
  static constexpr PairedRows<kIn, 3> weights() {
    PairedRows<kIn, 3> g;
    for (int i = 0; i + 1 < kIn; ++i) {
      const double p = point(i);
      double distances = i ? 2 * p * p : 1;
      for (int q = 0; q < kPairs; ++q)
        if (!i || q != (i - 1) / 2) distances *= p * p - square(q);
      g.at[size_t(i)] = {float(1 / distances), float(p / distances), float(p * p / distances)};
    }
    g.at[kIn - 1] = {0, 0, 1};
    return g;
  }
};

}  // namespace pg::cpu
