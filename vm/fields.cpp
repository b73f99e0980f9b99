// Fields of option tables.
#include "vm/args.h"

namespace pg::vm {

std::string text_field(lua_State* L, int table, const char* name) {
  lua_getfield(L, table, name);
  size_t size = 0;
  const char* text = lua_tolstring(L, -1, &size);
  std::string out = text ? std::string(text, size) : "";
  lua_pop(L, 1);
  return out;
}

double number_field(lua_State* L, int table, const char* name, double fallback) {
  lua_getfield(L, table, name);
  const double out = lua_isnumber(L, -1) ? lua_tonumber(L, -1) : fallback;
  lua_pop(L, 1);
  return out;
}

bool flag_field(lua_State* L, int table, const char* name, bool fallback) {
  lua_getfield(L, table, name);
  const bool out = lua_isnil(L, -1) ? fallback : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return out;
}

bool flag_option(lua_State* L, int table, const char* name) {
  if (!lua_istable(L, table) || !option(L, table, name)) return false;
  const bool v = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return v;
}

}  // namespace pg::vm
