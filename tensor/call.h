// What happens between an op and its kernel, for the eager interpreter and for the planner of graphs: numbers become
// tensors, and views share the memory of their input.
#pragma once
#include <algorithm>

#include "tensor/function_ref.h"
#include "tensor/op.h"

namespace pg {

// Returns the device of the first tensor, or of the first result if there is none.
Device device_of(std::span<const Value> inputs, std::span<const Type> types);

// Replaces numbers by 0-dim float32 tensors if the op is not pointwise or has no tensor whose dtype they follow.
// `make` returns the tensor for input i. Throws the op's error for a number where only a tensor is allowed.
void materialize_numbers(const OpDef& op, std::span<Value> inputs, FunctionRef<Value(size_t i, double number)> make);

// The dtype in which a number enters an op that computes in `compute`. Arithmetic in half precision works in float32 on
// every device and rounds the result, so the number is not rounded. Comparisons see it as an element would hold it.
inline DType number_dtype(const OpDef& op, DType compute) {
  const bool exact = size_of(compute) == 2 && op.has(kPointwise) && op.result != Result::kBool;
  return exact ? DType::kFloat32 : compute;
}

// Sets `out`, which is empty, to the results of a view op as arrays in the buffer of `input`. Returns false and leaves
// `out` empty if the strides of `input` do not allow it.
bool make_views(const OpDef& op, const Array& input, const Attrs& attrs, std::span<const Type> types,
                SmallVector<Ref<Array>, 2>& out);

// Whether a kernel can read the array as it is. Otherwise it gets a contiguous copy.
inline bool reads(const KernelRow& row, const Array& array) { return row.flags & kStridedInputs || array.contiguous; }

// Returns false when no input and no output has elements: there is nothing to compute or to refuse. Kernels therefore
// never see arrays whose dims are large although one of them is 0.
inline bool has_work(const OpDef& op, std::span<const View> in, std::span<const View> out) {
  if (op.traits & (kEffect | kDynamicShape) || in.empty()) return true;
  const auto holds_some = [](const View& v) { return v && v.numel() > 0; };
  return std::any_of(out.begin(), out.end(), holds_some) || std::any_of(in.begin(), in.end(), holds_some);
}

}  // namespace pg
