// Arguments of kernels in the dtype that the kernel computes in.
#pragma once

#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/kernel.h"

namespace pg::cpu {

// The elements of a row-major view as T, which is `type`, converted if its dtype differs. Null for an absent input.
template <class T>
class Converted {
 public:
  Converted(const View& v, DType type) : data_(v.as<T>()) {
    if (!v || v.dtype() == type) return;
    elements_.resize(size_t(v.numel()));
    convert(v.dtype(), v.data, type, elements_.data(), v.numel());
    data_ = elements_.data();
  }
  const T* data() const { return data_; }

 private:
  WorkVector<T> elements_;
  const T* data_;
};

}  // namespace pg::cpu
