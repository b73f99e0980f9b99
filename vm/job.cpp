// The life of a job: its start, its steps, its end and its results. job_slice.cpp has the slices.
#include "vm/job.h"

#include <luajit.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "vm/call_depth.h"

namespace pg::vm {
namespace {

const RegistryKey kAnchors;    // by job: its coroutine, or false while something else keeps it
const RegistryKey kProtected;  // xpcall

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr double kLongest = 1e6;  // seconds of a slice

// Takes a value from the top of the stack.
void set_anchor(lua_State* L, const Job* job) {
  kAnchors.push_table(L);
  lua_pushlightuserdata(L, const_cast<Job*>(job));
  lua_pushvalue(L, -3);
  lua_rawset(L, -3);
  lua_pop(L, 2);
}

}  // namespace

// The job takes no more random numbers.
void Job::leave_stream() {
  if (!std::exchange(stream_, 0)) return;
  auto& streams = state_->job_table->streams;
  const auto at = streams.find({random_at_start_.seed, random_at_start_.tick});
  if (--at->second.live == 0) streams.erase(at);
}

// Takes the job out of its state.
void Job::close() {
  leave_stream();
  auto& jobs = state_->jobs;
  if (place_ < jobs.size() && jobs[place_] == this) {
    jobs[place_] = jobs.back();
    jobs[place_]->place_ = place_;
    jobs.pop_back();
  }
  if (std::erase(state_->parked, &dynamics_)) state_->parked_walks -= dynamics_.walks;
  state_ = nullptr;
}

std::shared_ptr<Job> Job::start(lua_State* L, State& state, int arguments) {
  if (state.trace) fail("job", "a traced function cannot start a job");
  need_stack(L, arguments + 12, "job");
  end_abandoned_jobs(L, state);
  if (!state.job_table) state.job_table = std::make_shared<JobTable>();
  if (state.jobs.size() >= state.jobs.capacity()) {
    const size_t count = 2 * state.jobs.size() + 4;
    state.abandoned_jobs.reserve(count);
    state.parked.reserve(2 * count + 4);
    state.jobs.reserve(count);
  }
  const std::shared_ptr<Job> job(new Job(state));
  const int function = lua_gettop(L) - arguments;
  job->slices_loops_ = stops_loops(L);
  lua_pushboolean(L, false);
  set_anchor(L, job.get());
  lua_State* const T = job->coroutine_ = lua_newthread(L);
  need_stack(T, arguments + 12, "job");
  kProtected.push(T);
  lua_pushvalue(L, function);
  lua_xmove(L, T, 1);
  if (job->slices_loops_ && lua_isfunction(T, 2) && !lua_iscfunction(T, 2))
    luaJIT_setmode(T, 2, LUAJIT_MODE_ALLFUNC | LUAJIT_MODE_OFF);
  lua_pushcfunction(T, note_failure);
  for (int i = 1; i <= arguments; ++i) lua_pushvalue(L, function + i);
  lua_xmove(L, T, arguments);
  lua_replace(L, function);
  lua_settop(L, function);
  job->place_ = state.jobs.size();
  state.jobs.push_back(job.get());
  return job;
}

void Job::step(lua_State* L, double seconds) {
  const std::shared_ptr<Job> self = shared_from_this();  // the collector may free the handles meanwhile
  if (!state_) fail("job", "this job was released, or its state is closed");
  if (status_ == Status::kDone || status_ == Status::kFailed) return;
  if (status_ == Status::kRunning) fail("job", "a job cannot step itself");
  if (state_->trace || state_->paused_trace) fail("job", "a traced function cannot step a job");
  need_stack(L, 12, "job");
  if (in_finalizer(L)) fail("job", "a finalizer cannot step a job");
  if (thread_.joinable() && process_ != getpid())
    fail("job", "this process is a fork of the one that has the job's thread");
  int64_t deadline = 0;
  if (seconds > 0) deadline = now() + int64_t(std::min(seconds, kLongest) * 1e9);
  if (state_->job) deadline = std::min(deadline, state_->job->deadline_.load());
  deadline_ = deadline;
  run_slice(L);
  if (end_requested_) end(L);
  if (current && current->due()) current->suspend();  // a job that steps others may run no code that a hook stops
}

void Job::end(lua_State* L) {
  const std::shared_ptr<Job> self = shared_from_this();
  if (!state_) return;
  if (status_ == Status::kRunning) {
    end_requested_ = true;
    return;
  }
  if (status_ == Status::kSuspended && process_ == getpid()) unwind(L);
  lua_pushnil(L);
  set_anchor(L, this);
  close();
}

// Raises errors in the job until its thread has ended.
void Job::unwind(lua_State* L) {
  std::atomic<bool>&cancel = state_->ctx.cancel, &all = state_->ctx.cancels_all;
  const bool cancel_before = cancel, all_before = all;
  ending_ = true;
  deadline_ = kNever;
  all = true;
  cancel = true;
  run_slice(L);
  cancel = cancel_before;
  all = all_before;
}

void Job::note_message(lua_State* L, int i) {
  push_error_text(L, i);
  try {
    message_ = lua_tostring(L, -1);
  } catch (const std::bad_alloc&) {}
  lua_pop(L, 1);
}

// Message handler of the job.
int Job::note_failure(lua_State* L) {
  lua_settop(L, 1);
  Job* const job = current;
  if (!job) return 1;
  job->failed_ = true;
  job->note_message(L, 1);
  try {
    job->traceback_ = traceback_of(L, 1);
  } catch (const std::bad_alloc&) {}
  lua_settop(L, 1);
  return 1;
}

int Job::push_results(lua_State* L) const {
  lua_State* const T = coroutine_;
  const int count = lua_gettop(T) - 1;
  need_stack(L, count + 4, "job");
  if (!lua_checkstack(T, 1)) throw std::bad_alloc();
  for (int i = 2; i <= count + 1; ++i) {  // one by one: the stack of T may have no room for as many again
    lua_pushvalue(T, i);
    lua_xmove(T, L, 1);
  }
  return count;
}

void Job::push_error_value(lua_State* L) const {
  lua_State* const T = coroutine_;
  lua_pushvalue(T, -1);
  lua_xmove(T, L, 1);
}

void Job::abandon(lua_State* L, std::shared_ptr<Job> job) {
  if (!job->state_) return;
  if (job->status_ != Status::kSuspended) return job->end(L);
  job->state_->abandoned_jobs.push_back(std::move(job));
}

void Job::keep(lua_State* L) const { set_anchor(L, this); }

void end_abandoned_jobs(lua_State* L, State& state) {
  if (state.abandoned_jobs.empty() || state.trace || state.collecting || state.loose) return;
  if (!lua_checkstack(L, 12) || Job::in_finalizer(L)) return;
  while (!state.abandoned_jobs.empty()) {
    const std::shared_ptr<Job> job = std::move(state.abandoned_jobs.back());
    state.abandoned_jobs.pop_back();
    job->end(L);
  }
}

void close_jobs(lua_State* L, State& state) {
  for (Job* job : state.jobs) job->closing_ = true;
  while (!state.jobs.empty()) state.jobs.back()->end(L);
}

void Job::open(lua_State* L) {
  lua_newtable(L);
  kAnchors.set(L);
  lua_getglobal(L, "xpcall");
  kProtected.set(L);
}

}  // namespace pg::vm
