// Memory and threads: scopes that free their tensors, statistics, limits for tests.
#include <algorithm>
#include <unordered_set>

#include "tensor/runtime.h"
#include "tensor/buffer.h"
#include "tensor/device_table.h"
#include "tensor/parallel.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/handle.h"

namespace pg::vm {
namespace {

// The index of a scope in State::scopes, counted from 1; 0 if it has ended.
size_t place_of(const State& state, uint64_t id) {
  size_t place = state.scopes.size();
  while (place > 0 && state.scopes[place - 1].id != id) --place;
  return place;
}

// The scope of an abandoned coroutine ends without freeing tensors.
void abandon_scope(State& state, uint64_t id) {
  const auto remove = [&](Dynamics& from) {
    std::erase_if(from.scopes, [&](const BoxScope& scope) { return scope.id == id; });
  };
  remove(state);
  for (Dynamics* parked : state.parked) remove(*parked);
}

// push_scope() → guard. Boxes made from now on belong to the scope.
int push_scope(lua_State* L, State& state) {
  const uint64_t id = state.next_scope++;
  push_guard(L, state, id);
  push_weak_table(L, "v");
  state.scopes.push_back({id, L, Reference(L, state)});
  return 1;
}

// Moves tensors from the scope to the enclosing one: those among the values from stack index 2 on, and those in tables
// reachable from these. Each table is visited once. A userdata that wraps a table counts as that table, see
// stdlib/support/no_list.lua.
class Keeper {
 public:
  Keeper(lua_State* L, State& state, size_t place) : L_(L), state_(state), place_(place) {}

  void keep_all() {
    const int top = lua_gettop(L_);
    lua_newtable(L_);  // the queue of tables to visit
    queue_ = top + 1;
    for (int i = 2; i <= top; ++i) visit(i);
    for (int next = 1; next <= queued_; ++next) {
      lua_rawgeti(L_, queue_, next);
      const int table = lua_gettop(L_);
      for (lua_pushnil(L_); lua_next(L_, table); lua_pop(L_, 1)) visit(table + 2);
      lua_pop(L_, 1);
    }
  }

 private:
  void visit(int i) {
    if (Box* box = to_box(L_, state_, i)) return promote(*box, i);
    if (lua_isuserdata(L_, i) && lua_getmetatable(L_, i)) {
      lua_pushliteral(L_, "__index");
      lua_rawget(L_, -2);
      if (lua_istable(L_, -1)) visit(lua_gettop(L_));
      lua_pop(L_, 2);
      return;
    }
    if (!lua_istable(L_, i) || !seen_.insert(lua_topointer(L_, i)).second) return;
    lua_pushvalue(L_, i);
    lua_rawseti(L_, queue_, ++queued_);
  }

  void promote(Box& box, int i) {
    if (box.scope != state_.scopes[place_ - 1].id) return;
    leave_scope(box);
    enter_scope(L_, state_, i, place_ - 1);
  }

  lua_State* L_;
  State& state_;
  const size_t place_;
  int queue_ = 0, queued_ = 0;
  std::unordered_set<const void*> seen_;
};

// keep_in_scope(guard, value, …): tensors in these values and in tables reachable from them survive the scope.
int keep_in_scope(lua_State* L, State& state) {
  const size_t place = place_of(state, guarded_scope(L));
  if (place > 0) Keeper(L, state, place).keep_all();
  return 0;
}

// keep(x) → x. No enclosing scope frees it.
int keep(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "keep", "x");
  leave_scope(box);
  lua_settop(L, 1);
  return 1;
}

// pop_scope(guard) frees the remaining tensors of the scope.
int pop_scope(lua_State* L, State& state) {
  const size_t place = place_of(state, guarded_scope(L));
  if (place == 0) return 0;
  const BoxScope scope = std::move(state.scopes[place - 1]);
  state.scopes.erase(state.scopes.begin() + ptrdiff_t(place - 1));
  scope.boxes.push(L);
  const int boxes = lua_gettop(L);
  for (int i = 1; i <= scope.count; ++i, lua_settop(L, boxes)) {
    lua_rawgeti(L, boxes, i);
    Box* box = to_box(L, state, -1);
    if (!box || box->scope != scope.id) continue;
    box->scope = 0;
    if (box->has_extra) continue;   // parameters
    if (box->cell) box->cell = {};  // the box shares the gradient of a leaf, which stays
    set_value(*box, Value());
    box->released = true;
  }
  return 0;
}

using Numbers = std::initializer_list<std::pair<const char*, double>>;

// Returns a table of numbers by name.
int return_numbers(lua_State* L, Numbers numbers) {
  lua_createtable(L, 0, int(numbers.size()));
  for (const auto& [name, value] : numbers) {
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
  }
  return 1;
}

// memory() → {live =, cached =, peak =, tensors =}: three numbers of bytes, and the number of boxes
int memory(lua_State* L, State& state) {
  break_cycles(state.ctx);
  const MemoryStats stats = Runtime::current().memory().stats();
  return return_numbers(L, {{"live", double(stats.live)},
                            {"cached", double(stats.cached)},
                            {"peak", double(stats.peak)},
                            {"tensors", double(state.tensors)}});
}

int get_num_threads(lua_State* L, State&) {
  lua_pushnumber(L, num_threads());
  return 1;
}

int use_threads(lua_State* L, State& state) {
  Runtime::current().threads().resize(check_integer(L, state, 1, "set_num_threads", "n"));
  return 0;
}

int devices(lua_State* L, State&) {
  push_names(L, device_names());
  return 1;
}

int instruction_set(lua_State* L, State&) {
  lua_pushstring(L, cpu_instruction_set());
  return 1;
}

int synchronize(lua_State* L, State& state) {
  const Device device = lua_isnoneornil(L, 1) ? Device{} : check_device(L, state, 1, "synchronize", "device");
  pg::synchronize(device);
  return 0;
}

// The facts of a device's table. The device must have them.
template <class F>
F fact(F entry, const char* op, Device device) {
  if (!entry) throw Error(fmt::format("{}: device '{}' does not say", op, name_of(device)));
  return entry;
}

// device_title(device) → the product's name
int device_title(lua_State* L, State& state) {
  const Device device = check_device(L, state, 1, "device_name", "device");
  lua_pushstring(L, fact(device_table(device).title, "device_name", device)(device.index));
  return 1;
}

// device_memory(device) → {used =, cached =, free =, total =} in bytes
int device_memory(lua_State* L, State& state) {
  const Device device = check_device(L, state, 1, "memory", "device");
  const DeviceMemory memory = fact(device_table(device).memory, "memory", device)(device.index);
  return return_numbers(L, {{"used", double(memory.used)},
                            {"cached", double(memory.cached)},
                            {"free", double(memory.free)},
                            {"total", double(memory.total)}});
}

// device_count(device) → how many devices of its kind there are
int device_count(lua_State* L, State& state) {
  const Device device = check_device(L, state, 1, "device_count", "device");
  lua_pushinteger(L, device.is_cpu() ? 1 : device_table(device).count());
  return 1;
}

// set_switch(device, name, on)
int set_switch(lua_State* L, State& state) {
  const Device device = check_device(L, state, 1, "set_switch", "device");
  const std::string name = check_string(L, state, 2, "set_switch", "name");
  if (!fact(device_table(device).set_switch, name.c_str(), device)(name.c_str(), lua_toboolean(L, 3)))
    throw Error(fmt::format("{}: device '{}' has no such switch", name, name_of(device)));
  return 0;
}

// For tests.
int gc_stress(lua_State* L, State& state) {
  state.set_gc_stress(lua_toboolean(L, 1));
  return 0;
}

int default_device(lua_State* L, State& state) {
  if (!lua_isnoneornil(L, 1)) state.default_device = check_device(L, state, 1, "default_device", "name");
  lua_pushstring(L, name_of(state.default_device).c_str());
  return 1;
}

int collect_all(lua_State* L, State& state) { return state.collect_garbage(L), 0; }

int inject_failure(lua_State* L, State& state) {
  fail_allocation(check_integer(L, state, 1, "fail_allocation", "n"), lua_toboolean(L, 2));
  return 0;
}

int failure_happened(lua_State* L, State&) {
  lua_pushboolean(L, allocation_failed());
  return 1;
}

int limit_requests(lua_State* L, State& state) {
  const int64_t bytes = check_integer(L, state, 1, "limit_allocation", "bytes");
  limit_allocation(size_t(std::max<int64_t>(bytes, 0)));
  return 0;
}

// cancel_after(n): the script is interrupted at the poll after the next n, once; nil takes that back.
int cancel_after(lua_State* L, State& state) {
  const bool on = !lua_isnoneornil(L, 1);
  delay_cancel(on ? check_integer(L, state, 1, "cancel_after", "n") : 0);
  state.ctx.cancel = on;
  return 0;
}

int allocations(lua_State* L, State&) {
  lua_pushnumber(L, double(Runtime::current().memory().stats().allocations));
  return 1;
}

const RegistryKey kTold;  // the table: warnings that were logged, and their count at 0

// print_warning(text, placed) logs a warning, by default to standard error, with the position of the script unless
// `placed`. Each is logged once.
int print_warning(lua_State* L, State& state) {
  constexpr int kMostTold = 1000;
  std::string text = check_string(L, state, 1, "warn", "text");
  if (const std::string position = lua_toboolean(L, 2) ? "" : script_position(L); !position.empty())
    text = position + ": " + text;
  kTold.push_or_make(L, "");
  lua_pushlstring(L, text.data(), text.size());
  lua_rawget(L, -2);
  lua_rawgeti(L, -2, 0);
  const int told = int(lua_tointeger(L, -1));
  if (!lua_isnil(L, -2) || told >= kMostTold) return 0;
  lua_settop(L, -3);
  lua_pushlstring(L, text.data(), text.size());
  lua_pushboolean(L, true);
  lua_rawset(L, -3);
  lua_pushinteger(L, told + 1);
  lua_rawseti(L, -2, 0);
  state.ctx.runtime->log(LogLevel::kWarning, text.c_str());
  return 0;
}

}  // namespace

void open_memory(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"pop_scope", entry<pop_scope>},
                      {"keep_in_scope", entry<keep_in_scope>},
                      {"keep", entry<keep>},
                      {"memory", entry<memory>},
                      {"get_num_threads", entry<get_num_threads>},
                      {"set_num_threads", entry<use_threads>},
                      {"devices", entry<devices>},
                      {"instruction_set", entry<instruction_set>},
                      {"synchronize", entry<synchronize>},
                      {"device_title", entry<device_title>},
                      {"device_memory", entry<device_memory>},
                      {"device_count", entry<device_count>},
                      {"set_switch", entry<set_switch>},
                      {"print_warning", entry<print_warning>}});
  register_guard(L, state, "push_scope", entry<push_scope>, collect_guard<abandon_scope>);
  lua_newtable(L);
  register_functions(L, state,
                     {{"gc_stress", entry<gc_stress>},
                      {"default_device", entry<default_device>},
                      {"collect", entry<collect_all>},
                      {"fail_allocation", entry<inject_failure>},
                      {"allocation_failed", entry<failure_happened>},
                      {"limit_allocation", entry<limit_requests>},
                      {"cancel_after", entry<cancel_after>},
                      {"allocations", entry<allocations>}});
  lua_setfield(L, -2, "testing");
}

}  // namespace pg::vm
