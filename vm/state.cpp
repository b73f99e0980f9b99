#include "vm/state.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <mutex>
#include <unordered_set>

#include "tensor/runtime.h"
#include "tensor/buffer.h"
#include "vm/trace.h"
#include "vm/bindings.h"
#include "vm/job.h"

namespace pg::vm {
namespace {

const RegistryKey kState;
const RegistryKey kReferences;  // a table with dense integer keys only

// The collector waits for so many bytes if its step does not take long: the Lua heap is small, and no slice of a job
// ends soon. Ops empty the caches, so a few longer steps cost less than many short ones; with still longer ones the
// temporaries of a chain of ops on 4 MB leave the last-level cache.
constexpr int64_t kLongStepBytes = int64_t(6) << 20, kSmallHeapKb = 1 << 10;
// The bytes after which a full cycle is due: few, so that temporaries stay in the caches, but more if the Lua heap is
// large and a cycle costs more. Steps run six times as fast, since LuaJIT does twice the work that it is asked for.
constexpr int64_t kCycleBytes = int64_t(24) << 20, kMaxCycleBytes = int64_t(48) << 20;
// A larger share of the time costs more than the caches gain. Steps then run at half the speed.
constexpr double kLargeShare = 0.1;
constexpr size_t kManySuspects = 32;
constexpr int kGcIsRunning = 9;  // LUA_GCISRUNNING of LuaJIT 2.1

int collect_state(lua_State* L) {
  static_cast<State*>(lua_touserdata(L, 1))->close(L);
  return 0;
}

// Frees the memory of the members too, which an assignment may keep.
template <class T>
void empty(T& value) {
  T none;
  std::swap(value, none);
}

// Runs f, which calls the collector. An error of a finalizer may leave f without running destructors, so the work is
// not put on the chain that starts at Context::work.
template <class F>
void observe_collector(Context& ctx, F&& f) {
  Observer* const observer = ctx.observer;
  Work work{.kind = Work::Kind::kCollector, .name = "collector", .outer = ctx.work};
  if (observer) observer->begin(work);
  f();
  if (observer && observer == ctx.observer) observer->end(work);
}

bool suspended(lua_State* owner, lua_State* running) { return owner != running && lua_status(owner) == LUA_YIELD; }

struct CrowdedStates {
  std::mutex lock;
  std::unordered_set<const void*> all;
};
CrowdedStates& crowded() {
  static auto* instance = new CrowdedStates;
  return *instance;
}

void add_live(const void* state) {
  const std::lock_guard hold(crowded().lock);
  for (auto& place : live_states.rows[LiveStates::row_of(state)]) {
    if (place.load()) continue;
    place = state;
    return;
  }
  crowded().all.insert(state);
}

void remove_live(const void* state) {
  const std::lock_guard hold(crowded().lock);
  for (auto& place : live_states.rows[LiveStates::row_of(state)])
    if (place.load() == state) place = nullptr;
  crowded().all.erase(state);
}

const RegistryKey kInterpreter;

// The position of the innermost script frame of the interpreter of traces, and the name by which the running C function
// was called.
struct Interpreted {
  std::string file, name;
  int line = 0;
};

bool find_interpreted(lua_State* L, Interpreted* out) {
  static thread_local bool asking = false;  // prevents recursion: an error inside asks for a position too
  const int top = lua_gettop(L);
  if (asking || !lua_checkstack(L, 20)) return false;
  asking = true;
  kInterpreter.push(L);
  const bool found =
      lua_isfunction(L, -1) && !lua_pcall(L, 0, 3, 0) && lua_type(L, -3) == LUA_TSTRING && lua_isnumber(L, -2);
  if (found) {
    out->file = lua_tostring(L, -3);
    out->line = int(lua_tointeger(L, -2));
    if (lua_type(L, -1) == LUA_TSTRING) out->name = lua_tostring(L, -1);
  }
  lua_settop(L, top);
  asking = false;
  return found;
}

bool is_interpreter(const lua_Debug& frame) { return !std::strncmp(frame.source, "@stdlib/hybrid/", 15); }

}  // namespace

bool find_script(lua_State* L, lua_Debug* frame) {
  for (int level = 0; lua_getstack(L, level, frame); ++level) {
    lua_getinfo(L, "S", frame);
    if (is_interpreter(*frame)) {
      Interpreted inner;
      if (find_interpreted(L, &inner)) {
        std::snprintf(frame->short_src, sizeof frame->short_src, "%s", inner.file.c_str());
        frame->currentline = inner.line;
        return true;
      }
    }
    if (is_library_source(frame->source)) continue;
    lua_getinfo(L, "l", frame);
    if (frame->currentline > 0) return true;
  }
  return false;
}

LiveStates live_states;

bool is_live_slow(const void* p) {
  for (const auto& place : live_states.rows[LiveStates::row_of(p)])
    if (place.load(std::memory_order_relaxed) == p) return true;
  const std::lock_guard hold(crowded().lock);
  return crowded().all.count(p) > 0;
}

void set_interpreter(lua_State* L) { kInterpreter.set(L); }

int refuse_upvalue(lua_State* L) {
  return luaL_error(L, "perigee: the Lua state is closing, or an upvalue of this function was replaced");
}

void RegistryKey::push(lua_State* L) const {
  lua_pushlightuserdata(L, const_cast<char*>(&address_));
  lua_rawget(L, LUA_REGISTRYINDEX);
}

void RegistryKey::push_table(lua_State* L) const {
  push(L);
  if (!lua_istable(L, -1)) throw Error("perigee: a script took its tables out of Lua's registry");
}

void RegistryKey::set(lua_State* L) const {
  lua_pushlightuserdata(L, const_cast<char*>(&address_));
  lua_insert(L, -2);
  lua_rawset(L, LUA_REGISTRYINDEX);
}

void push_weak_table(lua_State* L, const char* mode) {
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushstring(L, mode);
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

void RegistryKey::push_or_make(lua_State* L, const char* mode) const {
  push(L);
  if (lua_istable(L, -1)) return;
  lua_pop(L, 1);
  push_weak_table(L, mode);
  lua_pushvalue(L, -1);
  set(L);
}

Reference::Reference(lua_State* L, State& state) : state_(&state) {
  if (state.dead_references.capacity() <= state.references) state.dead_references.reserve(2 * state.references + 16);
  kReferences.push_table(L);
  lua_insert(L, -2);
  index_ = luaL_ref(L, -2);
  lua_pop(L, 1);
  ++state.references;
}

Reference::~Reference() {
  if (index_ != LUA_NOREF && !state_->closed) state_->dead_references.push_back(index_);
}

void Reference::push(lua_State* L) const {
  kReferences.push_table(L);
  lua_rawgeti(L, -1, index_);
  lua_remove(L, -2);
}

void Reference::give_back(lua_State* L) {
  kReferences.push_table(L);
  luaL_unref(L, -1, std::exchange(index_, LUA_NOREF));
  lua_pop(L, 1);
  --state_->references;
}

State& find_state(lua_State* L) {
  kState.push(L);
  if (void* found = lua_touserdata(L, -1); found && is_live(found)) {
    lua_pop(L, 1);
    return *static_cast<State*>(found);
  }
  lua_pop(L, 1);
  for (const RegistryKey* key : {&kReferences, &kTracked, &kViews}) {
    key->push(L);
    const bool is_there = lua_istable(L, -1);  // true if a script removed only our state from the registry
    lua_pop(L, 1);
    if (is_there) continue;
    push_weak_table(L, key == &kReferences ? "" : "v");
    key->set(L);
  }
  void* const memory = lua_newuserdata(L, sizeof(State));
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, collect_state);
  lua_setfield(L, -2, "__gc");
  State* state = new (memory) State;
  state->ctx.script_position = [state] { return state->entry ? script_position(state->entry->L) : std::string(); };
  lua_setmetatable(L, -2);  // from here on the finalizer closes the state, also after an error
  add_live(state);
  kState.set(L);
  return *state;
}

// Destroys everything that the State owns. Its memory belongs to Lua and is freed after all finalizers have run.
void State::close(lua_State* L) {
  close_jobs(L, *this);
  closed = true;
  remove_live(this);
  delete std::exchange(symbols, nullptr);
  forget_callbacks(*this);
  write_log = nullptr;
  empty(logs);
  empty(modes);
  empty(scopes);
  empty(dead_references);
  drop_histories(ctx);
  empty(jobs);
  job_table.reset();
  empty(parked);
  empty(abandoned_jobs);
  empty(hosted);
  empty(views);
  empty(view_slots);
  empty(free_view_slots);
  empty(stored_error);
  ctx.observer = nullptr;
  empty(observers);
  ctx.generator = {};
  empty(generators);
  ctx.script_position = nullptr;
  empty(ctx.prepared);
  ctx.runtime = Ref<Runtime>(&Runtime::process());  // finalizers of scripts may still call ops
}

void State::update_modes() {
  bool recording = false, training = false, have_recording = false, have_training = false;
  recording_token = training_token = 0;
  for (size_t i = modes.size(); i-- > 0 && !(have_recording && have_training);) {
    const ModeScope& m = modes[i];
    if (suspended(m.owner, nullptr)) continue;
    if (m.sets_recording && !have_recording) recording = m.recording, recording_token = m.token, have_recording = true;
    if (m.sets_training && !have_training) training = m.training, training_token = m.token, have_training = true;
  }
  ctx.recording = recording;
  ctx.training = training;
}

bool State::stresses_here() {
  constexpr int64_t kStressed = 200;
  if (!gc_stress || ++stressed_places <= kStressed) return gc_stress;
  stress_draw = stress_draw * 6364136223846793005u + 1442695040888963407u;
  return stress_draw >> 61 == 0;
}

void State::relieve_pressure(lua_State* L) {
  if (!dead_references.empty()) {
    kReferences.push_table(L);
    for (; !dead_references.empty(); dead_references.pop_back(), --references)
      luaL_unref(L, -1, dead_references.back());
    lua_pop(L, 1);
  }
  if (!abandoned_jobs.empty()) end_abandoned_jobs(L, *this);
  if (ctx.new_suspects >= kManySuspects || ctx.suspect_bytes > size_t(kCycleBytes)) break_cycles(ctx);
  const bool stress = stresses_here();
  const bool rings = hosted_bytes > size_t(kCycleBytes + live_bytes) || hosted.size() >= (stress ? 1 : next_hosted);
  const bool look = rings && walks + parked_walks == 0 && !trace && !loose;
  if (collecting || (!stress && pending_bytes < kStepBytes && !look)) return;
  const ScopedFlag recording(ctx.recording, ctx.recording),
      training(ctx.training, ctx.training);  // restored at the end, since finalizers may call us
  const int64_t heap_kb = lua_gc(L, LUA_GCCOUNT, 0) + 1;
  const bool long_step = heap_kb <= kSmallHeapKb && jobs.empty();
  if (!stress && !look && long_step && pending_bytes < kLongStepBytes) return;
  const int64_t bytes = std::exchange(pending_bytes, 0);
  if (stress && !look) return observe_collector(ctx, [&] { return void(lua_gc(L, LUA_GCCOLLECT, 0)); });
  if (!lua_gc(L, kGcIsRunning, 0)) return;  // the host stopped the collector: a step would restart it
  const int64_t budget = std::max(std::clamp(heap_kb << 16, kCycleBytes, kMaxCycleBytes), live_bytes / 2);
  const int64_t speed = collector_share > kLargeShare ? 3 : 6;
  const ScopedFlag busy(collecting, true);  // ends after an error of a finalizer too
  const ThreadPool::Awake awake(ctx.runtime->threads());
  const auto begin = std::chrono::steady_clock::now();
  observe_collector(ctx, [&] {
    if (look)
      collect_cycles(L);
    else if (bytes >= budget)
      lua_gc(L, LUA_GCCOLLECT, 0);
    else if (lua_gc(L, LUA_GCSTEP, int(std::min<int64_t>(bytes * heap_kb * speed / (2 * budget) + 1, 1 << 20))))
      pending_bytes -=
          std::clamp<int64_t>((heap_kb << 9) - kStepBytes, 0, budget / 2);  // a cycle of a large heap has ended: pause
  });
  if (look || bytes >= budget) settled_bytes = live_bytes;
  const auto end = std::chrono::steady_clock::now();
  const double took = double((end - begin).count()), since = double((end - std::exchange(last_step, end)).count());
  collector_share += (took / std::max(since, 1.0) - collector_share) / 16;
}

void State::relieve_backward(lua_State* L) {
  if (collecting) return;
  settled_bytes = std::min(settled_bytes, live_bytes);
  const int64_t heap_kb = lua_gc(L, LUA_GCCOUNT, 0);  // a cycle takes less time than the passes over so many bytes
  if (live_bytes - settled_bytes < std::max(heap_kb << 13, kLongStepBytes)) return;
  pending_bytes = std::numeric_limits<int64_t>::max();  // a full cycle is due
  relieve_pressure(L);
}

void State::collect_garbage(lua_State* L) {
  const bool running = lua_gc(L, kGcIsRunning, 0);
  observe_collector(ctx, [&] { collect_cycles(L); });
  if (!running) lua_gc(L, LUA_GCSTOP, 0);
  Runtime::current().memory().flush();
}

std::string script_position(lua_State* L) {
  lua_Debug frame;
  return find_script(L, &frame) ? fmt::format("{}:{}", frame.short_src, frame.currentline) : "";
}

std::string called_name(lua_State* L) {
  lua_Debug frame;
  Interpreted inner;
  if (lua_getstack(L, 1, &frame) && lua_getinfo(L, "S", &frame) && is_interpreter(frame) &&
      find_interpreted(L, &inner) && !inner.name.empty())
    return inner.name;
  return lua_getstack(L, 0, &frame) && lua_getinfo(L, "n", &frame) && frame.name ? frame.name : "a function";
}

void push_error(lua_State* L, const char* text) {
  lua_Debug frame;
  if (find_script(L, &frame))
    lua_pushfstring(L, "%s:%d: %s", frame.short_src, frame.currentline, text);
  else
    lua_pushstring(L, text);
}

void register_functions(lua_State* L, State& state, std::initializer_list<Registration> functions) {
  for (const Registration& f : functions) {
    lua_pushlightuserdata(L, &state);
    lua_pushcclosure(L, f.function, 1);
    lua_setfield(L, -2, f.name);
  }
}

}  // namespace pg::vm
