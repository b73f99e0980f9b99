// Hints for plain Lua errors about misspelt methods.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// " (did you mean 'hybridize'?)" for the message "… attempt to call method 'hybridise' (a nil value)" when an object
// that the failing function can name has a method with a name nearby; else "". For message handlers: the failing
// function is at level 1.
std::string method_hint(lua_State* L, const char* message);

}  // namespace pg::repl
