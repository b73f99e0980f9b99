// The inner loops of reductions, by operation and element type, for the instruction set of this machine.
#pragma once
#include <cstdint>

#include "tensor/dtype.h"

namespace pg::cpu {

enum class ReduceOp : uint8_t { kSum, kProd, kMax, kMin, kCount, kSumSquares };

// What a reduction accumulates in across blocks: doubles for floats, int64 for the other types. max and min of
// both kinds are exact in them. Within a block the element type is used (float for float32).
union Total {
  double f;
  int64_t i;
};

// Loops over elements of one compute type (see reduce_compute_type). All of them join their
// result into `totals`, which the caller starts with `init`. The order of operations depends on sizes alone.
struct ReduceLoops {
  Total init;
  // totals[k] joins the n contiguous elements at p + k * stride, for k < count.
  void (*runs)(Total* totals, const void* p, int64_t n, int64_t count, int64_t stride);
  // totals[j] joins p[r * stride + j] for r < rows, for j < width. width <= kReduceTile, rows <= kReduceRows.
  void (*rows)(Total* totals, const void* p, int64_t stride, int64_t rows, int64_t width);
  void (*join)(Total* totals, const Total* more, int64_t n);
};

inline constexpr int64_t kReduceTile = 1024;
inline constexpr int64_t kReduceRows = 256;

// compute: one of uint8, int64, float32, float64.
ReduceLoops reduce_loops(ReduceOp op, DType compute);

// The compute type of a storage type: elements of other types are converted block by block.
inline DType reduce_compute_type(DType t) {
  if (t == DType::kBool || t == DType::kUInt8) return DType::kUInt8;
  if (t == DType::kInt8 || t == DType::kInt32 || t == DType::kInt64) return DType::kInt64;
  return t == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace pg::cpu
