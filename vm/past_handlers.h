// Errors of hooks that end a call of a script.
#pragma once
#include <lua.hpp>

namespace pg::vm {

// Raises an error of memory, for which Lua calls no message handlers. Lua has its hooks off inside a handler that an
// error of a hook has called, so a handler that does not return could not be ended.
void raise_past_handlers(lua_State* L);

}  // namespace pg::vm
