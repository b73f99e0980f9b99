// The depth of C functions that call Lua, which calls C functions. Neither Lua's stack nor its memory limits it where C
// frames are large or coroutines nest, since each resume takes room on the stack of C too.
#pragma once
#include <cstddef>
#include <lua.hpp>

namespace pg::vm {

// The extent of a call of a host, or of a job, on the stack of this thread.
class StackBase {
 public:
  StackBase();
  StackBase(const StackBase&) = delete;
  ~StackBase();

 private:
  const char* const outer_;
  const ptrdiff_t outer_room_;
};

// Whether since the call of the host the C stack has used half of what the thread had left of it, or 512 KiB of a stack
// of unknown size. How much it may grow between two checks is limited by the size of one Lua stack. False outside such
// calls.
bool is_too_deep();

// Raises "stack overflow (what)" if it is.
void check_call_depth(lua_State* L, const char* what);

}  // namespace pg::vm
