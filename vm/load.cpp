#include "vm/load.h"

#include "vm/call_depth.h"
#include "vm/lua_text.h"
#include "vm/pattern.h"
#include "vm/traceback.h"

namespace pg::vm {
namespace {

constexpr size_t kSourceBytesOfAnInstruction = 8;  // that the compiler reads, about

// Replaces the reader at index 1 by all its pieces as one string.
void read_pieces(lua_State* L) {
  check_call_depth(L, "too many nested readers of load");
  LuaText text(L);
  for (;;) {
    lua_pushvalue(L, 1);
    lua_call(L, 0, 1);
    if (lua_isnil(L, -1)) break;
    if (!lua_isstring(L, -1)) luaL_error(L, "reader function must return a string");
    if (lua_objlen(L, -1) == 0) break;
    text.add_value();
  }
  text.push();
  lua_replace(L, 1);
  lua_settop(L, 4);
}

// load(text or reader[, name[, mode[, environment]]]) → function, or nil and the message. The upvalue: whether text is
// all that it takes.
int load(lua_State* L) {
  lua_settop(L, 4);
  const bool is_text = lua_isstring(L, 1);
  if (!is_text) {
    luaL_checktype(L, 1, LUA_TFUNCTION);
    read_pieces(L);
  }
  size_t size = 0;
  const char* text = lua_tolstring(L, 1, &size);
  spend(L, size / kSourceBytesOfAnInstruction);
  const char* name = luaL_optstring(L, 2, is_text ? text : "=(load)");
  const char* mode = luaL_optstring(L, 3, nullptr);
  const bool text_only = lua_toboolean(L, lua_upvalueindex(1));
  if (text_only && is_library_source(name)) name = "=(load)";
  if (luaL_loadbufferx(L, text, size, name, text_only ? "t" : mode)) {
    lua_pushnil(L);
    lua_insert(L, -2);
    return 2;
  }
  if (lua_istable(L, 4)) {
    lua_pushvalue(L, 4);
    lua_setfenv(L, -2);
  }
  return 1;
}

}  // namespace

void set_load(lua_State* L, bool text_only) {
  for (const char* name : {"load", "loadstring"}) {
    lua_pushboolean(L, text_only);
    lua_pushcclosure(L, load, 1);
    lua_setfield(L, -2, name);
  }
}

}  // namespace pg::vm
