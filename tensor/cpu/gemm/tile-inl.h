// The register tile of matrix products and the transposition of blocks. Include after highway.h, once per target.
#if defined(PERIGEE_GEMM_TILE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PERIGEE_GEMM_TILE_INL_H
#undef PERIGEE_GEMM_TILE_INL_H
#else
#define PERIGEE_GEMM_TILE_INL_H
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/loops.h"
#include "tensor/cpu/targets-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A register tile has kRows x kVectors accumulators: 24 of the 32 registers of AVX-512, 12 of 16 on other targets.
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;
constexpr int kVectors = 2;
template <class T>
constexpr int64_t kCols = kVectors* int64_t(hn::MaxLanes(hn::ScalableTag<T>()));

#if HWY_TARGET != HWY_SCALAR
// Stores the blocks of 128 bits of v, `step` elements apart.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_blocks(D d, hn::Vec<D> v, T* to, int64_t step) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) <= 16) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kBlocks = int64_t(hn::MaxLanes(half) * sizeof(T)) / 16;
    store_blocks(half, hn::LowerHalf(half, v), to, step);
    store_blocks(half, hn::UpperHalf(half, v), to + kBlocks * step, step);
  }
}
#endif

// to[l * ld + i] = from[i * stride + l] for a vector of each of kRows rows. It reads whole lines of memory, since rows
// that are a multiple of a page apart take each other's place in the cache.
template <int kRows, class D, class T>
HWY_INLINE void transpose(D d, const T* from, int64_t stride, T* to, int64_t ld) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kRows * sizeof(T) == 16) {
    constexpr int64_t kBlock = 16 / sizeof(T);
    const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + stride);
    if constexpr (kRows == 2) {
      store_blocks(d, hn::InterleaveLower(d, r0, r1), to, kBlock * ld);
      store_blocks(d, hn::InterleaveUpper(d, r0, r1), to + ld, kBlock * ld);
    } else {
      const auto r2 = hn::LoadU(d, from + 2 * stride), r3 = hn::LoadU(d, from + 3 * stride);
      const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
      const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
      store_blocks(d, hn::InterleaveLower(d, low02, low13), to, kBlock * ld);
      store_blocks(d, hn::InterleaveUpper(d, low02, low13), to + ld, kBlock * ld);
      store_blocks(d, hn::InterleaveLower(d, high02, high13), to + 2 * ld, kBlock * ld);
      store_blocks(d, hn::InterleaveUpper(d, high02, high13), to + 3 * ld, kBlock * ld);
    }
    return;
  }
  if constexpr (kRows * sizeof(T) == 8 && hn::MaxLanes(D()) == 4) {
    const hn::Half<D> half;
    const auto r0 = hn::LoadU(d, from), r1 = hn::LoadU(d, from + stride);
    const auto low = hn::InterleaveLower(d, r0, r1), high = hn::InterleaveUpper(d, r0, r1);
    hn::StoreU(hn::LowerHalf(half, low), half, to);
    hn::StoreU(hn::UpperHalf(half, low), half, to + ld);
    hn::StoreU(hn::LowerHalf(half, high), half, to + 2 * ld);
    hn::StoreU(hn::UpperHalf(half, high), half, to + 3 * ld);
    return;
  }
#endif
  for (int i = 0; i < kRows; ++i)
    for (int l = 0; l < int(hn::MaxLanes(d)); ++l) to[l * ld + i] = from[i * stride + l];
}

// to[l * ld + i] = from[i * stride + l] for i < kRows, l < depth.
template <int kRows, class T>
void pack_rows(const T* from, int64_t stride, int64_t depth, T* to, int64_t ld) {
  const hn::ScalableTag<T> wide;
  const hn::CappedTag<T, 16 / sizeof(T)> narrow;
  constexpr int64_t kWide = int64_t(hn::MaxLanes(wide)), kNarrow = int64_t(hn::MaxLanes(narrow));
  int64_t l = 0;
  if constexpr (kRows * sizeof(T) == 16)
    for (; l + kWide <= depth; l += kWide) transpose<kRows>(wide, from + l, stride, to + l * ld, ld);
  for (; l + kNarrow <= depth; l += kNarrow) transpose<kRows>(narrow, from + l, stride, to + l * ld, ld);
  for (; l < depth; ++l)
    for (int64_t i = 0; i < kRows; ++i) to[l * ld + i] = from[i * stride + l];
}

// Lines of memory, `stride` bytes apart, to be brought into the second-level cache. Hardware does not see that they
// will be read: it neither follows steps of a page nor looks beyond one.
struct Fetch {
  const char* first = nullptr;
  int64_t stride = 0, lines = 0;
};
constexpr bool kFetches = HWY_TARGET <= HWY_AVX2;  // tiles fetch lines while they compute

// When a tile fetches lines: one in each step of its depth, or one in kSpacing steps, and those of c like that too. A
// core that waits long for its last-level cache has few fetches on the way at once, and loads wait behind them.
enum class Fetching { kDense, kSparse };
constexpr int64_t kSpacing = 8;

template <class T>
struct Tile {
  int64_t depth;
  int64_t a_row, a_step;  // distances between the rows and the columns of a; a packed panel needs none
  int64_t b_row;          // distance between the rows of b
  const T *a, *b;
  T* c;
  int64_t ldc, rows, cols;  // rows and columns of c, at most kRows x kCols
  bool adds;                // adds to c instead of overwriting it
  Epilogue<T> finish = {};  // of the columns of the tile
  T* packed = nullptr;      // where b goes, as a panel, if the tile packs it
  Fetch fetch = {};         // what later tiles read; at most `depth` lines, or a line in kSpacing steps
};

// Stores the sums of a row from a column of the tile on, after what follows them.
template <class D, class T, class V = hn::Vec<D>>
HWY_INLINE void finish_vector(D d, V sum, const Tile<T>& p, int64_t column, T* to) {
  const int64_t lanes = int64_t(hn::MaxLanes(d)), left = p.cols - column;
  if (left <= 0) return;
  const auto load = [&](const T* from)
                        HWY_ATTR { return left < lanes ? load_part(d, from, left) : hn::LoadU(d, from); };
  if (p.adds) sum = hn::Add(load(to), sum);
  if (p.finish.bias) sum = hn::Add(sum, load(p.finish.bias + column));
  if (p.finish.relu) sum = hn::IfThenElse(hn::Le(sum, hn::Zero(d)), hn::Zero(d), sum);
  if (left < lanes)
    store_part(d, sum, to, left);
  else
    hn::StoreU(sum, d, to);
}

// Computes R rows of a tile. Reads R rows of a, also where p.rows is less. If it packs b, reads kCols columns of it.
template <class T, int R, bool kPackedA = true, Fetching kFetching = Fetching::kDense, bool kPacksB = false>
void multiply_tile(const Tile<T>& p) {
  constexpr bool kSparse = kFetching == Fetching::kSparse;
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kLanes = int64_t(hn::MaxLanes(d));
  V acc[R][kVectors];
  PERIGEE_UNROLL
  for (int i = 0; i < R; ++i) {
    PERIGEE_UNROLL
    for (int j = 0; j < kVectors; ++j) acc[i][j] = hn::Zero(d);
  }
  for (int64_t i = 0; !kSparse && i < p.rows; ++i)  // of c, so that it is there when the sums are finished
    for (int j = 0; j < kVectors; ++j) __builtin_prefetch(p.c + i * p.ldc + j * kLanes, 1);
  const T *a = p.a, *b = p.b;
  const int64_t a_row = kPackedA ? 1 : p.a_row;
  // A tile without lines to fetch fetches one of b: that costs less than a second loop, whose end is predicted wrongly.
  const char* line = p.fetch.lines > 0 ? p.fetch.first : reinterpret_cast<const char*>(b);
  const T* c = p.c;  // what is fetched next of it
  int64_t c_row = 0;
  for (int64_t l = 0; l < p.depth;) {
    if constexpr (kFetches) {
      __builtin_prefetch(line, 0, 2);
      line += l < p.fetch.lines * (kSparse ? kSpacing : 1) ? p.fetch.stride : 0;
    }
    if (kSparse && l < kVectors * p.rows * kSpacing) {
      __builtin_prefetch(c, 1);
      c += p.ldc;
      if (++c_row == p.rows) c_row = 0, c += kLanes - p.rows * p.ldc;
    }
    const int64_t end = kSparse ? std::min(l + kSpacing, p.depth) : l + 1;
    for (; l < end; ++l) {
      V bv[kVectors];
      PERIGEE_UNROLL
      for (int j = 0; j < kVectors; ++j) bv[j] = hn::LoadU(d, b + j * kLanes);
      if constexpr (kPacksB) {
        PERIGEE_UNROLL
        for (int j = 0; j < kVectors; ++j) hn::StoreU(bv[j], d, p.packed + l * kCols<T> + j * kLanes);
      }
      PERIGEE_UNROLL
      for (int i = 0; i < R; ++i) {
        const V av = hn::Set(d, a[i * a_row]);
        PERIGEE_UNROLL
        for (int j = 0; j < kVectors; ++j) acc[i][j] = hn::MulAdd(av, bv[j], acc[i][j]);
      }
      a += kPackedA ? kRows : p.a_step, b += p.b_row;
    }
  }
  const bool plain = p.cols == kCols<T> && !p.finish.bias && !p.finish.relu, adds = p.adds;
  PERIGEE_UNROLL
  for (int i = 0; i < R; ++i) {
    if (i >= p.rows) continue;
    PERIGEE_UNROLL
    for (int j = 0; j < kVectors; ++j) {
      T* const to = p.c + i * p.ldc + j * kLanes;
      if (plain)
        hn::StoreU(adds ? hn::Add(hn::LoadU(d, to), acc[i][j]) : acc[i][j], d, to);
      else
        finish_vector(d, acc[i][j], p, j * kLanes, to);
    }
  }
}

// Computes the rows of a tile, with as few rows in registers as they need.
template <class T, bool kPackedA = true, Fetching kFetching = Fetching::kDense>
void multiply_rows(const Tile<T>& p) {
  if (p.rows * 3 > kRows * 2)
    multiply_tile<T, kRows, kPackedA, kFetching>(p);
  else if (p.rows * 2 > kRows)
    multiply_tile<T, kRows * 2 / 3, kPackedA, kFetching>(p);
  else if (p.rows * 3 > kRows)
    multiply_tile<T, kRows / 2, kPackedA, kFetching>(p);
  else
    multiply_tile<T, kRows / 3, kPackedA, kFetching>(p);
}

}  // namespace pg::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // PERIGEE_GEMM_TILE_INL_H
