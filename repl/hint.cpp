#include "repl/hint.h"

#include <cstring>
#include <set>
#include <string_view>
#include <vector>

#include "tensor/op.h"

namespace pg::repl {
namespace {

constexpr int kMaxClasses = 16;  // the most classes searched, from an object's class upwards

// Returns NAME of "attempt to call method 'NAME' (a nil value)", or "".
std::string missing_method(const char* message) {
  static constexpr char kStart[] = "attempt to call method '", kEnd[] = "' (a nil value)";
  const char* start = std::strstr(message, kStart);
  if (!start) return "";
  start += sizeof kStart - 1;
  const char* end = std::strchr(start, '\'');
  return end && !std::strcmp(end, kEnd) ? std::string(start, end) : "";
}

using Names = std::set<std::string>;

void add_functions(lua_State* L, int table, Names& names) {
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING && lua_isfunction(L, -1)) names.insert(lua_tostring(L, -2));
}

// Adds the methods of the value on top of the stack, which it pops: the functions in the value and in the tables of its
// __index chain.
void add_methods(lua_State* L, Names& names) {
  const int base = lua_gettop(L);
  if (lua_istable(L, -1)) add_functions(L, base, names);
  for (int depth = 0; depth < kMaxClasses && lua_istable(L, -1) && lua_getmetatable(L, -1); ++depth) {
    lua_pushliteral(L, "__index");
    lua_rawget(L, -2);
    if (!lua_istable(L, -1)) break;
    add_functions(L, lua_gettop(L), names);
  }
  lua_settop(L, base - 1);
}

// Returns the methods of all tables among the locals, upvalues and globals of the function at level 1.
Names methods_in_sight(lua_State* L) {
  Names names;
  lua_Debug frame;
  if (!lua_getstack(L, 1, &frame) || !lua_getinfo(L, "f", &frame)) return names;
  const int function = lua_gettop(L);
  for (int i = 1; lua_getlocal(L, &frame, i); ++i) add_methods(L, names);
  for (int i = 1; lua_getupvalue(L, function, i); ++i) add_methods(L, names);
  lua_getfenv(L, function);
  if (lua_istable(L, -1)) {
    const int globals = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, globals);) {
      const bool object = lua_istable(L, -1) && luaL_getmetafield(L, -1, "__index");
      if (object)
        lua_pop(L, 1), add_methods(L, names);
      else
        lua_pop(L, 1);
    }
  }
  lua_settop(L, function - 1);
  return names;
}

}  // namespace

std::string method_hint(lua_State* L, const char* message) {
  const std::string name = missing_method(message);
  if (name.empty() || !lua_checkstack(L, 3 * kMaxClasses)) return "";
  const Names names = methods_in_sight(L);
  const std::vector<std::string_view> known(names.begin(), names.end());
  const std::string near = suggest(name, known);
  return near.empty() ? "" : " (did you mean '" + near + "'?)";
}

}  // namespace pg::repl
