// Values as the prompt shows them.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// Returns the text of the value at stack index i: a string unchanged, a table without __tostring by its content, other
// values by tostring. May raise a Lua error.
std::string show(lua_State* L, int i);

}  // namespace pg::repl
