// Conversion of tensors from and to Lua values.
#pragma once
#include "vm/state.h"

namespace pg::vm {

// The elements in host memory, contiguous.
Value host_copy(State& state, const Value& v);

// The value of the tensor at i, whose elements will be read. Throws first if the tensor is traced.
const Value& readable(lua_State* L, State& state, int i, const char* op, const char* name);

void open_conversions(lua_State* L, State& state);

}  // namespace pg::vm
