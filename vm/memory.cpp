// Memory and threads: scopes that free what they made, accounts, limits for tests.
#include "tensor/buffer.h"
#include "tensor/parallel.h"
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {
namespace {

// push_scope(): boxes made from now on belong to the scope.
int push_scope(lua_State*, State& state) {
  state.scopes.emplace_back();
  return 0;
}

// Moves a box out of the innermost scope into the one around it.
void promote(State& state, Box& box) {
  if (box.scope != state.scopes.size()) return;
  state.scopes.back().boxes[box.scope_slot] = nullptr;
  box.scope = 0;
  if (state.scopes.size() < 2) return;
  auto& outer = state.scopes[state.scopes.size() - 2].boxes;
  box.scope = uint32_t(state.scopes.size() - 1);
  box.scope_slot = uint32_t(outer.size());
  outer.push_back(&box);
}

// keep_in_scope(value, …): tensors in these values, tables included, survive the innermost scope.
void keep_value(lua_State* L, State& state, int i, int depth) {
  if (Box* box = to_box(L, state, i)) return promote(state, *box);
  if (!lua_istable(L, i) || depth > 64) return;
  luaL_checkstack(L, 8, "scope");
  lua_pushnil(L);
  while (lua_next(L, i)) {
    keep_value(L, state, lua_gettop(L), depth + 1);
    lua_pop(L, 1);
  }
}

int keep_in_scope(lua_State* L, State& state) {
  if (state.scopes.empty()) return 0;
  for (int i = 1, n = lua_gettop(L); i <= n; ++i) keep_value(L, state, i, 0);
  return 0;
}

// keep(x) → x: survives every scope around it.
int keep(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "keep", "x");
  if (box.scope) {
    state.scopes[box.scope - 1].boxes[box.scope_slot] = nullptr;
    box.scope = 0;
  }
  lua_settop(L, 1);
  return 1;
}

// pop_scope(): frees what is left of the innermost scope.
int pop_scope(lua_State*, State& state) {
  if (state.scopes.empty()) return 0;
  for (Box* box : state.scopes.back().boxes) {
    if (!box) continue;
    box->scope = 0;
    if (box->has_extra) continue;  // parameters
    if (box->cell) box->cell = {};   // a view of a leaf's gradient, which lives on
    set_value(*box, Value());
    box->released = true;
  }
  state.scopes.pop_back();
  return 0;
}

// memory() → {live =, cached =, peak =, tensors =}, bytes and a count
int memory(lua_State* L, State& state) {
  const MemoryStats stats = memory_stats();
  lua_createtable(L, 0, 4);
  const std::pair<const char*, int64_t> fields[] = {
      {"live", stats.live}, {"cached", stats.cached}, {"peak", stats.peak}, {"tensors", state.tensors}};
  for (const auto& [name, value] : fields) {
    lua_pushnumber(L, double(value));
    lua_setfield(L, -2, name);
  }
  return 1;
}

int get_num_threads(lua_State* L, State&) {
  lua_pushnumber(L, num_threads());
  return 1;
}

int use_threads(lua_State* L, State& state) {
  const int64_t n = check_integer(L, state, 1, "set_num_threads", "n");
  if (n < 1 || n > 1024) bad_argument("set_num_threads", "n", "a whole number from 1 to 1024", std::to_string(n));
  set_num_threads(int(n));
  return 0;
}

int devices(lua_State* L, State&) {
  const std::vector<std::string> names = device_names();
  lua_createtable(L, int(names.size()), 0);
  for (size_t i = 0; i < names.size(); ++i) {
    lua_pushstring(L, names[i].c_str());
    lua_rawseti(L, -2, int(i) + 1);
  }
  return 1;
}

int synchronize(lua_State* L, State& state) {
  const Device device = lua_isnoneornil(L, 1) ? Device{} : check_device(L, state, 1, "synchronize", "device");
  device_table(device).synchronize(device.index);
  return 0;
}

// For tests.
int gc_stress(lua_State* L, State& state) {
  state.gc_stress = lua_toboolean(L, 1);
  return 0;
}

int inject_failure(lua_State* L, State& state) {
  fail_allocation(check_integer(L, state, 1, "fail_allocation", "n"), lua_toboolean(L, 2));
  return 0;
}

int failure_happened(lua_State* L, State&) {
  lua_pushboolean(L, allocation_failed());
  return 1;
}

int allocations(lua_State* L, State&) {
  lua_pushnumber(L, double(memory_stats().allocations));
  return 1;
}

}  // namespace

void open_memory(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"push_scope", entry<push_scope>},
                      {"pop_scope", entry<pop_scope>},
                      {"keep_in_scope", entry<keep_in_scope>},
                      {"keep", entry<keep>},
                      {"memory", entry<memory>},
                      {"get_num_threads", entry<get_num_threads>},
                      {"set_num_threads", entry<use_threads>},
                      {"devices", entry<devices>},
                      {"synchronize", entry<synchronize>}});
  lua_newtable(L);
  register_functions(L, state,
                     {{"gc_stress", entry<gc_stress>},
                      {"fail_allocation", entry<inject_failure>},
                      {"allocation_failed", entry<failure_happened>},
                      {"allocations", entry<allocations>}});
  lua_setfield(L, -2, "testing");
}

}  // namespace pg::vm
