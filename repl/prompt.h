// The prompt: reads, runs and prints until the input ends.
#pragma once
#include <lua.hpp>

namespace pg::repl {

// Sets the globals pg and help, for the prompt and -e. Prints an error and returns false if that fails.
bool set_globals(lua_State* L);

void run_prompt(lua_State* L);

}  // namespace pg::repl
