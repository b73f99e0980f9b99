// The program: runs a script.
#include <cstdio>
#include <lua.hpp>

#include "vm/bindings.h"

int main(int argc, char** argv) {
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, luaopen_perigee);
  lua_setfield(L, -2, "perigee");
  lua_pop(L, 2);
  if (argc < 2) return 1;
  if (luaL_dofile(L, argv[1])) {
    std::fprintf(stderr, "perigee: %s\n", lua_tostring(L, -1));
    return 1;
  }
  return 0;
}
