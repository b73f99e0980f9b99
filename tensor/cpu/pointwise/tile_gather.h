// Copying elements of a strided or broadcast operand together, tile by tile.
#pragma once
#include "tensor/shape.h"

namespace pg::cpu {

class Gather {
 public:
  Gather() = default;
  // `shape`: of the index space, not empty; `strides`, in elements of `size` bytes: of the operand in it;
  // `copies`: elements that are next to each other are copied, too.
  Gather(const char* data, int64_t size, const Dims& shape, const Dims& strides, bool copies);

  // Where the elements of positions [position, position + n) of the space are: at `out`, or in the operand.
  const char* read(int64_t position, int64_t n, char* out) const;

 private:
  template <class T>
  const T* read_as(int64_t position, int64_t n, T* out) const;

  const char* data_ = nullptr;
  int64_t size_ = 0;
  bool copies_ = false;
  Dims shape_, strides_;
};

}  // namespace pg::cpu
