// coroutine.resume and coroutine.wrap for states that the library opens. They do what Lua's do, but coroutines that
// resume each other nest only until the C stack is too deep: each has a stack of Lua of its own, which ends no such
// recursion.
#include <utility>

#include "vm/call_depth.h"
#include "vm/sandbox.h"

namespace pg::vm {
namespace {

// Calls Lua's resume, which is on top of the stack, with all that is below it. Leaves the results only.
void call_resume(lua_State* L) {
  check_call_depth(L, "too many nested coroutines");
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
}

// resume(coroutine, …); the upvalue is Lua's.
int resume(lua_State* L) {
  if (!lua_isthread(L, 1)) return luaL_argerror(L, 1, "coroutine expected");
  lua_pushvalue(L, lua_upvalueindex(1));
  call_resume(L);
  return lua_gettop(L);
}

// What wrap returns. Upvalues: the coroutine, which tracebacks read there, and Lua's resume. Texts of errors get the
// place of the call, as in Lua's.
int resume_wrapped(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_pushvalue(L, lua_upvalueindex(2));
  call_resume(L);
  if (lua_toboolean(L, 1)) return lua_gettop(L) - 1;
  if (lua_type(L, -1) == LUA_TSTRING) {
    luaL_where(L, 1);
    lua_insert(L, -2);
    lua_concat(L, 2);
  }
  return lua_error(L);
}

// wrap(f); the upvalue is Lua's resume.
int wrap(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_State* const coroutine = lua_newthread(L);
  lua_pushvalue(L, 1);
  lua_xmove(L, coroutine, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushcclosure(L, resume_wrapped, 2);
  return 1;
}

}  // namespace

void set_limited_coroutines(lua_State* L, int full) {
  const std::pair<const char*, lua_CFunction> functions[] = {{"resume", resume}, {"wrap", wrap}};
  for (const auto& [name, function] : functions) {
    lua_getfield(L, full, "resume");
    lua_pushcclosure(L, function, 1);
    lua_setfield(L, -2, name);
  }
}

}  // namespace pg::vm
