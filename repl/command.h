// Running sub-commands. Each is a function in Lua, returned by stdlib/tools/NAME.lua.
#pragma once
#include <lua.hpp>
#include <string>

#include "repl/options.h"

namespace pg::repl {

// Makes `require "perigee.test"` return the harness of test files.
void add_harness(lua_State* L);

// Calls the function of the sub-command with its words, its options and the command that repeats them. Reports what
// went wrong. Returns the exit code.
int run_command(lua_State* L, const CommandLine& line);

// Calls the function `name` of stdlib/tools/FILE.lua with a text. Reports an error and returns false.
bool call_tool(lua_State* L, const char* file, const char* name, const std::string& text = "");

}  // namespace pg::repl
