// Writes of rows by index. Sums of rows of float16 and bfloat16 are kept in float32 and rounded once: a sum that is
// rounded at each term stays where the terms are below half of its last place, at 256 for ones in bfloat16.
#pragma once
#include <algorithm>
#include <span>

#include "tensor/cpu/reduce/lines.h"
#include "tensor/dtype.h"
#include "tensor/parallel.h"

namespace pg::cpu {

inline constexpr int64_t kNarrowRow = 32;  // rows of fewer elements are not worth a loop of vectors

// Calls body(begin, end) for shares of n rows of a result, one a thread. Each call looks at the positions of all rows,
// so a share is not cut again where others can stop the kernel: body polls.
template <class F>
void share_rows(int64_t n, int64_t grain, const F& body) {
  const int64_t shares = std::clamp<int64_t>(n / grain, 1, num_threads());
  parallel_parts(shares, [&](int64_t first, int64_t last) { body(n * first / shares, n * last / shares); });
}

// out[o][positions[j]] += alpha src[o][j] for rows of x.inner elements, in the order of j. `x` has the sizes of out;
// src has positions.size() rows for each o. The time is that of src, whatever the size of out. Nothing is written if
// memory for the order is lacking.
void add_rows(DType dtype, const Lines& x, std::span<const int64_t> positions, const void* src, void* out,
              double alpha);

// out[o][positions[j]] = src[o][j] for rows of `bytes` bytes; the last of several for one position counts.
void assign_rows(const Lines& x, std::span<const int64_t> positions, const char* src, char* out, int64_t bytes);

}  // namespace pg::cpu
