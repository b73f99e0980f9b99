// The hook that stops plain Lua code where a slice is over or a job must end.
#include "vm/job.h"

#include "vm/past_handlers.h"
#include "vm/state.h"

namespace pg::vm {
namespace {

constexpr int kCount = 1000;  // instructions between two calls of the hook, some microseconds

// Lua runs no hook while one runs, also not those of other threads while this one waits. A yield in a hook ends that;
// here it is one of a coroutine that is then dropped.
void leave_hook(lua_State* L) {
  if (!lua_checkstack(L, 4)) return;
  lua_State* const dropped = lua_newthread(L);
  lua_pushcfunction(dropped, [](lua_State* T) { return lua_yield(T, 0); });
  (void)lua_resume(dropped, 0);
  lua_pop(L, 1);
}

}  // namespace

void Job::SliceHook::set(lua_State* L, const Job& job) {
  hook_ = lua_gethook(L);
  mask_ = lua_gethookmask(L);
  count_ = lua_gethookcount(L);
  if (job.ending_)
    set_hook(L, *job.state_, stop_loop, LUA_MASKCOUNT, 1);
  else if (job.slices_loops_ && (!hook_ || hook_ != job.state_->polling_hook))
    set_hook(L, *job.state_, stop_loop, LUA_MASKCOUNT, kCount);
}

void Job::SliceHook::restore(lua_State* L, const Job& job) const {
  if (lua_gethook(L) == stop_loop) set_hook(L, *job.state_, hook_, mask_, count_);
  const lua_Hook polling = job.state_->polling_hook;
  if (polling && job.state_->ctx.cancels_all && !job.ending_) set_hook(L, *job.state_, polling, LUA_MASKCOUNT, 1);
}

bool Job::stop_here(lua_State* L) {
  Job* const job = current;
  if (!job || now() < job->deadline_ || !job->may_suspend()) return false;
  if (L == job->coroutine_ && lua_isyieldable(L)) return lua_yield(L, 0), true;
  leave_hook(L);
  job->hand_over();
  if (job->ending_) {
    set_hook(L, *job->state_, stop_loop, LUA_MASKCOUNT, 1);
    end_script(L, job->grace_);
  }
  return true;
}

void Job::stop_soon(lua_State* L) {
  const lua_Hook now = lua_gethook(L);
  State& state = find_state(L);
  if (!now || now != state.polling_hook) set_hook(L, state, stop_loop, LUA_MASKCOUNT, 1);
}

void Job::stop_loop(lua_State* L, lua_Debug* where) {
  Job* const job = current;
  if (!job) return;
  const lua_Hook polling = job->state_->polling_hook;
  const bool ends = job->ending_ || job->state_->ctx.cancels_all;
  set_hook(L, *job->state_, stop_loop, LUA_MASKCOUNT, ends ? 1 : kCount);
  if (job->ending_ || (ends && !polling)) return end_script(L, job->grace_);
  if (polling) return polling(L, where);
  stop_here(L);
}

}  // namespace pg::vm
