// The parts of the binding. Each adds its functions to the `core` table on top of the stack. stdlib/init.lua makes the
// script API of them.
#pragma once
#include "vm/state.h"

namespace pg::vm {

void open_ops(lua_State* L, State& state);      // core.ops, core.tensor_methods, operators
void make_ops(lua_State* L);                    // fills these tables, which have only the functions that were looked up
void open_tensor(lua_State* L, State& state);   // creation from Lua values, item, totable, fields
void open_index(lua_State* L, State& state);    // x[…] and x[…] = v
void open_effects(lua_State* L, State& state);  // pg.print and x:tap inside graphs
void forget_callbacks(State& state);
void open_print(lua_State* L, State& state);       // tostring
void open_autograd(lua_State* L, State& state);    // modes, leaves, backward
void open_parameter(lua_State* L, State& state);   // unbound boxes with fields
void open_random(lua_State* L, State& state);      // generators
void open_memory(lua_State* L, State& state);      // scope, release, memory, threads
void open_observe(lua_State* L, State& state);     // profiles, pg.trace, counts of work
void open_files(lua_State* L, State& state);       // tensors in files
void open_graph(lua_State* L, State& state);       // core.graph: models, their files, frozen graphs
void open_errors(lua_State* L, State& state);      // core.fail and friends
void open_introspect(lua_State* L, State& state);  // core.introspect: identities of functions and variables, for guards
void open_decode(lua_State* L, State& state);  // core.introspect: the code of functions, for the interpreter of traces
void open_hidden(lua_State* L, State& state);  // core.hide, core.shown: values that scripts cannot look into
void open_terminal(lua_State* L, State& state);  // core.is_terminal and friends, core.clock
void open_library(lua_State* L, State& state);   // core.require, embedded files

// The text of tostring(x).
std::string printed(const Value& value);

// The __index and __newindex of tensors for keys that are no field names. The key is at stack index 2.
int index_read(lua_State* L, State& state);
int index_write(lua_State* L, State& state);

// Opens the standard libraries of a new Lua state and lets `require "perigee"` find the module. Raises Lua errors.
void open_libraries(lua_State* L);

// Pushes what a file of the stdlib returns, "tools.prompt" for tools/prompt.lua. Runs it at the first call. Raises Lua
// errors.
void push_library_module(lua_State* L, const char* name);

// Whether the module has been opened in this Lua state, by this copy of the library.
bool has_library(lua_State* L);

}  // namespace pg::vm

// The module: leaves the table `pg` on the stack.
extern "C" __attribute__((visibility("default"))) int luaopen_perigee(lua_State* L);
