// LuaJIT changes the flags of hooks in several steps and not atomically. Two threads that set a hook at the same time
// may leave a state that runs none and takes no new one. So a lock is held meanwhile. A signal handler may not wait for
// it: who holds it looks afterwards whether the call has been interrupted.
#include <thread>

#include "vm/job.h"
#include "vm/state.h"

namespace pg::vm {

void set_hook(lua_State* L, State& state, lua_Hook hook, int mask, int count) {
  for (;;) {
    while (state.sets_hook.exchange(true)) std::this_thread::yield();
    lua_sethook(L, hook, mask, count);
    state.sets_hook = false;
    if (mask || !state.ctx.cancels_all || !state.polling_hook) return;
    hook = state.polling_hook;
    mask = LUA_MASKCOUNT;
    count = 1;
  }
}

void set_polling_hook(lua_State* L, State& state) {
  if (state.sets_hook.exchange(true)) return;
  // LuaJIT marks a hook that runs in the same flags.
  if (const lua_Hook now = lua_gethook(L); now != state.polling_hook && !Job::is_own_hook(now))
    lua_sethook(L, state.polling_hook, LUA_MASKCOUNT, 1);
  state.sets_hook = false;
}

}  // namespace pg::vm
