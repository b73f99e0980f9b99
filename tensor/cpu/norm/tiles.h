// Splits work along one dim of a contiguous array among threads: by rows, or by tiles of columns.
#pragma once
#include <algorithm>
#include <cstdint>

#include "tensor/cpu/norm/softmax_simd.h"
#include "tensor/cpu/reduce/lines.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/parallel.h"

namespace pg::cpu {

// Returns the columns per tile: few enough to fit the cache, and enough to use the pages that they touch.
inline int64_t tile_width(int64_t n) {
  return std::clamp<int64_t>((32 << 10) / std::max<int64_t>(n, 1) / 16 * 16, 256, kSoftmaxTile);
}

// Calls rows(first, count) where elements of the dim are adjacent, else columns(o, first, width) for tiles of columns
// of that width at position o of the outer dims.
template <class Rows, class Columns>
void over_lines(int64_t outer, int64_t n, int64_t inner, int64_t width, const Rows& rows, const Columns& columns) {
  if (inner == 1)
    return parallel_for(outer, shared_grain(n * int64_t(sizeof(float))),
                        [&](int64_t begin, int64_t end) { rows(begin, end - begin); });
  const int64_t tiles = (inner + width - 1) / width;
  parallel_for(outer * tiles, shared_grain(n * width * int64_t(sizeof(float))), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % tiles * width;
      columns(i / tiles, first, std::min(width, inner - first));
    }
  });
}
template <class Rows, class Columns>
void over_lines(const Lines& lines, const Rows& rows, const Columns& columns) {
  over_lines(lines.outer, lines.n, lines.inner, tile_width(lines.n), rows, columns);
}

}  // namespace pg::cpu
