// Register-blocked parts of the direct convolution. They work on blocks of output positions that are 256 bytes wide.
#pragma once
#include <cstdint>

namespace pg::cpu {

// The columns of a block, which is also the distance between the rows of a packed block. In elements.
template <class T>
constexpr int64_t kBlockCols = 256 / sizeof(T);

// Elements that packing may write past the end of the last row.
template <class T>
constexpr int64_t kBlockSlack = 64 / sizeof(T);

// `len` columns of a block from `dst` on come from the input elements src, src + step, ... (plus the row's offset).
struct BlockRun {
  int64_t src;
  int32_t dst, len;
};

struct BlockRuns {
  const BlockRun* data;
  int64_t count;
  int64_t step;
  int32_t piece;  // 8 or 16 when the block is full and every run has this length; 0 otherwise
};

// out[r][dst + i] = x[offsets[r] + src + i * step] for every run. Columns outside all runs get unspecified values.
template <class T>
void block_pack(const BlockRuns& runs, const T* x, const int64_t* offsets, int64_t rows, T* out);

// The transpose of block_pack: x[offsets[r] + src + i * step] += in[r][dst + i].
template <class T>
void block_unpack_add(const BlockRuns& runs, const T* in, const int64_t* offsets, int64_t rows, T* x);

// c[i][j] = bias[i] + sum_l a[i * a_row + l * a_col] * b[l * ldb + j] for i < m, j < cols <= kBlockCols, followed by
// relu if `relu`. Reads all kBlockCols columns of b. bias may be null.
template <class T>
void block_multiply(int64_t m, int64_t cols, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b,
                    int64_t ldb, const T* bias, bool relu, T* c, int64_t ldc);

// c[i * ldc + j] += the sum over blocks p and columns l of a[p][i][l] * b[p][j][l], for i < m, j < n.
template <class T>
void block_dot_add(int64_t m, int64_t n, int64_t blocks, const T* a, const T* b, T* c, int64_t ldc);

}  // namespace pg::cpu
