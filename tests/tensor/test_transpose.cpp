// Transposed copies: every element at its place, and nothing beyond the target.
#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/move/transpose_simd.h"

namespace {

template <class T>
void check(int64_t rows, int64_t columns, int64_t from_row, int64_t to_row) {
  std::vector<T> from(rows * from_row), to(columns * to_row, T(7)), expected = to;
  std::iota(from.begin(), from.end(), T(11));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) expected[c * to_row + r] = from[r * from_row + c];
  pg::cpu::transpose(rows, columns, from.data(), from_row, to.data(), to_row);
  CHECK_MESSAGE(to == expected, "size ", sizeof(T), ", ", rows, " x ", columns);
}

template <class T>
void check_sizes() {
  for (int64_t rows : {0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 131})
    for (int64_t columns : {0, 1, 2, 3, 4, 5, 8, 9, 16, 24, 31, 32, 40, 64, 67, 130})
      for (int64_t extra : {0, 1, 5}) check<T>(rows, columns, columns + extra, rows + 2 * extra);
}

}  // namespace

TEST_CASE("transposed copies of matrices of all sizes") {
  check_sizes<uint8_t>();
  check_sizes<uint16_t>();
  check_sizes<uint32_t>();
  check_sizes<uint64_t>();
  check_sizes<float>();
}

TEST_CASE("copies of transposed matrices with long sides") {
  for (const auto& [rows, columns] : {std::pair(3, 5001), {4, 9000}, {5001, 3}, {17, 4100}, {4100, 18}}) {
    std::vector<int32_t> from(size_t(2 * rows * columns)), to(from.size());
    std::iota(from.begin(), from.end(), 0);
    pg::cpu::copy_block(4, {2, columns, rows}, from.data(), {rows * columns, 1, columns}, to.data(),
                        {rows * columns, rows, 1});
    int64_t wrong = 0;
    for (int i = 0; i < 2 * rows * columns; ++i) {
      const int image = i / (rows * columns), r = i % rows, c = i / rows % columns;
      if (to[size_t(i)] != (image * rows + r) * columns + c) ++wrong;
    }
    CHECK_MESSAGE(wrong == 0, rows, " x ", columns);
  }
}
