// What reads and writes at the positions of index values share.
#pragma once
#include "tensor/cuda/kernels/arguments.cuh"
#include "tensor/cuda/stream.h"

namespace pg::cuda {

// Index values in device memory.
struct Index {
  kernels::IndexArgs args;
  DType dtype;
};

// The values of an input as positions below `size`; others are reported, also where the call has no element to read or
// write. If `negative`, they may count from the end.
Index index_of(const KernelArgs& a, size_t input, int64_t size, bool negative);
// The report of values that are no positions.
Refusal refusal_of(const KernelArgs& a, size_t input, int64_t size, bool negative);

// The positions in a flattened array of `sizes` that the inputs from `first` on name, one for each size and broadcast
// to the shape of `out`; -1 where one is refused.
void flat_positions(const KernelArgs& a, size_t first, std::span<const int64_t> sizes, int64_t base, const View& out);

// What a call reads or writes: the shape of the values, and the strides of the array (0 along the indexed dim), of the
// index and of the values.
struct Along {
  Dims shape, array, index, values;
  int64_t step, size;  // of the indexed dim
};
// A contiguous array as outer x n x inner with an index of `count` values for n.
Along along_lines(const Dims& shape, int d, int64_t count);
// An index with the dims of the array.
Along along_dim(const Dims& shape, int d, const Dims& array, const Dims& index, const Dims& values, int64_t size);

}  // namespace pg::cuda
