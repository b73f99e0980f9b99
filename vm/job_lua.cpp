// core.job_…: jobs for scripts. stdlib/runtime/job.lua makes the class of them.
#include <cmath>

#include "vm/args.h"
#include "vm/handle.h"
#include "vm/job.h"

namespace pg::vm {
namespace {

const RegistryKey kJobClass;  // a metatable

struct JobHandle {
  std::shared_ptr<Job>* job;
};

int collect_job(lua_State* L) {
  auto* handle = static_cast<JobHandle*>(lua_touserdata(L, 1));
  if (!handle || !handle->job) return 0;
  std::shared_ptr<Job> job = std::move(*handle->job);
  delete std::exchange(handle->job, nullptr);
  if (!job->is_open()) return 0;
  lua_getfenv(L, 1);
  lua_rawgeti(L, -1, 1);
  if (lua_isthread(L, -1)) job->keep(L);
  Job::abandon(L, std::move(job));
  return 0;
}

Job& check_job(lua_State* L) {
  JobHandle* handle = to_handle<JobHandle>(L, 1, kJobClass);
  if (!handle || !handle->job) throw Error("job: expected a job");
  return **handle->job;
}

// job_start(f, …) → handle. Its environment keeps the coroutine, so that a job that refers to itself can be collected.
int job_start(lua_State* L, State& state) {
  auto* handle = static_cast<JobHandle*>(lua_newuserdata(L, sizeof(JobHandle)));
  handle->job = nullptr;
  kJobClass.push_table(L);
  lua_setmetatable(L, -2);
  lua_insert(L, 1);
  lua_createtable(L, 1, 0);
  lua_insert(L, 2);
  auto place = std::make_unique<std::shared_ptr<Job>>();
  *place = Job::start(L, state, lua_gettop(L) - 3);
  handle->job = place.release();
  lua_rawseti(L, 2, 1);
  lua_setfenv(L, 1);
  return 1;
}

// Pushes false and the error of the job, for core.reraise.
int push_failure(lua_State* L, State& state, const Job& job) {
  state.stored_error = {job.message(), job.traceback(), nullptr};
  lua_pushboolean(L, false);
  job.push_error_value(L);
  return 2;
}

// job_step(handle, seconds) → true and whether the job is done, or false and its error
int job_step(lua_State* L, State& state) {
  Job& job = check_job(L);
  job.step(L, lua_tonumber(L, 2));
  if (!job.is_open() && job.status() != Job::Status::kDone) fail("job:step", "this job was released during its slice");
  if (job.status() == Job::Status::kFailed) return push_failure(L, state, job);
  lua_pushboolean(L, true);
  lua_pushboolean(L, job.status() == Job::Status::kDone);
  return 2;
}

// job_done(handle) → whether the job has ended
int job_done(lua_State* L, State&) {
  const Job::Status status = check_job(L).status();
  lua_pushboolean(L, status == Job::Status::kDone || status == Job::Status::kFailed);
  return 1;
}

// job_results(handle) → true and the results, or false and the error; nothing if the job has not ended
int job_results(lua_State* L, State& state) {
  const Job& job = check_job(L);
  if (!job.is_open()) fail("job:result", "this job was released");
  if (job.status() == Job::Status::kFailed) return push_failure(L, state, job);
  if (job.status() != Job::Status::kDone) return 0;
  lua_pushboolean(L, true);
  return job.push_results(L) + 1;
}

int job_progress(lua_State* L, State&) {
  lua_pushnumber(L, check_job(L).progress);
  return 1;
}

int job_release(lua_State* L, State&) {
  check_job(L).end(L);
  return 0;
}

// report_progress(fraction): does nothing outside of a job
int report_progress(lua_State* L, State& state) {
  const double fraction = lua_type(L, 1) == LUA_TNUMBER ? lua_tonumber(L, 1) : NAN;
  if (!std::isfinite(fraction)) bad_argument("progress", "fraction", "a number", describe_argument(L, state, 1));
  if (state.job) state.job->progress = fraction;
  return 0;
}

int yield_job(lua_State*, State& state) {
  Job::yield(state);
  return 0;
}

int take_graphs_swap(lua_State* L, State&) {
  lua_settop(L, 1);
  set_graphs_swap(L);
  return 0;
}

}  // namespace

void open_jobs(lua_State* L, State& state) {
  Job::open(L);
  register_functions(L, state,
                     {{"job_start", entry<job_start>},
                      {"job_step", entry<job_step>},
                      {"job_done", entry<job_done>},
                      {"job_results", entry<job_results>},
                      {"job_progress", entry<job_progress>},
                      {"job_release", entry<job_release>},
                      {"job_yield", entry<yield_job>},
                      {"report_progress", entry<report_progress>},
                      {"set_graphs_swap", entry<take_graphs_swap>}});
  make_class(L, state, kJobClass, collect_job, {});
}

}  // namespace pg::vm
