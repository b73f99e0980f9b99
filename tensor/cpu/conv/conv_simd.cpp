#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/conv_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/conv/conv_simd.h"

#include <algorithm>
#include <type_traits>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/targets-inl.h"

// Loops over register tiles have an unroll pragma. If an index is not a compile-time constant, the compiler puts the
// whole tile into memory.
HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// AVX-512 has 32 vector registers, the other targets 16.
constexpr int kWide = HWY_TARGET == HWY_AVX3;
constexpr int kTileRows = 6;
constexpr int kTileVectors = kWide ? 4 : 2;
constexpr int kDotRows = kWide ? 4 : 3;
constexpr int kDotCols = kWide ? 6 : 4;

template <class D, class T>
HWY_INLINE void pack_run(D d, const BlockRun& run, int64_t step, const T* src, T* dst) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (step != 1) {
    for (; i < run.len; ++i) dst[i] = src[i * step];
    return;
  }
  for (; i + lanes <= run.len; i += lanes) hn::StoreU(hn::LoadU(d, src + i), d, dst + i);
  if (i < run.len) hn::StoreU(load_part(d, src + i, run.len - i), d, dst + i);
}

template <class D, class T>
void pack_rows(D d, const BlockRuns& runs, const T* x, const int64_t* offsets, int64_t rows, T* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* from = x + offsets[r];
    T* to = out + r * kBlockCols<T>;
    for (int64_t i = 0; i < runs.count; ++i)
      pack_run(d, runs.data[i], runs.step, from + runs.data[i].src, to + runs.data[i].dst);
  }
}

// For full blocks of short runs of equal length. The starts of the runs stay in registers for all rows.
template <int kLen, bool kAdd, class T>
void move_pieces(const BlockRuns& runs, T* x, const int64_t* offsets, int64_t rows, T* block) {
  const hn::CappedTag<T, kLen> d;
  constexpr int64_t lanes = hn::MaxLanes(d);
  constexpr int kCount = kBlockCols<T> / kLen;
  int64_t src[kCount];
  PERIGEE_UNROLL
  for (int i = 0; i < kCount; ++i) src[i] = runs.data[i].src;
  for (int64_t r = 0; r < rows; ++r, block += kBlockCols<T>) {
    T* from = x + offsets[r];
    PERIGEE_UNROLL
    for (int i = 0; i < kCount; ++i) {
      PERIGEE_UNROLL
      for (int64_t l = 0; l < kLen; l += lanes) {
        T* outside = from + src[i] + l;
        T* inside = block + i * kLen + l;
        if (kAdd)
          hn::StoreU(hn::Add(hn::LoadU(d, outside), hn::LoadU(d, inside)), d, outside);
        else
          hn::StoreU(hn::LoadU(d, outside), d, inside);
      }
    }
  }
}

template <class T>
void pack(const BlockRuns& runs, const T* x, const int64_t* offsets, int64_t rows, T* out) {
  T* from = const_cast<T*>(x);
  if (runs.piece == 8) return move_pieces<8, false>(runs, from, offsets, rows, out);
  if (runs.piece == 16) return move_pieces<16, false>(runs, from, offsets, rows, out);
  pack_rows(hn::ScalableTag<T>(), runs, x, offsets, rows, out);
}

template <class D, class T>
HWY_INLINE void unpack_run(D d, const BlockRun& run, int64_t step, const T* src, T* dst) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  if (step == 1)
    for (; i + lanes <= run.len; i += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, dst + i), hn::LoadU(d, src + i)), d, dst + i);
  for (; i < run.len; ++i) dst[i * step] += src[i];
}

template <class D, class T>
void unpack_rows(D d, const BlockRuns& runs, const T* in, const int64_t* offsets, int64_t rows, T* x) {
  for (int64_t r = 0; r < rows; ++r) {
    T* to = x + offsets[r];
    const T* from = in + r * kBlockCols<T>;
    for (int64_t i = 0; i < runs.count; ++i)
      unpack_run(d, runs.data[i], runs.step, from + runs.data[i].dst, to + runs.data[i].src);
  }
}

template <class T>
void unpack(const BlockRuns& runs, const T* in, const int64_t* offsets, int64_t rows, T* x) {
  T* from = const_cast<T*>(in);
  if (runs.piece == 8) return move_pieces<8, true>(runs, x, offsets, rows, from);
  if (runs.piece == 16) return move_pieces<16, true>(runs, x, offsets, rows, from);
  unpack_rows(hn::ScalableTag<T>(), runs, in, offsets, rows, x);
}

template <class T>
struct Product {
  int64_t k;
  const T* a;
  int64_t a_row, a_col;
  const T* b;
  int64_t ldb;
  const T* bias;
  bool relu;
  T* c;
  int64_t ldc;
};

// MR rows times NV vectors of columns. The last vector has `tail` valid lanes.
template <class T, int MR, int NV>
void multiply_tile(const Product<T>& p, int64_t tail) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V acc[MR][NV];
  PERIGEE_UNROLL
  for (int i = 0; i < MR; ++i) {
    const V start = p.bias ? hn::Set(d, p.bias[i]) : hn::Zero(d);
    PERIGEE_UNROLL
    for (int j = 0; j < NV; ++j) acc[i][j] = start;
  }
  const T* a = p.a;
  const T* b = p.b;
  for (int64_t l = 0; l < p.k; ++l, a += p.a_col, b += p.ldb) {
    V bv[NV];
    PERIGEE_UNROLL
    for (int j = 0; j < NV; ++j) bv[j] = hn::LoadU(d, b + j * lanes);
    PERIGEE_UNROLL
    for (int i = 0; i < MR; ++i) {
      const V av = hn::Set(d, a[i * p.a_row]);
      PERIGEE_UNROLL
      for (int j = 0; j < NV; ++j) acc[i][j] = hn::MulAdd(av, bv[j], acc[i][j]);
    }
  }
  const bool whole = tail == lanes;
  PERIGEE_UNROLL
  for (int i = 0; i < MR; ++i) {
    T* row = p.c + i * p.ldc;
    PERIGEE_UNROLL
    for (int j = 0; j < NV; ++j) {
      V v = acc[i][j];
      if (p.relu) v = hn::IfThenZeroElse(hn::Le(v, hn::Zero(d)), v);
      if (j + 1 < NV || whole)
        hn::StoreU(v, d, row + j * lanes);
      else
        store_part(d, v, row + j * lanes, tail);
    }
  }
}

template <class T, int NV>
void multiply_rows(int64_t rows, const Product<T>& p, int64_t tail) {
  switch (rows) {
    case 1:
      return multiply_tile<T, 1, NV>(p, tail);
    case 2:
      return multiply_tile<T, 2, NV>(p, tail);
    case 3:
      return multiply_tile<T, 3, NV>(p, tail);
    case 4:
      return multiply_tile<T, 4, NV>(p, tail);
    case 5:
      return multiply_tile<T, 5, NV>(p, tail);
    default:
      return multiply_tile<T, 6, NV>(p, tail);
  }
}

template <class T>
void multiply_vectors(int64_t rows, int64_t vectors, const Product<T>& p, int64_t tail) {
#if HWY_TARGET == HWY_AVX3
  if (vectors == 4) return multiply_rows<T, 4>(rows, p, tail);
  if (vectors == 3) return multiply_rows<T, 3>(rows, p, tail);
#endif
  if (vectors == 2) return multiply_rows<T, 2>(rows, p, tail);
  multiply_rows<T, 1>(rows, p, tail);
}

// Splits `total` into the fewest parts of at most `limit`, as evenly as possible. Returns the size of the part at `at`.
HWY_INLINE int64_t even_part(int64_t total, int64_t limit, int64_t at) {
  const int64_t left = total - at;
  const int64_t parts = (left + limit - 1) / limit;
  return (left + parts - 1) / parts;
}

template <class T>
void multiply(int64_t m, int64_t cols, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t ldb,
              const T* bias, bool relu, T* c, int64_t ldc) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t all = (cols + lanes - 1) / lanes;
  for (int64_t v = 0; v < all; v += kTileVectors) {
    const int64_t vectors = std::min<int64_t>(kTileVectors, all - v);
    const int64_t tail = std::min(lanes, cols - (v + vectors - 1) * lanes);
    for (int64_t i = 0; i < m;) {
      const int64_t rows = even_part(m, kTileRows, i);
      multiply_vectors<T>(rows, vectors,
                          {k, a + i * a_row, a_row, a_col, b + v * lanes, ldb, bias ? bias + i : nullptr, relu,
                           c + i * ldc + v * lanes, ldc},
                          tail);
      i += rows;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
// Folds a and b into four lanes (two when vectors have four): the even lanes sum to the sum of a, the odd ones to that
// of b.
template <class D, class V>
HWY_INLINE auto fold_pair([[maybe_unused]] D d, V a, V b) {
  const hn::Half<D> h;
  const auto ha = hn::Add(hn::LowerHalf(h, a), hn::UpperHalf(h, a));
  const auto hb = hn::Add(hn::LowerHalf(h, b), hn::UpperHalf(h, b));
  if constexpr (hn::MaxLanes(h) > 4)
    return fold_pair(h, ha, hb);
  else
    return hn::Add(hn::InterleaveLower(h, ha, hb), hn::InterleaveUpper(h, ha, hb));
}

#endif

// Adds the lane sums of v[0], …, v[3] to to[0], to[ld], …. Only the first `rows` of them are stored.
template <class D, class V, class T>
HWY_INLINE void add_sums(D d, const V (&v)[4], int rows, T* to, int64_t ld) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<T, float>) {
    const hn::FixedTag<float, 4> d4;
    const auto ab = fold_pair(d, v[0], v[1]), ce = fold_pair(d, v[2], v[3]);
    HWY_ALIGN float s[4];
    if constexpr (hn::MaxLanes(d) == 4)
      hn::Store(hn::Combine(d4, ce, ab), d4, s);
    else
      hn::Store(hn::Add(hn::ConcatLowerLower(d4, ce, ab), hn::ConcatUpperUpper(d4, ce, ab)), d4, s);
    for (int i = 0; i < rows; ++i) to[i * ld] += s[i];
    return;
  }
#endif
  for (int i = 0; i < rows; ++i) to[i * ld] += hn::GetLane(hn::SumOfLanes(d, v[i]));
}

template <class T>
struct Dots {
  int64_t m, n, blocks;  // rows of all of a and b, which set the distances between blocks
  const T *a, *b;
  T* c;
  int64_t ldc;
};

template <class T, int MR, int NR>
void dot_tile(const Dots<T>& p) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kCols = kBlockCols<T>;
  V acc[MR][NR];
  PERIGEE_UNROLL
  for (int i = 0; i < MR; ++i) {
    PERIGEE_UNROLL
    for (int j = 0; j < NR; ++j) acc[i][j] = hn::Zero(d);
  }
  const T *a = p.a, *b = p.b;
  for (int64_t block = 0; block < p.blocks; ++block, a += p.m * kCols, b += p.n * kCols) {
    for (int64_t l = 0; l < kCols; l += lanes) {
      V av[MR];
      PERIGEE_UNROLL
      for (int i = 0; i < MR; ++i) av[i] = hn::LoadU(d, a + i * kCols + l);
      PERIGEE_UNROLL
      for (int j = 0; j < NR; ++j) {
        const V bv = hn::LoadU(d, b + j * kCols + l);
        PERIGEE_UNROLL
        for (int i = 0; i < MR; ++i) acc[i][j] = hn::MulAdd(av[i], bv, acc[i][j]);
      }
    }
  }
  PERIGEE_UNROLL
  for (int j = 0; j < NR; ++j) {
    const V column[4] = {acc[0][j], acc[MR > 1 ? 1 : 0][j], acc[MR > 2 ? 2 : 0][j], acc[MR > 3 ? 3 : 0][j]};
    add_sums(d, column, MR, p.c + j, p.ldc);
  }
}

template <class T, int MR>
void dot_cols(int64_t cols, const Dots<T>& p) {
  switch (cols) {
    case 1:
      return dot_tile<T, MR, 1>(p);
    case 2:
      return dot_tile<T, MR, 2>(p);
    case 3:
      return dot_tile<T, MR, 3>(p);
#if HWY_TARGET == HWY_AVX3
    case 5:
      return dot_tile<T, MR, 5>(p);
    case 6:
      return dot_tile<T, MR, 6>(p);
#endif
    default:
      return dot_tile<T, MR, 4>(p);
  }
}

template <class T>
void dot_add(int64_t m, int64_t n, int64_t blocks, const T* a, const T* b, T* c, int64_t ldc) {
  for (int64_t j = 0; j < n;) {
    const int64_t cols = even_part(n, kDotCols, j);
    for (int64_t i = 0; i < m;) {
      const int64_t rows = even_part(m, kDotRows, i);
      const Dots<T> p{m, n, blocks, a + i * kBlockCols<T>, b + j * kBlockCols<T>, c + i * ldc + j, ldc};
      switch (rows) {
        case 1:
          dot_cols<T, 1>(cols, p);
          break;
        case 2:
          dot_cols<T, 2>(cols, p);
          break;
#if HWY_TARGET == HWY_AVX3
        case 4:
          dot_cols<T, 4>(cols, p);
          break;
#endif
        default:
          dot_cols<T, 3>(cols, p);
          break;
      }
      i += rows;
    }
    j += cols;
  }
}

#define PG_CONV_SIMD(NAME, T)                                                                                    \
  void pack_##NAME(const BlockRuns& runs, const T* x, const int64_t* offsets, int64_t rows, T* out) {            \
    pack<T>(runs, x, offsets, rows, out);                                                                        \
  }                                                                                                              \
  void unpack_##NAME(const BlockRuns& runs, const T* in, const int64_t* offsets, int64_t rows, T* x) {           \
    unpack<T>(runs, in, offsets, rows, x);                                                                       \
  }                                                                                                              \
  void multiply_##NAME(int64_t m, int64_t cols, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, \
                       int64_t ldb, const T* bias, bool relu, T* c, int64_t ldc) {                               \
    multiply<T>(m, cols, k, a, a_row, a_col, b, ldb, bias, relu, c, ldc);                                        \
  }                                                                                                              \
  void dot_add_##NAME(int64_t m, int64_t n, int64_t blocks, const T* a, const T* b, T* c, int64_t ldc) {         \
    dot_add<T>(m, n, blocks, a, b, c, ldc);                                                                      \
  }
PG_CONV_SIMD(f32, float)
PG_CONV_SIMD(f64, double)
#undef PG_CONV_SIMD

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

#define PG_CONV_SIMD(NAME, T)                                                                                      \
  HWY_EXPORT(pack_##NAME);                                                                                         \
  HWY_EXPORT(unpack_##NAME);                                                                                       \
  HWY_EXPORT(multiply_##NAME);                                                                                     \
  HWY_EXPORT(dot_add_##NAME);                                                                                      \
  template <>                                                                                                      \
  void block_pack<T>(const BlockRuns& runs, const T* x, const int64_t* offsets, int64_t rows, T* out) {            \
    HWY_DYNAMIC_DISPATCH(pack_##NAME)(runs, x, offsets, rows, out);                                                \
  }                                                                                                                \
  template <>                                                                                                      \
  void block_unpack_add<T>(const BlockRuns& runs, const T* in, const int64_t* offsets, int64_t rows, T* x) {       \
    HWY_DYNAMIC_DISPATCH(unpack_##NAME)(runs, in, offsets, rows, x);                                               \
  }                                                                                                                \
  template <>                                                                                                      \
  void block_multiply<T>(int64_t m, int64_t cols, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, \
                         int64_t ldb, const T* bias, bool relu, T* c, int64_t ldc) {                               \
    HWY_DYNAMIC_DISPATCH(multiply_##NAME)(m, cols, k, a, a_row, a_col, b, ldb, bias, relu, c, ldc);                \
  }                                                                                                                \
  template <>                                                                                                      \
  void block_dot_add<T>(int64_t m, int64_t n, int64_t blocks, const T* a, const T* b, T* c, int64_t ldc) {         \
    HWY_DYNAMIC_DISPATCH(dot_add_##NAME)(m, n, blocks, a, b, c, ldc);                                              \
  }
PG_CONV_SIMD(f32, float)
PG_CONV_SIMD(f64, double)
#undef PG_CONV_SIMD

}  // namespace pg::cpu
#endif
