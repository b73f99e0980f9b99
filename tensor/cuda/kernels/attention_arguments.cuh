// The arguments of kernels/attention.cuh and attention_halves.cuh.
#pragma once
#include <cstdint>

namespace pg::kernels {

enum AttentionOperand { kQuery, kKey, kValue, kMask, kDy, kAttentionOperands };

// Heads whose matrices have `rows` apart rows and `columns` apart columns; a mask has a row for each query.
struct AttentionArgs {
  const void* in[kAttentionOperands];  // the mask may be null
  int64_t row[kAttentionOperands], column[kAttentionOperands];
  int32_t rank, causal;
  int64_t sizes[12], steps[12][kAttentionOperands];  // dims of heads, with the strides of the operands
  const void *top, *log_sum, *delta;                 // of each query; inputs of the gradients
  void *out, *out2, *out3;                           // out, top, log_sum; or dquery, dkey, dvalue
  int64_t heads, queries, keys, width, value_width;
  double scale;
  int64_t seed, tick, drop_below;  // a weight is dropped if its random word is less
  double kept;                     // the factor of the other weights
};

// How a block of attention_halves.cuh divides a matrix of scores: its warps take 16 rows each, and `columns` at a time.
// `blocks`: so many have room on a multiprocessor at least.
struct HalvesTiling {
  int warps, columns, blocks;
  constexpr int rows() const { return warps * 16; }
  constexpr int threads() const { return warps * 32; }
};

}  // namespace pg::kernels
