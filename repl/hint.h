// Suggestions for Lua errors about misspelled methods.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// Returns " (did you mean 'hybridize'?)" for the message "… attempt to call method 'hybridise' (a nil value)" if an
// object among the locals, upvalues or globals of the failing function has a method with a similar name, else "". Call
// it in a message handler: the failing function is at level 1.
std::string method_hint(lua_State* L, const char* message);

}  // namespace pg::repl
