// The arguments of hand-written kernels, which host and device share. Strides are in elements.
#pragma once
#include <cstdint>

#include "tensor/kernels/fault.h"

namespace pg::kernels {

constexpr int kMostDims = 12;

struct Dim {
  int64_t size, stride, stride2;
};

// Positions of index values.
struct IndexArgs {
  const void* values;
  int64_t base, size;  // values from base to base + size - 1, and, if `negative`, from -size to -1
  int32_t negative, number;
  Fault* fault;
};

struct ReduceArgs {
  const void* from;
  void* to;
  void* indices;             // of extremes, or null
  const double* centers;     // of deviations, one for each total
  int64_t outputs, count;    // the number of totals, and of elements of each
  int64_t parts;             // of the elements of a total
  int64_t base;              // of indices
  double factor;
  int32_t kept, reduced;     // number of dims
  Dim dims[kMostDims];       // the kept dims, then the reduced dims
};

struct PickArgs {
  const void* x;
  void* out;
  int64_t count, step;
  IndexArgs index;
  int32_t rank;
  Dim dims[kMostDims];  // of out: strides of x (0 along the indexed dim), strides of the index
};

struct ScatterArgs {
  const void* from;
  void* to;
  int64_t count, step;
  double alpha;
  IndexArgs index;
  int32_t rank;
  Dim dims[kMostDims];           // of the index: strides of `to` (0 along the indexed dim), strides of the index
  int64_t from_strides[kMostDims];
};

struct LinesArgs {
  const void* x;
  void* y;
  int64_t outer, n, inner;
};

struct RandomArgs {
  const void* x;
  void* out;
  int64_t count, seed, tick;
  int64_t low, range;
  double p, scale;
};

struct ProductArgs {
  const void *a, *b;
  void* c;
  const void* bias;
  int64_t batch, m, n, k;
  int64_t a_row, a_col, a_batch, b_row, b_col, b_batch;
};

}  // namespace pg::kernels
