#include "tensor/rule.h"

namespace pg {

Values apply_vars(const OpDef& op, std::span<const Var> inputs, AttrList attrs) {
  SmallVector<Value, 4> values;
  Context* ctx = nullptr;
  for (const Var& v : inputs) {
    if (v.context()) ctx = v.context();
    values.emplace_back(v.value());
  }
  while (values.size() < op.inputs.size()) values.emplace_back();  // absent optional inputs
  if (!ctx) throw Error(fmt::format("{}: no context among the inputs", op.name));
  return apply(*ctx, op, values, make_attrs(op, attrs));
}

Var apply_refs(const OpDef& op, std::span<const Var* const> inputs) {
  SmallVector<Value, 4> values;
  Context* ctx = nullptr;
  for (const Var* v : inputs) {
    if (v->context()) ctx = v->context();
    values.emplace_back(v->value());
  }
  while (values.size() < op.inputs.size()) values.emplace_back();
  if (!ctx) throw Error(fmt::format("{}: no context among the inputs", op.name));
  return Var(*ctx, std::move(apply(*ctx, op, values, make_attrs(op))[0]));
}

Values apply_vars(const OpDef& op, std::initializer_list<Var> inputs, AttrList attrs) {
  return apply_vars(op, std::span<const Var>(inputs.begin(), inputs.size()), attrs);
}

Var Vjp::dy(size_t i) const {
  if (i < cotangents_.size() && cotangents_[i].defined()) return Var(ctx_, cotangents_[i]);
  return Var(ctx_, ctx_.interpreter->filled(ctx_, outputs_[i].type(), 0));
}

}  // namespace pg
