// State: what perigee keeps a Lua state. Found through the first upvalue of every C function of ours.
#pragma once
#include <atomic>
#include <lua.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/context.h"
#include "tensor/error.h"
#include "tensor/tape.h"

namespace pg::vm {

struct Box;
class TraceSession;

// A recording scope opened by pg.record and the like. It holds while the coroutine that opened it is not suspended.
struct ModeScope {
  lua_State* owner;
  bool recording, training;
  bool sets_recording, sets_training;
  uint64_t token;
};

class State;

// A place in Lua's registry. Its key is an address: LuaJIT may lose integer keys of a table that grows and finds no
// memory.
class RegistryKey {
 public:
  void push(lua_State* L) const;        // the value, or nil
  void push_table(lua_State* L) const;  // throws where a script took the table out
  void set(lua_State* L) const;         // to the value that it pops

 private:
  char address_ = 0;
};

inline constexpr RegistryKey kTensorMetatable, kGeneratorMetatable;
inline constexpr RegistryKey kTracked;  // the tensors with a hosted history, by their address; weak
inline constexpr RegistryKey kViews;    // the boxes of State::views by their slot; weak
inline constexpr RegistryKey kLoose;    // while collect_cycles runs, the functions by their place; weak

// A value that Lua keeps for C++. It is given back at the next entry into the binding, because what holds it may die
// inside __gc, where Lua may not be called. Room to note that is made beforehand, so that the destructor cannot fail.
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
  void give_back(lua_State* L);  // now

 private:
  State* state_ = nullptr;
  int index_ = LUA_NOREF;
};

// Boxes made inside a pg.scope call, while the coroutine that made the call is not suspended.
struct BoxScope {
  uint64_t id;
  lua_State* owner;
  Reference boxes;  // a weak table: LuaJIT drops the finalizer of a box for which its stack cannot grow
  int count = 0;    // that have entered
};

// A place among the views of a buffer. C++ keeps no pointer to a box, because its finalizer may be dropped.
struct ViewSlot {
  const Buffer* of;
  size_t place;
};

// A backward function of a script, of one entry of the tape. The registry holds it, but where only tensors that it
// reaches itself lead to it: see collect_cycles.
struct HostedFunction {
  Reference reference;
  TapeNode* node = nullptr;
  size_t place = 0;  // in State::hosted
};

class State {
 public:
  Context ctx;
  const void *tensor_metatable = nullptr, *generator_metatable = nullptr;  // identities
  int tensor_metatable_ref = LUA_NOREF;  // where the registry has it too, for speed, as long as LuaJIT does not lose it
  std::vector<ModeScope> modes;
  std::vector<BoxScope> scopes;
  uint64_t next_scope = 1;
  uint64_t next_token = 1;
  uint64_t recording_token = 0, training_token = 0;  // the scopes that the flags in force come from; 0: none
  TraceSession* trace = nullptr;                     // the function that is being traced
  TraceSession* symbols = nullptr;                   // the graph that symbols outside of traces stand in
  TraceSession* paused_trace = nullptr;  // the trace while core.untraced runs: types of its tensors can be read
  uint64_t next_stamp = 1;               // of runs of programs
  const char* written = nullptr;         // what the script called the op that runs, where that is not its name
  lua_State* running = nullptr;          // where callbacks from backward run
  int walks = 0;                         // backward calls that are under way
  std::vector<int> dead_references;      // to give back at the next entry; room for all that live
  size_t references = 0;                 // that live or are dead
  std::vector<HostedFunction*> hosted;   // all that there are
  size_t next_hosted = 64,
         hosted_bytes = 0;      // how many make collect_cycles run; what their entries kept since the last time
  bool loose = false;           // collect_cycles runs: weak tables hold the functions
  uint64_t next_box = 1;        // serial number of the next box
  uint64_t recompute_from = 0;  // boxes below it keep their value (checkpoint runs again); 0: off
  std::unordered_map<const Buffer*, std::vector<uint32_t>> views;  // by slot, counted from 1; see note_view
  std::vector<ViewSlot> view_slots;
  std::vector<uint32_t> free_view_slots;  // room for all
  bool gc_stress = false;
  Device default_device;  // of what scripts make without saying where; only tests set it
  bool collecting = false;

  int64_t live_bytes = 0;     // held by boxes of this state
  int64_t pending_bytes = 0;  // allocated since the collector's last step; negative while it rests
  int64_t tensors = 0;

  // The Lua state is closing: finalizers of the host's may still call us, and find nothing to work with.
  bool closed = false;
  void close();

  // The flags in force for the running coroutine; called at each entry that applies ops.
  void update_modes();

  void adopt(HostedFunction& function, TapeNode& node);
  void disown(HostedFunction& function);

  // Notes the tensor on top of the stack, whose history runs through backward functions of the script.
  void track(lua_State* L, Box& box);

  // A full collection that frees rings too, which neither counts nor Lua's collector see: tensor, history, backward
  // function, tensor; and leaf, gradient, history, leaf. See vm/cycles.cpp.
  void collect_cycles(lua_State* L);

  // The same, and leaves a stopped collector stopped; then cached memory goes back too.
  void collect_garbage(lua_State* L);

  // Runs collector steps paced by the bytes that new boxes hold. Called at the binding boundary only.
  void relieve_pressure(lua_State* L);
};

// The states that are open, so that a pointer can be told to be one without reading what it points to.
struct LiveStates {
  static constexpr size_t kRows = 256, kWide = 4;
  std::atomic<const void*> rows[kRows][kWide];
  static size_t row_of(const void* p) { return (reinterpret_cast<uintptr_t>(p) >> 6) % kRows; }
};
extern LiveStates live_states;
bool is_live_slow(const void* p);  // the rest of a row, and what found no place in it
inline bool is_live(const void* p) {
  return live_states.rows[LiveStates::row_of(p)][0].load(std::memory_order_relaxed) == p || is_live_slow(p);
}

// The state of a C closure of ours; null where debug.setupvalue put something else there, or the state is closed.
inline State* state_of(lua_State* L) {
  void* const p = lua_touserdata(L, lua_upvalueindex(1));
  return p && is_live(p) ? static_cast<State*>(p) : nullptr;
}
// Sets the function on top of the stack as the one that tells the position of interpreted code; see
// introspect.set_interpreter.
void set_interpreter(lua_State* L);

int refuse_upvalue(lua_State* L);  // raises a Lua error

// Makes room for n values on Lua's stack or raises an error; luaL_checkstack of newer LuaJITs takes a lack of memory
// for an overflow.
inline void need_stack(lua_State* L, int n, const char* what) {
  if (!lua_checkstack(L, n)) luaL_error(L, "stack overflow (%s), or not enough memory", what);
}

// Upvalue i of a C closure of ours, as an index. Throws where it is no table any more.
inline int table_upvalue(lua_State* L, int i) {
  if (!lua_istable(L, lua_upvalueindex(i))) throw Error("perigee: an upvalue of this function was replaced");
  return lua_upvalueindex(i);
}

// Pushes a table that does not keep its values ("v") or keys ("k") alive.
void push_weak_table(lua_State* L, const char* mode);

// The state of any function, through the registry; creates it on first use.
State& find_state(lua_State* L);

// "file:line" of the innermost script function (not of the stdlib), or "".
std::string script_position(lua_State* L);

// Pushes `file:line: text`; takes no memory but Lua's.
void push_error(lua_State* L, const char* text);

// What the C function that is running was called by.
std::string called_name(lua_State* L);

// Pushes the error of a function that read the value of a traced tensor. The trace has failed, whoever catches it.
void push_value_read(lua_State* L, State& state);

using Function = int (*)(lua_State* L, State& state);

// Calls f; where an argument is a symbol of pg.symbol, as part of its graph. See vm/symbols.cpp.
int call_with_symbols(lua_State* L, State& state, Function f);

// Wraps a function that may throw: the exception ends before the Lua error starts, so no destructor is skipped.
template <Function F>
int entry(lua_State* L) {
  State* const found = state_of(L);
  if (!found) return refuse_upvalue(L);
  State& state = *found;
  try {
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
  return lua_error(L);
}

// What f() returns; its errors, and those of the ops that it traces when they run, name what the script wrote.
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

// Sets functions with the state as upvalue into the table on top of the stack.
void register_functions(lua_State* L, State& state, std::initializer_list<Registration> functions);

}  // namespace pg::vm
