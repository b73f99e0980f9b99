// LuaJIT changes the flags of hooks in several steps and not atomically. Two threads that set a hook at the same time
// may leave a state that runs none and takes no new one. So a lock is held meanwhile. A signal handler may not wait for
// it: who holds it sets the polling hook afterwards.
//
// LuaJIT itself marks in these flags, without the lock, that a hook or finalizer runs. If another thread sets the
// polling hook in the nanosecond in which one ends, the mark stays: the state runs no hooks any more, and only ops see
// that they are to fail. Measured in a loop that does nothing but run finalizers: one of 500 to 2000 interrupts.
// Nothing in LuaJIT's interface removes the mark. With limits of calls the hook is always set, and this cannot happen;
// but such a hook slows down all interpreted code.
#include <thread>

#include "vm/job.h"
#include "vm/state.h"

namespace pg::vm {

constexpr int kPatience = 10000;

void set_hook(lua_State* L, State& state, lua_Hook hook, int mask, int count) {
  // Who holds the lock may be gone in a child process, or never get the processor.
  HookLock free = HookLock::kFree;
  for (int i = 0; !state.hook_lock.compare_exchange_strong(free, HookLock::kHeld) && i < kPatience; ++i) {
    free = HookLock::kFree;
    std::this_thread::yield();
  }
  lua_sethook(L, hook, mask, count);
  if (state.hook_lock.exchange(HookLock::kFree) == HookLock::kWanted) set_polling_hook(L, state);
}

void set_polling_hook(lua_State* L, State& state) {
  if (state.hook_lock.exchange(HookLock::kWanted) != HookLock::kFree) return;
  // LuaJIT marks a hook that runs in the same flags, so one that is there is left; it may lose the mask all the same.
  const lua_Hook now = lua_gethook(L);
  if ((now != state.polling_hook && !Job::is_own_hook(now)) || !lua_gethookmask(L))
    lua_sethook(L, state.polling_hook, LUA_MASKCOUNT, 1);
  state.hook_lock = HookLock::kFree;
}

}  // namespace pg::vm
