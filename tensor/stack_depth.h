// The depth of calls on the stack of C. Scripts, and the graphs that they make, nest calls whose number nothing else
// limits: Lua's stack and memory do not where frames of C are large or coroutines nest.
#pragma once
#include <cstddef>

namespace pg {

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

// Throws an Error if it is. Every function that calls itself for the bodies of a graph's branches and loops, with
// frames of more than a few hundred bytes, calls it.
void check_body_depth();

}  // namespace pg
