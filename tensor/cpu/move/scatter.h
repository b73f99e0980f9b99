// Writes at positions given by index values: elements along a dim, and whole rows of a dim.
#pragma once
#include <algorithm>

#include "tensor/cpu/move/index.h"
#include "tensor/cpu/scratch.h"
#include "tensor/cpu/wrap.h"

namespace pg::cpu {

inline constexpr int64_t kGrain = 8 << 10;  // indexed elements that take about 10 µs

// How dim d of x follows the index values: x with the shape of the index, and stride 0 on d.
struct Along {
  Dims shape, strides;  // shape of the index; strides of x, with 0 for dim d
  int64_t step, rows, row;
  int d;
  Along(const Dims& index_shape, const Dims& x_strides, int dim)
      : shape(index_shape), strides(x_strides), step(x_strides[dim]), row(index_shape.back()), d(dim) {
    strides[d] = 0;
    rows = row ? numel(shape) / row : 0;
  }
  // Returns the number of groups of rows that never write to a common element: one per position of the first dim,
  // unless d is the first dim.
  int64_t apart() const { return d == 0 || shape.size() < 2 ? 1 : shape[0]; }
  // Whether the elements of a row are at least so many that threads share them, where rows may write to a common one.
  bool splits_rows() const { return apart() == 1 && d < shape.size() - 1 && row >= 2 * kColumns; }
  static constexpr int64_t kColumns = 64;
};

// write(to[j], value of j) for a run of elements. `step` is 0 for one value, else 1.
template <class T, class F>
void write_run(T* to, const T* from, int64_t step, int64_t n, const F& write) {
  if (step == 0) {
    const T value = *from;
    for (int64_t j = 0; j < n; ++j) write(to[j], value);
  } else {
    for (int64_t j = 0; j < n; ++j) write(to[j], from[j]);
  }
}

// write(to[position(j)], from[j]) for a run. By value: a store of a byte could change whatever is not a local variable.
template <class T, class P, class F>
void scatter_run(T* to, int64_t to_step, int64_t step, P position, int64_t index_step, const T* from, int64_t from_step,
                 int64_t n, F write) {
  if (index_step == 1 && from_step == 1 && to_step == 0 && step == 1) {
    for (int64_t j = 0; j < n; ++j) write(to[position(j)], from[j]);
  } else if (index_step == 1 && from_step == 1 && to_step == 1) {
    for (int64_t j = 0; j < n; ++j) write(to[j + position(j) * step], from[j]);
  } else {
    for (int64_t j = 0; j < n; ++j) write(to[j * to_step + position(j * index_step) * step], from[j * from_step]);
  }
}

// out[position] = or += src. Elements that may share a position are processed in the order of the index.
template <class T, class P, class F>
void scatter_rows(const Along& along, T* out, const Dims& index_strides, P position, const T* src,
                  const Dims& src_strides, F write) {
  const int64_t out_step = along.strides.back(), src_step = src_strides.back(), index_step = index_strides.back();
  const bool whole = index_step == 0 && out_step == 1 && (src_step == 0 || src_step == 1);  // rows have one position
  const bool split = along.splits_rows();  // tasks are columns, else groups of rows
  const int64_t apart = along.apart(), rows = along.rows / apart;
  const int64_t grain = split ? std::max(Along::kColumns, kGrain / along.rows) : kGrain / (rows * along.row) + 1;
  parallel_for(split ? along.row : apart, grain, [&](int64_t begin, int64_t end) {
    const int64_t first_row = split ? 0 : begin * rows, end_row = split ? along.rows : end * rows;
    const int64_t first_column = split ? begin : 0, end_column = split ? end : along.row;
    RowWalk<3> walk(along.shape, {along.strides, index_strides, src_strides}, first_row);
    Poller poll;
    for (int64_t r = first_row; r < end_row; ++r, walk.next()) {
      T* to = out + walk.offset[0];
      const T* from = src + walk.offset[2];
      for (int64_t first = first_column; first < end_column; first += kGrain) {
        const int64_t n = std::min(end_column - first, kGrain);
        if (whole)
          write_run(to + position(walk.offset[1]) * along.step + first, from + first * src_step, src_step, n, write);
        else
          scatter_run(to + first * out_step, out_step, along.step, position.from(walk.offset[1] + first * index_step),
                      index_step, from + first * src_step, src_step, n, write);
        poll(4 * n);
      }
    }
  });
}

// A value input in the dtype of the output. Copies only to convert.
struct Converted {
  const void* data;
  Dims strides;
  WorkVector<char> copy;
  Converted(const View& v, DType dtype) : data(v.data), strides(*v.strides) {
    if (v.dtype() == dtype) return;
    copy.resize(size_t(v.numel() * size_of(dtype)));
    assign_block(v, dtype, v.shape(), copy.data(), contiguous_strides(v.shape()));
    data = copy.data();
    strides = contiguous_strides(v.shape());
  }
};

inline Dims src_strides_of(const View& src, const Converted& value, const Dims& index) {
  return src.rank() == 0 ? Dims(index.size(), 0) : value.strides;
}

// A value in the given dtype, broadcast to a shape and contiguous. Copies only if it is not so already.
class Region {
 public:
  Region(const View& value, DType dtype, const Dims& shape) : data(value.data) {
    const Dims strides = contiguous_strides(shape);
    if (value.dtype() == dtype && value.shape() == shape && *value.strides == strides) return;
    copy_.resize(size_t(pg::numel(shape) * size_of(dtype)));
    assign_block(value, dtype, shape, copy_.data(), strides);
    data = copy_.data();
  }
  const void* data;

 private:
  WorkVector<char> copy_;
};

// What dim d of a shape becomes where an index of the given shape takes its place.
inline Dims indexed_shape(const Dims& shape, int d, const Dims& index) {
  Dims region;
  for (int i = 0; i < d; ++i) region.push_back(shape[i]);
  for (int64_t n : index) region.push_back(n);
  for (int i = d + 1; i < shape.size(); ++i) region.push_back(shape[i]);
  return region;
}

}  // namespace pg::cpu
