// The loops follow Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (ACM TOMS 34, 2008): a
// block of b that fits the last-level cache and a block of a that fits the second-level cache are packed in the order
// in which the register tile reads them. The innermost loop then reads memory sequentially.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gemm/gemm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/gemm/gemm_simd.h"

#include <algorithm>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/targets-inl.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A register tile has kRows x kVectors accumulators: 24 of the 32 registers of AVX-512, 12 of 16 on other targets.
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int kVectors = 2;
template <class T>
constexpr int64_t kCols = kVectors* int64_t(hn::MaxLanes(hn::ScalableTag<T>()));

// Sizes of the packed blocks: kDepth x kCols of b are about the first-level cache, kBlockRows x kDepth of a the
// second-level cache.
constexpr int64_t kDepth = 512, kBlockRows = 120, kBlockCols = 2048;
static_assert(kBlockRows % 12 == 0);

// An operand as it is stored: element (i, l) is at data[i * row + l * col]. One of the strides is 1.
template <class T>
struct Operand {
  const T* data;
  int64_t row, col;
  Operand at(int64_t i, int64_t l) const { return {data + i * row + l * col, row, col}; }
};

// to[l * ld + i] = from[i * stride + l] for a square of 128 x 128 bits.
HWY_INLINE void transpose_square(const float* from, int64_t stride, float* to, int64_t ld) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i)
    for (int l = 0; l < 4; ++l) to[l * ld + i] = from[i * stride + l];
#else
  const hn::FixedTag<float, 4> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + stride);
  const auto r2 = hn::LoadU(d, from + 2 * stride), r3 = hn::LoadU(d, from + 3 * stride);
  const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
  const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, low02, low13), d, to);
  hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, to + ld);
  hn::StoreU(hn::InterleaveLower(d, high02, high13), d, to + 2 * ld);
  hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, to + 3 * ld);
#endif
}
HWY_INLINE void transpose_square(const double* from, int64_t stride, double* to, int64_t ld) {
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 2; ++i)
    for (int l = 0; l < 2; ++l) to[l * ld + i] = from[i * stride + l];
#else
  const hn::FixedTag<double, 2> d;
  const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + stride);
  hn::StoreU(hn::InterleaveLower(d, r0, r1), d, to);
  hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, to + ld);
#endif
}

// to[l * kWidth + i] = from(i, l) for i < width, l < depth, and 0 for width <= i < kWidth.
template <int64_t kWidth, class T>
void pack_panel(const Operand<T>& from, int64_t width, int64_t depth, T* to) {
  if (width < kWidth) std::fill_n(to, kWidth * depth, T(0));
  if (from.row == 1) {
    for (int64_t l = 0; l < depth; ++l) {
      const T* column = from.data + l * from.col;
      T* out = to + l * kWidth;
      if (width == kWidth)
        for (int64_t i = 0; i < kWidth; ++i) out[i] = column[i];
      else
        for (int64_t i = 0; i < width; ++i) out[i] = column[i];
    }
    return;
  }
  constexpr int64_t kSide = 16 / int64_t(sizeof(T));
  const int64_t squares_i = width / kSide * kSide, squares_l = depth / kSide * kSide;
  for (int64_t i = 0; i < squares_i; i += kSide) {
    const T* rows = from.data + i * from.row;
    for (int64_t l = 0; l < squares_l; l += kSide) transpose_square(rows + l, from.row, to + l * kWidth + i, kWidth);
    for (int64_t l = squares_l; l < depth; ++l)
      for (int64_t s = 0; s < kSide; ++s) to[l * kWidth + i + s] = rows[s * from.row + l];
  }
  for (int64_t i = squares_i; i < width; ++i)
    for (int64_t l = 0; l < depth; ++l) to[l * kWidth + i] = from.data[i * from.row + l];
}

// Packs all panels of a block, one after the other.
template <int64_t kWidth, class T>
void pack_block(const Operand<T>& from, int64_t count, int64_t depth, T* to) {
  Poller poll;
  for (int64_t i = 0; i < count; i += kWidth, to += kWidth * depth, poll(kWidth * depth))
    pack_panel<kWidth>(from.at(i, 0), std::min(kWidth, count - i), depth, to);
}

template <class T>
struct Tile {
  int64_t depth;
  const T *a, *b;  // a packed panel of a, and a panel of b with rows b_row apart
  int64_t b_row;
  T* c;
  int64_t ldc, rows, cols;  // rows and columns of c, at most kRows x kCols
  bool adds;                // adds to c instead of overwriting it
};

// Computes R rows of a tile. The panel of a is packed for kRows rows even if R is less.
template <class T, int R>
void multiply_tile(const Tile<T>& p) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kLanes = int64_t(hn::MaxLanes(d));
  V acc[R][kVectors];
  PERIGEE_UNROLL
  for (int i = 0; i < R; ++i) {
    PERIGEE_UNROLL
    for (int j = 0; j < kVectors; ++j) acc[i][j] = hn::Zero(d);
  }
  for (int64_t i = 0; i < p.rows; ++i)  // of c, so that it is there when the sums are finished
    for (int j = 0; j < kVectors; ++j) __builtin_prefetch(p.c + i * p.ldc + j * kLanes, 1);
  const T *a = p.a, *b = p.b;
  for (int64_t l = 0; l < p.depth; ++l, a += kRows, b += p.b_row) {
    V bv[kVectors];
    PERIGEE_UNROLL
    for (int j = 0; j < kVectors; ++j) bv[j] = hn::LoadU(d, b + j * kLanes);
    PERIGEE_UNROLL
    for (int i = 0; i < R; ++i) {
      const V av = hn::Set(d, a[i]);
      PERIGEE_UNROLL
      for (int j = 0; j < kVectors; ++j) acc[i][j] = hn::MulAdd(av, bv[j], acc[i][j]);
    }
  }
  PERIGEE_UNROLL
  for (int i = 0; i < R; ++i) {
    if (i >= p.rows) continue;
    PERIGEE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      T* to = p.c + i * p.ldc + j * kLanes;
      const int64_t left = p.cols - j * kLanes;
      if (left >= kLanes) {
        hn::StoreU(p.adds ? hn::Add(hn::LoadU(d, to), acc[i][j]) : acc[i][j], d, to);
      } else if (left > 0) {
        store_part(d, p.adds ? hn::Add(load_part(d, to, left), acc[i][j]) : acc[i][j], to, left);
      }
    }
  }
}

// Panels of kCols columns, `panel` elements apart. The rows of each are `row` elements apart.
template <class T>
struct Panels {
  const T* data;
  int64_t row, panel;
};

// Multiplies a packed block of a by panels of b.
template <class T>
void multiply_blocks(int64_t m, int64_t n, int64_t depth, const T* a, const Panels<T>& b, T* c, int64_t ldc,
                     bool adds) {
  Poller poll;
  for (int64_t j = 0; j < n; j += kCols<T>, poll(m * depth))
    for (int64_t i = 0; i < m; i += kRows) {
      const Tile<T> tile{depth,
                         a + i * depth,
                         b.data + j / kCols<T> * b.panel,
                         b.row,
                         c + i * ldc + j,
                         ldc,
                         std::min<int64_t>(kRows, m - i),
                         std::min(kCols<T>, n - j),
                         adds};
      if (tile.rows * 3 > kRows * 2)
        multiply_tile<T, kRows>(tile);
      else if (tile.rows * 2 > kRows)
        multiply_tile<T, kRows * 2 / 3>(tile);
      else if (tile.rows * 3 > kRows)
        multiply_tile<T, kRows / 2>(tile);
      else
        multiply_tile<T, kRows / 3>(tile);
    }
}

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

template <class T>
void multiply(int64_t m, int64_t n, int64_t k, const Operand<T>& a, const Operand<T>& b, T* c, int64_t ldc) {
  const int64_t depth_limit = std::min(kDepth, k);
  const int64_t a_size = round_up(round_up(std::min(kBlockRows, m), kRows) * depth_limit, 16);
  const int64_t b_size = round_up(std::min(kBlockCols, n), kCols<T>) * depth_limit;
  T* packed_a = scratch<T>(ScratchSlot::kPanel, a_size + b_size);
  T* packed_b = packed_a + a_size;
  const bool in_place = b.row == 1 && m <= kGemmUnpackedRows;
  for (int64_t j = 0; j < n; j += kBlockCols) {
    const int64_t cols = std::min(kBlockCols, n - j);
    const int64_t whole = in_place ? cols / kCols<T> * kCols<T> : 0;  // columns of b that are read without packing
    for (int64_t l = 0; l < k; l += kDepth) {
      const int64_t depth = std::min(kDepth, k - l);
      pack_block<kCols<T>>(b.at(j + whole, l), cols - whole, depth, packed_b);
      for (int64_t i = 0; i < m; i += kBlockRows) {
        poll_kernel();  // one that sees the request where multiply_blocks has little work
        const int64_t rows = std::min(kBlockRows, m - i);
        T* to = c + i * ldc + j;
        pack_block<kRows>(a.at(i, l), rows, depth, packed_a);
        multiply_blocks(rows, whole, depth, packed_a, {b.at(j, l).data, b.col, kCols<T>}, to, ldc, l > 0);
        multiply_blocks(rows, cols - whole, depth, packed_a, {packed_b, kCols<T>, kCols<T> * depth}, to + whole, ldc,
                        l > 0);
      }
    }
  }
}

// op(b) is packed by columns, which are the rows of the operand with the strides swapped.
#define PG_GEMM_SIMD(NAME, T)                                                                                        \
  void gemm_##NAME(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, \
                   int64_t ldb, T* c, int64_t ldc) {                                                                 \
    const Operand<T> oa = trans_a ? Operand<T>{a, 1, lda} : Operand<T>{a, lda, 1};                                   \
    const Operand<T> ob = trans_b ? Operand<T>{b, ldb, 1} : Operand<T>{b, 1, ldb};                                   \
    multiply(m, n, k, oa, ob, c, ldc);                                                                               \
  }
PG_GEMM_SIMD(f32, float)
PG_GEMM_SIMD(f64, double)
#undef PG_GEMM_SIMD

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

#define PG_GEMM_SIMD(NAME, T)                                                                                         \
  HWY_EXPORT(gemm_##NAME);                                                                                            \
  template <>                                                                                                         \
  void gemm_simd<T>(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, \
                    int64_t ldb, T* c, int64_t ldc) {                                                                 \
    HWY_DYNAMIC_DISPATCH(gemm_##NAME)(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc);                             \
  }
PG_GEMM_SIMD(f32, float)
PG_GEMM_SIMD(f64, double)
#undef PG_GEMM_SIMD

}  // namespace pg::cpu
#endif
