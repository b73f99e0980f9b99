// Reads and checks index values, and walks the rows of several arrays at once.
#pragma once
#include <algorithm>

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/reduce/lines.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

namespace pg::cpu {

// Turns index values of type I into 0-based positions below `size`.
template <class I>
struct Positions {
  const I* values;
  int64_t base, size;
  int64_t operator()(int64_t i) const {
    const int64_t v = int64_t(values[i]);
    return v < 0 ? v + size : v - base;
  }
  Positions from(int64_t i) const { return {values + i, base, size}; }
};

// Checks that all values of an index input are positions below `size`. Throws `op: bad argument 'name' (expected index
// values from … to …, got V at position P)` for the first one that is not. If `negative`, values may count from the
// end.
void check_positions(const KernelArgs& a, size_t input, int64_t size, bool negative);
// The same for an error that names another op and argument.
void check_positions(const KernelArgs& a, size_t input, int64_t size, bool negative, const char* op,
                     const char* argument);

// Calls f(Positions<I>) for the dtype of an index input. The input must have passed check_positions.
template <class F>
void with_positions(const KernelArgs& a, size_t input, int64_t size, F&& f) {
  const int64_t base = a.attr<int64_t>("index_base");
  const View& index = a.in[input];
  switch (index.dtype()) {
    case DType::kUInt8:
      return f(Positions<uint8_t>{index.as<uint8_t>(), base, size});
    case DType::kInt8:
      return f(Positions<int8_t>{index.as<int8_t>(), base, size});
    case DType::kInt32:
      return f(Positions<int32_t>{index.as<int32_t>(), base, size});
    default:
      return f(Positions<int64_t>{index.as<int64_t>(), base, size});
  }
}

// Calls f(TypeTag<U>{}) with the unsigned type of `size` bytes. For kernels that only move elements.
template <class F>
void visit_size(int size, F&& f) {
  switch (size) {
    case 1:
      return f(TypeTag<uint8_t>{});
    case 2:
      return f(TypeTag<uint16_t>{});
    case 4:
      return f(TypeTag<uint32_t>{});
    default:
      return f(TypeTag<uint64_t>{});
  }
}

// Walks the rows (runs of the last dim) of `shape` and keeps the offsets of N arrays.
template <int N>
class RowWalk {
 public:
  RowWalk(const Dims& shape, std::initializer_list<Dims> strides, int64_t row) : shape_(shape) {
    std::copy(strides.begin(), strides.end(), strides_);
    for (int d = shape.size() - 2; d >= 0; --d) {
      index_[d] = row % shape[d];
      row /= shape[d];
      for (int k = 0; k < N; ++k) offset[k] += index_[d] * strides_[k][d];
    }
  }
  void next() {
    for (int d = shape_.size() - 2; d >= 0; --d) {
      for (int k = 0; k < N; ++k) offset[k] += strides_[k][d];
      if (++index_[d] < shape_[d]) return;
      index_[d] = 0;
      for (int k = 0; k < N; ++k) offset[k] -= strides_[k][d] * shape_[d];
    }
  }
  int64_t offset[N] = {};

 private:
  Dims shape_, strides_[N];
  int64_t index_[kMaxRank] = {};
};

}  // namespace pg::cpu
