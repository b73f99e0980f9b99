// Upvalues, prototypes and constants of Lua functions, for the guards of hybridized code. The host may lack the
// libraries `debug` and `jit`, so these functions use the C API and the bytecode of lua_dump.
#include <algorithm>
#include <unordered_set>

#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/bytecode.h"

namespace pg::vm {
namespace {

void check_function(lua_State* L, State& state, int i, const char* op) {
  if (!lua_isfunction(L, i)) bad_argument(op, "f", "a function", describe(L, state, i));
}

int check_place(lua_State* L, State& state, int i, const char* op) {
  return int(std::clamp<int64_t>(check_integer(L, state, i, op, "index"), 0, 1 << 10));
}

// kind(f) → "C", "library" (a Lua function of the stdlib) or "script"
int kind_of(lua_State* L, State& state) {
  check_function(L, state, 1, "kind");
  if (lua_iscfunction(L, 1)) return lua_pushliteral(L, "C"), 1;
  lua_Debug info;
  lua_pushvalue(L, 1);
  lua_getinfo(L, ">S", &info);
  lua_pushstring(L, is_library_source(info.source) ? "library" : "script");
  return 1;
}

// called_from_library(level) → whether the function at that level of the stack (1: the caller of the caller) belongs to
// the stdlib.
int called_from_library(lua_State* L, State& state) {
  lua_Debug frame;
  const int level = int(std::clamp<int64_t>(check_integer(L, state, 1, "called_from_library", "level"), 0, 100)) + 1;
  const bool found = lua_getstack(L, level, &frame) && lua_getinfo(L, "S", &frame);
  lua_pushboolean(L, found && is_library_source(frame.source));
  return 1;
}

// where(f) → "file:line" of its definition
int where(lua_State* L, State& state) {
  check_function(L, state, 1, "where");
  lua_Debug info;
  lua_pushvalue(L, 1);
  lua_getinfo(L, ">S", &info);
  lua_pushstring(L, fmt::format("{}:{}", info.short_src, info.linedefined).c_str());
  return 1;
}

// upvalue(f, i) → name, value; nothing after the last upvalue
int upvalue(lua_State* L, State& state) {
  check_function(L, state, 1, "upvalue");
  const char* name = lua_getupvalue(L, 1, check_place(L, state, 2, "upvalue"));
  if (!name) return 0;
  lua_pushstring(L, name);
  lua_insert(L, -2);
  return 2;
}

int set_upvalue(lua_State* L, State& state) {
  check_function(L, state, 1, "set_upvalue");
  lua_settop(L, 3);
  lua_setupvalue(L, 1, check_place(L, state, 2, "set_upvalue"));
  return 0;
}

int count_upvalues(lua_State* L, State& state, int i) {
  check_function(L, state, i, "upvalue");
  lua_Debug info;
  lua_pushvalue(L, i);
  lua_getinfo(L, ">u", &info);
  return info.nups;
}

// cell(f, i) → the identity of the variable, unique while f lives
int cell(lua_State* L, State& state) {
  const int i = check_place(L, state, 2, "cell");
  if (i < 1 || i > count_upvalues(L, state, 1) || lua_iscfunction(L, 1)) return 0;
  lua_pushlightuserdata(L, lua_upvalueid(L, 1, i));
  return 1;
}

// join(f, i, g, j) makes upvalue i of f refer to upvalue j of g. Call it before f first runs: compiled code keeps the
// old variable.
int join(lua_State* L, State& state) {
  const int i = check_place(L, state, 2, "join"), j = check_place(L, state, 4, "join");
  if (i < 1 || i > count_upvalues(L, state, 1) || j < 1 || j > count_upvalues(L, state, 3) || lua_iscfunction(L, 1) ||
      lua_iscfunction(L, 3))
    fail("join", "no such upvalue");
  lua_upvaluejoin(L, 1, i, 3, j);
  return 0;
}

// environment(f) → its table of globals
int environment(lua_State* L, State& state) {
  check_function(L, state, 1, "environment");
  lua_getfenv(L, 1);
  return 1;
}

// raw_metatable(v) → the metatable, ignoring its __metatable field
int raw_metatable(lua_State* L, State&) {
  luaL_checkany(L, 1);
  return lua_getmetatable(L, 1);
}

int set_raw_metatable(lua_State* L, State& state) {
  if (!lua_istable(L, 1)) bad_argument("set_raw_metatable", "t", "a table", describe(L, state, 1));
  lua_settop(L, 2);
  lua_setmetatable(L, 1);
  return 0;
}

// prototype(f) → the identity of f's code, the same for all closures of one function expression while one of them
// lives. Returns nothing for C functions and if the layout of closures is unknown.
int prototype(lua_State* L, State& state) {
  check_function(L, state, 1, "prototype");
  const void* found = lua_iscfunction(L, 1) ? nullptr : prototype_of(L, 1);
  if (!found) return 0;
  lua_pushlightuserdata(L, const_cast<void*>(found));
  return 1;
}

// knows_bytecode() → whether functions of this LuaJIT can be interpreted
int bytecode_is_known(lua_State* L, State&) {
  lua_pushboolean(L, knows_bytecode(L));
  return 1;
}

// unknown_engine(on): for tests, behaves as with an unknown LuaJIT
int unknown_engine(lua_State* L, State&) {
  set_unknown_engine(lua_toboolean(L, 1));
  return 0;
}

// key_line(f, name) → "file:line" where f first uses that string constant as a key or name, or nil
int key_line(lua_State* L, State& state) {
  check_function(L, state, 1, "key_line");
  const std::string name = check_string(L, state, 2, "key_line", "name");
  if (lua_iscfunction(L, 1)) return 0;
  const int line = find_key_line(L, 1, name);
  if (line <= 0) return 0;
  lua_Debug info;
  lua_pushvalue(L, 1);
  lua_getinfo(L, ">S", &info);
  lua_pushstring(L, fmt::format("{}:{}", info.short_src, line).c_str());
  return 1;
}

// jit_off(f) turns off compilation of f. Does nothing without a compiler.
int jit_off(lua_State* L, State& state) {
  check_function(L, state, 1, "jit_off");
  if (!lua_iscfunction(L, 1)) luaJIT_setmode(L, 1, LUAJIT_MODE_FUNC | LUAJIT_MODE_OFF);
  return 0;
}

// interpreted() turns off compilation of the calling function and of all functions defined in it.
int interpreted(lua_State* L, State&) {
  luaJIT_setmode(L, 0, LUAJIT_MODE_ALLFUNC | LUAJIT_MODE_OFF);
  return 0;
}

// serial(x) → the serial number of the tensor's box, which increases with each new box. Returns nothing if x is no
// tensor.
int serial(lua_State* L, State& state) {
  Box* box = to_box(L, state, 1);
  if (!box) return 0;
  lua_pushnumber(L, double(box->serial));
  return 1;
}

// next_serial() → the serial number of the next box
int next_serial(lua_State* L, State& state) {
  lua_pushnumber(L, double(state.next_box));
  return 1;
}

// distinct(x, … or a list) → whether all tensors are different
int distinct(lua_State* L, State& state) {
  std::unordered_set<const void*> seen;
  bool all = true;
  const bool listed = lua_gettop(L) == 1 && lua_istable(L, 1);
  for (int i = 1, n = listed ? int(lua_objlen(L, 1)) : lua_gettop(L); i <= n && all; ++i) {
    if (listed) lua_rawgeti(L, 1, i);
    const Box* box = to_box(L, state, listed ? 2 : i);
    all = !box || seen.insert(box->cell ? static_cast<const void*>(box->cell.get()) : box).second;
    if (listed) lua_settop(L, 1);
  }
  lua_pushboolean(L, all);
  return 1;
}

}  // namespace

void open_introspect(lua_State* L, State& state) {
  lua_createtable(L, 0, 20);
  register_functions(L, state,
                     {{"kind", entry<kind_of>},
                      {"called_from_library", entry<called_from_library>},
                      {"where", entry<where>},
                      {"upvalue", entry<upvalue>},
                      {"set_upvalue", entry<set_upvalue>},
                      {"cell", entry<cell>},
                      {"join", entry<join>},
                      {"environment", entry<environment>},
                      {"raw_metatable", entry<raw_metatable>},
                      {"set_raw_metatable", entry<set_raw_metatable>},
                      {"prototype", entry<prototype>},
                      {"key_line", entry<key_line>},
                      {"knows_bytecode", entry<bytecode_is_known>},
                      {"jit_off", entry<jit_off>},
                      {"interpreted", entry<interpreted>},
                      {"serial", entry<serial>},
                      {"next_serial", entry<next_serial>},
                      {"distinct", entry<distinct>}});
  lua_setfield(L, -2, "introspect");
  lua_getfield(L, -1, "testing");
  register_functions(L, state, {{"unknown_engine", entry<unknown_engine>}});
  lua_pop(L, 1);
}

}  // namespace pg::vm
