// Reads the bytecode of Lua functions as lua_dump writes it, without the host's `debug` or `jit` library. The numbers of the
// instructions are found by dumping known functions, so they need not be those of one LuaJIT. At first use the reader is tried
// on a function whose contents are known. Where that fails nothing is read: knows_bytecode is false, and hybridize and jit run
// as plain Lua.
#pragma once
#include <lua.hpp>
#include <string>
#include <vector>

namespace pg::vm {

// Of a Lua function and the functions defined in it.
struct Bytecode {
  std::vector<std::string> strings;  // constants, each once
  std::vector<int> uses;             // in how many of the functions each stands
  std::vector<std::string> globals;  // names read or written
  bool computes_keys = false;        // a table is indexed with a computed key that is not plainly a number
  std::vector<bool> frozen;          // of the function itself: upvalue i is never assigned after its declaration
  std::vector<bool> lent;            // … is used by one function expression in it and nowhere else
};

// Whether the form of this LuaJIT's bytecode is the one that is read here.
bool knows_bytecode(lua_State* L);

// Whether the layout of this LuaJIT's closures is known, so that prototype_of works.
bool knows_closures(lua_State* L);

// For tests: as with a LuaJIT of which nothing is known.
void set_unknown_engine(bool on);

// Of the Lua function at stack index i. Where the form is unknown: no strings, and computes_keys is set.
Bytecode read_bytecode(lua_State* L, int i);

// The line of the first instruction that names the string constant `name`, or 0.
int find_key_line(lua_State* L, int i, const std::string& name);

// The address of the code that all closures of one function expression share; nullptr where the layout of closures is unknown.
const void* prototype_of(lua_State* L, int i);

}  // namespace pg::vm
