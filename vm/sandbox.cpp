#include "vm/sandbox.h"

#include <cstring>
#include <initializer_list>
#include <utility>

#include "vm/job.h"
#include "vm/load.h"
#include "vm/state.h"

namespace pg::vm {
namespace {

const RegistryKey kTrusted;    // the environment of the library
const RegistryKey kSearchers;  // of require
const RegistryKey kLoaded;     // the modules

using Names = std::initializer_list<const char*>;

constexpr Names kBase = {"assert",   "error",    "getmetatable", "ipairs", "next",   "pairs",   "pcall",
                         "print",    "rawequal", "rawget",       "rawset", "rawlen", "select",  "setmetatable",
                         "tonumber", "tostring", "type",         "unpack", "xpcall", "_VERSION"};
constexpr Names kCoroutine = {"create", "isyieldable", "running", "status", "yield"};
constexpr Names kString = {"byte", "char", "len"};
constexpr Names kTable = {"foreach", "foreachi", "getn", "maxn", "move", "pack", "remove", "unpack"};
constexpr Names kOs = {"clock", "difftime", "time"};

// Copies the named fields of the table at `from` that exist to the table on top of the stack.
void copy_fields(lua_State* L, int from, Names names) {
  for (const char* name : names) {
    lua_getfield(L, from, name);
    if (lua_isnil(L, -1))
      lua_pop(L, 1);
    else
      lua_setfield(L, -2, name);
  }
}

// The same for everything that is a number or function, of libraries that are harmless as a whole.
void copy_all(lua_State* L, int from) {
  for (lua_pushnil(L); lua_next(L, from);) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    if (lua_isfunction(L, -1) || lua_isnumber(L, -1))
      lua_rawset(L, -4);
    else
      lua_pop(L, 2);
  }
}

// Adds a library to the table on top of the stack: `fill` gets the index of the full one, and the new one on top.
template <class Fill>
void add_library(lua_State* L, int full, const char* name, Fill fill) {
  lua_getfield(L, full, name);
  const int from = lua_gettop(L);
  lua_newtable(L);
  fill(from);
  lua_remove(L, from);
  lua_setfield(L, -2, name);
}

int count_memory(lua_State* L) {
  if (std::strcmp(luaL_optstring(L, 1, "collect"), "count") != 0)
    return luaL_error(L, "collectgarbage: a sandbox has only collectgarbage(\"count\")");
  lua_pushnumber(L, lua_gc(L, LUA_GCCOUNT, 0) + lua_gc(L, LUA_GCCOUNTB, 0) / 1024.0);
  return 1;
}

// os.date with the conversions that C defines. The upvalue is Lua's os.date.
int date(lua_State* L) {
  size_t size = 0;
  const char* format = luaL_optlstring(L, 1, "%c", &size);
  if (size > 200) return luaL_error(L, "os.date: the format is longer than 200 bytes");
  for (const char* at = format; *at; ++at) {
    if (*at != '%') continue;
    ++at;
    if (!*at || !std::strchr("aAbBcdDeFgGhHIjmMnprRStTuUVwWxXyYzZ%", *at))
      return luaL_error(L, "os.date: the conversion '%%%c' is not allowed", *at ? *at : ' ');
  }
  lua_settop(L, 2);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushstring(L, format);
  lua_pushvalue(L, 2);
  lua_call(L, lua_isnil(L, 2) ? (lua_pop(L, 1), 1) : 2, 1);
  return 1;
}

// The metatable behind any __metatable field, for the library.
int raw_metatable(lua_State* L) {
  luaL_checkany(L, 1);
  if (!lua_getmetatable(L, 1)) lua_pushnil(L);
  return 1;
}

char loading;  // its address marks a module whose loader runs

// Runs the loader on top of the stack, below which its name is. Leaves the module.
int run_loader(lua_State* L, const char* name) {
  kLoaded.push(L);
  const int loaded = lua_gettop(L);
  lua_pushlightuserdata(L, &loading);
  lua_setfield(L, loaded, name);
  lua_pushvalue(L, loaded - 1);
  lua_pushstring(L, name);
  lua_call(L, 1, 1);
  if (lua_isnil(L, -1)) {
    lua_getfield(L, loaded, name);
    if (lua_touserdata(L, -1) == &loading) {
      lua_pop(L, 1);
      lua_pushboolean(L, 1);
    }
  }
  lua_pushvalue(L, -1);
  lua_setfield(L, loaded, name);
  return 1;
}

// require(name) of a sandbox: a module that is loaded, or that a searcher of the host finds.
int require(lua_State* L) {
  const char* name = luaL_checkstring(L, 1);
  lua_settop(L, 1);
  kLoaded.push(L);
  lua_getfield(L, 2, name);
  if (lua_touserdata(L, -1) == &loading) return luaL_error(L, "loop or previous error loading module '%s'", name);
  if (lua_toboolean(L, -1)) return 1;
  lua_pop(L, 1);
  kSearchers.push(L);
  lua_pushliteral(L, "");  // what the searchers say
  for (int i = 1;; ++i) {
    lua_rawgeti(L, 3, i);
    if (lua_isnil(L, -1)) return luaL_error(L, "module '%s' not found:%s", name, lua_tostring(L, 4));
    lua_pushvalue(L, 1);
    lua_call(L, 1, 1);
    if (lua_isfunction(L, -1)) return run_loader(L, name);
    if (lua_isstring(L, -1))
      lua_concat(L, 2);
    else
      lua_pop(L, 1);
  }
}

void open_full(lua_State* L, lua_CFunction open, const char* name) {
  lua_pushcfunction(L, open);
  lua_pushstring(L, name);
  lua_call(L, 1, 0);
}

// Makes the globals of scripts from the full libraries in the table at `full`.
void make_globals(lua_State* L, int full) {
  lua_newtable(L);
  copy_fields(L, full, kBase);
  set_load(L, true);
  lua_pushcfunction(L, count_memory), lua_setfield(L, -2, "collectgarbage");
  lua_pushcfunction(L, require), lua_setfield(L, -2, "require");
  add_library(L, full, "coroutine", [&](int from) {
    copy_fields(L, from, kCoroutine);
    set_limited_coroutines(L, from);
  });
  add_library(L, full, "math", [&](int from) { copy_all(L, from); });
  add_library(L, full, "bit", [&](int from) { copy_all(L, from); });
  add_library(L, full, "string", [&](int from) {
    copy_fields(L, from, kString);
    set_limited_strings(L, from);
  });
  add_library(L, full, "table", [&](int from) {
    copy_fields(L, from, kTable);
    set_limited_tables(L, from);
  });
  add_library(L, full, "os", [&](int from) {
    copy_fields(L, from, kOs);
    lua_getfield(L, from, "date");
    lua_pushcclosure(L, date, 1);
    lua_setfield(L, -2, "date");
  });
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "_G");
}

// Copies a table of the globals at `from` for the library, which then does not see what a script changes.
void copy_library(lua_State* L, int from, const char* name) {
  lua_getfield(L, from, name);
  const int library = lua_gettop(L);
  lua_newtable(L);
  copy_all(L, library);
  lua_remove(L, library);
}

// Makes the environment of the library, which reads no globals of scripts.
void make_trusted(lua_State* L, int full, int from) {
  lua_newtable(L);
  copy_fields(L, from, kBase);
  copy_fields(L, from, {"load", "loadstring", "collectgarbage", "require"});
  copy_fields(L, full, {"getfenv", "setfenv"});
  lua_getfield(L, from, "getmetatable"), lua_setfield(L, -2, "public_getmetatable");
  lua_pushcfunction(L, raw_metatable), lua_setfield(L, -2, "getmetatable");
  for (const char* name : {"coroutine", "math", "bit", "string", "table", "os"}) {
    copy_library(L, from, name);
    lua_setfield(L, -2, name);
  }
  lua_getfield(L, -1, "string");
  lua_getfield(L, full, "string");
  lua_getfield(L, -1, "dump");
  lua_setfield(L, -3, "dump");
  lua_pop(L, 2);
  // With these messages name the block that fails, and wrong numbers of arguments are found (stdlib/nn/block_call.lua).
  add_library(L, full, "debug", [&](int debug) { copy_fields(L, debug, {"getinfo", "getlocal"}); });
  lua_pushvalue(L, -1), lua_setfield(L, -2, "_G");
}

// The methods of strings: a table that scripts cannot reach, in a locked metatable.
void lock_strings(lua_State* L, int globals) {
  lua_pushliteral(L, "");
  lua_createtable(L, 0, 2);
  copy_library(L, globals, "string");
  lua_setfield(L, -2, "__index");
  lua_pushboolean(L, false), lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

// Makes the modules that are loaded: perigee comes later.
void make_modules(lua_State* L) {
  lua_newtable(L);
  kLoaded.set(L);
  lua_newtable(L);
  kSearchers.set(L);
  lua_newtable(L);
  lua_setfield(L, LUA_REGISTRYINDEX, "_LOADED");
}

}  // namespace

void open_sandbox(lua_State* L) {
  const int top = lua_gettop(L);
  for (const auto& [open, name] : {std::pair<lua_CFunction, const char*>{luaopen_base, ""},
                                   {luaopen_math, LUA_MATHLIBNAME},
                                   {luaopen_string, LUA_STRLIBNAME},
                                   {luaopen_table, LUA_TABLIBNAME},
                                   {luaopen_os, LUA_OSLIBNAME},
                                   {luaopen_debug, LUA_DBLIBNAME},
                                   {luaopen_bit, LUA_BITLIBNAME}})
    open_full(L, open, name);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  const int full = lua_gettop(L);
  make_globals(L, full);
  const int globals = lua_gettop(L);
  make_trusted(L, full, globals);
  lua_getfield(L, full, "newproxy"), lua_setfield(L, -2, "newproxy");
  kTrusted.set(L);
  lock_strings(L, globals);
  make_modules(L);
  lua_pushvalue(L, globals);
  lua_replace(L, LUA_GLOBALSINDEX);
  allow_stopped_loops(L);
  lua_settop(L, top);
}

bool is_sandbox(lua_State* L) {
  kTrusted.push(L);
  const bool found = lua_istable(L, -1);
  lua_pop(L, 1);
  return found;
}

void enter_library(lua_State* L) {
  kTrusted.push(L);
  if (lua_istable(L, -1))
    lua_setfenv(L, -2);
  else
    lua_pop(L, 1);
}

void push_sandbox_library(lua_State* L) { kTrusted.push_table(L); }

void push_newproxy(lua_State* L) {
  kTrusted.push(L);
  if (!lua_istable(L, -1)) {
    lua_pop(L, 1);
    lua_pushvalue(L, LUA_GLOBALSINDEX);
  }
  lua_getfield(L, -1, "newproxy");
  lua_remove(L, -2);
}

void set_sandbox_print(lua_State* L) {
  kTrusted.push_table(L);
  lua_pushvalue(L, -2);
  lua_setfield(L, -2, "print");
  lua_pop(L, 1);
  lua_setglobal(L, "print");
}

void push_sandbox_searchers(lua_State* L) { kSearchers.push_table(L); }

void add_sandbox_module(lua_State* L, const char* name) {
  kLoaded.push_table(L);
  lua_insert(L, -2);
  lua_setfield(L, -2, name);
  lua_pop(L, 1);
}

}  // namespace pg::vm
