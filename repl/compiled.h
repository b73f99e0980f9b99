// LuaJIT's compiled code, for a signal handler that interrupts a compiled loop.
#pragma once
#include <lua.hpp>

namespace pg::repl {

// Records every trace that is compiled from now on. Loops that leave_compiled_code could not end are not compiled; such
// a loop has no exit. Does nothing in a Lua without a compiler. Returns whether leave_compiled_code works here.
bool note_compiled_code(lua_State* L);

// Safe in signal handlers, on the thread that runs Lua: if this address, at which the thread was interrupted, is in
// compiled code, makes the code return to the interpreter within one turn of a loop. It is of no use afterwards: flush
// it before the next call. Returns whether the address is in compiled code.
bool leave_compiled_code(const void* address);

// Returns "file:line" of the start of the trace whose machine code contains this address, or null. Safe in signal
// handlers.
const char* compiled_position(const void* address);

}  // namespace pg::repl
