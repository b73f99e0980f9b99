// A Lua state that can require perigee, as a host creates it.
#pragma once
#include <lua.hpp>
#include <string>
#include <utility>

extern "C" int luaopen_perigee(lua_State* L);

class LuaState {
 public:
  LuaState() : L(luaL_newstate()) { open(L); }
  explicit LuaState(lua_State* made) : L(made) {}  // takes ownership; null means no state
  LuaState(const LuaState&) = delete;
  ~LuaState() {
    if (L) lua_close(L);
  }

  // Lets `require "perigee"` find the library, and sets the global TOP to the folder of the sources. Raises Lua errors.
  static int open(lua_State* L) {
    luaL_openlibs(L);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "preload");
    lua_pushcfunction(L, luaopen_perigee);
    lua_setfield(L, -2, "perigee");
    lua_pop(L, 2);
    lua_pushstring(L, PERIGEE_SOURCE_DIR);
    lua_setglobal(L, "TOP");
    return 0;
  }
  // Runs a chunk and returns its error, or "".
  std::string run(const char* text) { return result(luaL_loadstring(L, text) || lua_pcall(L, 0, 0, 0)); }

  // Pops the error on top of the stack and returns its message; returns "" if nothing failed.
  std::string result(bool failed) {
    if (!failed) return "";
    const char* message = lua_tostring(L, -1);
    const std::string error = message ? message : "an error that is no text";
    lua_pop(L, 1);
    return error;
  }

  operator lua_State*() { return L; }
  lua_State* release() { return std::exchange(L, nullptr); }

 private:
  lua_State* L;
};
