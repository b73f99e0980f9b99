#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/move/transpose_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "tensor/cpu/loops.h"
#include "tensor/cpu/move/transpose_simd.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace pg::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr int64_t kLine = 64 / sizeof(T);  // elements of a cache line

template <class T>
void each(int64_t rows, int64_t columns, const T* from, int64_t from_row, T* to, int64_t to_row) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) to[c * to_row + r] = from[r * from_row + c];
}

#if HWY_TARGET == HWY_SCALAR

template <class T>
void line_square(const T* from, int64_t from_row, T* to, int64_t to_row) {
  each(kLine<T>, kLine<T>, from, from_row, to, to_row);
}
template <class T>
void edge(int64_t rows, int64_t columns, const T* from, int64_t from_row, T* to, int64_t to_row) {
  each(rows, columns, from, from_row, to, to_row);
}

#else

// The tag of a square's rows: at most 16 of them, so that all fit the registers.
template <class T, int kLanes = 16>
using Tag = hn::CappedTag<T, kLanes>;
template <class T>
constexpr int64_t kBlock = 16 / sizeof(T);  // elements of a block of vectors

// Transposes as many rows as a vector has elements: first the squares that are one block wide, by a network of
// interleaving steps, then the matrix of these squares.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void square(D d, const T* from, int64_t from_row, T* to, int64_t to_row) {
  constexpr int n = kBlock<T>, kGroups = int(hn::MaxLanes(D())) / n;
  hn::Vec<D> v[kGroups][n];
  PERIGEE_UNROLL
  for (int g = 0; g < kGroups; ++g) {
    PERIGEE_UNROLL
    for (int i = 0; i < n; ++i) v[g][i] = hn::LoadU(d, from + (g * n + i) * from_row);
    PERIGEE_UNROLL
    for (int step = n; step > 1; step /= 2) {
      hn::Vec<D> next[n];
      PERIGEE_UNROLL
      for (int i = 0; i < n / 2; ++i) {
        next[2 * i] = hn::InterleaveLower(d, v[g][i], v[g][i + n / 2]);
        next[2 * i + 1] = hn::InterleaveUpper(d, v[g][i], v[g][i + n / 2]);
      }
      PERIGEE_UNROLL
      for (int i = 0; i < n; ++i) v[g][i] = next[i];
    }
  }
  PERIGEE_UNROLL
  for (int i = 0; i < n; ++i, to += to_row) {
    if constexpr (kGroups == 1) {
      hn::StoreU(v[0][i], d, to);
    } else if constexpr (kGroups == 2) {
      hn::StoreU(hn::ConcatLowerLower(d, v[1][i], v[0][i]), d, to);
      hn::StoreU(hn::ConcatUpperUpper(d, v[1][i], v[0][i]), d, to + n * to_row);
    } else {
      const auto even = [](auto a, auto b) HWY_ATTR { return hn::OddEvenBlocks(hn::SwapAdjacentBlocks(b), a); };
      const auto odd = [](auto a, auto b) HWY_ATTR { return hn::OddEvenBlocks(b, hn::SwapAdjacentBlocks(a)); };
      const auto even01 = even(v[0][i], v[1][i]), even23 = even(v[2][i], v[3][i]);
      const auto odd01 = odd(v[0][i], v[1][i]), odd23 = odd(v[2][i], v[3][i]);
      hn::StoreU(hn::ConcatLowerLower(d, even23, even01), d, to);
      hn::StoreU(hn::ConcatLowerLower(d, odd23, odd01), d, to + n * to_row);
      hn::StoreU(hn::ConcatUpperUpper(d, even23, even01), d, to + 2 * n * to_row);
      hn::StoreU(hn::ConcatUpperUpper(d, odd23, odd01), d, to + 3 * n * to_row);
    }
  }
}

// Transposes a square with sides of one cache line. Each line is loaded and stored once: lines that are a power of two
// apart evict each other.
template <class T>
HWY_INLINE void line_square(const T* from, int64_t from_row, T* to, int64_t to_row) {
  const Tag<T> d;
  constexpr int64_t n = kLine<T>, side = int64_t(hn::MaxLanes(d));
  if constexpr (side == n) return square(d, from, from_row, to, to_row);
  HWY_ALIGN T lines[n * n];
  for (int64_t r = 0; r < n; r += side)
    for (int64_t c = 0; c < n; c += side) square(d, from + r * from_row + c, from_row, lines + c * n + r, n);
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_row, lines + i * n, 64);
}

// Transposes what is left by squares with sides of kLanes or less, and the rest element by element.
template <class T, int kLanes = 16>
void edge(int64_t rows, int64_t columns, const T* from, int64_t from_row, T* to, int64_t to_row) {
  const Tag<T, kLanes> d;
  constexpr int64_t side = int64_t(hn::MaxLanes(d));
  const int64_t r = rows / side * side, c = columns / side * side;
  for (int64_t i = 0; i < r; i += side)
    for (int64_t j = 0; j < c; j += side) square(d, from + i * from_row + j, from_row, to + j * to_row + i, to_row);
  if constexpr (side > kBlock<T>) {
    if (c < columns) edge<T, int(side) / 2>(r, columns - c, from + c, from_row, to + c * to_row, to_row);
    if (r < rows) edge<T, int(side) / 2>(rows - r, columns, from + r * from_row, from_row, to + r, to_row);
  } else {
    each(r, columns - c, from + c, from_row, to + c * to_row, to_row);
    each(rows - r, columns, from + r * from_row, from_row, to + r, to_row);
  }
}

#endif

// The channels of images: a few long rows to or from dense pixels. Returns how many pixels it wrote.
template <int kRows, class T>
int64_t to_pixels(int64_t pixels, const T* from, int64_t row, T* to) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= pixels; i += lanes, from += lanes, to += kRows * lanes) {
    const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + row);
    if constexpr (kRows == 2)
      hn::StoreInterleaved2(a, b, d, to);
    else if constexpr (kRows == 3)
      hn::StoreInterleaved3(a, b, hn::LoadU(d, from + 2 * row), d, to);
    else
      hn::StoreInterleaved4(a, b, hn::LoadU(d, from + 2 * row), hn::LoadU(d, from + 3 * row), d, to);
  }
  return i;
}
template <int kRows, class T>
int64_t from_pixels(int64_t pixels, const T* from, T* to, int64_t row) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= pixels; i += lanes, from += kRows * lanes, to += lanes) {
    hn::Vec<decltype(d)> v[4];
    if constexpr (kRows == 2)
      hn::LoadInterleaved2(d, from, v[0], v[1]);
    else if constexpr (kRows == 3)
      hn::LoadInterleaved3(d, from, v[0], v[1], v[2]);
    else
      hn::LoadInterleaved4(d, from, v[0], v[1], v[2], v[3]);
    for (int r = 0; r < kRows; ++r) hn::StoreU(v[r], d, to + r * row);
  }
  return i;
}
template <int kRows, class T>
void few_rows(int64_t pixels, const T* from, int64_t from_row, T* to) {
  const int64_t done = to_pixels<kRows>(pixels, from, from_row, to);
  each(kRows, pixels - done, from + done, from_row, to + done * kRows, kRows);
}
template <int kColumns, class T>
void few_columns(int64_t pixels, const T* from, T* to, int64_t to_row) {
  const int64_t done = from_pixels<kColumns>(pixels, from, to, to_row);
  each(pixels - done, kColumns, from + done * kColumns, kColumns, to + done, to_row);
}

template <class T>
void matrix(int64_t rows, int64_t columns, const T* from, int64_t from_row, T* to, int64_t to_row) {
  if (rows == to_row && rows == 2) return few_rows<2>(columns, from, from_row, to);
  if (rows == to_row && rows == 3) return few_rows<3>(columns, from, from_row, to);
  if (rows == to_row && rows == 4) return few_rows<4>(columns, from, from_row, to);
  if (columns == from_row && columns == 2) return few_columns<2>(rows, from, to, to_row);
  if (columns == from_row && columns == 3) return few_columns<3>(rows, from, to, to_row);
  if (columns == from_row && columns == 4) return few_columns<4>(rows, from, to, to_row);
  constexpr int64_t n = kLine<T>;
  const int64_t c = columns / n * n;
  int64_t r = 0;
  for (; r + n <= rows; r += n) {
    const T* const row = from + r * from_row;
    for (int64_t j = 0; j < c; j += n) line_square(row + j, from_row, to + j * to_row + r, to_row);
    if (c < columns) edge(n, columns - c, row + c, from_row, to + c * to_row + r, to_row);
  }
  if (r < rows) edge(rows - r, columns, from + r * from_row, from_row, to + r, to_row);
}

// For Highway's table, which has no templates.
#define PERIGEE_MATRIX(name, T)                                                                      \
  void name(int64_t rows, int64_t columns, const T* from, int64_t from_row, T* to, int64_t to_row) { \
    matrix(rows, columns, from, from_row, to, to_row);                                               \
  }
PERIGEE_MATRIX(bytes, uint8_t)
PERIGEE_MATRIX(halves, uint16_t)
PERIGEE_MATRIX(words, uint32_t)
PERIGEE_MATRIX(long_words, uint64_t)
PERIGEE_MATRIX(floats, float)
#undef PERIGEE_MATRIX

}  // namespace HWY_NAMESPACE
}  // namespace pg::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pg::cpu {

#define PERIGEE_TRANSPOSE(name, T)                                                                        \
  HWY_EXPORT(name);                                                                                       \
  void transpose(int64_t rows, int64_t columns, const T* from, int64_t from_row, T* to, int64_t to_row) { \
    HWY_DYNAMIC_DISPATCH(name)(rows, columns, from, from_row, to, to_row);                                \
  }
PERIGEE_TRANSPOSE(bytes, uint8_t)
PERIGEE_TRANSPOSE(halves, uint16_t)
PERIGEE_TRANSPOSE(words, uint32_t)
PERIGEE_TRANSPOSE(long_words, uint64_t)
PERIGEE_TRANSPOSE(floats, float)
#undef PERIGEE_TRANSPOSE

}  // namespace pg::cpu
#endif
