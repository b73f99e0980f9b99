// The hook that stops plain Lua code where a slice is over or a job must end.
#include "vm/job.h"

#include "vm/past_handlers.h"

namespace pg::vm {
namespace {

constexpr int kDeclined = 1000;  // instructions until the hook asks again

std::atomic<lua_Hook> polling_hook{nullptr};

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

void JobTable::want_hook(lua_State* L, bool runs) {
  const std::lock_guard hold(lock_);
  const bool first = wanted_++ == 0;
  if (first) {
    outer = lua_gethook(L);
    mask_ = lua_gethookmask(L);
    count_ = lua_gethookcount(L);
  }
  if (runs && (!first || (outer && outer == polling_hook))) return;
  lua_sethook(L, Job::stop_loop, LUA_MASKCOUNT, 1);
}

void JobTable::drop_hook(lua_State* L) {
  const std::lock_guard hold(lock_);
  if (--wanted_ > 0) return;
  if (lua_gethook(L) == Job::stop_loop) lua_sethook(L, outer, mask_, count_);
  outer = nullptr;
}

void Job::set_polling_hook(lua_Hook hook) { polling_hook = hook; }

void Job::set_own_hook() {
  if (!std::exchange(own_hook_, true)) state_->job_table->want_hook(coroutine_, false);
}

void Job::remove_own_hook() {
  if (std::exchange(own_hook_, false)) state_->job_table->drop_hook(coroutine_);
}

bool Job::stop_here(lua_State* L) {
  Job* const job = current;
  if (!job || !job->state_->job_table->wants_hook() || !job->due() || !job->may_suspend()) return false;
  job->remove_own_hook();
  if (L == job->coroutine_ && lua_isyieldable(L)) return lua_yield(L, 0), true;
  leave_hook(L);
  job->hand_over();
  if (job->ending_) raise_past_handlers(L);
  return true;
}

// The hook of a slice that is over, and of a job that must end.
void Job::stop_loop(lua_State* L, lua_Debug* where) {
  Job* const job = current;
  if (!job) return;
  const lua_Hook outer = job->state_->job_table->outer;
  if (outer && !job->ending_ && job->state_->ctx.cancels_all) return outer(L, where);
  if (job->ending_ || job->state_->ctx.cancels_all) raise_past_handlers(L);
  if (!stop_here(L)) lua_sethook(L, stop_loop, LUA_MASKCOUNT, kDeclined);
}

}  // namespace pg::vm
