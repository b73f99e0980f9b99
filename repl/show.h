// Values as the prompt shows them.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// The value at stack index i: a string as it is, what has __tostring by it, other tables by their content. May raise.
std::string show(lua_State* L, int i);

}  // namespace pg::repl
