// Errors of hooks that end a call of a script.
#pragma once
#include <cstdint>
#include <lua.hpp>

namespace pg::vm {

// Raises an error of memory, for which Lua calls no message handlers. Lua has its hooks off inside a handler that an
// error of a hook has called, so a handler that does not return could not be ended.
void raise_past_handlers(lua_State* L);

// How long code of the library may go on when a call has ended, so that what has begun a scope can end it.
struct Grace {
  int instructions = 100000;
  int64_t until = 0;  // on a monotonic clock, in us; 0: the call has not ended yet
};
constexpr int64_t kGraceTime = 50000;  // us

// Raises that error in a hook that is called at every instruction, but not in code of the library while grace lasts. A
// script cannot make use of it for longer, because its own next instruction raises.
void end_script(lua_State* L, Grace& grace);

}  // namespace pg::vm
