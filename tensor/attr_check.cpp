#include "tensor/attr_check.h"

namespace pg {
namespace {

AttrValue device_named(const std::string& name) {
  try {
    return device_from_name(name);
  } catch (const Error&) {
    return name;
  }
}

}  // namespace

bool has_kind(const AttrDef& def, const AttrValue& value) {
  switch (def.kind) {
    case AttrKind::kBool:
      return std::holds_alternative<bool>(value);
    case AttrKind::kInt:
    case AttrKind::kDim:
      return std::holds_alternative<int64_t>(value);
    case AttrKind::kFloat:
      return std::holds_alternative<double>(value);
    case AttrKind::kString:
      return std::holds_alternative<std::string>(value);
    case AttrKind::kDType:
      return std::holds_alternative<DType>(value);
    case AttrKind::kDevice:
      return std::holds_alternative<Device>(value);
    case AttrKind::kInts:
    case AttrKind::kDims:
      return std::holds_alternative<Ints>(value);
    case AttrKind::kFloats:
      return std::holds_alternative<Floats>(value);
    case AttrKind::kRandom:
      return std::holds_alternative<RandomKey>(value);
    case AttrKind::kGraph:
      return std::holds_alternative<std::shared_ptr<const Graph>>(value);
  }
  return false;
}

AttrValue as_kind(const AttrDef& def, AttrValue value) {
  if (const auto* whole = std::get_if<int64_t>(&value); whole && def.kind == AttrKind::kFloat) return double(*whole);
  if (const auto* list = std::get_if<Ints>(&value); list && def.kind == AttrKind::kFloats)
    return Floats(list->begin(), list->end());
  const auto* name = std::get_if<std::string>(&value);
  if (name && def.kind == AttrKind::kDevice) return device_named(*name);
  if (name && def.kind == AttrKind::kDType)
    if (const auto dtype = dtype_from_name(*name)) return *dtype;
  return value;
}

namespace {

// Returns the only name that starts or ends with `key`, a word of at least 4 letters, such as num_layers for layers.
std::string only_longer(std::string_view key, std::span<const std::string_view> known) {
  std::string found;
  if (key.size() < 4) return found;
  for (std::string_view k : known) {
    if (!k.starts_with(key) && !k.ends_with(key)) continue;
    if (!found.empty()) return "";
    found = k;
  }
  return found;
}

}  // namespace

void unknown_option(const char* op, const std::string& key, std::span<const std::string_view> known, std::string hint) {
  std::string list;
  for (std::string_view k : known) list += (list.empty() ? "" : ", ") + std::string(k);
  if (hint.empty()) {
    std::string near = suggest(key, known);
    if (near.empty()) near = only_longer(key, known);
    if (!near.empty()) hint = "did you mean '" + near + "'?";
  }
  bad_argument(op, key.c_str(), known.empty() ? "no options" : "one of the options " + list,
               "an unknown option" + (hint.empty() ? "" : "; " + hint));
}

}  // namespace pg
