// Hints for errors of Lua itself: misspelled methods, operators that tensors do not have, syntax.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// Returns a hint such as " (did you mean 'hybridize'?)" for a message of Lua, or "". Methods are those of the objects
// among the locals, upvalues and globals of the functions on the stack. Call it in a message handler: the failing
// function is at level 1.
std::string method_hint(lua_State* L, const char* message);

// The same for the message of a chunk that does not compile.
std::string syntax_hint(lua_State* L, const char* message);

}  // namespace pg::repl
