// Moving elements between strided layouts: the hot path below every view that has to become contiguous.
#pragma once
#include <cstdint>

#include "tensor/kernel.h"

namespace pg::cpu {

// Copies `from` in row-major order to `to`, which holds from.numel() elements of the same dtype.
void copy_strided(const View& from, void* to);

// Copies a block of `shape` between any two layouts of elements of `size` bytes (1, 2, 4 or 8). Strides
// count elements and may be zero in `from` and negative in both; the blocks do not overlap, and no
// element of `to` is written twice.
void copy_block(int size, const Dims& shape, const void* from, const Dims& from_strides, void* to,
                const Dims& to_strides);

// memcpy and memset to zero, on several threads when that pays.
void copy_bytes(void* to, const void* from, int64_t bytes);
void zero_bytes(void* to, int64_t bytes);

// Sets n elements to a number, converted as store_number does.
void fill_number(DType dtype, void* to, int64_t n, double number);

// Writes `from`, broadcast to `shape` and converted to `dtype`, into the block at `to`. Leading dims of
// size 1 that `from` has beyond `shape` do not count.
void assign_block(const View& from, DType dtype, const Dims& shape, void* to, const Dims& to_strides);

// Converts n elements between dtypes as store_number(load_number()) would.
void convert(DType from_type, const void* from, DType to_type, void* to, int64_t n);

}  // namespace pg::cpu
