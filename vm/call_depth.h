// The depth of C functions that call Lua, which calls C functions. Neither Lua's stack nor its memory limits it where C
// frames are large or coroutines nest, since each resume takes room on the stack of C too.
#pragma once
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
};

// Raises "stack overflow (what)" if the C stack has grown by more than 512 KiB since the call of the host. How much it
// may grow behind that is limited by the size of one Lua stack. Does nothing outside such calls.
void check_call_depth(lua_State* L, const char* what);

}  // namespace pg::vm
