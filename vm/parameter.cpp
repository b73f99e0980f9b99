// Parameters (boxes with Lua fields that may have no value yet) and generators.
#include <cmath>
#include <cstdlib>
#include <string>

#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

// new_parameter() → a tensor without value
int new_parameter(lua_State* L, State& state) {
  Box& box = push_box(L, state, Value());
  push_extra(L, box, -1);
  lua_pop(L, 1);
  return 1;
}

// extra(x) → the table of its Lua fields
int extra(lua_State* L, State& state) {
  push_extra(L, check_box(L, state, 1, "extra", "x"), 1);
  return 1;
}

int has_value(lua_State* L, State& state) {
  lua_pushboolean(L, check_box(L, state, 1, "has_value", "x").get().defined());
  return 1;
}

// bind(x, y) gives x the value of y, of any type. A leaf stays a leaf; if its type changes it gets a new gradient of
// zeros.
int bind(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "bind", "x");
  if (state.trace && box.get().defined()) state.trace->touch(L, box, 1);
  const Value& source = check_value(L, state, 2, "bind", "y");
  Value value = state.trace ? state.ctx.interpreter->tracer()->detach(state.ctx, source) : source.detached();
  TapeNode* leaf = box.get().defined() ? box.get().node() : nullptr;
  if (leaf && leaf->leaf) {
    if (leaf->leaf_type == value.type()) {
      value = written(state, "", box.get(), std::move(value));
    } else {
      Ref<TapeNode> fresh = make_leaf(value.type(), leaf->req);
      value.link(fresh.get(), 0);
    }
  }
  box.released = false;
  set_value(box, std::move(value));
  lua_settop(L, 1);
  return 1;
}

// unbind(x) removes the value of x.
int unbind(lua_State* L, State& state) {
  set_value(check_box(L, state, 1, "unbind", "x"), Value());
  return 0;
}

// Releases the generator but does not destroy the handle, since other finalizers may still reach it.
int collect_generator(lua_State* L) {
  void* data = lua_touserdata(L, 1);
  if (data && lua_objlen(L, 1) == sizeof(Ref<Generator>)) *static_cast<Ref<Generator>*>(data) = {};
  return 0;
}

uint64_t check_seed(lua_State* L, State& state, int i, const char* op) {
  return uint64_t(check_integer(L, state, i, op, "seed", "a whole number"));
}

void push_generator(lua_State* L, Ref<Generator> g) {
  kGeneratorMetatable.push_table(L);
  new (lua_newuserdata(L, sizeof(Ref<Generator>))) Ref<Generator>(std::move(g));
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
}

// Generator(seed) → a new stream of random numbers.
int new_generator(lua_State* L, State& state) {
  push_generator(L, Ref<Generator>(new Generator(lua_isnoneornil(L, 1) ? 0 : check_seed(L, state, 1, "Generator"))));
  return 1;
}

int manual_seed(lua_State* L, State& state) {
  state.ctx.generator->seed(check_seed(L, state, 1, "manual_seed"));
  return 0;
}

Generator& check_generator(lua_State* L, State& state, int i) {
  if (lua_isnoneornil(L, i)) return *state.ctx.generator;
  if (Generator* g = to_generator(L, state, i)) return *g;
  bad_argument("Generator", "generator", "a Generator", describe(L, state, i));
}

// random_state(generator or nil) → seed, tick; set_random_state(generator or nil, seed, tick). A seed that a Lua number
// cannot represent, as in the body of a loop, is a string.
int random_state(lua_State* L, State& state) {
  const RandomKey key = check_generator(L, state, 1).state();
  const int64_t seed = int64_t(key.seed);  // as a signed number, so that negative seeds are returned unchanged
  if (std::abs(double(seed)) <= 9007199254740992.0)
    lua_pushnumber(L, double(seed));
  else
    lua_pushstring(L, std::to_string(seed).c_str());
  lua_pushnumber(L, double(key.tick));
  return 2;
}

int set_random_state(lua_State* L, State& state) {
  const bool text = lua_type(L, 2) == LUA_TSTRING;
  const uint64_t seed =
      text ? uint64_t(std::strtoll(lua_tostring(L, 2), nullptr, 10)) : check_seed(L, state, 2, "set_random_state");
  check_generator(L, state, 1).set_state({seed, check_seed(L, state, 3, "set_random_state")});
  return 0;
}

int seed_generator(lua_State* L, State& state) {
  check_generator(L, state, 1).seed(check_seed(L, state, 2, "seed"));
  lua_settop(L, 1);
  return 1;
}

}  // namespace

void open_parameter(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"new_parameter", entry<new_parameter>},
                      {"extra", entry<extra>},
                      {"has_value", entry<has_value>},
                      {"bind", entry<bind>},
                      {"unbind", entry<unbind>},
                      {"Generator", entry<new_generator>},
                      {"manual_seed", entry<manual_seed>},
                      {"random_state", entry<random_state>},
                      {"set_random_state", entry<set_random_state>}});
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, collect_generator);
  lua_setfield(L, -2, "__gc");
  lua_newtable(L);
  register_functions(
      L, state,
      {{"seed", entry<seed_generator>}, {"state", entry<random_state>}, {"set_state", entry<set_random_state>}});
  lua_setfield(L, -2, "__index");
  state.generator_metatable = lua_topointer(L, -1);
  lua_pushliteral(L, "perigee");
  lua_setfield(L, -2, "__metatable");
  kGeneratorMetatable.set(L);
}

}  // namespace pg::vm
