// How kernels of convolutions and pooling read their arguments.
#pragma once
#include <array>
#include <utility>

#include "tensor/cpu/conv/conv.h"
#include "tensor/cpu/conv/pool.h"
#include "tensor/cpu/converted.h"
#include "tensor/cpu/move/copy.h"
#include "tensor/cpu/scratch.h"
#include "tensor/op.h"
#include "tensor/ops/conv_rules.h"

namespace pg::cpu::conv_arguments {

template <class T>
using Input = Converted<T>;

// The target of a kernel in T: the output itself, or a buffer that is rounded to the output's dtype at the end.
template <class T>
class Output {
 public:
  Output(const View& v, DType type) : view_(v), type_(type) {
    if (v.dtype() != type) buffer_.resize(size_t(v.numel()));
  }
  T* data() { return view_.dtype() == type_ ? view_.as<T>() : buffer_.data(); }
  void finish() {
    if (view_.dtype() != type_) convert(type_, buffer_.data(), view_.dtype(), view_.data, view_.numel());
  }

 private:
  View view_;
  DType type_;
  WorkVector<T> buffer_;
};

// Calls f(tag, dtype) with the compute type: float64 for float64, float32 for all others.
template <class F>
void visit_compute(DType type, F f) {
  if (type == DType::kFloat64)
    f(TypeTag<double>{}, DType::kFloat64);
  else
    f(TypeTag<float>{}, DType::kFloat32);
}

// Calls f(x..., y) with arrays of the dtype that the kernel computes in: of the first kInputs inputs, null for an
// absent one, and of the first output.
template <size_t kInputs, class F>
void compute(const KernelArgs& args, F f) {
  visit_compute(args.out[0].dtype(), [&](auto tag, DType type) {
    using T = typename decltype(tag)::type;
    Output<T> y(args.out[0], type);
    [&]<size_t... k>(std::index_sequence<k...>) {
      const Input<T> x[] = {Input<T>(args.in[k], type)...};
      f(x[k].data()..., y.data());
    }
    (std::make_index_sequence<kInputs>());
    y.finish();
  });
}

// Returns three values, of which the last `dims` are `values`.
template <class V>
void place(const V& values, int dims, std::array<int64_t, 3>* out) {
  for (int d = 0; d < dims; ++d) (*out)[size_t(3 - dims + d)] = values[int(values.size()) - dims + d];
}

// x and y: (N, C, spatial...), or without N.
inline ConvShape conv_shape(const KernelArgs& args, const Dims& x, const Dims& w, const Dims& y) {
  const AttrReader c(args.op, args.attrs);
  const int dims = w.size() - 2;
  ConvShape s;
  s.n = x.size() == dims + 2 ? x[0] : 1;
  s.ic = x[x.size() - dims - 1];
  s.oc = w[0];
  s.groups = c.attr<int64_t>("groups");
  place(x, dims, &s.in);
  place(w, dims, &s.kernel);
  place(y, dims, &s.out);
  place(spatial(c, "stride", dims, 1), dims, &s.stride);
  place(spatial(c, "padding", dims, 0), dims, &s.pad);
  place(spatial(c, "dilation", dims, 1), dims, &s.dilation);
  return s;
}

// `planes` is the product of the sizes before the spatial dims.
inline PoolShape pool_shape(const KernelArgs& args, const Dims& x, const Dims& y, int dims) {
  const Window w = window_of(AttrReader(args.op, args.attrs), dims);
  PoolShape s;
  s.planes = 1;
  for (int d = 0; d + dims < x.size(); ++d) s.planes *= x[d];
  place(x, dims, &s.in);
  place(y, dims, &s.out);
  place(w.kernel, dims, &s.kernel);
  place(w.stride, dims, &s.stride);
  place(w.padding, dims, &s.pad);
  place(w.dilation, dims, &s.dilation);
  return s;
}

// Returns the positions of maxima, args.in[1], after checking that they lie in planes of `plane` elements or are
// -1.
inline const int32_t* checked_places(const KernelArgs& args, int64_t planes, int64_t plane, int64_t places_in_plane) {
  const View& index = args.in[1];
  const int32_t* places = index.as<const int32_t>();
  if (places_within(planes, plane, places_in_plane, places)) return places;
  for (int64_t i = 0, n = index.numel(); i < n; ++i)
    if (places[i] < -1 || places[i] >= plane)
      bad_argument(args.op.name, "index", fmt::format("positions from 0 to {}, or -1", plane - 1),
                   fmt::format("{} at element {}", places[i], i + 1));
  return places;
}

inline bool all_of_type(DType type, const KernelArgs& args) {
  for (const View& v : args.in)
    if (v && v.dtype() != type) return false;
  return args.out[0].dtype() == type;
}
inline bool all_float32(const KernelArgs& args) { return all_of_type(DType::kFloat32, args); }

inline Divisor divisor(const KernelArgs& args) {
  Divisor d{0, args.attr<bool>("count_include_pad")};
  if (args.has_attr("divisor_override")) d.fixed = args.attr<int64_t>("divisor_override");
  return d;
}

}  // namespace pg::cpu::conv_arguments
