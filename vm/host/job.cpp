// perigee_job_*: functions of a script that run in slices. vm/job.h is what scripts use too.
#include "vm/job.h"

#include <algorithm>
#include <vector>

#include "vm/host/values.h"

using namespace pg;
using namespace pg::host;

struct perigee_job {
  perigee_state* state;  // null once the state is closed
  std::shared_ptr<vm::Job> job;
  perigee_status failure = PERIGEE_OK;  // of a job that has failed
  std::string message, traceback;
  bool in_slice = false, is_released = false;  // the end of the slice deletes a handle that was released in it
};

namespace {

// The state of a job, or a failure if it is closed.
perigee_state* state_of(perigee_job* job, const char* function) {
  need(job, function, "job");
  need(job->state, function, "job", "a job whose state is open");
  return job->state;
}

std::string text_of(const vm::Traceback& traceback) {
  std::string text;
  for (size_t i = 0; i < traceback.frames.size(); ++i) {
    if (traceback.gap && i == traceback.gap) text += "...\n";
    text += traceback.frames[i].place + ": " + traceback.frames[i].what + "\n";
  }
  return text;
}

// Deletes a handle that a callback has released during the slice.
class InSlice {
 public:
  explicit InSlice(perigee_job* job) : job_(job) { job->in_slice = true; }
  InSlice(const InSlice&) = delete;
  ~InSlice() {
    job_->in_slice = false;
    if (job_->is_released) delete job_;
  }

 private:
  perigee_job* job_;
};

void run_slice(perigee_job& job, int64_t budget_us) {
  lua_State* L = job.state->lua;
  job.job->step(L, double(budget_us) * 1e-6);
  if (job.state->data->ctx.cancels_all) job.job->end(L);  // interrupted: the call and the job end
  if (!job.job->is_open() && job.job->status() != vm::Job::Status::kDone)
    throw Failure(PERIGEE_CANCELLED, "perigee_job_step: the job was released during its slice");
  if (job.job->status() == vm::Job::Status::kFailed)
    throw ScriptFailure(is_lack_of_memory(job.job->message()) ? PERIGEE_OUT_OF_MEMORY : PERIGEE_SCRIPT_ERROR,
                        job.job->message(), text_of(job.job->traceback()));
}

[[noreturn]] void fail_again(const perigee_job& job) { throw ScriptFailure(job.failure, job.message, job.traceback); }

// Keeps the failure that ended the job, for later calls.
void note_failure(perigee_job& job, const Failure& failure) {
  const auto* script = dynamic_cast<const ScriptFailure*>(&failure);
  job.failure = failure.status;
  job.message = failure.what();
  job.traceback = script ? script->traceback : "";
}

}  // namespace

void pg::host::forget_jobs(perigee_state& state) {
  if (!state.data) return;
  (void)guarded(PERIGEE_INTERNAL, [&] {
    in_state(&state, "perigee_state_close", [&] {
      for (perigee_job* job : state.jobs) job->job->end(state.lua);
      while (state.owned && !state.data->jobs.empty()) state.data->jobs.back()->end(state.lua);
    });
  });
  for (perigee_job* job : state.jobs) job->state = nullptr;
  state.jobs.clear();
}

perigee_status perigee_job_start(perigee_state* state, const char* path, const perigee_value* args, size_t arg_count,
                                 perigee_job** out) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_job_start";
    need(out, kName, "out");
    need(path, kName, "path");
    need(args || arg_count == 0, kName, "args");
    need(arg_count <= 200, kName, "arg_count", "at most 200");
    auto job = std::make_unique<perigee_job>(perigee_job{state, nullptr, PERIGEE_OK, "", "", false, false});
    in_state(state, kName, [&] {
      lua_State* L = state->lua;
      state->jobs.reserve(state->jobs.size() + 1);
      vm::need_stack(L, int(arg_count) + 20, kName);
      push_function(L, kName, path);
      for (size_t i = 0; i < arg_count; ++i) push_value(*state, args[i]);
      job->job = vm::Job::start(L, *state->data, int(arg_count));
      job->job->keep(L);
    });
    state->jobs.push_back(job.get());
    *out = job.release();
  });
}

perigee_status perigee_job_step(perigee_job* job, int64_t budget_us, int* done) {
  return guarded(PERIGEE_BAD_ARGUMENT, [&] {
    constexpr const char* kName = "perigee_job_step";
    perigee_state* const state = state_of(job, kName);
    need(done, kName, "done");
    need(!job->in_slice, kName, "job", "a job that is not running");
    if (job->failure) fail_again(*job);
    const InSlice guard(job);
    try {
      in_state(state, kName, [&] { run_slice(*job, budget_us); });
    } catch (const Failure& failure) {
      if (!job->job->is_open() || job->job->status() == vm::Job::Status::kFailed) note_failure(*job, failure);
      throw;
    }
    *done = job->job->status() == vm::Job::Status::kDone;
  });
}

perigee_status perigee_job_results(perigee_job* job, perigee_value* results, size_t capacity, size_t* result_count) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_job_results";
    perigee_state* const state = state_of(job, kName);
    need(results || capacity == 0, kName, "results");
    if (job->failure) fail_again(*job);
    need(job->job->status() == vm::Job::Status::kDone, kName, "job", "a job that is done");
    std::vector<HandedOut> kept;
    size_t count = 0;
    in_state(state, kName, [&] {
      forget_strings(state->lua);
      const int top = lua_gettop(state->lua);
      count = size_t(job->job->push_results(state->lua));
      vm::need_stack(state->lua, 8, kName);
      kept = read_values(*state, top + 1, std::min(count, capacity));
    });
    for (size_t i = 0; i < kept.size(); ++i) results[i] = kept[i].release();
    if (result_count) *result_count = count;
  });
}

perigee_status perigee_job_progress(perigee_job* job, double* progress) {
  return guarded(PERIGEE_INTERNAL, [&] {
    need(job, "perigee_job_progress", "job");
    need(progress, "perigee_job_progress", "progress");
    *progress = job->job->progress;
  });
}

void perigee_job_release(perigee_job* job) {
  if (!job) return;
  if (perigee_state* const state = job->state) {
    std::erase(state->jobs, job);
    if (state->running)  // in a callback
      vm::Job::abandon(state->lua, job->job);
    else
      (void)guarded(PERIGEE_INTERNAL,
                    [&] { in_state(state, "perigee_job_release", [&] { job->job->end(state->lua); }); });
  }
  job->is_released = true;
  if (!job->in_slice) delete job;
}
