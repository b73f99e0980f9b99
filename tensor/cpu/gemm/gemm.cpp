#include "tensor/cpu/gemm/gemm.h"

#include <algorithm>
#include <bitset>
#include <type_traits>

#include "tensor/cpu/gemm/bf16.h"
#include "tensor/cpu/gemm/gemm_simd.h"
#include "tensor/cpu/gemm/gemv_simd.h"
#include "tensor/cpu/half.h"
#include "tensor/cpu/pointwise/epilogue.h"
#include "tensor/cpu/scratch.h"
#include "tensor/dtype.h"
#include "tensor/parallel.h"
#include "tensor/runtime.h"

namespace pg::cpu {
namespace {

// Less work than this does not repay a second thread that is awake.
constexpr int64_t kMacsPerTask = 1 << 18;

struct Problem {
  bool trans_a, trans_b;
  int64_t m, n, k;
  int64_t lda, ldb, ldc;
};

// A column without gaps is a row: then its elements are adjacent where they are multiplied.
Problem with_rows(Problem p) {
  if (p.n == 1 && p.ldb == 1 && !p.trans_b) p.trans_b = true, p.ldb = p.k;
  if (p.m == 1 && p.lda == 1 && p.trans_a) p.trans_a = false, p.lda = p.k;
  return p;
}

// The rows of an operand as the GEMV kernels need them: without gaps, and in the type of the sums.
template <class T>
struct ContiguousRows {
  static constexpr bool kConverts = !std::is_same_v<T, SumOf<T>>;
  const Scratch<SumOf<T>> packed;
  const SumOf<T>* data;
  int64_t ld;

  ContiguousRows(bool transposed, int64_t rows, int64_t k, const T* x, int64_t ldx)
      : packed(transposed || kConverts ? rows * k : 0), data(packed), ld(k) {
    if constexpr (!kConverts)
      if (!transposed) data = x, ld = ldx;
    for (int64_t r = 0; data == packed && r < rows; ++r) {
      if constexpr (kConverts)
        if (!transposed) {
          to_float(x + r * ldx, packed + r * k, k);
          continue;
        }
      for (int64_t i = 0; i < k; ++i) packed[r * k + i] = SumOf<T>(x[i * ldx + r]);
    }
  }
};

// How a product is computed. The choice depends on the whole product, not on the part of a thread, so that the bits are
// the same for any number of threads.
enum class Path { kRows, kColumns, kBlocks };

// Up to this many rows, float32 products with a transposed right side are fastest as dot products of kGemvMaxRows rows
// at a time.
constexpr int64_t kDotRows = 12;

template <class T>
Path path_of(const Problem& p) {
  if (p.m <= kGemvMaxRows) return Path::kRows;
  if (std::is_same_v<T, float> && p.m <= kDotRows && p.trans_b && !p.trans_a) return Path::kRows;
  if (p.n <= kGemvMaxRows) return Path::kColumns;
  return Path::kBlocks;
}

// Multiplies at most kGemvMaxRows rows at a time.
template <class T>
void multiply_rows(const Problem& p, const T* a, const T* b, SumOf<T>* c, const Epilogue<SumOf<T>>& finish) {
  const ContiguousRows<T> x(p.trans_a && p.m * p.k > 1, p.m, p.k, a, p.lda);
  const auto gemv = p.trans_b ? gemv_loops(T()).nt : gemv_loops(T()).nn;
  for (int64_t i = 0; i < p.m; i += kGemvMaxRows)
    gemv(std::min(kGemvMaxRows, p.m - i), p.n, p.k, x.data + i * x.ld, x.ld, b, p.ldb, c + i * p.ldc, p.ldc, 1, finish);
}

// Computes the transposed product c^T = b^T a^T.
template <class T>
void multiply_columns(const Problem& p, const T* a, const T* b, SumOf<T>* c) {
  const ContiguousRows<T> x(!p.trans_b && p.n * p.k > 1, p.n, p.k, b, p.ldb);
  const auto gemv = p.trans_a ? gemv_loops(T()).nn : gemv_loops(T()).nt;
  gemv(p.n, p.m, p.k, x.data, x.ld, a, p.lda, c, 1, p.ldc, {});
}

// A part of the rows and columns of a product.
template <class T>
struct Block {
  Problem p;
  const T *a, *b;
  SumOf<T>* c;

  Block(const Problem& whole, const T* wa, const T* wb, SumOf<T>* wc, int64_t row, int64_t rows, int64_t column,
        int64_t columns)
      : p(whole),
        a(wa + (p.trans_a ? row : row * p.lda)),
        b(wb + (p.trans_b ? column * p.ldb : column)),
        c(wc + row * p.ldc + column) {
    p.m = rows, p.n = columns;
  }
};

template <class T>
void apply(const Epilogue<T>& finish, int64_t rows, int64_t columns, int64_t ldc, T* c) {
  for (int64_t i = 0; i < rows; ++i) {
    T* row = c + i * ldc;
    if (finish.bias)
      for (int64_t j = 0; j < columns; ++j) row[j] += finish.bias[j];
    if (finish.relu) rectify(columns, row);
  }
}

// Not kBlocks for 16-bit floats.
template <class T>
void multiply(Path path, const Problem& p, const T* a, const T* b, SumOf<T>* c, const Epilogue<SumOf<T>>& finish = {}) {
  if constexpr (std::is_floating_point_v<T>)
    if (path == Path::kBlocks)
      return gemm_simd(p.trans_a, p.trans_b, p.m, p.n, p.k, a, p.lda, b, p.ldb, c, p.ldc, false, finish);
  if (path == Path::kRows) return multiply_rows(p, a, b, c, finish);
  multiply_columns(p, a, b, c);
  apply(finish, p.m, p.n, p.ldc, c);
}

template <class T>
void clear(const Problem& p, T* c) {
  for (int64_t i = 0; i < p.m; ++i) std::fill_n(c + i * p.ldc, p.n, T(0));
}

// A thin product is limited by reading or writing its largest matrix, so less work is worth a thread.
constexpr int64_t kGemvWeightsPerTask = 1 << 16;
int64_t macs_per_task(const Problem& p) {
  return std::min(kMacsPerTask, kGemvWeightsPerTask * std::min({p.m, p.n, p.k}));
}

constexpr int64_t kFewestRows = 16, kRowUnit = 4, kWeightsPerRow = 1 << 14;
constexpr int64_t kBatchRows = 128;

constexpr int64_t kRegionMacs = 32 << 20;  // of a thread: some tenths of a millisecond
constexpr int64_t kThinMacs = 1 << 20;     // of a part of a thin product, which does not poll: the same time

// The product in several regions, with the same bits. They are cut between rows, and where sums reach the next step.
template <class T>
void product_in_regions(const Problem& p, const T* a, const T* b, T* c, const Epilogue<T>& finish) {
  constexpr int64_t kRows = 120;  // for fewer of them to pack b would take a large share of the time
  const bool by_rows = p.m > p.n;
  const int64_t unit = by_rows ? kRows : kPackedColumns;
  const int64_t threads = num_threads(), columns = by_rows ? p.n : (p.n + threads - 1) / threads;
  const int64_t depth = std::min(p.k, kGemmDepth);
  const int64_t rows = std::max(kRows, kRegionMacs / (columns * depth) / kRows * kRows) * (by_rows ? threads : 1);
  for (int64_t i = 0; i < p.m; i += rows)
    for (int64_t l = 0; l < p.k; l += kGemmDepth) {
      Problem q = p;
      q.m = std::min(rows, p.m - i), q.k = std::min(kGemmDepth, p.k - l);
      const T* const qa = a + (p.trans_a ? l * p.lda + i : i * p.lda + l);
      const T* const qb = b + (p.trans_b ? l : l * p.ldb);
      const Epilogue<T> last = l + q.k == p.k ? finish : Epilogue<T>{};
      const int64_t length = by_rows ? q.m : q.n, units = (length + unit - 1) / unit, parts = std::min(units, threads);
      parallel_parts(parts, [&](int64_t begin, int64_t end) {
        const int64_t first = units * begin / parts * unit,
                      count = std::min(length, units * end / parts * unit) - first;
        const Block<T> part = by_rows ? Block<T>(q, qa, qb, c + i * p.ldc, first, count, 0, q.n)
                                      : Block<T>(q, qa, qb, c + i * p.ldc, 0, q.m, first, count);
        gemm_simd(p.trans_a, p.trans_b, part.p.m, part.p.n, q.k, part.a, p.lda, part.b, p.ldb, part.c, p.ldc, l > 0,
                  last.from(by_rows ? 0 : first));
      });
    }
}

// Whether a product has few results and a large depth: then it is the sum of products of pieces of the depth.
constexpr int64_t kFewResults = 16, kPiece = 1 << 15;
bool is_deep(Path path, const Problem& p) { return path != Path::kBlocks && p.m * p.n <= kFewResults && p.k > kPiece; }

template <class T>
void deep_product(Path path, const Problem& p, const T* a, const T* b, SumOf<T>* c, const Epilogue<SumOf<T>>& finish) {
  const int64_t pieces = (p.k + kPiece - 1) / kPiece, size = p.m * p.n;
  const Scratch<SumOf<T>> sums(pieces * size);
  parallel_for(pieces, std::max<int64_t>(1, kGemvWeightsPerTask / kPiece), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t l = i * kPiece;
      Problem q = p;
      q.k = std::min(kPiece, p.k - l), q.ldc = p.n;
      multiply(path, q, a + (p.trans_a ? l * p.lda : l), b + (p.trans_b ? l : l * p.ldb), sums + i * size);
    }
  });
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      SumOf<T> sum = 0;
      for (int64_t q = 0; q < pieces; ++q) sum += sums[q * size + i * p.n + j];
      c[i * p.ldc + j] = sum;
    }
  apply(finish, p.m, p.n, p.ldc, c);
}

// Splits the rows or the columns of the result over the thread pool. `packed`: b as pack_right packs it, or null; only
// where right_packs is true.
template <class T>
void product(const Problem& given, const T* a, const T* b, SumOf<T>* c, const Epilogue<SumOf<T>>& finish = {},
             const float* packed = nullptr) {
  if (given.m == 0 || given.n == 0) return;
  if (given.k == 0) {
    clear(given, c);
    return apply(finish, given.m, given.n, given.ldc, c);
  }
  const Problem p = with_rows(given);
  const Path path = path_of<T>(p);
  const int64_t macs = times(times(p.m, p.n), p.k), task = macs_per_task(p);
  if (is_deep(path, p)) return deep_product(path, p, a, b, c, finish);
  if constexpr (std::is_floating_point_v<T>)
    if (path == Path::kBlocks && !packed && macs > kRegionMacs && Runtime::current().threads().stops_between_regions())
      return product_in_regions(p, a, b, c, finish);
  // Shares of the rows leave in the caches of a thread what it computes for the next layer. Each of them reads all of
  // b, which pays if b is packed, and not too large for so many rows.
  // The gradient of a weight, a sum over a batch, is cut as products and updates of the weight are: by outputs.
  const bool gradient =
      p.trans_a && !p.trans_b && p.k <= std::min(kBatchRows, p.m) && p.m >= kFewestRows * num_threads();
  const bool by_rows = p.m > p.n || gradient || (packed && p.m >= kFewestRows && p.n * p.k <= p.m * kWeightsPerRow);
  const int64_t unit = by_rows ? kRowUnit : kPackedColumns;
  const int64_t length = by_rows ? p.m : p.n, units = (length + unit - 1) / unit;
  const int64_t grain = std::max<int64_t>(1, task * units / macs);
  const int64_t most = path == Path::kBlocks ? num_threads() : std::max<int64_t>(num_threads(), macs / kThinMacs);
  const int64_t parts = macs < 2 * task ? 1 : std::clamp<int64_t>(units / grain, 1, most);
  const auto work = [&](int64_t index) {
    const int64_t first = units * index / parts * unit;
    const int64_t count = std::min(length, units * (index + 1) / parts * unit) - first;
    const int64_t column = by_rows ? 0 : first;
    const Block<T> part =
        by_rows ? Block<T>(p, a, b, c, first, count, 0, p.n) : Block<T>(p, a, b, c, 0, p.m, first, count);
    if constexpr (std::is_same_v<T, float>)
      if (packed)
        return multiply_packed(part.p.m, p.n, p.k, part.a, packed, column, part.p.n, part.c, finish.from(column));
    multiply(path, part.p, part.a, part.b, part.c, finish.from(column));
  };
  if (parts == 1) return work(0);
  constexpr int64_t kWorthWaking = 2 << 20;  // smaller products use only threads that are awake
  parallel_for(parts, macs < kWorthWaking ? 1 : 0, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) work(i);
  });
}

// Rows of 16-bit floats as dense float32 rows.
template <class H>
void widen(const H* from, int64_t rows, int64_t cols, int64_t ld, float* to) {
  Poller poll;
  for (int64_t r = 0; r < rows; ++r, poll(cols)) to_float(from + r * ld, to + r * cols, cols);
}

// A product with few rows or columns.
template <class H>
void gemm_thin(const Problem& p, const H* a, const H* b, H* c, const Epilogue<float>& finish) {
  Problem q = p;
  q.ldc = p.n;
  const Scratch<float> sums(p.m * p.n);
  product<H>(q, a, b, sums, finish);
  if (p.ldc == p.n)
    return in_polled_blocks(p.m * p.n, 1 << 20,
                            [&](int64_t begin, int64_t end) { from_float(sums + begin, c + begin, end - begin); });
  Poller poll;
  for (int64_t i = 0; i < p.m; ++i, poll(p.n)) from_float(sums + i * p.n, c + i * p.ldc, p.n);
}

template <class H>
void gemm_widened(const Problem& p, const H* a, const H* b, H* c, const Epilogue<float>& finish) {
  const int64_t a_rows = p.trans_a ? p.k : p.m, a_cols = p.trans_a ? p.m : p.k;
  const int64_t b_rows = p.trans_b ? p.n : p.k, b_cols = p.trans_b ? p.k : p.n;
  const Scratch<float> memory(p.m * p.k + p.k * p.n + p.m * p.n);
  float *const wa = memory, *const wb = wa + p.m * p.k, *const wc = wb + p.k * p.n;
  widen(a, a_rows, a_cols, p.lda, wa);
  widen(b, b_rows, b_cols, p.ldb, wb);
  product<float>({p.trans_a, p.trans_b, p.m, p.n, p.k, a_cols, b_cols, p.n}, wa, wb, wc, finish);
  Poller poll;
  for (int64_t i = 0; i < p.m; ++i, poll(p.n)) from_float(wc + i * p.n, c + i * p.ldc, p.n);
}

// Returns whether a thread reads a matrix from its end this time. A thread that reads one again and again, as a
// recurrent network does, reads it up and down in turns, and so begins with what its cache still has.
bool reads_downwards(const float* w) {
  static thread_local std::bitset<64> last;
  const size_t slot = reinterpret_cast<uintptr_t>(w) / 64 % 64;
  last.flip(slot);
  return last[slot];
}

// Each thread gets a share of the rows of w.
void gemv_linear(int64_t m, int64_t n, int64_t k, const float* x, const float* w, const float* bias, bool relu,
                 float* y) {
  constexpr int64_t kBlock = 4;  // units that are read upwards in any case
  const int64_t units = (n + 15) / 16;
  const int64_t grain = std::max<int64_t>(1, kGemvWeightsPerTask / std::max<int64_t>(1, 16 * k));
  const auto part = [&](int64_t begin, int64_t end) {
    const bool downwards = reads_downwards(w + begin * 16 * k);
    const int64_t blocks = (end - begin + kBlock - 1) / kBlock;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t unit = begin + (downwards ? blocks - 1 - i : i) * kBlock;
      const int64_t first = unit * 16, count = std::min(n, std::min(end, unit + kBlock) * 16) - first;
      gemv_loops(float()).nt(m, count, k, x, k, w + first * k, k, y + first, n, 1,
                             Epilogue<float>{bias, relu}.from(first));
    }
  };
  if (n * k <= 2 * kGemvWeightsPerTask)
    part(0, units);
  else
    parallel_for(units, grain, part);
}

// Whether products are too small for vectors: several of them are computed together, element by element.
bool are_small(Path path, const Problem& p) {
  constexpr int64_t kColumns = 4, kMacs = 256;
  if (path != Path::kRows || is_deep(path, p)) return false;
  return p.n <= kColumns && (times(times(p.m, p.n), p.k) <= kMacs || (p.m * p.n == 1 && !p.trans_b));
}

Layout layout(bool transposed, int64_t ld) { return transposed ? Layout{1, ld} : Layout{ld, 1}; }

}  // namespace

template <class T>
void gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb,
          T* c, int64_t ldc) {
  product<T>({trans_a, trans_b, m, n, k, lda, ldb, ldc}, a, b, c);
}

template <class H>
void gemm_half(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const H* a, int64_t lda, const H* b,
               int64_t ldb, H* c, int64_t ldc, const Epilogue<float>& finish) {
  if (times(times(m, n), k) > 0 && std::min(m, n) <= kGemvMaxRows)
    return gemm_thin<H>({trans_a, trans_b, m, n, k, lda, ldb, ldc}, a, b, c, finish);
  if constexpr (std::is_same_v<H, BFloat16>)
    if (times(times(m, n), k) > 0 && multiplies_bf16())
      return gemm_bf16(trans_a, trans_b, m, n, k, a, lda, b, ldb, Bf16Result<BFloat16>{c, ldc, false, finish});
  gemm_widened<H>({trans_a, trans_b, m, n, k, lda, ldb, ldc}, a, b, c, finish);
}
template void gemm_half(bool, bool, int64_t, int64_t, int64_t, const Half*, int64_t, const Half*, int64_t, Half*,
                        int64_t, const Epilogue<float>&);
template void gemm_half(bool, bool, int64_t, int64_t, int64_t, const BFloat16*, int64_t, const BFloat16*, int64_t,
                        BFloat16*, int64_t, const Epilogue<float>&);

template <class H>
void gemm_half_batched(int64_t count, BatchStrides s, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                       const H* a, int64_t lda, const H* b, int64_t ldb, H* c, int64_t ldc) {
  const int64_t macs = std::max<int64_t>(1, times(times(m, n), k));
  const auto work = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      gemm_half(trans_a, trans_b, m, n, k, a + i * s.a, lda, b + i * s.b, ldb, c + i * s.c, ldc);
  };
  if (count < num_threads()) return work(0, count);  // each product has the threads
  parallel_for(count, std::max<int64_t>(1, 2 * kMacsPerTask / macs), work);
}
template void gemm_half_batched(int64_t, BatchStrides, bool, bool, int64_t, int64_t, int64_t, const Half*, int64_t,
                                const Half*, int64_t, Half*, int64_t);
template void gemm_half_batched(int64_t, BatchStrides, bool, bool, int64_t, int64_t, int64_t, const BFloat16*, int64_t,
                                const BFloat16*, int64_t, BFloat16*, int64_t);

template <class T>
void gemm_batched(int64_t count, BatchStrides s, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                  const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc) {
  const Problem p = with_rows({trans_a, trans_b, m, n, k, lda, ldb, ldc});
  if (m == 0 || n == 0) return;
  const Path path = path_of<T>(p);
  const int64_t macs = std::max<int64_t>(1, times(times(m, n), k)), task = std::max<int64_t>(1, macs_per_task(p));
  if (count < num_threads() && macs >= 2 * task) {
    for (int64_t i = 0; i < count; ++i) product(p, a + i * s.a, b + i * s.b, c + i * s.c);
    return;
  }
  const bool cut = k == 0 || is_deep(path, p) || (path != Path::kBlocks && macs > kThinMacs);
  parallel_for(count, std::max<int64_t>(1, task / macs), [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<T, float>)
      if (are_small(path, p))
        return small_products_f32(end - begin, s, m, n, k, a + begin * s.a, layout(p.trans_a, p.lda), b + begin * s.b,
                                  layout(p.trans_b, p.ldb), c + begin * s.c, ldc);
    for (int64_t i = begin; i < end; ++i) {
      if (cut)
        product(p, a + i * s.a, b + i * s.b, c + i * s.c);
      else
        multiply(path, p, a + i * s.a, b + i * s.b, c + i * s.c);
    }
  });
}

bool right_packs(bool trans_b, int64_t m, int64_t n, int64_t k) {
  if (times(times(m, n), k) == 0) return false;
  const Problem p{false, trans_b, m, n, k, k, trans_b ? k : n, n};
  return path_of<float>(p) == Path::kBlocks;
}

void gemm_packed(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, const float* packed) {
  product<float>({false, false, m, n, k, std::max<int64_t>(k, 1), std::max<int64_t>(n, 1), n}, a, b, c, {}, packed);
}

template <class T>
void linear(int64_t m, int64_t n, int64_t k, const T* x, const T* w, const T* bias, bool relu, T* y,
            const float* packed) {
  if (m == 0 || n == 0) return;
  if constexpr (std::is_same_v<T, float>)
    if (m <= kGemvMaxRows) return gemv_linear(m, n, k, x, w, bias, relu, y);
  const int64_t ld = std::max<int64_t>(k, 1);
  product<T>({false, true, m, n, k, ld, ld, n}, x, w, y, {bias, relu}, packed);
}

#define PG_GEMM(T)                                                                                                 \
  template void gemm<T>(bool, bool, int64_t, int64_t, int64_t, const T*, int64_t, const T*, int64_t, T*, int64_t); \
  template void gemm_batched<T>(int64_t, BatchStrides, bool, bool, int64_t, int64_t, int64_t, const T*, int64_t,   \
                                const T*, int64_t, T*, int64_t);                                                   \
  template void linear<T>(int64_t, int64_t, int64_t, const T*, const T*, const T*, bool, T*, const float*);
PG_GEMM(float)
PG_GEMM(double)
#undef PG_GEMM

}  // namespace pg::cpu
