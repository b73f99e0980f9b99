// Errors of hooks that end a call of a script.
#pragma once
#include <lua.hpp>

namespace pg::vm {

// Raises an error of memory, for which Lua calls no message handlers. Lua has its hooks off inside a handler that an
// error of a hook has called, so a handler that does not return could not be ended.
void raise_past_handlers(lua_State* L);

// Does so in a hook that is called at every instruction, but lets code of the library go on for up to `grace`
// instructions, which it counts down: what has begun a scope can end it. No script can prolong that, because its own
// next instruction raises.
constexpr int kGrace = 100000;  // some milliseconds
void end_script(lua_State* L, int& grace);

}  // namespace pg::vm
