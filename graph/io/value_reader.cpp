#include "graph/io/value_reader.h"

#include "tensor/attr_check.h"

namespace pg {

void ValueReader::require(size_t at, const char* field) {
  if (at == kAbsent) fail(fmt::format("no field '{}'", field));
  seek(at);
}

DType ValueReader::read_dtype() {
  const size_t at = place();
  const std::string text = string(100);
  const auto dtype = dtype_from_name(text);
  if (!dtype) fail_at(at, fmt::format("unknown dtype '{}'", text));
  return *dtype;
}

Device ValueReader::read_device() {
  const size_t at = place();
  const std::string text = string(100);
  try {
    return device_from_name(text);
  } catch (const Error& error) {
    fail_at(at, fmt::format("device '{}': {}", text, error.what()));
  }
}

Type ValueReader::read_type() {
  const size_t at = place();
  Type type;
  size_t parts = 0;
  array([&](size_t k) {
    parts = k + 1;
    if (k == 0) {
      type.dtype = read_dtype();
    } else if (k == 1) {
      array([&](size_t d) {
        if (d == size_t(kMaxRank)) fail(fmt::format("more than {} dims", kMaxRank));
        type.shape.push_back(integer(0, kMaxDim));
      });
    } else if (k == 2) {
      type.device = read_device();
    } else {
      fail("expected a dtype, dims and a device");
    }
  });
  if (parts < 2) fail_at(at, "expected a dtype and dims");
  try {
    checked_numel("graph", type.shape);
  } catch (const Error&) {
    fail_at(at, fmt::format("the shape {} has too many elements", to_string(type.shape)));
  }
  return type;
}

Attrs ValueReader::read_attrs(const OpDef& op, int64_t version, size_t at, size_t op_at) {
  if (version < op.version) return read_old_attrs(op, version, at, op_at);
  Attrs attrs = make_attrs(op);
  if (at == kAbsent) return attrs;
  seek(at);
  std::vector<char> seen(op.attrs.size());
  object([&](const std::string& key, size_t key_at) {
    const int k = op.attr_index(key.c_str());
    if (k < 0 || key != op.attrs[size_t(k)].name)
      fail_at(key_at, fmt::format("unknown attribute '{}'", key.substr(0, 60)));
    if (seen[size_t(k)]++) fail_at(key_at, fmt::format("duplicate key '{}'", key));
    attrs[size_t(k)] = read_attr(op.attrs[size_t(k)]);
  });
  return attrs;
}

// The row describes only the newest version, so the values are read as what they look like, and get the types of the
// row after the upgrade.
Attrs ValueReader::read_old_attrs(const OpDef& op, int64_t version, size_t at, size_t op_at) {
  NamedAttrs named;
  if (at != kAbsent)
    seek(at), object([&](const std::string& key, size_t key_at) {
      const auto [entry, is_new] = named.try_emplace(key);
      if (!is_new) fail_at(key_at, fmt::format("duplicate key '{}'", key));
      entry->second = read_any();
    });
  const std::string from = fmt::format("upgraded from version {} of the op: ", version);
  try {
    for (int64_t v = version; v < op.version; ++v) op.upgrade(int(v), named);
  } catch (const Error& error) {
    fail_at(op_at, from + error.what());
  }
  Attrs attrs = make_attrs(op);
  for (auto& [name, value] : named) {
    const int k = op.attr_index(name.c_str());
    if (k < 0 || name != op.attrs[size_t(k)].name)
      fail_at(op_at, from + fmt::format("unknown attribute '{}'", name.substr(0, 60)));
    attrs[size_t(k)] = fitted(op.attrs[size_t(k)], std::move(value), op_at);
  }
  return attrs;
}

AttrValue ValueReader::read_attr(const AttrDef& def) {
  if (kind() == Kind::kNull) return null(), AttrValue();
  switch (def.kind) {
    case AttrKind::kBool:
      return boolean();
    case AttrKind::kInt:
    case AttrKind::kDim:
      return read_int();
    case AttrKind::kFloat:
      return number();
    case AttrKind::kString:
      return string();
    case AttrKind::kDType:
      return read_dtype();
    case AttrKind::kDevice:
      return read_device();
    case AttrKind::kInts:
    case AttrKind::kDims: {
      Ints list;
      array([&](size_t) { list.push_back(read_int()); });
      return list;
    }
    case AttrKind::kFloats: {
      Floats list;
      array([&](size_t) { list.push_back(number()); });
      return list;
    }
    case AttrKind::kRandom:
      return read_key();
    case AttrKind::kGraph:
      return read_body();
  }
  fail("unknown kind of attribute");
}

AttrValue ValueReader::read_any() {
  switch (kind()) {
    case Kind::kNull:
      return null(), AttrValue();
    case Kind::kBoolean:
      return boolean();
    case Kind::kNumber:
      return is_whole() ? AttrValue(read_int()) : AttrValue(number());
    case Kind::kString:
      return string();
    case Kind::kObject:
      return read_key();
    case Kind::kArray:
      break;
  }
  Ints whole;
  Floats all;
  array([&](size_t) {
    const size_t at = place();
    const bool is_int = is_whole();
    all.push_back(number());
    if (is_int) seek(at), whole.push_back(read_int());
  });
  return whole.size() == all.size() ? AttrValue(std::move(whole)) : AttrValue(std::move(all));
}

// Turns a value that read_any or an upgrade made into one of the kind, where that is not what it looks like. verify
// checks the result.
AttrValue ValueReader::fitted(const AttrDef& def, AttrValue value, size_t at) {
  if (const auto* graph = std::get_if<int64_t>(&value); graph && def.kind == AttrKind::kGraph)
    return take_body(*graph, at);
  if (const auto* text = std::get_if<std::string>(&value); text && def.kind == AttrKind::kFloat)
    if (const auto number = special_number(*text)) return *number;
  return as_kind(def, std::move(value));
}

RandomKey ValueReader::read_key() {
  const auto at = fields({"generator", "tick"});
  const size_t behind = place();
  RandomKey key;
  require(at[0], "generator");
  key.seed = uint64_t(integer(0, kMaxIndex));
  require(at[1], "tick");
  key.tick = uint64_t(integer(0, kMaxDim));
  seek(behind);
  return key;
}

std::shared_ptr<const Graph> ValueReader::read_body() {
  const size_t at = place();
  return take_body(integer(0, kMaxIndex), at);
}

}  // namespace pg
