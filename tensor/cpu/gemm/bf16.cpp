// A block of the result has 32 rows and columns: four tiles of AMX. Both operands are packed as steps of 32 elements of
// the depth, each two tiles of 16 lines of memory. A line of the left operand has the step's elements of one row; a
// line of the right operand has two elements of the depth for each of 16 columns. Intel 64 and IA-32 Architectures
// Optimization Reference Manual, chapter 20.
#include "tensor/cpu/gemm/bf16.h"

#include <hwy/base.h>

#if HWY_ARCH_X86
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12's header makes undefined values by self-assignment
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <algorithm>
#include <type_traits>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

// What follows runs only where the CPU has a unit.
HWY_PUSH_ATTRIBUTES("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,amx-tile,amx-bf16")
namespace pg::cpu {
namespace {

constexpr int64_t kTileRows = 16, kSide = 2 * kTileRows, kStep = 32;
constexpr int64_t kTile = kTileRows * kStep, kStepSize = 2 * kTile;  // elements of packed operands
constexpr int64_t kSums = kSide * kSide;                             // of a block
constexpr int64_t kStepsAtOnce = 16;                                 // rows of so many fit into the first-level cache
constexpr int64_t kRightSize = 1 << 19;                  // elements of packed columns, half a second-level cache
constexpr int64_t kMostColumns = 512, kMostRows = 2048;  // that are packed at a time

// An operand as it is stored: element i of a row or column and l of the depth are at i * ld + l if the depth is
// adjacent, else at l * ld + i. Elements are bfloat16, or float32 to be rounded.
struct Operand {
  const char* data;
  int64_t ld;
  bool adjacent, wide;
  template <class A>
  Operand(const A* first, int64_t step, bool along)
      : data(reinterpret_cast<const char*>(first)), ld(step), adjacent(along), wide(std::is_same_v<A, float>) {}
  const void* at(int64_t i, int64_t l) const { return data + (adjacent ? i * ld + l : l * ld + i) * (wide ? 4 : 2); }
  Operand from(int64_t i) const {
    Operand part = *this;
    part.data = static_cast<const char*>(at(i, 0));
    return part;
  }
};

// Steps of 32 rows of the left operand: packed, or as they are stored. Distances are in elements.
struct Rows {
  const uint16_t* data;
  int64_t row = kStep, tile = kTile, step = kStepSize;
};

// to[i] = from[.][i] for 16 rows of 16 elements of 32 bits.
inline void transpose(__m512i (&v)[16]) {
  __m512i w[16];
  PERIGEE_UNROLL
  for (int i = 0; i < 16; i += 2) {
    w[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    w[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  PERIGEE_UNROLL
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      v[i + 2 * j] = _mm512_unpacklo_epi64(w[i + j], w[i + 2 + j]);
      v[i + 2 * j + 1] = _mm512_unpackhi_epi64(w[i + j], w[i + 2 + j]);
    }
  // Now block b of 128 bits of v[4 r + c] holds rows 4 r to 4 r + 3 of column 4 b + c.
  PERIGEE_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(v[c], v[4 + c], 0x88),
                  high01 = _mm512_shuffle_i32x4(v[c], v[4 + c], 0xdd);
    const __m512i low23 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0x88),
                  high23 = _mm512_shuffle_i32x4(v[8 + c], v[12 + c], 0xdd);
    w[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    w[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    w[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    w[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
  PERIGEE_UNROLL
  for (int i = 0; i < 16; ++i) v[i] = w[i];
}

inline __mmask32 first(int64_t count) { return count >= 32 ? ~__mmask32(0) : (__mmask32(1) << count) - 1; }

// The vector holds elements of two lines in turn: 16 from `even`, 16 from `odd`.
inline __m512i pairs(__m256i even, __m256i odd) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(even), _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

// Loads 16 or 32 elements, of which those without a bit are 0.
template <bool kWide>
inline __m256i load_half(__mmask16 mask, const void* from) {
  if constexpr (kWide)
    return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from));
  else
    return _mm256_maskz_loadu_epi16(mask, from);
}
template <bool kWide>
inline __m512i load(__mmask32 mask, const void* from) {
  if constexpr (kWide)
    return (__m512i)_mm512_cvtne2ps_pbh(
        _mm512_maskz_loadu_ps(__mmask16(mask >> 16), static_cast<const float*>(from) + kTileRows),
        _mm512_maskz_loadu_ps(__mmask16(mask), from));
  else
    return _mm512_maskz_loadu_epi16(mask, from);
}

// Packs a tile of `count` <= 16 rows or columns from i on, and of `depth` <= 32 elements from l on. The rest is 0.
template <bool kWide, bool kAdjacent, bool kTransposes>
void pack_tile(const Operand& from, int64_t i, int64_t count, int64_t l, int64_t depth, uint16_t* to) {
  const __mmask32 of_depth = first(depth);
  const __mmask16 of_count = __mmask16(first(std::max<int64_t>(count, 0)));
  __m512i v[16];
  PERIGEE_UNROLL
  for (int r = 0; r < 16; ++r) {
    if constexpr (kAdjacent) {
      v[r] = load<kWide>(r < count ? of_depth : __mmask32(0), from.at(i + r, l));
    } else {
      const int64_t even = l + 2 * r;
      v[r] = pairs(load_half<kWide>(2 * r < depth ? of_count : __mmask16(0), from.at(i, even)),
                   load_half<kWide>(2 * r + 1 < depth ? of_count : __mmask16(0), from.at(i, even + 1)));
      __builtin_prefetch(from.at(i, even + kStep));
      __builtin_prefetch(from.at(i, even + 1 + kStep));
    }
  }
  if constexpr (kTransposes) transpose(v);
  PERIGEE_UNROLL
  for (int r = 0; r < 16; ++r) _mm512_store_si512(to + r * kStep, v[r]);
}

// Packs a step of 32 rows or columns from i on, of `count`, and of `depth` elements of each from l on.
template <bool kRight>
void pack_step(const Operand& from, int64_t i, int64_t count, int64_t l, int64_t depth, uint16_t* to) {
  using Pack = void (*)(const Operand&, int64_t, int64_t, int64_t, int64_t, uint16_t*);
  static constexpr Pack kPacks[2][2] = {{pack_tile<false, false, !kRight>, pack_tile<false, true, kRight>},
                                        {pack_tile<true, false, !kRight>, pack_tile<true, true, kRight>}};
  for (int64_t t = 0; t < kSide; t += kTileRows, to += kTile)
    kPacks[from.wide][from.adjacent](from, i + t, std::min(kTileRows, count - i - t), l, std::min(kStep, depth - l),
                                     to);
}

// Packs 32 rows from i on, of `count`, and elements [l, end) of each.
void pack_rows(const Operand& from, int64_t i, int64_t count, int64_t l, int64_t end, uint16_t* to) {
  for (; l < end; l += kStep, to += kStepSize) pack_step<false>(from, i, count, l, end, to);
}

// Packs columns [j, end) of `count`, in the order in which they are stored.
void pack_columns(const Operand& from, int64_t j, int64_t end, int64_t count, int64_t depth, uint16_t* to) {
  const int64_t panel = (depth + kStep - 1) / kStep * kStepSize;
  Poller poll;
  if (from.adjacent) {
    for (; j < end; j += kSide, to += panel, poll(panel))
      for (int64_t l = 0; l < depth; l += kStep) pack_step<true>(from, j, count, l, depth, to + l * kSide);
  } else {
    for (int64_t l = 0; l < depth; l += kStep, to += kStepSize, poll((end - j) * kStep))
      for (int64_t i = j; i < end; i += kSide) pack_step<true>(from, i, count, l, depth, to + (i - j) / kSide * panel);
  }
}

// GCC's tile instructions do not say that they read memory.
inline void order_memory() { asm volatile("" ::: "memory"); }

// Sums of a block, in rows that are `ld` elements apart.
struct Block {
  float* sums;
  int64_t ld;
  bool adds;  // to what is there
};

// The product of kRows x 16 rows and kColumns x 16 columns over some steps.
template <int kRows, int kColumns>
void multiply_tiles(const Rows& a, const uint16_t* b, int64_t steps, const Block& to) {
  order_memory();
  float *const sums = to.sums, *const below = sums + kTileRows * to.ld;
  const int64_t line = to.ld * int64_t(sizeof(float));
  if (to.adds) {
    _tile_loadd(0, sums, line);
    if constexpr (kColumns > 1) _tile_loadd(1, sums + kTileRows, line);
    if constexpr (kRows > 1) _tile_loadd(2, below, line);
    if constexpr (kRows > 1 && kColumns > 1) _tile_loadd(3, below + kTileRows, line);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  const uint16_t* left = a.data;
  for (int64_t s = 0; s < steps; ++s, left += a.step, b += kStepSize) {
    _tile_stream_loadd(6, b, 64);
    _tile_loadd(4, left, a.row * 2);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kColumns > 1) {
      _tile_stream_loadd(7, b + kTile, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRows > 1) {
      _tile_loadd(5, left + a.tile, a.row * 2);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kColumns > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, line);
  if constexpr (kColumns > 1) _tile_stored(1, sums + kTileRows, line);
  if constexpr (kRows > 1) _tile_stored(2, below, line);
  if constexpr (kRows > 1 && kColumns > 1) _tile_stored(3, below + kTileRows, line);
  order_memory();
}

// The same in vectors.
template <int kTilesOfRows, int kColumns>
void multiply_pairs(const Rows& a, const uint16_t* b, int64_t steps, const Block& to) {
  constexpr int64_t kGroup = 8;
  for (int64_t i = 0; i < kTilesOfRows * kTileRows; i += kGroup) {
    const uint16_t* left = a.data + i / kTileRows * a.tile + i % kTileRows * a.row;
    const uint16_t* right = b;
    __m512 acc[kGroup][kColumns];
    for (int64_t r = 0; r < kGroup; ++r)
      for (int64_t c = 0; c < kColumns; ++c)
        acc[r][c] = to.adds ? _mm512_loadu_ps(to.sums + (i + r) * to.ld + c * kTileRows) : _mm512_setzero_ps();
    for (int64_t s = 0; s < steps; ++s, left += a.step, right += kStepSize)
      for (int64_t q = 0; q < kTileRows; ++q) {
        __m512bh columns[kColumns];
        for (int64_t c = 0; c < kColumns; ++c) columns[c] = (__m512bh)_mm512_loadu_si512(right + c * kTile + q * kStep);
        for (int64_t r = 0; r < kGroup; ++r) {
          int32_t pair;
          __builtin_memcpy(&pair, left + r * a.row + 2 * q, sizeof pair);
          const __m512bh row = (__m512bh)_mm512_set1_epi32(pair);
          for (int64_t c = 0; c < kColumns; ++c) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], row, columns[c]);
        }
      }
    for (int64_t r = 0; r < kGroup; ++r)
      for (int64_t c = 0; c < kColumns; ++c) _mm512_storeu_ps(to.sums + (i + r) * to.ld + c * kTileRows, acc[r][c]);
  }
}

using Multiply = void (*)(const Rows& a, const uint16_t* b, int64_t steps, const Block& to);

// Sets up the tiles of the calling thread within a scope.
class Tiles {
 public:
  explicit Tiles(bool used) : used_(used) {
    if (!used_) return;
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } setup;
    std::fill_n(setup.row_bytes, 8, uint16_t(64));
    std::fill_n(setup.rows, 8, uint8_t(kTileRows));
    order_memory();
    _tile_loadconfig(&setup);
  }
  ~Tiles() {
    if (used_) _tile_release();
  }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

 private:
  bool used_;
};

// What becomes of the sums of columns [begin, begin + 16) of a row; `mask`: those that are columns of the result.
template <class T>
inline __m512 finished(__m512 sum, int64_t begin, __mmask16 mask, const Bf16Result<T>& c, const T* row) {
  if constexpr (std::is_same_v<T, float>)
    if (c.adds) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, row + begin), sum);
  if (c.finish.bias) sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(mask, c.finish.bias + begin));
  const __m512 zero = _mm512_setzero_ps();
  if (c.finish.relu) sum = _mm512_mask_mov_ps(sum, _mm512_cmp_ps_mask(sum, zero, _CMP_LE_OQ), zero);
  return sum;
}

// Stores `rows` x `columns` of two tiles of sums side by side, each transposed if `transposes`.
template <class T>
void finish_tiles(const float* left, const float* right, bool transposes, int64_t rows, int64_t columns,
                  const Bf16Result<T>& c) {
  alignas(64) float turned[2 * kTileRows * kSide];
  if (transposes) {
    for (int t = 0; t < 2; ++t) {
      __m512i v[16];
      const float* const from = t ? right : left;
      PERIGEE_UNROLL
      for (int r = 0; r < 16; ++r) v[r] = _mm512_loadu_si512(from + r * kSide);
      transpose(v);
      PERIGEE_UNROLL
      for (int r = 0; r < 16; ++r) _mm512_store_si512(turned + r * kSide + t * kTileRows, v[r]);
    }
    left = turned, right = turned + kTileRows;
  }
  const __mmask32 mask = first(columns);
  const __mmask16 low_mask = __mmask16(mask), high_mask = __mmask16(mask >> 16);
  for (int64_t i = 0; i < rows; ++i) {
    T* const to = c.data + i * c.ld;
    const __m512 low = finished(_mm512_loadu_ps(left + i * kSide), 0, low_mask, c, to),
                 high = finished(_mm512_loadu_ps(right + i * kSide), kTileRows, high_mask, c, to);
    if constexpr (std::is_same_v<T, float>) {
      _mm512_mask_storeu_ps(to, low_mask, low);
      _mm512_mask_storeu_ps(to + kTileRows, high_mask, high);
    } else {
      _mm512_mask_storeu_epi16(to, mask, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
  }
}

template <class T>
Bf16Result<T> at(const Bf16Result<T>& c, int64_t row, int64_t column) {
  return {c.data + row * c.ld + column, c.ld, c.adds, c.finish.from(column)};
}

// The product of m rows of a left operand and n columns of a right one. It is the transposed result if `transposed`.
template <class T>
struct Product {
  int64_t m, n, depth;
  Operand left, right;
  bool transposed;
  Bf16Result<T> c;

  Product part(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    return {rows,
            columns,
            depth,
            left.from(row),
            right.from(column),
            transposed,
            transposed ? at(c, column, row) : at(c, row, column)};
  }
};

// Stores a block of the result.
template <class T>
void finish_block(const Product<T>& p, int64_t row, int64_t column, const float* sums) {
  const int64_t rows = std::min(kSide, p.m - row), columns = std::min(kSide, p.n - column);
  if (p.transposed) {
    for (int64_t j = 0; j < columns; j += kTileRows)
      finish_tiles(sums + j, sums + kTileRows * kSide + j, true, std::min(kTileRows, columns - j), rows,
                   at(p.c, column + j, row));
  } else {
    finish_tiles(sums, sums + kTileRows, false, rows, columns, at(p.c, row, column));
  }
}

Multiply multiply_of(int64_t rows, int64_t columns) {
  static constexpr Multiply kTiles[2][2] = {{multiply_tiles<1, 1>, multiply_tiles<1, 2>},
                                            {multiply_tiles<2, 1>, multiply_tiles<2, 2>}};
  static constexpr Multiply kPairs[2][2] = {{multiply_pairs<1, 1>, multiply_pairs<1, 2>},
                                            {multiply_pairs<2, 1>, multiply_pairs<2, 2>}};
  return (bf16_unit() == Bf16Unit::kTiles ? kTiles : kPairs)[rows > kTileRows][columns > kTileRows];
}

int64_t blocks(int64_t n) { return (n + kSide - 1) / kSide; }

// On the calling thread. Packed columns stay in the second-level cache. Rows are packed just before their use, a piece
// of the depth at a time, into memory that stays in the first-level cache; if many columns follow, they are kept.
template <class T>
void multiply(const Product<T>& p) {
  const int64_t steps = (p.depth + kStep - 1) / kStep, panel = steps * kStepSize;
  const int64_t most = std::clamp(kRightSize / (steps * kStep) / kSide * kSide, kSide, kMostColumns);
  const int64_t at_once = std::min(most, blocks(p.n) * kSide), passes = (p.n + at_once - 1) / at_once;
  const bool whole_depth = steps <= kStepsAtOnce;
  const bool direct = p.left.adjacent && !p.left.wide && p.n <= kSide;  // few columns do not repay that rows are packed
  const bool keeps = passes > (p.left.adjacent ? 2 : 1);
  const int64_t most_rows = keeps ? std::min(p.m, kMostRows) : p.m;
  const Scratch<uint16_t> left_memory(keeps ? blocks(most_rows) * panel : kStepsAtOnce * kStepSize);
  const Scratch<uint16_t> right_memory(at_once / kSide * panel);
  const Scratch<float> sums_memory(whole_depth ? kSums : at_once / kSide * kSums);
  uint16_t *const left = left_memory, *const right = right_memory;
  float* const sums = sums_memory;
  const bool takes_sums = !p.transposed && !p.c.finish.bias && !p.c.finish.relu;  // a float32 result, without more
  const Tiles tiles(bf16_unit() == Bf16Unit::kTiles);
  const auto multiply_rows = [&](int64_t i, int64_t kept, int64_t j, int64_t columns) {
    for (int64_t s = 0; s < steps; s += kStepsAtOnce) {
      const int64_t first = s * kStep, depth = std::min(kStepsAtOnce * kStep, p.depth - first);
      const int64_t count = std::min(kStepsAtOnce, steps - s);
      uint16_t* const packed = left + (keeps ? kept / kSide * panel + s * kStepSize : 0);
      Rows rows{packed};
      if (direct && i + kSide <= p.m && depth % kStep == 0)
        rows = {static_cast<const uint16_t*>(p.left.at(i, first)), p.left.ld, kTileRows * p.left.ld, kStep};
      else if (!keeps || j == 0)
        pack_rows(p.left, i, p.m, first, first + depth, packed);
      for (int64_t c = 0; c < columns; c += kSide) {
        Block block{sums + (whole_depth ? 0 : c / kSide * kSums), kSide, s > 0};
        bool finishes = s + count == steps;
        if constexpr (std::is_same_v<T, float>)
          if (takes_sums && i + kSide <= p.m && j + c + kSide <= p.n) {
            block = {p.c.data + i * p.c.ld + j + c, p.c.ld, s > 0 || p.c.adds};
            finishes = false;
          }
        const uint16_t* const panels = right + c / kSide * panel + s * kStepSize;
        multiply_of(p.m - i, columns - c)(rows, panels, count, block);
        if (finishes) finish_block(p, i, j + c, block.sums);
      }
    }
  };
  for (int64_t top = 0; top < p.m; top += most_rows)
    for (int64_t j = 0; j < p.n; j += at_once) {
      const int64_t columns = std::min(at_once, p.n - j), end = std::min(p.m, top + most_rows);
      pack_columns(p.right, j, j + columns, p.n, p.depth, right);
      for (int64_t i = top; i < end; i += kSide) {
        poll_kernel();
        multiply_rows(i, i - top, j, columns);
      }
    }
}

}  // namespace

template <class A, class T>
void gemm_bf16(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const A* a, int64_t lda, const BFloat16* b,
               int64_t ldb, const Bf16Result<T>& c) {
  const Operand rows(a, lda, !trans_a), columns(b, ldb, trans_b);
  // Left operands whose depth is not adjacent and right ones whose is are transposed as they are packed, by pairs. A
  // transposed product transposes the result instead.
  const int64_t straight = (trans_a ? m : 0) + (trans_b ? n : 0), turned = (trans_a ? 0 : m) + (trans_b ? 0 : n);
  const bool transposed = turned * k / 2 + m * n < straight * k / 2;
  const Product<T> p =
      transposed ? Product<T>{n, m, k, columns, rows, true, c} : Product<T>{m, n, k, rows, columns, false, c};
  // A thin product takes as long as to read its largest operand.
  constexpr int64_t kMacsPerTask = 1 << 21, kThinPerTask = 1 << 19, kWorthWaking = 1 << 24;
  const int64_t task = std::min(kMacsPerTask, kThinPerTask * std::min({m, n, k}));
  const bool by_rows = p.m >= p.n;
  const int64_t length = by_rows ? p.m : p.n, units = blocks(length), macs = times(times(m, n), k);
  const int64_t parts = std::clamp<int64_t>(macs / task, 1, std::min<int64_t>(units, num_threads()));
  const auto work = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = units * i / parts * kSide,
                    count = std::min(length, units * (i + 1) / parts * kSide) - first;
      multiply(by_rows ? p.part(first, count, 0, p.n) : p.part(0, p.m, first, count));
    }
  };
  if (parts == 1) return work(0, 1);
  parallel_for(parts, macs < kWorthWaking ? 1 : 0, work);
}

}  // namespace pg::cpu
HWY_POP_ATTRIBUTES
#else
namespace pg::cpu {
template <class A, class T>
void gemm_bf16(bool, bool, int64_t, int64_t, int64_t, const A*, int64_t, const BFloat16*, int64_t,
               const Bf16Result<T>&) {}
}  // namespace pg::cpu
#endif

namespace pg::cpu {
#define PG_GEMM_BF16(A, T)                                                                                    \
  template void gemm_bf16(bool, bool, int64_t, int64_t, int64_t, const A*, int64_t, const BFloat16*, int64_t, \
                          const Bf16Result<T>&);
PG_GEMM_BF16(BFloat16, BFloat16)
PG_GEMM_BF16(BFloat16, float)
PG_GEMM_BF16(float, float)
#undef PG_GEMM_BF16
}  // namespace pg::cpu
