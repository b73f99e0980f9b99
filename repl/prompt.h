// The prompt: reads, runs and prints until the input ends.
#pragma once
#include <lua.hpp>

namespace pg::repl {

// Sets the globals pg and help, which the prompt and -e have. On an error prints it and answers false.
bool set_globals(lua_State* L);

void run_prompt(lua_State* L);

}  // namespace pg::repl
