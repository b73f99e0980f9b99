// Contiguous operands in the dtype of a kernel.
#pragma once
#include <deque>
#include <optional>

#include "tensor/cuda/kernels.h"
#include "tensor/cuda/launch.h"
#include "tensor/small_vector.h"

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

// Whether an operand is a number, which is in host memory.
inline bool is_number(const View& v) { return v && v.type->device.is_cpu(); }

// to = a contiguous operand or a number, broadcast and converted. Leading dims of size 1 of the operand may be more
// than `to` has.
inline void spread(Stream& stream, const View& from, const View& to) {
  if (is_number(from)) return fill_view(stream, to, load_number(from.dtype(), from.data));
  Dims own = from.shape();
  while (own.size() > to.rank()) own.erase(0);
  const Type type{from.dtype(), from.type->device, to.shape()};
  const Dims strides = broadcast_strides(own, contiguous_strides(own), to.shape());
  convert_view(stream, {&type, &strides, from.data}, to);
}

// A contiguous operand or a number, broadcast to a shape and converted.
class Spread {
 public:
  Spread(Stream& stream, const View& v, DType dtype, const Dims& shape) : data_(v.data) {
    // As many elements are the same in the same order.
    if (v.dtype() == dtype && v.numel() == numel(shape) && !is_number(v)) return;
    const Type type{dtype, {}, shape};
    const Dims strides = contiguous_strides(shape);
    memory_.emplace(stream, size_t(numel(shape) * size_of(dtype)));
    data_ = memory_->data();
    spread(stream, v, {&type, &strides, memory_->data()});
  }
  const void* data() const { return data_; }

 private:
  const void* data_;
  std::optional<Scratch> memory_;
};

// A contiguous operand, or the elements of one in another dtype, or a number in device memory.
class Converted {
 public:
  Converted(Stream& stream, const View& v, DType dtype) : view_(v) {
    if (!v || (v.dtype() == dtype && !is_number(v))) return;
    copy_.emplace(stream, dtype, v);
    spread(stream, v, copy_->view);
    view_ = copy_->view;
  }
  const void* data() const { return view_.data; }

 private:
  View view_;
  std::optional<Temporary> copy_;
};

// Calls `kernel` with contiguous float32 copies in place of halves, and rounds the results back once.
inline void run_widened(const KernelArgs& a, KernelFn kernel) {
  Stream& stream = stream_at(a.stream);
  std::deque<Temporary> copies;
  const auto has_halves = [](const View& v) { return v && is_half(v.dtype()); };
  SmallVector<View, 8> in(a.in), out(a.out);
  for (View& v : in) {
    if (!has_halves(v)) continue;
    const View half = v;
    v = copies.emplace_back(stream, DType::kFloat32, half).view;
    convert_view(stream, half, v);
  }
  for (View& v : out)
    if (has_halves(v)) v = copies.emplace_back(stream, DType::kFloat32, v).view;
  kernel({a.op, in, out, a.attrs, a.allocate, a.stream, a.place});
  for (size_t i = 0; i < out.size(); ++i)
    if (has_halves(a.out[i])) convert_view(stream, out[i], a.out[i]);
}

}  // namespace pg::cuda
