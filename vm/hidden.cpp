// Values that scripts can hold but not look into.
#include "vm/bindings.h"

namespace pg::vm {
namespace {

const RegistryKey kHidden;  // the metatable of the holders

// hide(v) → a userdata that holds v in its environment.
int hide(lua_State* L, State&) {
  lua_settop(L, 1);
  lua_newuserdata(L, 0);
  kHidden.push_table(L);
  lua_setmetatable(L, -2);
  lua_createtable(L, 1, 0);
  lua_pushvalue(L, 1);
  lua_rawseti(L, -2, 1);
  lua_setfenv(L, -2);
  return 1;
}

// shown(u) → the value that hide(v) made u of, or nil if it is none.
int show(lua_State* L, State&) {
  lua_settop(L, 1);
  if (lua_type(L, 1) != LUA_TUSERDATA || !lua_getmetatable(L, 1)) return lua_pushnil(L), 1;
  kHidden.push_table(L);
  if (!lua_rawequal(L, -1, -2)) return lua_pushnil(L), 1;
  lua_getfenv(L, 1);
  lua_rawgeti(L, -1, 1);
  return 1;
}

}  // namespace

void open_hidden(lua_State* L, State& state) {
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "perigee");
  lua_setfield(L, -2, "__metatable");
  kHidden.set(L);
  register_functions(L, state, {{"hide", entry<hide>}, {"shown", entry<show>}});
}

}  // namespace pg::vm
