// The addresses of LuaJIT's compiled code, for a signal handler that interrupts a compiled loop.
#pragma once
#include <lua.hpp>

namespace pg::repl {

// Records the address of every trace that is compiled from now on. Does nothing in a Lua without a compiler.
void note_compiled_code(lua_State* L);

// Returns "file:line" of the start of the trace whose machine code contains this address, or null. Safe in signal
// handlers.
const char* compiled_position(const void* address);

}  // namespace pg::repl
