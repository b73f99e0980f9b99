#include "tensor/anomaly.h"

#include <algorithm>

#include "tensor/range.h"

namespace pg {
namespace {

void add(std::string& text, const std::string& name, const std::string& value) {
  text += (text.empty() ? "" : "; ") + name + " = " + value;
}

std::string name_of_input(const OpDef& op, size_t count, size_t i) {
  const InputDef& def = op.inputs[size_t(input_definition(op, count, i))];
  if (def.arity != Arity::kList) return def.name;
  size_t position = 1;
  for (size_t k = 0; k < i; ++k) position += input_definition(op, count, k) == input_definition(op, count, i);
  return fmt::format("{}[{}]", def.name, position);
}

}  // namespace

std::string describe_operands(const OpDef& op, std::span<const Value> values, std::span<const View> in, bool elements) {
  std::string text;
  for (size_t i = 0; i < in.size(); ++i) {
    if (i < values.size() && values[i].is_number())
      add(text, name_of_input(op, in.size(), i), fmt::format("{}", values[i].number()));
    else if (in[i])
      add(text, name_of_input(op, in.size(), i), describe_range(in[i], elements));
  }
  return text;
}

std::string describe_results(const OpDef& op, std::span<const View> out, bool elements) {
  std::string text;
  for (size_t i = 0; i < out.size(); ++i) {
    if (!out[i]) continue;
    const bool named = i < op.outputs.size() && !op.has(kListOutput);
    add(text, named ? op.outputs[i] : fmt::format("{}[{}]", op.outputs[0], i + 1), describe_range(out[i], elements));
  }
  return text;
}

void raise_anomaly(const OpDef& op, std::span<const Value> values, std::span<const View> in,
                   std::span<const View> out) {
  SmallVector<View, 4> intact{in};
  for (View& v : intact)
    if (std::any_of(out.begin(), out.end(), [&](const View& o) { return o && o.data == v.data; })) v = {};
  const std::string operands = describe_operands(op, values, intact);
  throw Anomaly(fmt::format("{}: made a NaN: {}{}{}", op.name, operands, operands.empty() ? "" : "; ",
                            describe_results(op, out)));
}

}  // namespace pg
