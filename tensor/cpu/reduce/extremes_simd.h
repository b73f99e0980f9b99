// Positions of extremes along rows and columns of floats, for the instruction set of this machine. NaN beats
// everything, the first of equals wins.
#pragma once
#include <cstdint>

namespace pg::cpu {

inline constexpr int64_t kExtremesTile = 1024;  // columns

template <class T>
struct ExtremeLoops {
  // The first position of the extreme of x[0], …, x[n - 1], n > 0.
  int64_t (*row[2])(const T* x, int64_t n);
  // at[j] = the first row r < n with the extreme of x[r * stride + j], for j < width <= kExtremesTile; best[j] = that
  // extreme.
  void (*columns[2])(const T* x, int64_t n, int64_t stride, int64_t width, T* best, int64_t* at);
};

// Index 0 of the members is the smallest, 1 the largest.
ExtremeLoops<float> extreme_loops(float);
ExtremeLoops<double> extreme_loops(double);

}  // namespace pg::cpu
