#include "tensor/call.h"

#include "tensor/error.h"

namespace pg {

Device device_of(std::span<const Value> inputs, std::span<const Type> types) {
  for (const Value& v : inputs)
    if (v.is_array()) return v.device();
  return types.empty() ? Device{} : types[0].device;
}

void materialize_numbers(const OpDef& op, std::span<Value> inputs, FunctionRef<Value(size_t i, double number)> make) {
  bool any_array = false, any_number = false;
  for (const Value& v : inputs) any_array |= v.is_array(), any_number |= v.is_number();
  if (!any_number || (any_array && (op.has(kPointwise) || op.has(kWeakNumber)))) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_number()) continue;
    if (!op.has(kPointwise) && !op.has(kNumberOk))
      bad_argument(op.name, op.inputs[size_t(input_definition(op, inputs.size(), i))].name, "a tensor", "number");
    inputs[i] = make(i, inputs[i].number());
    if (op.has(kPointwise)) return;
  }
}

bool make_views(const OpDef& op, const Array& input, const Attrs& attrs, std::span<const Type> types,
                SmallVector<Ref<Array>, 2>& out) {
  for (size_t i = 0; i < types.size(); ++i) {
    ViewArgs args(op, attrs, input, types[i].shape, int(i));
    if (!op.view(args)) {
      out.clear();
      return false;
    }
    Ref<Array> view = Array::make(types[i]);
    view->strides = args.strides;
    view->offset = input.offset + args.offset;
    view->buffer = input.buffer;
    view->contiguous = is_contiguous(types[i].shape, args.strides);
    out.push_back(std::move(view));
  }
  return true;
}

}  // namespace pg
