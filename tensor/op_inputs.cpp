// The definitions that flattened inputs belong to. Plugins link this file too, so it must not use other files of the
// core.
#include "tensor/op.h"

namespace pg {

namespace {

// Returns the length of the list inputs among `count` flattened inputs.
size_t list_length(const OpDef& op, size_t count) {
  size_t singles = 0, lists = 0;
  for (const InputDef& def : op.inputs) (def.arity == Arity::kList ? lists : singles)++;
  return lists ? (count - singles) / lists : 0;
}

size_t width_of(const InputDef& def, size_t length) { return def.arity == Arity::kList ? length : 1; }

}  // namespace

size_t rewritten_input(const OpDef& op, size_t count, size_t i) {
  if (op.in_place.empty()) return i;
  const size_t length = list_length(op, count);
  for (int target : op.in_place) {
    const size_t width = width_of(op.inputs[size_t(target)], length);
    if (i >= width) {
      i -= width;
      continue;
    }
    for (int d = 0; d < target; ++d) i += width_of(op.inputs[size_t(d)], length);
    return i;
  }
  return count;
}

int input_definition(const OpDef& op, size_t count, size_t i) {
  const size_t length = list_length(op, count);
  for (size_t d = 0; d < op.inputs.size(); ++d) {
    const size_t width = width_of(op.inputs[d], length);
    if (i < width) return int(d);
    i -= width;
  }
  return -1;
}

}  // namespace pg
