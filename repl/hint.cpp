#include "repl/hint.h"

#include <cstring>
#include <set>

#include "vm/box.h"
#include "vm/hints.h"
#include "vm/state.h"

namespace pg::repl {
namespace {

constexpr int kMaxClasses = 16;  // the most classes searched, from an object's class upwards
constexpr int kMaxEntries = 8;   // the most entries of a table in which tensors are searched
constexpr int kMaxLevels = 8;    // the most functions on the stack whose variables are searched

using Names = std::set<std::string>;

void add_functions(lua_State* L, int table, Names& names) {
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING && lua_isfunction(L, -1)) names.insert(lua_tostring(L, -2));
}

// Adds the field _kind of the class on top of the stack, if there is one: its table in stdlib/support/hints.lua.
void add_kind(lua_State* L, Names& names) {
  lua_pushliteral(L, "_kind");
  lua_rawget(L, -2);
  if (lua_type(L, -1) == LUA_TSTRING) names.insert(lua_tostring(L, -1));
  lua_pop(L, 1);
}

// Adds the methods of the value on top of the stack, which it pops: the functions in the value and in its classes. The
// classes are the tables of the __index chain; where __index is a function, the metatable is the class.
void add_methods(lua_State* L, Names& names) {
  const int base = lua_gettop(L);
  if (lua_istable(L, -1)) add_functions(L, base, names);
  for (int depth = 0; depth < kMaxClasses && lua_istable(L, -1) && lua_getmetatable(L, -1); ++depth) {
    lua_pushliteral(L, "__index");
    lua_rawget(L, -2);
    if (lua_isfunction(L, -1)) lua_pop(L, 1);
    if (!lua_istable(L, -1)) break;
    add_functions(L, lua_gettop(L), names);
    add_kind(L, names);
  }
  lua_settop(L, base - 1);
}

bool has_raw(lua_State* L, int table, const char* key) {
  lua_pushvalue(L, table);
  lua_pushstring(L, key);
  lua_rawget(L, -2);
  const bool found = !lua_isnil(L, -1);
  lua_pop(L, 2);
  return found;
}

bool holds_tensor(lua_State* L, int table) {
  vm::State& state = vm::find_state(L);
  int left = kMaxEntries;
  for (lua_pushnil(L); lua_next(L, table); lua_pop(L, 1)) {
    const bool tensor = vm::to_box(L, state, lua_gettop(L)) != nullptr;
    if (tensor || --left == 0) return lua_pop(L, 2), tensor;
  }
  return false;
}

// Adds what the value on top of the stack, which it pops, is besides its methods: one of the kinds below.
void add_nature(lua_State* L, Names& names) {
  const int value = lua_gettop(L);
  if (lua_istable(L, value)) {
    const bool object = lua_getmetatable(L, value);
    if (!object && holds_tensor(L, value)) names.insert("a list of tensors");
    if (object && has_raw(L, value + 1, "_is_class") && !has_raw(L, value, "_is_class")) names.insert("a block object");
  }
  lua_settop(L, value - 1);
}

bool is_library_loaded(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  const bool loaded = lua_istable(L, -1) && has_raw(L, lua_gettop(L), "perigee");
  lua_pop(L, 1);
  return loaded;
}

// Adds the natures of the variables of a function.
void add_natures(lua_State* L, lua_Debug& frame, int function, Names& names) {
  if (!is_library_loaded(L)) return;
  for (int i = 1; lua_getlocal(L, &frame, i); ++i) add_nature(L, names);  // with those that an expression made
  for (int i = 1; lua_getupvalue(L, function, i); ++i) add_nature(L, names);
  lua_getfenv(L, function);
  if (lua_istable(L, -1)) {
    const int globals = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, globals);) add_nature(L, names);
  }
  lua_settop(L, function);
}

void add_globals(lua_State* L, int function, Names& names) {
  lua_getfenv(L, function);
  if (!lua_istable(L, -1)) return lua_pop(L, 1);
  const int globals = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, globals);) {
    const bool object = lua_istable(L, -1) && luaL_getmetafield(L, -1, "__index");
    if (object)
      lua_pop(L, 1), add_methods(L, names);
    else
      lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

// Returns the methods of all tables among the locals, upvalues and globals of the innermost functions.
Names methods_in_sight(lua_State* L) {
  Names names;
  bool innermost = true;
  lua_Debug frame;
  for (int level = 1; level <= kMaxLevels && lua_getstack(L, level, &frame); ++level) {
    if (!lua_getinfo(L, "fS", &frame)) break;
    const int function = lua_gettop(L);
    if (*frame.what != 'C' && std::strncmp(frame.source, "@stdlib/", 8)) {
      for (int i = 1; lua_getlocal(L, &frame, i); ++i) add_methods(L, names);
      for (int i = 1; lua_getupvalue(L, function, i); ++i) add_methods(L, names);
      add_globals(L, function, names);
      if (innermost) add_natures(L, frame, function, names);
      innermost = false;
    }
    lua_settop(L, function - 1);
  }
  return names;
}

// Loads the library, which has the hints. A script may fail before it has done so.
void load_library(lua_State* L) {
  lua_getglobal(L, "require");
  lua_pushliteral(L, "perigee");
  lua_pcall(L, 1, 0, 0);
}

}  // namespace

std::string method_hint(lua_State* L, const char* message) {
  bool known = false;  // the messages that may have a hint; others may come from a lack of memory
  for (const char* part : {"attempt to ", "bad argument #", "invalid value ("}) known |= !!std::strstr(message, part);
  if (!known) return "";
  if (!lua_checkstack(L, 3 * kMaxClasses)) return "";
  const bool of_object =
      std::strstr(message, "attempt to call ") || std::strstr(message, "attempt to perform arithmetic");
  const int top = lua_gettop(L);
  if (std::strstr(message, "attempt to index global")) load_library(L);
  lua_settop(L, top);
  return vm::explain_lua_error(L, message, of_object ? methods_in_sight(L) : Names());
}

std::string syntax_hint(lua_State* L, const char* message) {
  const int top = lua_gettop(L);
  load_library(L);
  lua_settop(L, top);
  return vm::explain_lua_error(L, message, {});
}

}  // namespace pg::repl
