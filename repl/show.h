// Values as the prompt shows them.
#pragma once
#include <lua.hpp>

#include <string>

namespace pg::repl {

// Returns the text of the value at stack index i: a string unchanged, a table without __tostring by its content, other
// values by tostring. May raise a Lua error.
std::string show(lua_State* L, int i);

// Adds `before` and a text to a line. Further lines of the text begin in the column of its first one.
void add_aligned(std::string& line, const std::string& before, const std::string& text);

// A lua_CFunction: Lua's print, whose values of several lines are aligned.
int print_aligned(lua_State* L);

}  // namespace pg::repl
