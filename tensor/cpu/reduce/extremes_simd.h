// The first positions of extremes along rows and columns. NaN counts as the extreme.
#pragma once
#include <cstdint>

namespace pg::cpu {

inline constexpr int64_t kExtremesTile = 1024;  // columns

template <class T>
struct ExtremeLoops {
  // Returns the first position of the extreme of x[0], …, x[n - 1]. n > 0.
  int64_t (*row[2])(const T* x, int64_t n);
  // For each column j < width <= kExtremesTile: best[j] = the extreme of x[r * stride + j] over the rows r < n, and
  // at[j] = its first row.
  void (*columns[2])(const T* x, int64_t n, int64_t stride, int64_t width, T* best, int64_t* at);
  // Whether all n elements are from low to high. NaN is not.
  bool (*within)(const T* x, int64_t n, T low, T high);
};

// Index 0 of the members is for the smallest, 1 for the largest element.
ExtremeLoops<float> extreme_loops(float);
ExtremeLoops<double> extreme_loops(double);

}  // namespace pg::cpu
