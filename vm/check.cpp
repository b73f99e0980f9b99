// Checks of single values on the Lua stack. They throw the error of an argument.
#include <cmath>

#include "tensor/attr_check.h"
#include "tensor/error.h"
#include "vm/args.h"
#include "vm/hints.h"

namespace pg::vm {

int64_t check_integer(lua_State* L, State& state, int i, const char* op, const char* name, const char* expected) {
  if (lua_type(L, i) != LUA_TNUMBER) bad_argument(op, name, expected, describe(L, state, i));
  const double v = lua_tonumber(L, i);
  if (v != std::floor(v) || std::fabs(v) > 0x1p62) bad_argument(op, name, expected, describe(L, state, i));
  return int64_t(v);
}

std::string check_string(lua_State* L, State& state, int i, const char* op, const char* name, const char* expected) {
  if (lua_type(L, i) != LUA_TSTRING) bad_argument(op, name, expected, describe(L, state, i));
  size_t size;
  const char* text = lua_tolstring(L, i, &size);
  return std::string(text, size);
}

DType check_dtype(lua_State* L, State& state, int i, const char* op, const char* name) {
  const std::string text = check_string(L, state, i, op, name, "the name of a dtype");
  if (const auto t = dtype_from_name(text)) return *t;
  std::vector<std::string_view> names;
  for (int k = 0; k < kDTypeCount; ++k) names.push_back(name_of(DType(k)));
  const std::string near = suggest(text, names), hint = hint_of(L, "dtype", text);
  bad_argument(op, name, "the name of a dtype" + (near.empty() || !hint.empty() ? "" : " such as \"" + near + '"'),
               describe(L, state, i) + (hint.empty() ? "" : "; " + hint));
}

Device check_device(lua_State* L, State& state, int i, const char* op, const char* name) {
  const std::string text = check_string(L, state, i, op, name, "the name of a device");
  try {
    return device_from_name(text);
  } catch (const Error& e) {
    static constexpr std::string_view kOwn = "device: bad argument 'name' ";
    const std::string why = e.what();
    if (why.starts_with(kOwn) && hint_of(L, "device", text).empty())
      throw Error(fmt::format("{}: bad argument '{}' {}", public_name(op), name, why.substr(kOwn.size())));
    const std::string hint = hint_of(L, "device", text);
    bad_argument(op, name, "the name of a device that is present",
                 fmt::format("{}: {}", describe(L, state, i), hint.empty() ? why : hint));
  }
}

bool option(lua_State* L, int table, const char* name) {
  lua_pushstring(L, name);
  lua_rawget(L, table);
  if (!lua_isnil(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

void check_options(lua_State* L, State& state, int i, const char* op, std::initializer_list<std::string_view> known) {
  if (lua_isnoneornil(L, i)) return;
  if (!lua_istable(L, i)) bad_argument(op, "options", "a table of options", describe(L, state, i));
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    const std::string key = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : describe(L, state, -1);
    bool found = false;
    for (std::string_view k : known) found |= k == key;
    if (!found) unknown_option(L, op, key, {known.begin(), known.size()}, i);
  }
}

Generator* to_generator(lua_State* L, State& state, int i) {
  void* data = lua_touserdata(L, i);
  if (!data || !lua_getmetatable(L, i)) return nullptr;
  const bool same = lua_topointer(L, -1) == state.generator_metatable;
  lua_pop(L, 1);
  return same && lua_objlen(L, i) == sizeof(Ref<Generator>) ? static_cast<Ref<Generator>*>(data)->get() : nullptr;
}

}  // namespace pg::vm
