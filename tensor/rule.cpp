#include "tensor/rule.h"

#include <algorithm>
#include <cstring>

#include "tensor/tape.h"

namespace pg {

Values apply_vars(const OpDef& op, std::span<const Var> inputs, AttrList attrs, const AttrReader* like) {
  SmallVector<Value, 4> values;
  Context* ctx = nullptr;
  for (const Var& v : inputs) {
    if (v.context()) ctx = v.context();
    values.emplace_back(v.value());
  }
  while (values.size() < op.inputs.size()) values.emplace_back();  // absent optional inputs
  if (!ctx) throw Error(fmt::format("{}: no context among the inputs", op.name));
  return apply(*ctx, op, values, make_attrs(op, attrs, like));
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

static Value cast(Context& ctx, const Value& v, DType dtype) {
  return call<"to">(Var(ctx, v), {{"dtype", dtype}}).value();
}

bool widen_rule(Context& ctx, const OpDef& op, const Attrs& attrs, std::span<const Value> inputs,
                std::span<Value> outputs, std::span<Value> cotangents, SmallVector<Value, 3>& wide) {
  const DType result = outputs[0].dtype();
  if (!(op.has(kPointwise) || op.has(kWidens)) || op.vjp.empty() || !is_float(result)) return false;
  const uint32_t all = (1u << op.inputs.size()) - 1, saved = saved_inputs(op, result) & all;
  const bool half = size_of(result) == 2 && (op.has(kWidens) || (inputs.size() == 1 && saved));
  const DType dtype = half ? DType::kFloat32 : result;
  const auto casts = [&](size_t i) {
    return saved >> i & 1 && op.inputs[i].dtypes != kBoolOnly && inputs[i].is_array() && inputs[i].dtype() != dtype;
  };
  bool any = half;
  for (size_t i = 0; i < inputs.size(); ++i) any |= casts(i);
  if (!any) return false;
  for (size_t i = 0; i < inputs.size(); ++i) wide.push_back(casts(i) ? cast(ctx, inputs[i], dtype) : inputs[i]);
  if (!half) return true;
  if (op.saved_outputs && saved == all) {
    SmallVector<Value, 3> shared(wide);  // an op may overwrite operands that nobody else holds
    outputs[0] = apply(ctx, op, shared, attrs)[0];
  } else if (op.saved_outputs) {
    outputs[0] = cast(ctx, outputs[0], dtype);
  }
  if (cotangents[0].defined()) cotangents[0] = cast(ctx, cotangents[0], dtype);
  return true;
}

// Whether the largest floating dtype of the inputs has half precision.
static bool all_half(std::span<const Value> inputs) {
  bool any = false;
  for (const Value& v : inputs) {
    if (!v.is_array() || !is_float(v.dtype())) continue;
    if (size_of(v.dtype()) != 2) return false;
    any = true;
  }
  return any;
}

// A rule may return an input as it is. The result is no leaf then, and its gradient is not that of the input: it
// becomes a view of the input with its own place on the tape.
static Values told_apart(Context& ctx, Values out, std::span<const Value> inputs) {
  for (Value& v : out) {
    if (!v.has_node() || std::none_of(inputs.begin(), inputs.end(), [&](const Value& input) {
          return input.node() == v.node() && input.node_output() == v.node_output();
        }))
      continue;
    Ints order;
    for (int d = 0; d < v.rank(); ++d) order.push_back(user_dim(d));
    Value in[1] = {std::move(v)};
    v = apply(ctx, op_named<"permute">(), in, make_attrs(op_named<"permute">(), {{"dims", order}}))[0];
  }
  return out;
}

Values decomposed(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs) {
  SmallVector<Value, 4> wide;
  SmallVector<Type, 2> types;
  if (op.has(kWidens) && all_half(inputs)) {
    infer_types(op, inputs, attrs, types);
    for (const Value& v : inputs)
      wide.push_back(v.is_array() && is_float(v.dtype()) ? cast(ctx, v, DType::kFloat32) : v);
    inputs = wide;
  }
  Rule rule(ctx, op, attrs, inputs);
  Values out;
  for (Var& v : op.decompose(rule)) out.push_back(std::move(v.value()));
  for (size_t i = 0; i < types.size(); ++i)
    if (out[i].dtype() != types[i].dtype) out[i] = cast(ctx, out[i], types[i].dtype);
  return told_apart(ctx, std::move(out), inputs);
}

const AttrValue& Expansion::raw_option(const char* name) const {
  for (size_t i = 0; i < op().options.size(); ++i)
    if (!std::strcmp(op().options[i].name, name)) return options_[i];
  throw Error(fmt::format("{}: no option '{}'", op().name, name));
}

void Expansion::bad_option(const char* name, const std::string& expected) const {
  bad_argument(op().name, name, expected, to_string(raw_option(name)));
}

std::vector<Var> Expansion::apply_op(std::span<const Var> inputs, const Attrs& attrs) const {
  SmallVector<Value, 4> values;
  for (const Var& v : inputs) values.push_back(v.value());
  std::vector<Var> out;
  for (Value& v : apply(ctx_, op(), values, attrs)) out.emplace_back(ctx_, std::move(v));
  return out;
}

Values expanded(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
                const Attrs& options) {
  Expansion c(ctx, op, attrs, options, inputs);
  Values out;
  for (Var& v : op.expand(c)) out.push_back(std::move(v.value()));
  return told_apart(ctx, std::move(out), inputs);
}

std::vector<Var> expand_dtype(Expansion& c) {
  const DType dtype = c.option<DType>("dtype");
  const Var x[] = {c.wrap(cast(c.context(), c.input(0), dtype))};
  std::vector<Var> out = c.apply_op(x);
  for (Var& v : out)
    if (v.dtype() != dtype) v = c.wrap(cast(c.context(), v.value(), dtype));
  return out;
}

std::vector<Var> expand_float_dtype(Expansion& c) {
  if (!is_float(c.option<DType>("dtype"))) c.bad_option("dtype", "a floating dtype");
  return expand_dtype(c);
}

AttrDef dtype_option() {
  return {"dtype", AttrKind::kDType, {}, "x is converted to it first, and the result has it", true};
}

}  // namespace pg
