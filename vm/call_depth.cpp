#include "vm/call_depth.h"

#include <cstddef>
#include <utility>

namespace pg::vm {
namespace {

constexpr ptrdiff_t kMaxStack = ptrdiff_t(512) << 10;

thread_local const char* base = nullptr;

const char* here() { return static_cast<const char*>(__builtin_frame_address(0)); }

}  // namespace

StackBase::StackBase() : outer_(std::exchange(base, here())) {}

StackBase::~StackBase() { base = outer_; }

void check_call_depth(lua_State* L, const char* what) {
  if (base && base - here() > kMaxStack) luaL_error(L, "stack overflow (%s)", what);
}

}  // namespace pg::vm
