#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/winograd_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/conv/winograd_simd.h"

#include <algorithm>

#include "tensor/cpu/conv/winograd_matrices.h"
#include "tensor/cpu/gemm/tile-inl.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// A sum of terms with constant factors. It is empty until the first term.
struct Sum {
  V value;
  bool empty = true;

  HWY_INLINE Sum() : value(hn::Zero(D())) {}
  HWY_INLINE void add(float factor, V x) {
    if (factor == 0) return;
    if (empty)
      value = factor == 1 ? x : factor == -1 ? hn::Neg(x) : hn::Mul(hn::Set(D(), factor), x);
    else
      value = factor == 1    ? hn::Add(value, x)
              : factor == -1 ? hn::Sub(value, x)
                             : hn::MulAdd(hn::Set(D(), factor), x, value);
    empty = false;
  }
};

// y = kM * x. The loops are unrolled, so that the factors are constants.
template <const auto& kM, class Matrix = std::decay_t<decltype(kM)>>
HWY_INLINE void by_rows(const V (&x)[Matrix::kCols], V (&y)[Matrix::kRows]) {
  constexpr int R = Matrix::kRows, C = Matrix::kCols;
  Sum first, last;
  PERIGEE_UNROLL
  for (int j = 0; j < C; ++j) first.add(kM.at[0][j], x[j]), last.add(kM.at[R - 1][j], x[j]);
  y[0] = first.value, y[R - 1] = last.value;
  PERIGEE_UNROLL
  for (int i = 1; i + 1 < R; i += 2) {
    Sum even, odd;
    PERIGEE_UNROLL
    for (int j = 0; j < C; ++j) (j % 2 ? odd : even).add(kM.at[i][j], x[j]);
    y[i] = hn::Add(even.value, odd.value), y[i + 1] = hn::Sub(even.value, odd.value);
  }
}

// y = the transpose of kM, times x.
template <const auto& kM, class Matrix = std::decay_t<decltype(kM)>>
HWY_INLINE void by_columns(const V (&x)[Matrix::kRows], V (&y)[Matrix::kCols]) {
  constexpr int R = Matrix::kRows, C = Matrix::kCols;
  V sums[R], differences[R];
  PERIGEE_UNROLL
  for (int i = 1; i + 1 < R; i += 2) sums[i] = hn::Add(x[i], x[i + 1]), differences[i] = hn::Sub(x[i], x[i + 1]);
  PERIGEE_UNROLL
  for (int j = 0; j < C; ++j) {
    Sum sum;
    sum.add(kM.at[0][j], x[0]);
    PERIGEE_UNROLL
    for (int i = 1; i + 1 < R; i += 2) sum.add(kM.at[i][j], j % 2 ? differences[i] : sums[i]);
    sum.add(kM.at[R - 1][j], x[R - 1]);
    y[j] = sum.value;
  }
}

// Transforms the columns of a tile, then its rows. Calls store(row, column, value).
template <const auto& kM, bool kTransposed, class Store>
HWY_INLINE void transform_tile(const float* from, int64_t from_row, int64_t from_col, Store store) {
  using Matrix = std::decay_t<decltype(kM)>;
  constexpr int kIn = kTransposed ? Matrix::kRows : Matrix::kCols, kOut = kTransposed ? Matrix::kCols : Matrix::kRows;
  const D d;
  V half[kOut][kIn];
  PERIGEE_UNROLL
  for (int j = 0; j < kIn; ++j) {
    V x[kIn], y[kOut];
    PERIGEE_UNROLL
    for (int i = 0; i < kIn; ++i) x[i] = hn::LoadU(d, from + i * from_row + j * from_col);
    if constexpr (kTransposed)
      by_columns<kM>(x, y);
    else
      by_rows<kM>(x, y);
    PERIGEE_UNROLL
    for (int i = 0; i < kOut; ++i) half[i][j] = y[i];
  }
  PERIGEE_UNROLL
  for (int i = 0; i < kOut; ++i) {
    V y[kOut];
    if constexpr (kTransposed)
      by_columns<kM>(half[i], y);
    else
      by_rows<kM>(half[i], y);
    PERIGEE_UNROLL
    for (int j = 0; j < kOut; ++j) store(i, j, y[j]);
  }
}

template <const auto& kM, bool kTransposed, bool kFinishes = false>
void transform_tiles(const WinogradTiles& p) {
  const D d;
  constexpr int64_t kLanes = int64_t(hn::MaxLanes(d));
  const V zero = hn::Zero(d);
  for (int64_t t = 0; t < p.tiles; ++t)
    for (int64_t c = 0; c < p.channels; c += kLanes) {
      float* const to = p.to + t * p.to_tile + c;
      const V bias = kFinishes && p.bias ? hn::LoadU(d, p.bias + c) : zero;
      transform_tile<kM, kTransposed>(p.from + t * p.from_tile + c, p.from_row, p.from_col,
                                      [&](int i, int j, V v) HWY_ATTR {
                                        if constexpr (kFinishes) {
                                          v = hn::Add(v, bias);
                                          if (p.relu) v = hn::IfThenElse(hn::Le(v, zero), zero, v);  // NaN stays
                                        }
                                        hn::StoreU(v, d, to + i * p.to_row + j * p.to_col);
                                      });
    }
}

template <int M>
struct Matrices {
  static constexpr auto kInput = WinogradMatrices<M>::input();
  static constexpr auto kOutput = WinogradMatrices<M>::output();
  static constexpr auto kWeights = WinogradMatrices<M>::weights();
};

template <int M>
void transform_part(WinogradPart part, const WinogradTiles& p) {
  switch (part) {
    case WinogradPart::kInput:
      return transform_tiles<Matrices<M>::kInput, false>(p);
    case WinogradPart::kWeights:
      return transform_tiles<Matrices<M>::kWeights, false>(p);
    case WinogradPart::kOutput:
      return transform_tiles<Matrices<M>::kOutput, true, true>(p);
    case WinogradPart::kGradient:
      return transform_tiles<Matrices<M>::kOutput, false>(p);
    case WinogradPart::kWeightSums:
      return transform_tiles<Matrices<M>::kWeights, true>(p);
  }
}

void transform(int m, WinogradPart part, const WinogradTiles& p) {
  return m == 2 ? transform_part<2>(part, p) : transform_part<4>(part, p);
}

// Fetches the next panel of b while one is multiplied: a panel is read for few rows, and often from memory.
void multiply(const WinogradProducts& p) {
  static_assert(kWinogradRows % kRows == 0 && kWinogradColumns % kCols<float> == 0);
  constexpr int64_t kLine = 64, kRow = kCols<float> * int64_t(sizeof(float));
  const bool dense = p.b_row == kCols<float>;  // else the first line of each row is fetched
  const int64_t stride = dense ? kLine : p.b_row * int64_t(sizeof(float)), all = p.depth * (dense ? kRow / kLine : 1);
  const auto panel = [&](int64_t plane, int64_t j) {
    return p.b + plane * p.b_plane + j / kWinogradColumns * p.b_panel + j % kWinogradColumns;
  };
  Poller poll;
  for (int64_t plane = 0; plane < p.planes; ++plane)
    for (int64_t j = 0; j < p.columns; j += kCols<float>, poll(p.rows * p.depth)) {
      const bool turns = j + kCols<float> >= p.columns;
      const float* const next = turns ? panel(plane + 1, 0) : panel(plane, j + kCols<float>);
      const int64_t lines = kFetches && plane + turns < p.planes ? all : 0;
      for (int64_t i = 0; i < p.rows; i += kRows) {
        const int64_t fetched = i / kRows * p.depth;
        const Fetch fetch{reinterpret_cast<const char*>(next) + fetched * stride, stride,
                          std::clamp<int64_t>(lines - fetched, 0, p.depth)};
        multiply_rows<float, false>({.depth = p.depth,
                                     .a_row = p.a_row,
                                     .a_step = p.a_step,
                                     .b_row = p.b_row,
                                     .a = p.a + plane * p.a_plane + i * p.a_row,
                                     .b = panel(plane, j),
                                     .c = p.c + plane * p.c_plane + i * p.c_row + j,
                                     .ldc = p.c_row,
                                     .rows = std::min<int64_t>(kRows, p.rows - i),
                                     .cols = kCols<float>,
                                     .adds = p.adds,
                                     .fetch = fetch});
      }
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

HWY_EXPORT(transform);
void winograd_transform(int m, WinogradPart part, const WinogradTiles& tiles) {
  HWY_DYNAMIC_DISPATCH(transform)(m, part, tiles);
}

HWY_EXPORT(multiply);
void winograd_multiply(const WinogradProducts& p) { HWY_DYNAMIC_DISPATCH(multiply)(p); }

}  // namespace pg::cpu
#endif
