// Type inference: input checks that all ops share, the rule of pointwise ops, and error texts.
#include <algorithm>
#include <cmath>

#include "tensor/attr_check.h"
#include "tensor/context.h"

namespace pg {
namespace {

std::string describe(const Value& v) {
  if (!v.defined()) return "nil";
  return v.is_number() ? fmt::format("number {}", v.number()) : to_string(v.type());
}

std::string dtype_list(uint16_t mask) {
  if (mask == kFloating) return "a floating dtype";
  if (mask == kIntegral) return "an integer dtype";
  if (mask == kNumeric) return "a numeric dtype";
  if (mask == kIndex) return "int32 or int64";
  std::string text;
  for (int i = 0; i < kDTypeCount; ++i)
    if (mask >> i & 1) text += (text.empty() ? "" : " or ") + std::string(name_of(DType(i)));
  return text;
}

// An input that must be bool (a condition) takes no part in promotion.
bool promotes(const InputDef& def) { return def.dtypes != kBoolOnly; }

const InputDef& definition(const OpDef& op, std::span<const Value> inputs, size_t i) {
  return inputs.size() == op.inputs.size() && op.inputs.back().arity != Arity::kList
             ? op.inputs[i]
             : op.inputs[size_t(input_definition(op, inputs.size(), i))];
}

// How to convert a tensor to one of these dtypes.
std::string conversion(uint16_t dtypes) {
  for (DType wanted : {DType::kFloat32, DType::kInt64, DType::kBool})
    if (accepts(dtypes, wanted)) return fmt::format("; x:to(\"{}\") converts", name_of(wanted));
  return "";
}

// Whether the op takes the dtype to which a number among the inputs promotes bool.
bool is_promoted(const OpDef& op, const InputDef& def, std::span<const Value> inputs) {
  for (const Value& v : inputs)
    if (v.defined() && v.is_number())
      if (const auto dtype = promote_number(DType::kBool, v.number()))
        return op.has(kPointwise) && accepts(def.dtypes, *dtype);
  return false;
}

void check_inputs(const OpDef& op, std::span<const Value> inputs) {
  const Value* first = nullptr;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& v = inputs[i];
    const InputDef& def = definition(op, inputs, i);
    if (!v.defined()) {
      if (def.arity != Arity::kOptional) bad_argument(op.name, def.name, "a tensor", "nil");
      continue;
    }
    if (v.is_number()) {
      const bool fits = op.has(kPointwise) || (op.has(kWeakNumber) && i + 1 == inputs.size());
      if (!fits) bad_argument(op.name, def.name, "a tensor", describe(v));
      continue;
    }
    if (!accepts(def.dtypes, v.dtype()) && !(v.dtype() == DType::kBool && is_promoted(op, def, inputs)))
      bad_argument(op.name, def.name, "a tensor of " + dtype_list(def.dtypes), describe(v) + conversion(def.dtypes));
    if (first && !(first->device() == v.device()) && !op.has(kBodies))
      bad_argument(op.name, def.name, "a tensor on " + name_of(first->device()) + " like the others",
                   fmt::format("{}; {}:to(\"{}\") moves it", describe(v), def.name, name_of(first->device())));
    if (!first) first = &v;
  }
}

DType apply_number(const OpDef& op, const InputDef& def, DType dtype, double number) {
  if (const auto promoted = promote_number(dtype, number)) return *promoted;
  bad_argument(op.name, def.name, fmt::format("a number that {} can hold", name_of(dtype)), fmt::format("{}", number));
}

void check_whole(const OpDef& op, const AttrDef& def, int64_t number) {
  const double low = std::max(def.min, -double(kMaxElements)), high = std::min(def.max, double(kMaxElements));
  if (double(number) >= low && double(number) <= high) return;
  std::string range = "a whole number";
  if (std::abs(double(number)) > double(kMaxElements))
    range += " of at most 2^56";
  else if (def.max > 1e299)
    range += fmt::format(" of at least {:.0f}", def.min);
  else
    range += fmt::format(" from {:.0f} to {:.0f}", def.min, def.max);
  bad_argument(op.name, def.name, range, std::to_string(number));
}

// Without bounds infinities and NaN are accepted; with bounds NaN is always outside.
void check_number(const OpDef& op, const AttrDef& def, double v) {
  if ((def.min <= -1e300 || v >= def.min) && (def.max >= 1e300 || v <= def.max)) return;
  bad_argument(op.name, def.name, fmt::format("a number from {:g} to {:g}", def.min, def.max), fmt::format("{:g}", v));
}

void check_choice(const OpDef& op, const AttrDef& def, const std::string& text) {
  std::string all;
  for (const char* c : def.choices) {
    if (text == c) return;
    all += (all.empty() ? "\"" : ", \"") + std::string(c) + '"';
  }
  if (!def.choices.empty()) bad_argument(op.name, def.name, "one of " + all, to_string(AttrValue(text)));
}

void infer_pointwise(const OpDef& op, std::span<const Value> inputs, SmallVector<Type, 2>& out) {
  Type& type = out.emplace_back();
  type.dtype = pointwise_compute_dtype(op, inputs);
  if (op.result == Result::kBool) type.dtype = DType::kBool;
  bool first = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_array()) continue;
    type.device = inputs[i].device();
    if (first) {
      type.shape = inputs[i].shape();
      first = false;
      continue;
    }
    if (type.shape == inputs[i].shape()) continue;
    Dims joined;
    if (!broadcast(type.shape, inputs[i].shape(), &joined))
      bad_argument(op.name, definition(op, inputs, i).name, "a shape that broadcasts with " + to_string(type.shape),
                   to_string(inputs[i].shape()));
    checked_numel(op.name, joined);
    type.shape = joined;
  }
}

}  // namespace

void check_attr(const OpDef& op, const AttrDef& def, const AttrValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value))
    check_whole(op, def, *whole);
  else if (const auto* list = std::get_if<Ints>(&value))
    std::for_each(list->begin(), list->end(), [&](int64_t v) { check_whole(op, def, v); });
  else if (const auto* number = std::get_if<double>(&value))
    check_number(op, def, *number);
  else if (const auto* text = std::get_if<std::string>(&value))
    check_choice(op, def, *text);
}

DType pointwise_compute_dtype(const OpDef& op, std::span<const Value> inputs) {
  bool any = false;
  DType dtype = DType::kBool;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_array() || !promotes(definition(op, inputs, i))) continue;
    dtype = any ? promote(dtype, inputs[i].dtype()) : inputs[i].dtype();
    any = true;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].is_number()) continue;
    const InputDef& def = definition(op, inputs, i);
    if (any)
      dtype = apply_number(op, def, dtype, inputs[i].number());
    else
      dtype = DType::kFloat32, any = true;
    if (op.result == Result::kInteger && !accepts(def.dtypes, dtype))
      bad_argument(op.name, def.name, "a whole number", describe(inputs[i]));
  }
  return op.result == Result::kFloat ? float_result(dtype) : dtype;
}

void Infer::bad_input(size_t i, const std::string& expected) const {
  bad_argument(op().name, definition(op(), inputs_, i).name, expected, describe(inputs_[i]));
}

void Infer::bad_attr(const char* name, const std::string& expected) const {
  bad_argument(op().name, name, expected, to_string(raw(name)));
}

void Infer::require_rank(size_t i, int rank) const {
  if (this->rank(i) != rank) bad_input(i, fmt::format("{} dims", rank));
}

void Infer::require_holds(DType dtype, const char* name) const {
  if (!is_float(dtype) && !holds(dtype, attr<double>(name)))
    bad_attr(name, fmt::format("a number that {} can hold", name_of(dtype)));
}

void Infer::output(DType dtype, Dims shape) {
  Type type{dtype, {}, shape};
  for (const Value& v : inputs_)
    if (v.is_array()) {
      type.device = v.device();
      break;
    }
  outputs.push_back(type);
}

void infer_types(const OpDef& op, std::span<const Value> inputs, const Attrs& attrs, SmallVector<Type, 2>& out) {
  check_inputs(op, inputs);
  if (!op.infer) return infer_pointwise(op, inputs, out);
  Infer c(op, attrs, inputs);
  op.infer(c);
  out = std::move(c.outputs);
  for (const Type& type : out)
    if (!op.has(kDynamicShape)) checked_numel(op.name, type.shape);
}

}  // namespace pg
