// The depth of C functions that call Lua, which calls C functions.
#pragma once
#include <lua.hpp>

#include "tensor/stack_depth.h"

namespace pg::vm {

// Raises "stack overflow (what)" if the stack is too deep.
inline void check_call_depth(lua_State* L, const char* what) {
  if (is_too_deep()) luaL_error(L, "stack overflow (%s)", what);
}

}  // namespace pg::vm
