// The arguments of kernels/norm.cuh. Arrays of statistics, weights and biases are in the compute dtype.
#pragma once
#include <cstdint>

namespace pg::kernels {

struct RowNormArgs {
  const void *x, *dy, *weight, *bias;  // weight and bias may be null
  void *out, *mean, *rstd;             // the statistics are inputs of the derivative
  int64_t rows, n;
  double eps;
  int32_t centered;
};

// An array as batch x channels x positions. A channel has batch * positions elements, in `parts` parts.
struct ChannelArgs {
  const void *x, *dy;
  const void *mean, *rstd;      // one a channel; of row_norm, one a batch element
  const void *weight, *bias;    // or null
  const void *dweight, *dbias;  // the sums that the derivative takes
  void* out;
  void* out2;
  void* partial;  // two numbers a part and channel
  int64_t count, batch, channels, positions, parts;
  int32_t width;     // channels of a block
  int32_t by_batch;  // whether the statistics are those of batch elements
};

// The statistics of a batch from those of its parts.
struct BatchStatisticsArgs {
  const void* partial;
  void *mean, *rstd;
  const void *running_mean, *running_var;  // or null
  void *new_mean, *new_var;
  int64_t channels, count, parts;  // count: elements of a channel
  double eps, keep, unbias;
};

}  // namespace pg::kernels
