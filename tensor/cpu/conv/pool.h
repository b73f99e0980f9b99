// Pooling over contiguous planes. The number of planes is images times channels. T is float or double; H is one of
// them, Half or BFloat16.
#pragma once
#include <array>
#include <cstdint>

namespace pg::cpu {

// There are always three spatial dims; 1-d and 2-d shapes get leading dims of size 1.
struct PoolShape {
  int64_t planes = 0;
  std::array<int64_t, 3> in{1, 1, 1}, kernel{1, 1, 1}, out{1, 1, 1};
  std::array<int64_t, 3> stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};

  int64_t in_plane() const { return in[0] * in[1] * in[2]; }
  int64_t out_plane() const { return out[0] * out[1] * out[2]; }
};

// Returns the number of windows along one dim; 0 when none fits. With `ceil_mode` the last window may reach past the
// end, but it must start inside the input or the padding before it.
int64_t pool_out_dim(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil_mode);

// y = the largest element of each window, index = its flat position in the plane. NaN is larger than everything. A
// window with dilation may hold nothing but padding: then y = -inf and index = -1. index may be null.
template <class T>
void max_pool_forward(const PoolShape& s, const T* x, T* y, int32_t* index);

// Whether all positions are in a plane of the input, or -1. Each thread reads those that it uses in max_pool_backward.
bool places_within(int64_t planes, int64_t in_plane, int64_t out_plane, const int32_t* index);

// dx = zeros, plus dy added at the positions in `index`. -1 is no position.
template <class T>
void max_pool_backward(int64_t planes, int64_t in_plane, int64_t out_plane, const T* dy, const int32_t* index, T* dx);

// out[plane][o] = x[plane][index[plane][o]], or 0 if that is -1: the transpose of max_pool_backward.
template <class T>
void max_pool_take(int64_t planes, int64_t in_plane, int64_t out_plane, const T* x, const int32_t* index, T* out);

// What the sum of a window is divided by: `fixed`, unless it is 0. Otherwise the number of elements in the window, with
// or without those in the padding.
struct Divisor {
  int64_t fixed = 0;
  bool count_include_pad = true;
};

// y = the sum of each window divided by its divisor.
template <class T>
void avg_pool_forward(const PoolShape& s, Divisor divisor, const T* x, T* y);
template <class T>
void avg_pool_backward(const PoolShape& s, Divisor divisor, const T* dy, T* dx);

// Pooling of images (N, spatial..., channels). `planes` counts images times channels, as above.
template <class H>
void max_pool_last(const PoolShape& s, int64_t channels, const H* x, H* y, int32_t* index);
template <class H>
void max_pool_backward_last(int64_t images, int64_t channels, int64_t in_plane, int64_t out_plane, const H* dy,
                            const int32_t* index, H* dx);
template <class T>
void avg_pool_last(const PoolShape& s, int64_t channels, Divisor divisor, const T* x, T* y);

// The part of a window that lies inside the input: first position, one past the last, and the step.
struct Span {
  int64_t first, last, step;
  int64_t full;  // elements of the whole window, including padding

  bool empty() const { return first >= last; }
};

// The flat position in the plane of the first element of a window, or -1 if it has none.
inline int64_t first_place(const PoolShape& s, const Span& z, const Span& y, const Span& x) {
  if (z.empty() || y.empty() || x.empty()) return -1;
  return (z.first * s.in[1] + y.first) * s.in[2] + x.first;
}

// Adjacent windows of one row of windows of a plane. None reaches past the ends of the plane's rows.
struct WindowRow {
  const PoolShape& shape;
  const float* plane;
  Span z, y;
  int64_t column, count;  // the first window's first column, and the number of windows
};
// As in max_pool_forward and avg_pool_forward. They return how many windows were computed; the rest are too few for a
// vector.
int64_t largest_of_windows(const WindowRow& w, float* y, int32_t* index);
int64_t means_of_windows(const WindowRow& w, float divisor, float* y);

// A window of an image whose channels are the last dim.
struct PixelWindow {
  const PoolShape& shape;
  const Span &z, &y, &x;
  int64_t channels;
};
// Channels [first, first + count) of a window, as in max_pool_forward. y and index are those of the window.
template <class H>
void largest_of_pixels(const PixelWindow& w, const H* image, int64_t first, int64_t count, H* y, int32_t* index);

// Rounds `rows` rows of n floats to rows that are `ld` elements apart. H is Half or BFloat16.
template <class H>
void round_rows(const float* from, int64_t rows, int64_t n, H* to, int64_t ld);

// Per element of rows of n: to = to + x; to = to / by.
template <class T>
void add_row(int64_t n, const T* x, T* to);
template <class T>
void divide_row(int64_t n, T by, T* to);

// Max pooling with the most common window. For each 2 x 2 window with stride 2 of the rows [first, last) of windows of
// a plane with rows of `width` elements: y = its largest element, index = the flat position of that element in the
// plane. index may be null.
void max_pool_2x2_rows(const float* x, int64_t width, int64_t first, int64_t last, int64_t out_cols, float* y,
                       int32_t* index);

}  // namespace pg::cpu
