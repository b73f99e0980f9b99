// Lua states for scripts that are not trusted: a set of globals built up from nothing.
#pragma once
#include <lua.hpp>

#include <cstddef>

namespace pg::vm {

// Fills a new state: the globals of scripts, and the environment of the library, which scripts cannot reach and which
// has a few more functions, such as debug.getinfo. io, jit, ffi, package and the rest of debug do not exist in the
// state. Raises Lua errors.
void open_sandbox(lua_State* L);

// Whether open_sandbox filled the state.
bool is_sandbox(lua_State* L);

// In a sandbox, sets the environment of the chunk on top of the stack to that of the library.
void enter_library(lua_State* L);

// Pushes the environment of the library.
void push_sandbox_library(lua_State* L);

// Pushes Lua's newproxy, or nil.
void push_newproxy(lua_State* L);

// Makes the function on top of the stack, which it pops, the print of scripts and of the library.
void set_sandbox_print(lua_State* L);

// Pushes the list of searchers that `require` of a sandbox asks.
void push_sandbox_searchers(lua_State* L);

// Makes the value on top of the stack, which it pops, the module of this name.
void add_sandbox_module(lua_State* L, const char* name);

// Adds the functions of string, table and coroutine whose work, results or depth are limited to the table on top of the
// stack.
void set_limited_strings(lua_State* L, int full);  // full: the index of Lua's library
void set_limited_concat(lua_State* L, int full);
void set_limited_tables(lua_State* L, int full);  // with concat
void set_limited_coroutines(lua_State* L, int full);

inline constexpr size_t kBytesOfAnInstruction = 64;             // that a function moves or compares, for limits
inline constexpr size_t kMaxSandboxString = size_t(256) << 20;  // bytes of a result

}  // namespace pg::vm
