// Whether the bytecode of this LuaJIT is the one that the interpreter of traces knows. At first use each instruction is
// looked for where known functions have it. Where that fails nothing is read: knows_bytecode is false, and hybridize
// and jit run as plain Lua.
#pragma once
#include <lua.hpp>
#include <string>

namespace pg::vm {

// Whether the form of this LuaJIT's bytecode is the one that is read here.
bool knows_bytecode(lua_State* L);

// Whether the layout of this LuaJIT's closures is known, so that prototype_of works.
bool knows_closures(lua_State* L);

// For tests: as with a LuaJIT of which nothing is known.
void set_unknown_engine(bool on);

// The line of the first instruction that names the string constant `name`, or 0.
int find_key_line(lua_State* L, int i, const std::string& name);

// The address of the code that all closures of one function expression share; nullptr where the layout of closures is
// unknown.
const void* prototype_of(lua_State* L, int i);

}  // namespace pg::vm
