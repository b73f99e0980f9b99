// The loops follow Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication (ACM TOMS 34, 2008): a
// block of b that fits the last-level cache and a block of a that fits the second-level cache are packed in the order
// in which the register tile reads them. The innermost loop then reads memory sequentially.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/gemm/gemm_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/gemm/gemm_simd.h"

#include <unistd.h>

#include <algorithm>

#include "tensor/cpu/gemm/tile-inl.h"
#include "tensor/cpu/scratch.h"
#include "tensor/parallel.h"

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kUnpackedRows = 64;  // up to so many, and without trans_b, only the last columns of b are packed
constexpr int64_t kFewCols = 512;      // a product of so many, and of 2 * kUnpackedRows rows, is small

// Sizes of the blocks. depth x kCols of b and a block of a fit into the second-level cache, depth x cols of b into the
// last one.
struct Blocks {
  int64_t depth, cols;
  int64_t most_rows;   // with more rows of c the pages of a block are too many
  int64_t cache_part;  // of the second-level cache, that a block of a takes
  Fetching fetching;   // where it is sparse, all of a is packed, except for small products
};
constexpr Blocks kDeep = {kGemmDepth, 1024, 120, 4, Fetching::kDense};
// With AVX-512 and a large second-level cache, Intel's since 2023, a panel of b stays in the first-level cache. Rows of
// a that are read as they are stored would take its place, and more pages than the first-level TLB has.
constexpr Blocks kFlat = {kGemmDepth / 4, 4096, 240, 2, Fetching::kSparse};
static_assert(kDeep.most_rows % 12 == 0 && kFlat.most_rows % 12 == 0 && kGemmDepth % kFlat.depth == 0);

int64_t second_cache() {
  static const int64_t size = std::clamp<int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE), 512 << 10, 2 << 20);
  return size;
}

// Bits of sums depend on it, so it may not depend on the product.
const Blocks& blocks() { return HWY_TARGET == HWY_AVX3 && second_cache() >= 2 << 20 ? kFlat : kDeep; }

// An operand as it is stored: element (i, l) is at data[i * row + l * col]. One of the strides is 1.
template <class T>
struct Operand {
  const T* data;
  int64_t row, col;
  Operand at(int64_t i, int64_t l) const { return {data + i * row + l * col, row, col}; }
};

// to[l * kWidth + i] = from(i, l) for i < width, l < depth, and 0 for width <= i < kWidth.
template <int64_t kWidth, class T>
void pack_panel(const Operand<T>& from, int64_t width, int64_t depth, T* to) {
  if (width < kWidth) std::fill_n(to, kWidth * depth, T(0));
  if (from.row == 1) {
    constexpr int64_t kAhead = 16;  // the hardware does not prefetch beyond a page
    for (int64_t l = 0; l < depth; ++l) {
      const T* column = from.data + l * from.col;
      if (l + kAhead < depth) __builtin_prefetch(column + kAhead * from.col);
      T* out = to + l * kWidth;
      if (width == kWidth)
        for (int64_t i = 0; i < kWidth; ++i) out[i] = column[i];
      else
        for (int64_t i = 0; i < width; ++i) out[i] = column[i];
    }
    return;
  }
  constexpr int64_t kAtOnce = 32;  // the part of the panel stays in the first-level cache until it is complete
  for (int64_t l = 0; l < depth; l += kAtOnce) {
    const int64_t count = std::min(kAtOnce, depth - l);
    const auto rows = [&](int64_t i) { return from.data + i * from.row + l; };
    T* const out = to + l * kWidth;
    int64_t i = 0;
    if constexpr (sizeof(T) == 4)
      for (; i + 4 <= width; i += 4) pack_rows<4>(rows(i), from.row, count, out + i, kWidth);
    for (; i + 2 <= width; i += 2) pack_rows<2>(rows(i), from.row, count, out + i, kWidth);
    if (i < width) pack_rows<1>(rows(i), from.row, count, out + i, kWidth);
  }
}

// Packs all panels of a block, one after the other.
template <int64_t kWidth, class T>
void pack_block(const Operand<T>& from, int64_t count, int64_t depth, T* to) {
  Poller poll;
  for (int64_t i = 0; i < count; i += kWidth, to += kWidth * depth, poll(kWidth * depth))
    pack_panel<kWidth>(from.at(i, 0), std::min(kWidth, count - i), depth, to);
}

// What is read next, fetched while tiles are computed.
template <class T>
class Ahead {
 public:
  Ahead() = default;
  // `width` rows of an operand and `depth` of its columns.
  Ahead(const Operand<T>& from, int64_t width, int64_t depth)
      : data_(reinterpret_cast<const char*>(from.data)),
        stride_((from.row == 1 ? from.col : from.row) * int64_t(sizeof(T))),
        runs_(from.row == 1 ? depth : width),
        lines_(((from.row == 1 ? width : depth) * int64_t(sizeof(T)) + kLine - 1) / kLine) {}

  // `count` elements in a row.
  Ahead(const T* data, int64_t count)
      : data_(reinterpret_cast<const char*>(data)),
        stride_(kLine),
        runs_(count * int64_t(sizeof(T)) / kLine),
        lines_(1) {}

  bool done() const { return line_ == lines_; }

  // The next lines, at most `most`: one of each run.
  Fetch take(int64_t most) {
    if (done() || most == 0) return {};
    const Fetch out{data_ + run_ * stride_ + line_ * kLine, stride_, std::min(most, runs_ - run_)};
    run_ += out.lines;
    if (run_ == runs_) run_ = 0, ++line_;
    return out;
  }

 private:
  static constexpr int64_t kLine = 64;
  const char* data_ = nullptr;
  int64_t stride_ = 0, runs_ = 0, lines_ = 0, run_ = 0, line_ = 0;
};

// Panels of kCols columns, `panel` elements apart. The rows of each are `row` elements apart.
template <class T>
struct Panels {
  const T* data;
  int64_t row, panel;
};

// Rows of a: the first `direct` ones as they are stored, the others packed.
template <class T>
struct Rows {
  const T* stored;
  int64_t row, direct;
  const T* packed;
};

// A tile reads kRows, two thirds, a half or a third of them. Returns how many of the rows can be read as they are
// stored.
int64_t direct_rows(int64_t rows) {
  const int64_t rest = rows % kRows;
  return rest * 3 == kRows * 2 || rest * 2 == kRows || rest * 3 == kRows ? rows : rows - rest;
}
// Returns the rows of the next tile, of those that are left. Two tiles of two thirds are better than a tile and a
// third.
int64_t direct_tile(int64_t left) { return left * 3 == kRows * 4 ? kRows * 2 / 3 : std::min<int64_t>(left, kRows); }

// Whether kRows rows, `step` bytes apart, have room for a line each in the first-level cache.
bool fit_first_cache(int64_t step) {
  constexpr int64_t kLine = 64, kSets = 64;
  static const int64_t ways = std::max<int64_t>(4, sysconf(_SC_LEVEL1_DCACHE_ASSOC));
  int64_t used[kSets] = {};
  for (int64_t i = 0; i < kRows; ++i)
    if (++used[i * step / kLine % kSets] > ways) return false;
  return true;
}

// Returns the rows of the blocks of a, about the same number for each. Each block reads all of b, so few rows are one
// block.
template <class T>
int64_t block_rows(int64_t m, int64_t depth) {
  const Blocks& sizes = blocks();
  const int64_t cache = second_cache(), row = int64_t(sizeof(T)) * depth, tiles = (m + kRows - 1) / kRows;
  if (m <= sizes.most_rows + kRows && m * row <= cache / 2) return tiles * kRows;
  const int64_t most = std::clamp<int64_t>(cache / sizes.cache_part / row, kRows, sizes.most_rows) / kRows;
  const int64_t blocks = (tiles + most - 1) / most;
  return (tiles + blocks - 1) / blocks * kRows;
}

// Multiplies rows of a by panels of b. If `to_pack` is set, it is b as it is stored, and each panel is packed just
// before its use, into `packed`, where the panels are. Fetches the next panel, and then what is ahead.
template <class T>
void multiply_blocks(int64_t m, int64_t n, int64_t depth, const Rows<T>& a, const Panels<T>& b,
                     const Operand<T>* to_pack, T* packed, T* c, int64_t ldc, bool adds, const Epilogue<T>& finish,
                     bool sparse, Ahead<T>& ahead) {
  const int64_t most_lines = !kFetches ? 0 : sparse ? depth / kSpacing : depth;
  Poller poll;
  for (int64_t j = 0; j < n; j += kCols<T>, poll((m + (to_pack ? kCols<T> : 0)) * depth)) {
    Ahead<T> panel;
    // Whether the first tile packs the panel, while it computes.
    const bool tile_packs = to_pack && sparse && to_pack->row == 1 && j + kCols<T> <= n;
    if (to_pack) {
      if (!tile_packs) pack_panel<kCols<T>>(to_pack->at(j, 0), std::min(kCols<T>, n - j), depth, packed + j * depth);
      const int64_t next = std::min(kCols<T>, n - j - kCols<T>);
      if (next > 0) panel = Ahead<T>(to_pack->at(j + kCols<T>, 0), next, depth);
    } else if (b.row == kCols<T> && j + kCols<T> < n) {
      panel = Ahead<T>(b.data + (j / kCols<T> + 1) * b.panel, kCols<T> * depth);
    }
    const auto fetch = [&] { return (panel.done() ? ahead : panel).take(most_lines); };
    Tile<T> tile{.depth = depth,
                 .a_row = a.row,
                 .a_step = 1,
                 .b_row = b.row,
                 .a = nullptr,
                 .b = b.data + j / kCols<T> * b.panel,
                 .c = nullptr,
                 .ldc = ldc,
                 .rows = kRows,
                 .cols = std::min(kCols<T>, n - j),
                 .adds = adds,
                 .finish = finish.from(j)};
    for (int64_t i = 0; i < a.direct; i += tile.rows) {
      tile.a = a.stored + i * a.row, tile.c = c + i * ldc + j;
      tile.rows = direct_tile(a.direct - i);
      tile.fetch = fetch();
      multiply_rows<T, false>(tile);
    }
    for (int64_t i = a.direct; i < m; i += kRows) {
      tile.a = a.packed + (i - a.direct) * depth, tile.c = c + i * ldc + j;
      tile.rows = std::min<int64_t>(kRows, m - i);
      tile.fetch = fetch();
      if (!sparse) {
        multiply_rows(tile);
      } else if constexpr (HWY_TARGET == HWY_AVX3) {
        if (i == 0 && tile_packs) {
          Tile<T> first = tile;
          first.b = to_pack->at(j, 0).data, first.b_row = to_pack->col, first.packed = packed + j * depth;
          multiply_tile<T, kRows, true, Fetching::kSparse, true>(first);
        } else {
          multiply_rows<T, true, Fetching::kSparse>(tile);
        }
      }
    }
  }
}

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// The right side as it is stored, unless `packed` is set: its depths of at most Blocks::depth rows one after the other,
// each packed as one block of `columns` columns. The product takes those from `first` on. Both are multiples of kCols.
template <class T>
struct Right {
  Operand<T> stored;
  const T* packed = nullptr;
  int64_t columns = 0, first = 0;
};

template <class T>
void multiply(int64_t m, int64_t n, int64_t k, const Operand<T>& a, const Right<T>& b, T* c, int64_t ldc, bool adds,
              const Epilogue<T>& finish) {
  const Blocks& sizes = blocks();
  const int64_t most_depth = sizes.depth, most_cols = sizes.cols;
  const int64_t depth_limit = std::min(most_depth, k), most_rows = block_rows<T>(m, depth_limit);
  const bool tiles_pack = b.stored.row == 1 && !b.packed, many = m > 2 * kUnpackedRows || n > kFewCols;
  const bool sparse = sizes.fetching == Fetching::kSparse && m > kUnpackedRows && (tiles_pack || many);
  // Few panels of b do not repay that rows are packed.
  const bool direct =
      !sparse && a.col == 1 && (a.row <= most_depth || n <= most_cols) && fit_first_cache(a.row * int64_t(sizeof(T)));
  const int64_t a_size = round_up(most_rows * depth_limit, 16);
  const int64_t b_size = b.packed ? 0 : round_up(std::min(most_cols, n), kCols<T>) * depth_limit;
  const Scratch<T> packed_a_memory(a_size + b_size);
  T* const packed_a = packed_a_memory;
  T* packed_b = packed_a + a_size;
  const bool in_place = b.stored.row == 1 && m <= kUnpackedRows && !b.packed;
  for (int64_t j = 0; j < n; j += most_cols) {
    const int64_t cols = std::min(most_cols, n - j);
    const int64_t whole = in_place ? cols / kCols<T> * kCols<T> : 0;  // columns of b that are read without packing
    for (int64_t l = 0; l < k; l += most_depth) {
      const int64_t depth = std::min(most_depth, k - l);
      const Epilogue<T> last = l + depth == k ? finish.from(j) : Epilogue<T>{};
      const T* panels = b.packed ? b.packed + l * b.columns + (b.first + j) * depth : packed_b;
      const Operand<T> unpacked = b.stored.at(j + whole, l);
      for (int64_t i = 0; i < m; i += most_rows) {
        poll_kernel();  // one that sees the request where multiply_blocks has little work
        const int64_t count = std::min(most_rows, m - i);
        const Operand<T> block = a.at(i, l);
        const Rows<T> rows{block.data, block.row, direct ? direct_rows(count) : 0, packed_a};
        T* to = c + i * ldc + j;
        pack_block<kRows>(block.at(rows.direct, 0), count - rows.direct, depth, packed_a);
        Ahead<T> ahead;
        if (i + count < m)
          ahead = {a.at(i + count, l), std::min(most_rows, m - i - count), depth};
        else if (l + depth < k)
          ahead = {a.at(0, l + depth), std::min(most_rows, m), std::min(most_depth, k - l - depth)};
        multiply_blocks<T>(count, whole, depth, rows, {b.stored.at(j, l).data, b.stored.col, kCols<T>}, nullptr,
                           nullptr, to, ldc, adds || l > 0, last, sparse, ahead);
        multiply_blocks<T>(count, cols - whole, depth, rows, {panels, kCols<T>, kCols<T> * depth},
                           i == 0 && !b.packed ? &unpacked : nullptr, packed_b, to + whole, ldc, adds || l > 0,
                           last.from(whole), sparse, ahead);
      }
    }
  }
}

// op(b) is packed by columns, which are the rows of the operand with the strides swapped.
template <class T>
Operand<T> columns_of(bool trans_b, const T* b, int64_t ldb) {
  return trans_b ? Operand<T>{b, ldb, 1} : Operand<T>{b, 1, ldb};
}

#define PG_GEMM_SIMD(NAME, T)                                                                                        \
  void gemm_##NAME(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, \
                   int64_t ldb, T* c, int64_t ldc, bool adds, const Epilogue<T>& finish) {                           \
    const Operand<T> oa = trans_a ? Operand<T>{a, 1, lda} : Operand<T>{a, lda, 1};                                   \
    multiply(m, n, k, oa, {columns_of(trans_b, b, ldb)}, c, ldc, adds, finish);                                      \
  }
PG_GEMM_SIMD(f32, float)
PG_GEMM_SIMD(f64, double)
#undef PG_GEMM_SIMD

void pack_right(bool trans_b, int64_t n, int64_t k, const float* b, float* packed) {
  const Operand<float> columns = columns_of(trans_b, b, trans_b ? k : n);
  const int64_t depth = blocks().depth;
  for (int64_t l = 0; l < k; l += depth)
    pack_block<kCols<float>>(columns.at(0, l), n, std::min(depth, k - l), packed + l * round_up(n, kCols<float>));
}

void multiply_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* packed, int64_t first, int64_t count,
                     float* c, const Epilogue<float>& finish) {
  multiply<float>(m, count, k, {a, k, 1}, {{}, packed, round_up(n, kCols<float>), first}, c, n, false, finish);
}

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

#define PG_GEMM_SIMD(NAME, T)                                                                                         \
  HWY_EXPORT(gemm_##NAME);                                                                                            \
  template <>                                                                                                         \
  void gemm_simd<T>(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, \
                    int64_t ldb, T* c, int64_t ldc, bool adds, const Epilogue<T>& finish) {                           \
    HWY_DYNAMIC_DISPATCH(gemm_##NAME)(trans_a, trans_b, m, n, k, a, lda, b, ldb, c, ldc, adds, finish);               \
  }
PG_GEMM_SIMD(f32, float)
PG_GEMM_SIMD(f64, double)
#undef PG_GEMM_SIMD

HWY_EXPORT(pack_right);
void pack_right(bool trans_b, int64_t n, int64_t k, const float* b, float* packed) {
  HWY_DYNAMIC_DISPATCH(pack_right)(trans_b, n, k, b, packed);
}

HWY_EXPORT(multiply_packed);
void multiply_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* packed, int64_t first, int64_t count,
                     float* c, const Epilogue<float>& finish) {
  HWY_DYNAMIC_DISPATCH(multiply_packed)(m, n, k, a, packed, first, count, c, finish);
}

}  // namespace pg::cpu
#endif
