// The inner loops of reductions, by operation and element type.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace pg::cpu {

enum class ReduceOp : uint8_t { kSum, kProd, kMax, kMin, kCount, kSumSquares, kSumNumbers };  // the last: without NaN

// The accumulator across blocks: double for floats, int64 for the other types. Both hold max and min exactly. Within a
// block the accumulator has the element type (float for float32).
union Total {
  double f;
  int64_t i;
};

// Loops over elements of one compute type (see reduce_compute_type). They combine their result with `totals`, which the
// caller sets to `init` first. The order of operations depends only on sizes.
struct ReduceLoops {
  Total init;
  // For k < count: combines the n contiguous elements at p + k * stride into totals[k].
  void (*runs)(Total* totals, const void* p, int64_t n, int64_t count, int64_t stride);
  // The same for an array that comes from memory, which the processor itself fetches only to the end of a page.
  void (*fetching_runs)(Total* totals, const void* p, int64_t n, int64_t count, int64_t stride);
  // For j < width: combines p[r * stride + j] over r < rows into totals[j]. width <= kReduceTile, rows <= kReduceRows.
  void (*rows)(Total* totals, const void* p, int64_t stride, int64_t rows, int64_t width);
  void (*join)(Total* totals, const Total* more, int64_t n);
  // Combines a block of n elements, kFewestAdded to `block`, whose caller has added up what it could: `sums` are eight
  // vectors of floats and the n % lanes last elements. Vector k has the sum of every eighth vector of the block from k
  // on; the vectors after the last eight are added to the first. Null except for sums, of any kind, of float32. The
  // result is that of `runs`, bit for bit.
  void (*join_sums)(Total* total, const float* sums, int64_t n);
  int64_t block;  // elements that are combined in the element type
};

// acc[j] combines p[r * stride + j] over r < rows; `start` sets acc first. acc has the element type, or int64 where
// integers are added or multiplied.
using PlainRows = void (*)(void* acc, bool start, const void* p, int64_t stride, int64_t rows, int64_t width);

// Extremes, sums and products of elements of any type but halves, which have no loops. Sums and products of float and
// double are those of ReduceLoops::rows for at most kReduceRows rows. Null for other operations.
PlainRows plain_rows(ReduceOp op, DType type);

inline constexpr int64_t kFewestAdded = 16;

// Operands of at least so many bytes come from memory rather than from a cache.
inline constexpr int64_t kFetchBytes = int64_t(24) << 20;

inline constexpr int64_t kReduceTile = 1024;
inline constexpr int64_t kReduceRows = 256;

// `compute` is not bool and no half.
ReduceLoops reduce_loops(ReduceOp op, DType compute);

// The compute type for a storage type. Halves are converted block by block.
inline DType reduce_compute_type(DType t) {
  return t == DType::kBool ? DType::kUInt8 : is_half(t) ? DType::kFloat32 : t;
}

}  // namespace pg::cpu
