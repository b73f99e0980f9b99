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

// Zeros to which threads add in any order, and which become the elements of `out`. They are doubles: sums of a few
// elements with fewer digits are exact, so that the order does not change them.
class AtomicSums {
 public:
  AtomicSums(Stream& stream, const View& out) : stream_(stream), out_(out), sums_(out) {
    if (out.dtype() != DType::kFloat64) sums_ = copy_.emplace(stream, DType::kFloat64, out).view;
    fill_view(stream, sums_, 0);
  }
  void* data() const { return sums_.data; }
  void finish() const {
    if (copy_) convert_view(stream_, sums_, out_);
  }

 private:
  Stream& stream_;
  View out_, sums_;
  std::optional<Temporary> copy_;
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
