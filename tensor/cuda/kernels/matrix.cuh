// Parts of matrices, and numbers that their position gives. T: the dtype.
namespace pg::kernels {

template <class F>
__device__ inline void each(const MatrixArgs& a, F f) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) static_cast<T*>(a.out)[i] = f(i);
}

__device__ inline int64_t to_diagonal(const MatrixArgs& a, int64_t i) {
  return i % a.columns - i / a.columns % a.rows - a.diagonal;
}
PERIGEE_KERNEL(lower, MatrixArgs) {
  each(a, [&](int64_t i) { return to_diagonal(a, i) <= 0 ? static_cast<const T*>(a.x)[i] : convert_one<T>(0.0f); });
}
PERIGEE_KERNEL(upper, MatrixArgs) {
  each(a, [&](int64_t i) { return to_diagonal(a, i) >= 0 ? static_cast<const T*>(a.x)[i] : convert_one<T>(0.0f); });
}
PERIGEE_KERNEL(eye, MatrixArgs) {
  each(a, [&](int64_t i) { return convert_one<T>(i / a.columns == i % a.columns ? 1.0f : 0.0f); });
}
PERIGEE_KERNEL(range, MatrixArgs) {
  each(a, [&](int64_t i) { return convert_one<T>(a.start + double(i) * a.step); });
}
// From both ends, so that the middle is symmetric and the last element is exact.
PERIGEE_KERNEL(linspace, MatrixArgs) {
  each(a, [&](int64_t i) {
    return convert_one<T>(i < (a.count + 1) / 2 ? a.start + double(i) * a.step
                                                : a.stop - double(a.count - 1 - i) * a.step);
  });
}

PERIGEE_KERNEL(triangle_indices, TriangleArgs) {
  for (int64_t i = thread_index(); i < a.count; i += thread_count()) {
    const int64_t at = a.from_end ? a.count - 1 - i : i;
    int64_t row, column;
    if (at >= a.growing) {
      row = a.first + a.growing_rows + (at - a.growing) / a.columns;
      column = (at - a.growing) % a.columns;
    } else {  // r rows have r length + r (r - 1) / 2 elements
      const double b = 2.0 * double(a.length) - 1;
      int64_t r = int64_t((std::sqrt(b * b + 8.0 * double(at)) - b) / 2);
      const auto before = [&](int64_t rows) { return rows * a.length + rows * (rows - 1) / 2; };
      while (r > 0 && before(r) > at) --r;
      while (before(r + 1) <= at) ++r;
      row = a.first + r;
      column = at - before(r);
    }
    a.out[i] = (a.from_end ? a.last_row - row : row) + a.base;
    a.out[a.count + i] = (a.from_end ? a.columns - 1 - column : column) + a.base;
  }
}

}  // namespace pg::kernels
