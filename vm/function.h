// Lua functions as entries of the tape: autograd.Function and checkpoints.
#pragma once
#include "vm/state.h"

namespace pg::vm {

// The tensors of the list at stack index i. With allow_nil absent ones are undefined Values.
Values read_values(lua_State* L, State& state, int i, const char* op, const char* name, bool allow_nil);

// Ends the modes of a scope.
void remove_modes(State& state, uint64_t token);

void open_functions(lua_State* L, State& state);

}  // namespace pg::vm
