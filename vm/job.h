// Job: a function of a script that runs in slices of time.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>

#include "tensor/suspend.h"
#include "vm/past_handlers.h"
#include "vm/state.h"

namespace pg::vm {

// The function is a coroutine that runs on a thread of its own, which the first slice starts. The thread that calls
// step() and the thread of the job pass the state to each other, so only one of them runs. Therefore a job can stop
// wherever C++ polls, also below a callback of C where Lua cannot yield. Plain Lua code is stopped by a hook that
// counts instructions, in states that the library opened.
//
// A job has Dynamics of its own: it begins outside of all scopes of its caller. The default generator has a state of
// its own in it too, a copy of the one at the start, so that its numbers do not depend on what others do between two
// slices. A job does not stop during a trace or a collector step of the library. Only perigee's State and Lua's global
// state are shared, so a job may use and change what its host uses.
class Job final : public Suspender, public std::enable_shared_from_this<Job> {
 public:
  enum class Status { kReady, kRunning, kSuspended, kDone, kFailed };

  // Takes a function and `arguments` arguments from the top of the stack. Leaves the coroutine there: the caller must
  // keep it alive until the job has ended. Throws Error.
  static std::shared_ptr<Job> start(lua_State* L, State& state, int arguments);
  ~Job();
  Job(const Job&) = delete;

  // Runs the next slice, from the thread that uses the state. It ends after about `seconds`; if this is not positive,
  // at the next place where the job can stop. Throws Error, the job's own errors not included.
  void step(lua_State* L, double seconds);
  // Ends a job that is not done: an error that pcall cannot keep is raised where it is suspended. If the job runs, that
  // happens at the end of its slice. A job that has ended, or whose state is closed, stays as it is.
  void end(lua_State* L);
  // The part of step() and end() that the thread of the job calls through Context::poll.
  bool due() const override;
  void expect(int64_t nanoseconds) override { expected_ = nanoseconds; }
  bool suspend() override;
  // Stops here, if the running code belongs to a job that can.
  static void yield(State& state);
  // The same in a hook, for a job whose slice is over. Returns whether it did; the hook returns then.
  static bool stop_here(lua_State* L);
  static bool is_own_hook(lua_Hook hook) { return hook == stop_loop; }
  // Calls the hook at the next instruction of Lua, from the thread that runs it.
  static void stop_soon(lua_State* L);
  // Takes the coroutine from the top of the stack and keeps it until the job ends. Does not fail.
  void keep(lua_State* L) const;
  // Ends a job that nothing refers to, now or, if that would run Lua, at the next entry. For finalizers.
  static void abandon(lua_State* L, std::shared_ptr<Job> job);
  static void open(lua_State* L);

  Status status() const { return status_; }
  bool is_open() const { return state_ != nullptr; }  // whether neither end() nor the state has closed it
  // Of a job that is done: pushes the results. Returns their number.
  int push_results(lua_State* L) const;
  // Of a job that has failed: pushes the error value.
  void push_error_value(lua_State* L) const;
  const std::string& message() const { return message_; }  // of the error
  const Traceback& traceback() const { return traceback_; }

  std::atomic<double> progress{0};  // as the script has reported it

 private:
  class Slice;
  // The hook during a slice, and the one before it.
  class SliceHook {
   public:
    void set(lua_State* L, const Job& job);
    void restore(lua_State* L, const Job& job) const;

   private:
    lua_Hook hook_ = nullptr;
    int mask_ = 0, count_ = 0;
  };
  friend void end_abandoned_jobs(lua_State* L, State& state);
  friend void close_jobs(lua_State* L, State& state);
  explicit Job(State& state);
  void unwind(lua_State* L);
  void run_slice(lua_State* L);
  void start_thread(lua_State* L);
  void run();  // the thread
  void enter_slice();
  int resume_until_end();
  void hand_over();
  bool may_suspend() const;
  void collect_jobs(lua_State* L);
  void leave_stream();
  void close();
  void note_message(lua_State* L, int i);
  static bool in_finalizer(lua_State* L);
  static bool stops_loops(lua_State* L);  // whether jobs may stop plain Lua loops
  static void stop_loop(lua_State* L, lua_Debug*);
  static int note_failure(lua_State* L);

  static inline thread_local Job* current = nullptr;  // the job of this thread

  State* state_;
  lua_State* coroutine_ = nullptr;
  bool slices_loops_ = false;  // whether the library opened the Lua state
  Status status_ = Status::kReady;
  std::atomic<int64_t> deadline_{0};
  mutable int64_t expected_ = 0;             // the time until the poll after the next one; 0: unknown
  mutable int64_t last_poll_ = 0, gap_ = 0;  // the time between two polls: the longest, slowly forgotten
  bool finished_ = false, failed_ = false, end_requested_ = false;
  Grace grace_;
  bool ending_ = false, closing_ = false;  // closing: the Lua state closes, where hooks do not run
  Dynamics dynamics_;                      // while the job does not run
  Dynamics host_dynamics_;                 // while it does
  bool recording_ = false, training_ = false, detect_anomaly_ = false;
  Work* work_ = nullptr;
  RandomKey random_, random_at_start_;  // of the default generator; while the job runs the first is the host's
  int graphs_[3] = {0, 0, 0};           // core.graphs: off, retracing, exporting
  uint64_t stream_ = 0;                 // of the jobs with this start, its number; 0: it counts no longer
  int pinned_ = 0;                      // greater than 0 while it changes to a job that it steps, or back
  size_t place_ = 0;                    // in State::jobs
  std::string message_;
  Traceback traceback_;
  struct Surroundings;
  std::unique_ptr<Surroundings> surroundings_;
  std::thread thread_;
  int process_ = 0;  // that has the thread
  std::binary_semaphore go_{0}, back_{0};
};

// What the jobs of a state share.
struct JobTable {
  int threads = 0, collect_at = 64;  // garbage is collected before there are more threads
  struct Streams {
    uint64_t live = 0, next = 0;
  };
  std::map<std::pair<uint64_t, uint64_t>, Streams> streams;  // of jobs, by the random state at their start
};

// Ends the jobs whose last handle the collector has freed.
void end_abandoned_jobs(lua_State* L, State& state);
// Ends all jobs of a state that closes.
void close_jobs(lua_State* L, State& state);
// Notes that jobs may stop plain Lua loops: the library has opened this Lua state.
void allow_stopped_loops(lua_State* L);

// Takes a function from the top of the stack: swap(off, retracing, exporting) sets these fields of core.graphs and
// returns what they were.
void set_graphs_swap(lua_State* L);

void open_jobs(lua_State* L, State& state);  // core.job_…

}  // namespace pg::vm
