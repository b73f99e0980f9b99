// Reads the value of an attribute of an op from a Lua value.
#include <cmath>

#include "tensor/attr_check.h"
#include "tensor/error.h"
#include "vm/args.h"

namespace pg::vm {
namespace {

int64_t to_integer(const OpDef& op, const AttrDef& def, double number, const char* expected) {
  if (number != std::floor(number) || std::fabs(number) > 0x1p62)
    bad_argument(op.name, def.name, expected, fmt::format("number {:.14g}", number));
  return int64_t(number);
}

template <class List, class Convert>
List read_list(lua_State* L, State& state, const OpDef& op, const AttrDef& def, int i, const char* expected,
               Convert convert) {
  List out;
  if (lua_type(L, i) == LUA_TNUMBER) {
    out.push_back(convert(lua_tonumber(L, i)));
    return out;
  }
  if (!lua_istable(L, i)) bad_argument(op.name, def.name, expected, describe(L, state, i));
  const int n = int(lua_objlen(L, i));
  int counted = 0;
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    ++counted;
  }
  if (counted != n) bad_argument(op.name, def.name, expected, "a table with holes or other keys");
  for (int k = 1; k <= n; ++k) {
    lua_rawgeti(L, i, k);
    if (lua_type(L, -1) != LUA_TNUMBER)
      bad_argument(op.name, def.name, expected, fmt::format("{} at place {}", describe(L, state, -1), k));
    out.push_back(convert(lua_tonumber(L, -1)));
    lua_pop(L, 1);
  }
  return out;
}

// Reads a list of whole numbers given as a 1-dim tensor of integers.
Ints read_tensor_ints(const OpDef& op, const AttrDef& def, State& state, const Value& v) {
  if (v.rank() != 1 || !is_integer(v.dtype()))
    bad_argument(op.name, def.name, "a 1-dim tensor of integers", to_string(v.type()));
  const Value host = to_contiguous(state.ctx, to_device(state.ctx, v.detached(), Device{}));
  Ints out(size_t(v.numel()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] =
        int64_t(load_number(v.dtype(), static_cast<const char*>(host.array().data()) + i * size_t(size_of(v.dtype()))));
  return out;
}

Ints read_padding_name(lua_State* L, State& state, const OpDef& op, const AttrDef& def, int i) {
  const std::string text = check_string(L, state, i, op.name, def.name);
  if (text != "same" && text != "valid")
    bad_argument(op.name, def.name, "whole numbers, \"same\" or \"valid\"", '"' + text + '"');
  return {text == "same" ? kSamePadding : 0};
}

AttrValue read_unchecked(lua_State* L, State& state, const OpDef& op, const AttrDef& def, int i) {
  switch (def.kind) {
    case AttrKind::kBool:
      if (!lua_isboolean(L, i)) bad_argument(op.name, def.name, "true or false", describe_argument(L, state, i));
      return bool(lua_toboolean(L, i));
    case AttrKind::kInt:
    case AttrKind::kDim:
      if (lua_type(L, i) != LUA_TNUMBER)
        bad_argument(op.name, def.name, "a whole number", describe_argument(L, state, i));
      return to_integer(op, def, lua_tonumber(L, i),
                        def.kind == AttrKind::kDim ? "a dim, a whole number" : "a whole number");
    case AttrKind::kFloat:
      if (op.fill && lua_isboolean(L, i)) return double(lua_toboolean(L, i));
      if (lua_type(L, i) != LUA_TNUMBER) bad_argument(op.name, def.name, "a number", describe_argument(L, state, i));
      return double(lua_tonumber(L, i));
    case AttrKind::kString:
      return check_string(L, state, i, op.name, def.name);
    case AttrKind::kDType:
      return check_dtype(L, state, i, op.name, def.name);
    case AttrKind::kDevice:
      return check_device(L, state, i, op.name, def.name);
    case AttrKind::kInts:
      if (lua_isuserdata(L, i) && def.from_tensor)
        if (to_box(L, state, i)) return read_tensor_ints(op, def, state, check_value(L, state, i, op.name, def.name));
      [[fallthrough]];
    case AttrKind::kDims:
      return read_list<Ints>(L, state, op, def, i, "a list of whole numbers",
                             [&](double v) { return to_integer(op, def, v, "a list of whole numbers"); });
    case AttrKind::kFloats:
      return read_list<Floats>(L, state, op, def, i, "a list of numbers", [](double v) { return v; });
    case AttrKind::kRandom: {
      Generator* g = to_generator(L, state, i);
      if (!g) bad_argument(op.name, "generator", "a Generator", describe_argument(L, state, i));
      return Ref<Generator>(g);
    }
    case AttrKind::kGraph:
      break;
  }
  return {};
}

}  // namespace

AttrValue read_attr(lua_State* L, State& state, const OpDef& op, const AttrDef& def, int i) {
  if (lua_isnil(L, i)) return def.fallback;
  if (lua_type(L, i) == LUA_TSTRING && def.padding_names) return read_padding_name(L, state, op, def, i);
  AttrValue value = read_unchecked(L, state, op, def, i);
  check_attr(op, def, value);
  return value;
}

}  // namespace pg::vm
