// The slices of a job: its thread, what changes hands between it and the thread that calls step(), and when a slice
// ends.
#include "vm/job.h"

#include <luajit.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include "tensor/io/host_files.h"
#include "tensor/memory_account.h"
#include "tensor/work_meter.h"
#include "vm/call_depth.h"
#include "vm/output.h"
#include "vm/sandbox.h"

namespace pg::vm {
namespace {

const RegistryKey kSwapGraphs;  // core.swap_graphs's function
const RegistryKey kJitStatus;   // jit.status, in states that the library opened

constexpr int64_t kOverrun = 200'000;  // nanoseconds that a slice may take longer
constexpr double kMemory = 20e6;       // nanoseconds in which the longest time between two polls is forgotten
constexpr int kMostInSandbox = 200;    // jobs that have threads

int never_compiles(lua_State* L) {
  lua_pushboolean(L, 0);
  return 1;
}

bool jit_is_on(lua_State* L) {
  kJitStatus.push(L);
  const bool on = lua_isfunction(L, -1) && !lua_pcall(L, 0, 1, 0) && lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

// Scopes of coroutines that are suspended by coroutine.yield belong to no chain: any chain may resume them.
template <class Scopes, class Number>
void share_suspended(Scopes& from, Scopes& to, Number number) {
  for (size_t i = 0; i < from.size();) {
    if (lua_status(from[i].owner) != LUA_YIELD) {
      ++i;
      continue;
    }
    to.push_back(std::move(from[i]));
    from.erase(from.begin() + ptrdiff_t(i));
  }
  std::sort(to.begin(), to.end(), [&](const auto& a, const auto& b) { return number(a) < number(b); });
}

void change_chain(State& state, Dynamics& leaving, Dynamics& entering) {
  Dynamics& now = state;
  std::swap(now, leaving);
  std::swap(now, entering);
  try {
    share_suspended(leaving.modes, now.modes, [](const ModeScope& m) { return m.token; });
    share_suspended(leaving.scopes, now.scopes, [](const BoxScope& s) { return s.id; });
  } catch (const std::bad_alloc&) {}  // they stay inactive until the chain goes on
  std::erase(state.parked, &entering);
  state.parked.push_back(&leaving);
  state.parked_walks += leaving.walks - now.walks;
}

// A thread of the parent process: here it is neither joined nor detached, since the system may use its number again.
void forget(std::thread thread) { (void)new std::thread(std::move(thread)); }

}  // namespace

// The extent of a slice on the thread that calls step().
class Job::Slice {
  // While chains are changed, a job that steps another one is not suspended.
  struct Pin {
    explicit Pin(Job* job) : job(job) {
      if (job) ++job->pinned_;
    }
    ~Pin() {
      if (job) --job->pinned_;
    }
    Job* const job;
  };

 public:
  Slice(Job& job, lua_State* L) : job_(job), L_(L), state_(*job.state_), outer_(state_.job) {
    const Pin pin(outer_);
    change_chain(state_, job.host_dynamics_, job.dynamics_);
    swap_flags();
    suspender_ = std::exchange(state_.ctx.suspender, &job);
    state_.job = &job;
    compiles_ = job.slices_loops_ && !job.closing_ && jit_is_on(L);
    if (compiles_) luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
    hook_.set(L, job);
  }
  Slice(const Slice&) = delete;
  ~Slice() {
    const Pin pin(outer_);
    hook_.restore(L_, job_);
    if (compiles_) luaJIT_setmode(L_, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_ON);
    state_.job = outer_;
    state_.ctx.suspender = suspender_;
    swap_flags();
    change_chain(state_, job_.dynamics_, job_.host_dynamics_);
    ++state_.ctx.suspensions;
  }

 private:
  void swap_flags() {
    std::swap(state_.ctx.recording, job_.recording_);
    std::swap(state_.ctx.training, job_.training_);
    std::swap(state_.ctx.detect_anomaly, job_.detect_anomaly_);
    std::swap(state_.ctx.work, job_.work_);
    const RandomKey now = state_.ctx.generator->state();
    state_.ctx.generator->set_state(std::exchange(job_.random_, now));
    const int top = lua_gettop(L_);
    kSwapGraphs.push(L_);
    lua_pushnumber(L_, job_.graphs_[0]);
    for (int i : {1, 2}) lua_pushboolean(L_, job_.graphs_[i]);
    if (lua_isfunction(L_, top + 1) && !lua_pcall(L_, 3, 3, 0)) {
      job_.graphs_[0] = int(lua_tointeger(L_, -3));
      for (int i : {1, 2}) job_.graphs_[i] = lua_toboolean(L_, i - 3);
    }
    lua_settop(L_, top);
  }

  Job& job_;
  lua_State* L_;
  State& state_;
  Job* outer_;
  Suspender* suspender_ = nullptr;
  bool compiles_ = false;
  SliceHook hook_;
};

// What belongs to the thread of a call, which the thread of the job takes over for a slice: the memory account, the
// files of the host, where prints go, and the count of work.
struct Job::Surroundings {
  // Of the thread that calls step(), in this slice.
  MemoryAccount* account = nullptr;
  HostFiles* files = nullptr;
  const Output* output = nullptr;
  WorkMeter* meter = nullptr;
  // On the thread of the job.
  std::optional<ScopedAccount> job_account;
  std::optional<ScopedFiles> job_files;

  void note() {
    account = MemoryAccount::current();
    files = HostFiles::current();
    output = Output::current;
    meter = WorkMeter::current;
  }
  void take_over() {
    job_account.reset();
    job_account.emplace(account);
    job_files.reset();
    job_files.emplace(files);
    Output::current = output;
    WorkMeter::current = meter;
  }
  void leave() {
    job_account.reset();
    job_files.reset();
    Output::current = nullptr;
    WorkMeter::current = nullptr;
  }
};

// A second job that starts from the same random state gets other numbers.
Job::Job(State& state) : state_(&state), detect_anomaly_(state.ctx.detect_anomaly), surroundings_(new Surroundings) {
  random_ = random_at_start_ = state.ctx.generator->state();
  JobTable::Streams& same = state.job_table->streams[{random_.seed, random_.tick}];
  ++same.live;
  stream_ = ++same.next;
  random_.tick += (stream_ - 1) << 40;
}

Job::~Job() {
  if (thread_.joinable()) forget(std::move(thread_));
  if (state_) close();  // it has not started, and its host could not keep it
}

void Job::run_slice(lua_State* L) {
  if (!thread_.joinable()) start_thread(L);
  status_ = Status::kRunning;
  {
    const Slice slice(*this, L);
    surroundings_->note();
    go_.release();
    back_.acquire();
  }
  status_ = Status::kSuspended;
  if (!finished_) return;
  thread_.join();
  --state_->job_table->threads;
  leave_stream();
  status_ = failed_ ? Status::kFailed : Status::kDone;
  // As after a call of the function, if nothing else has used the generator.
  Generator& generator = *state_->ctx.generator;
  if (generator.state() == random_at_start_) generator.set_state(random_);
}

// Jobs that are garbage have threads until they are collected.
void Job::collect_jobs(lua_State* L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  end_abandoned_jobs(L, *state_);
}

// Signal handlers of the host run on its own threads. Code that is compiled already would not be stopped, so it goes.
void Job::start_thread(lua_State* L) {
  JobTable& table = *state_->job_table;
  if (table.threads >= table.collect_at) {
    collect_jobs(L);
    table.collect_at = std::max(64, 2 * table.threads);
  }
  if (table.threads >= kMostInSandbox && is_sandbox(L)) fail("job", "at most {} jobs can run at once", kMostInSandbox);
  const auto start = [this] {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {}
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread_.joinable();
  };
  if (!start()) {
    collect_jobs(L);
    if (!start()) throw OutOfMemory("job: the system gives no more threads");
  }
  ++table.threads;
  process_ = getpid();
  if (slices_loops_) luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_FLUSH);
}

// The thread of the job.
void Job::run() {
  current = this;
  const StackBase stack;
  const Ref<Runtime> runtime = state_->ctx.runtime;
  const ScopedRuntime scope(*runtime);
  enter_slice();
  const int code = resume_until_end();
  lua_State* const T = coroutine_;
  failed_ = failed_ || code != 0 || !lua_toboolean(T, 1);
  if (failed_ && message_.empty()) note_message(T, -1);
  finished_ = true;
  surroundings_->leave();
  back_.release();
}

// Lua's yields leave the coroutine without frames of C, so it waits here. Values that are yielded are dropped.
int Job::resume_until_end() {
  lua_State* const T = coroutine_;
  int code = lua_resume(T, lua_gettop(T) - 1);
  while (code == LUA_YIELD) {
    lua_settop(T, 0);
    hand_over();
    if (closing_) return LUA_ERRRUN;  // no hook would stop it
    if (lua_status(T) != LUA_YIELD) return LUA_ERRRUN;
    code = lua_resume(T, 0);
  }
  return code;
}

void Job::hand_over() {
  back_.release();
  enter_slice();
  last_poll_ = now();
}

// Waits for the next slice.
void Job::enter_slice() {
  go_.acquire();
  surroundings_->take_over();
}

// The slice ends where its time is over, or before work that would end further behind that than now is before it; long
// work may end kOverrun behind it.
bool Job::due() const {
  const int64_t t = now(), deadline = deadline_.load(std::memory_order_relaxed);
  if (current != this) return t >= deadline;
  const int64_t passed = t - std::exchange(last_poll_, t);
  gap_ =
      std::max(std::min(passed, 3 * kOverrun), gap_ - int64_t(double(gap_) * std::min(1.0, double(passed) / kMemory)));
  const int64_t ahead = expected_ > 0 ? std::exchange(expected_, 0) : gap_;
  return t >= deadline - std::max(ahead / 2, ahead - kOverrun);
}

bool Job::may_suspend() const {
  const State& state = *state_;
  return current == this && state.job == this && !ending_ && !state.ctx.cancels_all && !state.trace &&
         !state.paused_trace && !state.collecting && !state.loose && pinned_ == 0;
}

// In a finalizer, where hooks do not run, a hook suspends the job after it.
bool Job::suspend() {
  if (!may_suspend()) return false;
  if (in_finalizer(coroutine_)) return stop_soon(coroutine_), false;
  hand_over();
  if (ending_) throw Cancelled();
  return true;
}

void Job::yield(State& state) {
  if (current && current->state_ == &state) current->suspend();
}

// LuaJIT refuses to change modes in finalizers, also this one, which does not exist.
bool Job::in_finalizer(lua_State* L) {
  const int top = lua_gettop(L);
  const auto change = [](lua_State* inner) { return luaJIT_setmode(inner, 0, LUAJIT_MODE_MAX), 0; };
  const bool refused = lua_cpcall(L, change, nullptr) != 0;
  lua_settop(L, top);
  return refused;
}

void allow_stopped_loops(lua_State* L) {
  lua_getglobal(L, "jit");
  if (lua_istable(L, -1))
    lua_getfield(L, -1, "status");
  else  // a sandbox, where nothing is compiled
    lua_pushcfunction(L, never_compiles);
  kJitStatus.set(L);
  lua_pop(L, 1);
}

bool Job::stops_loops(lua_State* L) {
  kJitStatus.push(L);
  const bool stops = !lua_isnil(L, -1);
  lua_pop(L, 1);
  return stops;
}

void set_graphs_swap(lua_State* L) { kSwapGraphs.set(L); }

}  // namespace pg::vm
