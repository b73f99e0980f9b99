// State: the data of perigee in one Lua state. The first upvalue of each of our C functions points to it.
#pragma once
#include <atomic>
#include <chrono>
#include <lua.hpp>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/context.h"
#include "tensor/error.h"
#include "tensor/observer.h"
#include "tensor/tape.h"
#include "vm/traceback.h"

namespace pg::vm {

struct Box;
class TraceSession;

// A scope opened by pg.record and the like. It is active while the coroutine that opened it is not suspended.
struct ModeScope {
  lua_State* owner;
  bool recording, training;
  bool sets_recording, sets_training;
  uint64_t token;
};

class State;

// A place in Lua's registry. Its key is an address, because LuaJIT may lose integer keys of a table that fails to grow.
class RegistryKey {
 public:
  void push(lua_State* L) const;        // the value, or nil
  void push_table(lua_State* L) const;  // throws if a script has removed the table
  void set(lua_State* L) const;         // sets it to a value, which it pops
  // Pushes the table, which it makes at the first call. `mode`: the __mode of its metatable.
  void push_or_make(lua_State* L, const char* mode) const;

 private:
  char address_ = 0;
};

inline constexpr RegistryKey kTensorMetatable, kGeneratorMetatable;
inline constexpr RegistryKey kTracked;  // weak table: tensors with a hosted history, by address
inline constexpr RegistryKey kViews;    // weak table: boxes of State::views, by slot
inline constexpr RegistryKey kLoose;    // weak table: while collect_cycles runs, functions by place

// A reference from C++ to a Lua value. It is released at the next entry into the binding, because its owner may be
// destroyed inside __gc, where Lua must not be called. The constructor reserves the memory to record that, so that the
// destructor cannot fail.
class Reference {
 public:
  Reference() = default;
  Reference(lua_State* L, State& state);  // pops the value
  Reference(Reference&& other) noexcept : state_(other.state_), index_(std::exchange(other.index_, LUA_NOREF)) {}
  Reference& operator=(Reference&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~Reference();

  explicit operator bool() const { return index_ != LUA_NOREF; }
  void push(lua_State* L) const;
  void give_back(lua_State* L);  // releases the value now

 private:
  State* state_ = nullptr;
  int index_ = LUA_NOREF;
};

// The boxes made inside a pg.scope call, while the coroutine that made the call is not suspended.
struct BoxScope {
  uint64_t id;
  lua_State* owner;
  Reference boxes;  // a weak table, since LuaJIT may skip the finalizer of a box if its stack cannot grow
  int count = 0;    // the number of boxes that have entered
};

// A place among the views of a buffer. C++ holds no pointers to boxes, because LuaJIT may skip their finalizers.
struct ViewSlot {
  const Buffer* of;
  size_t place;
};

// A backward function of a script, belonging to one tape entry. The registry holds it, except while collect_cycles runs
// and only tensors that it reaches itself lead to it.
struct HostedFunction {
  Reference reference;
  TapeNode* node = nullptr;
  size_t place = 0;  // index in State::hosted
};

// A call of one of our C functions, in the coroutine L, while it runs. Calls nest where they call Lua.
struct EntryCall {
  lua_State* L;
  EntryCall* outer;
};

class WriteLog;

// What holds for a chain of coroutines that resume each other. A job has one of its own. While one chain runs, those of
// suspended jobs and of the callers of job:step are parked: see vm/job.cpp.
struct Dynamics {
  std::vector<ModeScope> modes;                      // while parked: only those whose coroutines belong to the chain
  std::vector<BoxScope> scopes;                      // the same
  uint64_t recording_token = 0, training_token = 0;  // the scopes that set the current flags; 0: none
  TraceSession* trace = nullptr;                     // the trace in progress
  TraceSession* paused_trace = nullptr;  // the trace while core.untraced runs, where types of its tensors can be read
  const char* written = nullptr;         // the script's name of the running op, if it differs from the op's name
  EntryCall* entry = nullptr;            // the innermost call in progress
  lua_State* running = nullptr;          // the coroutine in which callbacks from backward run
  int walks = 0;                         // the number of running backward calls
  int nested_calls = 0;                  // the number of running NestedCalls
  int callbacks = 0;                     // the number of running functions that graphs or backward have called
  WriteLog* write_log = nullptr;         // the innermost log that notes writes
  RandomKey* outside = nullptr;          // while bodies run as plain Lua: the default generator's state outside of them
  StoredError stored_error;              // the last error that passed through the library
};

class Job;
struct JobTable;

// kWanted: a thread sets the polling hook, or has left that to the one that holds the lock.
enum class HookLock : uint8_t { kFree, kHeld, kWanted };

class State : public Dynamics {
 public:
  Context ctx;
  const void *tensor_metatable = nullptr, *generator_metatable = nullptr;  // for comparisons of identity
  int tensor_metatable_ref = LUA_NOREF;  // a second, faster reference to it in the registry, which LuaJIT may lose
  uint64_t next_scope = 1;
  uint64_t next_token = 1;
  TraceSession* symbols = nullptr;  // the graph of the symbols outside of traces
  int64_t symbol_boxes = 0;         // boxes that hold its symbols, and calls that may make one
  uint64_t next_stamp = 1;          // the stamp of the next run of a program
  Job* job = nullptr;               // the job whose slice is running
  std::vector<Job*> jobs;           // all that have not ended
  // A hook that raises an error if the call must end, and calls Job::stop_here otherwise. It may be set in place of the
  // hook of jobs, which calls it.
  lua_Hook polling_hook = nullptr;
  std::atomic<HookLock> hook_lock{HookLock::kFree};  // see set_hook
  std::shared_ptr<JobTable> job_table;               // of a state that has had jobs
  std::vector<Dynamics*> parked;                     // its capacity covers two per job
  int parked_walks = 0;                              // the number of backward calls in them
  std::vector<std::shared_ptr<Job>> abandoned_jobs;  // to end at the next entry; its capacity covers all jobs
  std::vector<int> dead_references;                  // to release at the next entry; its capacity covers all references
  size_t references = 0;                             // live and dead references
  std::vector<HostedFunction*> hosted;               // all hosted functions
  std::vector<WriteLog*> logs;                       // all write logs
  size_t next_hosted = 64,                           // collect_cycles runs at this number of hosted functions
      hosted_bytes = 0;   // bytes that new tape entries of hosted functions have kept since its last run
  bool loose = false;     // collect_cycles runs, and weak tables hold the functions
  uint64_t next_box = 1;  // serial number of the next box
  std::unordered_map<const Buffer*, std::vector<uint32_t>> views;  // slots of views, counted from 1; see note_view
  std::vector<ViewSlot> view_slots;
  std::vector<uint32_t> free_view_slots;   // its capacity covers all slots
  std::vector<Ref<Generator>> generators;  // all but the default one; new_generator removes those that nobody uses
  size_t next_generators = 8;              // it does so at this number
  bool gc_stress = false;
  int64_t stressed_places = 0;
  uint64_t stress_draw = 1;  // random, and the same in each run, so that no loop stays in step with it
  Device default_device;     // of tensors that scripts make without naming a device; only tests set it
  bool collecting = false;
  double collector_share = 0;                            // of the time, over the last steps
  std::chrono::steady_clock::time_point last_step = {};  // the end of the last one
  std::vector<std::unique_ptr<Observer>> observers;      // the last one is that of ctx

  int64_t live_bytes = 0;     // bytes held by boxes of this state
  int64_t settled_bytes = 0;  // of these, at most what the last full collection left
  int64_t pending_bytes = 0;  // bytes allocated since the collector's last step; negative while no step is due
  int64_t tensors = 0;

  // Whether the Lua state is closing. Finalizers of the host may still call us then, and must not use this State.
  bool closed = false;
  void close(lua_State* L);

  // Sets the flags of ctx for the running coroutine. Called at each entry that applies ops.
  void update_modes();

  Ref<Generator> new_generator(RandomKey key);

  void adopt(HostedFunction& function, TapeNode& node);
  void disown(HostedFunction& function);

  // Tracks the tensor on top of the stack, whose history contains backward functions of the script.
  void track(lua_State* L, Box& box);

  // Runs a full collection that also frees cycles through both C++ and Lua, which neither reference counts nor Lua's
  // collector detect: tensor, history, backward function, tensor; and leaf, gradient, history, leaf. See vm/cycles.cpp.
  void collect_cycles(lua_State* L);

  // The same, but a stopped collector stays stopped, and cached memory is released too.
  void collect_garbage(lua_State* L);

  // Whether set_gc_stress wants a collection at this place.
  bool stresses_here();

  // Runs collector steps in proportion to the bytes of new boxes. Called at the binding boundary only.
  void relieve_pressure(lua_State* L);

  // The same at the start of a call: its results then take the memory of earlier ones, which the caches still hold.
  void make_room(lua_State* L) {
    if (pending_bytes >= room_bytes) relieve_pressure(L);
  }
  // The same at the start of backward, which holds the most memory. The boxes of temporaries that the forward pass has
  // left keep what the tape does not, or would free soon: if they may have much, they are collected first.
  void relieve_backward(lua_State* L);
  static constexpr int64_t kStepBytes = int64_t(1) << 20;  // the bytes after which the collector makes a step
  int64_t room_bytes = kStepBytes;                         // the same at the start of a call; see set_gc_stress

  // For tests: a full collection at the start and end of each of the next 100 ops, then at one of eight such places:
  // what is long does the same again and again.
  void set_gc_stress(bool on) {
    gc_stress = on;
    stressed_places = 0;
    room_bytes = on ? INT64_MIN : kStepBytes;
  }
};

// The extent of a call by which a running graph or backward enters Lua again. The function may run graphs and backward
// itself, and all of them share the C stack. The constructor throws `op: …` when such calls nest too deep.
class NestedCall {
 public:
  NestedCall(State& state, const char* op) : calls_(state.nested_calls) {
    if (calls_ == kMost)
      throw Error(
          fmt::format("{}: {} nested calls of functions by graphs or backward; does one reach itself?", op, kMost));
    ++calls_;
  }
  ~NestedCall() { --calls_; }
  NestedCall(const NestedCall&) = delete;

 private:
  static constexpr int kMost = 60;  // each takes up to 5 KB of the stack
  int& calls_;                      // of the same chain again when the call ends
};

// The open states. A pointer can be checked against them without dereferencing it.
struct LiveStates {
  static constexpr size_t kRows = 256, kWide = 4;
  std::atomic<const void*> rows[kRows][kWide];
  static size_t row_of(const void* p) { return (reinterpret_cast<uintptr_t>(p) >> 6) % kRows; }
};
extern LiveStates live_states;
bool is_live_slow(const void* p);  // searches the rest of the row and the overflow list
inline bool is_live(const void* p) {
  return live_states.rows[LiveStates::row_of(p)][0].load(std::memory_order_relaxed) == p || is_live_slow(p);
}

// The state of the running C closure. Null if debug.setupvalue replaced the pointer or the state is closed.
inline State* state_of(lua_State* L) {
  void* const p = lua_touserdata(L, lua_upvalueindex(1));
  return p && is_live(p) ? static_cast<State*>(p) : nullptr;
}
// Sets the function on top of the stack as the one that returns the position of interpreted code; see
// introspect.set_interpreter.
void set_interpreter(lua_State* L);

int refuse_upvalue(lua_State* L);  // raises a Lua error

// Makes room for n values on Lua's stack or raises an error. luaL_checkstack of newer LuaJITs reports a lack of memory
// as an overflow.
inline void need_stack(lua_State* L, int n, const char* what) {
  if (!lua_checkstack(L, n)) luaL_error(L, "stack overflow (%s), or not enough memory", what);
}

// The stack index of upvalue i of the running C closure. Throws if the upvalue is no longer a table.
inline int table_upvalue(lua_State* L, int i) {
  if (!lua_istable(L, lua_upvalueindex(i))) throw Error("perigee: an upvalue of this function was replaced");
  return lua_upvalueindex(i);
}

// Pushes a table with weak values ("v") or keys ("k").
void push_weak_table(lua_State* L, const char* mode);

// The State of a Lua state, found through the registry. Makes it at the first use.
State& find_state(lua_State* L);

// Finds the innermost frame of a script, not of the stdlib: its short_src and currentline. Returns false if there is
// none.
bool find_script(lua_State* L, lua_Debug* frame);

// "file:line" of that frame, or "".
std::string script_position(lua_State* L);

// Pushes `file:line: text`. Allocates from Lua only.
void push_error(lua_State* L, const char* text);

// The name by which the running C function was called.
std::string called_name(lua_State* L);

// Pushes the error of a function that read the value of a traced tensor. The trace fails even if the script catches the
// error.
void push_value_read(lua_State* L, State& state);

using Function = int (*)(lua_State* L, State& state);

// Calls f. If an argument is a symbol of pg.symbol, its ops become part of the symbol's graph. See vm/symbols.cpp.
int call_with_symbols(lua_State* L, State& state, Function f);
// Frees the graph of the symbols if no box and no call needs it. May be called in finalizers.
void free_symbols(State& state);

// After a call failed during a trace: guards the types of its arguments, because no node of the graph checks what the
// error depended on.
void note_failure(lua_State* L, State& state);

// Sets the hook of Lua. For the thread that runs Lua.
void set_hook(lua_State* L, State& state, lua_Hook hook, int mask, int count);
// Sets the polling hook at each instruction unless it or that of jobs is there, from any thread or signal handler. The
// caller has set cancels_all.
void set_polling_hook(lua_State* L, State& state);

// While every op is to fail: sets the hook that ends the call again if a script has taken it off.
inline void keep_polling(lua_State* L, State& state) {
  if (state.ctx.cancels_all && state.polling_hook && !lua_gethookmask(L))
    set_hook(L, state, state.polling_hook, LUA_MASKCOUNT, 1);
}

// Makes the running call known to functions that have no L, such as observers.
class EntryScope {
 public:
  EntryScope(State& state, lua_State* L) : state_(state), call_{L, state.entry} { state.entry = &call_; }
  ~EntryScope() { state_.entry = call_.outer; }
  EntryScope(const EntryScope&) = delete;

 private:
  State& state_;
  EntryCall call_;
};

// Wraps a function that may throw. The exception is caught before the Lua error is raised, so no destructor is skipped.
template <Function F>
int entry(lua_State* L) {
  State* const found = state_of(L);
  if (!found) return refuse_upvalue(L);
  State& state = *found;
  try {
    const ScopedRuntime runtime(*state.ctx.runtime);
    const EntryScope scope(state, L);
    return state.symbols && !state.trace ? call_with_symbols(L, state, F) : F(L, state);
  } catch (const PositionedError& e) {
    lua_pushstring(L, e.what());
  } catch (const NoValue&) {
    push_value_read(L, state);
  } catch (const std::bad_alloc&) {
    push_error(L, "out of memory");
  } catch (const std::exception& e) {
    push_error(L, e.what());
  }
  if (state.trace) note_failure(L, state);
  keep_polling(L, state);
  return lua_error(L);
}

// Returns f(). Its errors, and those of the ops that it traces when they run later, show the name that the script used.
template <class F>
int run_as(State& state, const char* name, F&& f) {
  struct Scope {
    const char*& place;
    const char* before;
    ~Scope() { place = before; }
  } scope{state.written, std::exchange(state.written, name)};
  return with_name(name, f);
}

struct Registration {
  const char* name;
  lua_CFunction function;
};

// Adds functions, with the state as upvalue, to the table on top of the stack.
void register_functions(lua_State* L, State& state, std::initializer_list<Registration> functions);

}  // namespace pg::vm
