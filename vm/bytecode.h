// Checks that the bytecode of this LuaJIT is the one that the interpreter of traces understands. The first use compiles
// small known functions and looks for each instruction at its expected place. If one is missing, knows_bytecode is
// false, and hybridize and jit run functions as plain Lua.
#pragma once
#include <lua.hpp>
#include <string>

namespace pg::vm {

// Whether all instructions and dumps of this LuaJIT have the expected form.
bool knows_bytecode(lua_State* L);

// For tests: behaves as with an unknown LuaJIT.
void set_unknown_engine(bool on);

// The line of the first instruction that names the string constant `name`, or 0.
int find_key_line(lua_State* L, int i, const std::string& name);

// The address of the prototype that all closures of one function expression share, or nullptr if the layout of closures
// is unknown.
const void* prototype_of(lua_State* L, int i);

}  // namespace pg::vm
