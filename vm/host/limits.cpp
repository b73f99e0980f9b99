#include "vm/host/limits.h"

#include <luajit.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>

#include "vm/job.h"
#include "vm/past_handlers.h"
#include "vm/sandbox.h"
#include "vm/state.h"
#include "vm/traceback.h"

namespace pg::host {
namespace {

constexpr int kTick = 100;           // instructions between two calls of the hook
constexpr int kMostCollections = 8;  // after a refused request
constexpr int kGcIsRunning = 9;      // LUA_GCISRUNNING of LuaJIT 2.1
constexpr int kWholeCycle = 0;       // the collector's step factor with which a step is a whole cycle
const vm::RegistryKey kLimits;

int refuse(lua_State* L) {
  return luaL_error(L, "%s is not available in a state with limits", lua_tostring(L, lua_upvalueindex(1)));
}

// Replaces table[field] by a function that raises.
void refuse_field(lua_State* L, const char* table, const char* field) {
  lua_getglobal(L, table);
  if (lua_istable(L, -1)) {
    lua_pushfstring(L, "%s.%s", table, field);
    lua_pushcclosure(L, refuse, 1);
    lua_setfield(L, -2, field);
  }
  lua_pop(L, 1);
}

}  // namespace

Limits::Limits(lua_State* L, const perigee_state_config& config)
    : L_(L),
      instructions_(config.instruction_limit),
      time_us_(config.time_limit_us),
      memory_(int64_t(std::min(config.memory_limit, uint64_t(std::numeric_limits<int64_t>::max())))) {}

void Limits::leave() {
  if (of(L_) == this) {  // a key that is there already, so that this allocates nothing
    lua_pushnil(L_);
    kLimits.set(L_);
  }
  if (!account_) return;
  account_->forget_owner();
  if (inner_) lua_setallocf(L_, inner_, inner_data_);
}

void Limits::limit_memory() {
  if (memory_ == 0) return;
  account_ = Ref<MemoryAccount>(new MemoryAccount(memory_, note_refusal, this));
  const int64_t used = int64_t(lua_gc(L_, LUA_GCCOUNT, 0)) * 1024 + lua_gc(L_, LUA_GCCOUNTB, 0);
  if (!account_->take(used)) throw std::bad_alloc();
  low_ = used;
  inner_ = lua_getallocf(L_, &inner_data_);
  lua_setallocf(L_, allocate, this);
}

void Limits::protect(bool opened) {
  state_ = &vm::find_state(L_);
  state_->polling_hook = hook;
  lua_pushlightuserdata(L_, this);
  kLimits.set(L_);
  if (opened) luaJIT_setmode(L_, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
  if (!limits_calls() && memory_ == 0 && !vm::is_sandbox(L_)) return;
  refuse_field(L_, "jit", "on");  // compiled code does not survive a refused request either
  if (!limits_calls() && !vm::is_sandbox(L_)) return;
  refuse_field(L_, "debug", "sethook");
  lua_pushnil(L_);
  lua_setglobal(L_, "newproxy");
}

void Limits::begin(Context* context) {
  reason_ = PERIGEE_OK;
  described_ = false;
  grace_ = {};
  message_.clear();
  traceback_.clear();
  meter_ = {0, instructions_, context ? &context->cancel : nullptr};
  outer_meter_ = std::exchange(WorkMeter::current, context ? &meter_ : nullptr);
  if (!context) return;
  if (lua_gethook(L_) != hook) host_hook_ = {lua_gethook(L_), lua_gethookmask(L_), lua_gethookcount(L_)};
  context->cancels_all = false;  // an interrupt may have come too late for the last call
  context->cancel = false;
  context_ = context;
  if (instructions_ > 0) context->meter = &meter_;
  set_usual_hook();
  if (ended()) set_hook(1);
  if (time_us_ > 0)
    deadline_ = Watchdog::process().arm(
        Watchdog::Clock::now() + std::chrono::microseconds(std::min<int64_t>(time_us_, int64_t(1) << 50)),
        [this] { end_call(PERIGEE_BUDGET_EXCEEDED); });
}

void Limits::end() {
  WorkMeter::current = outer_meter_;
  Context* const context = context_.exchange(nullptr);
  if (context) context->meter = nullptr;
  if (deadline_) Watchdog::process().disarm(*deadline_);
  deadline_.reset();
  if (context && ended()) {
    context->cancels_all = false;
    context->cancel = false;
  }
  if (lua_gethook(L_) == hook) set_hook(0);
  const bool urged = step_factor_ != 0;  // memory is short, and the cycle has not ended
  restore_collector();
  refused_ = false;
  watched_ = 0;
  // Whatever tick() has collected: the frames of the call were still there then, and with them their values.
  if (std::exchange(refused_in_call_, false) || urged) lua_gc(L_, LUA_GCCOLLECT, 0);
}

void Limits::end_call(perigee_status reason) {
  perigee_status none = PERIGEE_OK;
  reason_.compare_exchange_strong(none, reason);
  if (Context* const context = context_) {
    context->cancels_all = true;
    context->cancel = true;
  }
}

void Limits::interrupt() {
  if (!context_) return;
  end_call(PERIGEE_CANCELLED);
  if (!limits_calls()) vm::set_polling_hook(L_, *state_);
}

// Of one that came when the call had ended: Lua runs for the host now.
void Limits::forget_interrupt() {
  state_->ctx.cancels_all = false;
  state_->ctx.cancel = false;
  set_hook(0);
}

Limits* Limits::of(lua_State* L) {
  kLimits.push(L);
  auto* found = static_cast<Limits*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return found;
}

void Limits::hook(lua_State* L, lua_Debug*) {
  Limits* const limits = of(L);
  if (!limits) return;
  if (!limits->context_) return limits->forget_interrupt();
  if (!limits->ended()) limits->tick(L);
  if (!limits->ended()) return void(vm::Job::stop_here(L));
  limits->describe(L);
  limits->set_hook(1);
  vm::end_script(L, limits->grace_);
}

void Limits::tick(lua_State* L) {
  meter_.done += watched_ > 0 ? 1 : kTick;
  if (std::exchange(refused_, false)) {
    watched_ = kTick;
    collections_ = kMostCollections;
    collect(L);
  } else if (watched_ > 0) {
    lua_Debug innermost;
    const bool has_left = L != starved_ || !lua_getstack(L, frames_ - 1, &innermost);
    if (has_left && collections_ > 0 && account_->used() > memory_ / 2) collect(L);
    if (--watched_ == 0) set_usual_hook();
  }
  if (watched_ > 0 && vm::Job::is_own_hook(lua_gethook(L))) vm::Job::stop_soon(L);
  settle();
}

// Collects while `L` runs. What its frames hold, also in slots that they no longer use, is kept.
void Limits::collect(lua_State* L) {
  --collections_;
  starved_ = L;
  lua_Debug frame;
  int step = 1;
  while (lua_getstack(L, step, &frame)) step *= 2;
  for (frames_ = 0; step > 0; step /= 2)
    if (lua_getstack(L, frames_ + step - 1, &frame)) frames_ += step;
  lua_gc(L, LUA_GCCOLLECT, 0);
}

void Limits::settle() {
  if (instructions_ > 0 && meter_.done > instructions_) end_call(PERIGEE_BUDGET_EXCEEDED);
}

// Sets the hook that the limits of calls need, or none.
void Limits::set_usual_hook() {
  if (limits_calls())
    set_hook(kTick);
  else if (lua_gethook(L_) == hook)
    set_hook(0);
}

// Sets the hook, to be called every `count` instructions, or takes it off: then the host's is back.
void Limits::set_hook(int count) {
  const Hook wanted = count ? Hook{hook, LUA_MASKCOUNT, count} : host_hook_;
  if (state_) vm::set_hook(L_, *state_, wanted.function, wanted.mask, wanted.count);
}

std::string Limits::text() const {
  if (reason_ == PERIGEE_CANCELLED) return "interrupted";
  if (instructions_ > 0 && meter_.done > instructions_)
    return fmt::format("the limit of {} instructions of one call is reached", instructions_);
  return fmt::format("the limit of {} µs of one call is reached", time_us_);
}

// Notes where the script is.
void Limits::describe(lua_State* L) noexcept {
  if (std::exchange(described_, true)) return;
  if (!lua_checkstack(L, LUA_MINSTACK)) return;
  const int top = lua_gettop(L);
  lua_pushnil(L);  // traceback_of takes the place of an error
  try {
    message_.clear();
    traceback_.clear();
    const std::string place = vm::script_position(L);
    message_ = place.empty() ? text() : place + ": " + text();
    for (const vm::ScriptFrame& frame : vm::traceback_of(L, top + 1).frames)
      traceback_ += frame.place + ": " + frame.what + "\n";
  } catch (...) {}
  lua_settop(L, top);
}

// Memory -------------------------------------------------------------------------------------------------------------

// LuaJIT has no emergency collection, and none can run inside the allocator. So when garbage may have used half of the
// room that the last collection left, the collector is told to run a whole cycle at the next allocation.
void* Limits::allocate(void* self, void* data, size_t old_size, size_t size) {
  auto& limits = *static_cast<Limits*>(self);
  MemoryAccount& account = *limits.account_;
  const int64_t more = int64_t(size) - int64_t(old_size);
  if (more > 0 && !account.take(more)) return nullptr;
  void* const given = limits.inner_(limits.inner_data_, data, old_size, size);
  if (more > 0 && !given) {
    account.give(more);
    return nullptr;
  }
  if (more < 0) account.give(-more);
  const int64_t used = account.used();
  if (used < limits.low_) {
    limits.low_ = used;
    if (used < limits.urged_at_ - limits.memory_ / 64) limits.restore_collector();
  } else if (used > limits.low_ + std::max((limits.memory_ - limits.low_) / 2, limits.memory_ / 64)) {
    limits.urge_collector();
  }
  return given;
}

// The script may catch the error. So that it can go on, the next instruction of Lua collects. Functions that handle the
// error on its way may run first, with the values of the failed call on the stack. So for some instructions, each
// return from a function collects again until there is room.
void Limits::note_refusal(void* self) {
  auto& limits = *static_cast<Limits*>(self);
  if (!limits.context_ || std::exchange(limits.refused_, true)) return;
  limits.refused_in_call_ = true;
  if (vm::Job::is_own_hook(lua_gethook(limits.L_)))
    vm::Job::stop_soon(limits.L_);
  else
    limits.set_hook(1);
}

void Limits::urge_collector() {
  if (!lua_gc(L_, kGcIsRunning, 0)) return;  // also inside finalizers
  low_ = urged_at_ = account_->used();
  const int before = lua_gc(L_, LUA_GCSETSTEPMUL, kWholeCycle);
  if (step_factor_ == 0) step_factor_ = before;
  lua_gc(L_, LUA_GCRESTART, 0);
}

void Limits::restore_collector() {
  if (step_factor_ == 0) return;
  lua_gc(L_, LUA_GCSETSTEPMUL, std::exchange(step_factor_, 0));
}

}  // namespace pg::host
