// Where LuaJIT's compiled code lies, for a signal handler that finds a loop in it.
#pragma once
#include <lua.hpp>

namespace pg::repl {

// Takes note of every trace that is compiled from now on. Does nothing in a Lua without a compiler.
void note_compiled_code(lua_State* L);

// "file:line" of the start of the trace whose machine code holds this address; null where none does. For handlers.
const char* compiled_position(const void* address);

}  // namespace pg::repl
