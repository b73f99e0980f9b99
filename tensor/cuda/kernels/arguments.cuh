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

struct LinesArgs {
  const void* x;
  void* y;
  int64_t outer, n, inner;
};

// One parameter of an optimizer's update: the weight, its gradient and states, and where new weight and states go.
struct UpdateParam {
  const void* in[4];
  void* out[3];
  int64_t count, number;
  double lr, wd, t;
};
constexpr int kMostParams = 32;
struct UpdateArgs {
  const double* rates;  // on the device: lr, wd, t, rescale and maybe momentum as rows; null: those of the parameters
  int64_t columns;      // of rates: one, or one for each parameter
  double rescale, clip, momentum, beta1, beta2, epsilon;
  int32_t params, cycles;  // cycles: the rates have a row of the momentum
  UpdateParam param[kMostParams];
};

// The elements of rows x columns matrices.
struct MatrixArgs {
  const void* x;
  void* out;
  int64_t count, rows, columns, diagonal;
  double start, stop, step;
};

// The positions of the lower triangle of a matrix, row by row, or from the end. Rows grow by one element up to
// `columns`.
struct TriangleArgs {
  int64_t* out;             // rows, then columns
  int64_t count;
  int64_t first, length;    // the first row that has elements, and how many it has
  int64_t growing, columns;  // elements of the rows that are shorter than `columns`
  int64_t growing_rows;
  int64_t base, last_row;
  int32_t from_end;
};

struct ProductArgs {
  const void *a, *b;
  void* c;
  const void *bias, *addend;
  int64_t batch, m, n, k;
  int64_t a_row, a_col, a_batch, b_row, b_col, b_batch;
};

}  // namespace pg::kernels
