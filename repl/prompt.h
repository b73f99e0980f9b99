// The prompt: reads, runs and prints until the input ends.
#pragma once
#include <lua.hpp>

namespace pg::repl {

// Sets the globals pg and help, for the prompt and -e, and for the prompt a print that aligns values of several lines.
// Prints an error and returns false if that fails.
bool set_globals(lua_State* L, bool prompt);

void run_prompt(lua_State* L);

}  // namespace pg::repl
