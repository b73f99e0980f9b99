#include "tensor/stack_depth.h"

#include <pthread.h>

#include <cstddef>
#include <utility>

#include "tensor/error.h"

namespace pg {
namespace {

constexpr ptrdiff_t kUnknownRoom = ptrdiff_t(512) << 10;

thread_local const char* base = nullptr;
thread_local ptrdiff_t room = 0;

const char* here() { return static_cast<const char*>(__builtin_frame_address(0)); }

struct Extent {
  const char *low = nullptr, *high = nullptr;
};

// The stack that the system has given to this thread; empty if it does not tell.
Extent own_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* low = nullptr;
  size_t size = 0, guard = 0;
  const bool known = pthread_attr_getstack(&attributes, &low, &size) == 0 &&
                     pthread_attr_getguardsize(&attributes, &guard) == 0 && size > guard;
  pthread_attr_destroy(&attributes);
  if (!known) return {};
  return {static_cast<const char*>(low) + guard, static_cast<const char*>(low) + size};
}

// How far the stack may grow below `from`: half of what is left, since some functions nest without a check. A host may
// run on stacks that it has made itself, whose size is not known.
ptrdiff_t room_below(const char* from) {
  static thread_local const Extent stack = own_stack();
  return from < stack.low || from > stack.high ? kUnknownRoom : (from - stack.low) / 2;
}

}  // namespace

StackBase::StackBase() : outer_(std::exchange(base, here())), outer_room_(std::exchange(room, room_below(here()))) {}

StackBase::~StackBase() {
  base = outer_;
  room = outer_room_;
}

bool is_too_deep() { return base && base - here() > room; }

void check_body_depth() {
  if (is_too_deep())
    throw Error(
        "stack overflow (branches and loops nest too deep for the stack of this thread; use one with a larger "
        "stack, or fewer levels)");
}

}  // namespace pg
