// Contiguous operands in the dtype of a kernel.
#pragma once
#include <optional>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/launch.h"

namespace pg::cuda {

// Memory for a contiguous array during one call.
struct Temporary {
  Temporary(Stream& stream, DType dtype, const View& like)
      : type{dtype, like.type->device, like.shape()},
        strides(contiguous_strides(like.shape())),
        memory(stream, size_t(like.numel() * size_of(dtype))),
        view{&type, &strides, memory.data()} {}
  Type type;
  Dims strides;
  Scratch memory;
  View view;
};

// A contiguous operand, or its elements converted to another dtype.
class Converted {
 public:
  Converted(Stream& stream, const View& v, DType dtype) : view_(v) {
    if (!v || v.dtype() == dtype) return;
    copy_.emplace(stream, dtype, v);
    convert_view(stream, v, copy_->view);
    view_ = copy_->view;
  }
  const void* data() const { return view_.data; }

 private:
  View view_;
  std::optional<Temporary> copy_;
};

}  // namespace pg::cuda
