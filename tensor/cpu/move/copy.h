// Copies between strided layouts. Every view that must become contiguous goes through here.
#pragma once
#include <cstdint>

#include "tensor/kernel.h"

namespace pg::cpu {

// Copies `from` in row-major order to `to`, which holds from.numel() elements of the same dtype.
void copy_strided(const View& from, void* to);

// Copies a block of `shape` between any two layouts of elements of `size` bytes (1, 2, 4 or 8). Strides are in
// elements. They may be zero in `from`, and negative in both. The blocks must not overlap, and no element of `to` may
// be written twice.
void copy_block(int size, const Dims& shape, const void* from, const Dims& from_strides, void* to,
                const Dims& to_strides);

// Copies n matrices of rows x columns elements to matrices of columns x rows.
inline void copy_transposed(int size, int64_t n, int64_t rows, int64_t columns, const void* from, void* to) {
  copy_block(size, {n, columns, rows}, from, {rows * columns, 1, columns}, to, {rows * columns, rows, 1});
}

// memcpy, and memset to zero. They use several threads when that is faster.
void copy_bytes(void* to, const void* from, int64_t bytes);
void zero_bytes(void* to, int64_t bytes);

// Sets n elements to `number`, converted as store_number does.
void fill_number(DType dtype, void* to, int64_t n, double number);

// Writes `from`, broadcast to `shape` and converted to `dtype`, into the block at `to`. `from` may have more dims than
// `shape` when the extra leading dims have size 1.
void assign_block(const View& from, DType dtype, const Dims& shape, void* to, const Dims& to_strides);

// Converts n elements, as converter (pointwise.h) does for some of them.
void convert(DType from_type, const void* from, DType to_type, void* to, int64_t n);

}  // namespace pg::cpu
