// Generators, and their states as a whole: what draws again, or draws the numbers of a step of a loop, sets all of
// them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "graph/exec/exec.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/handle.h"

namespace pg::vm {
namespace {

constexpr size_t kFewGenerators = 64;
const RegistryKey kStreamsClass;  // a metatable

// Releases the generator but does not destroy the handle, since other finalizers may still reach it.
int collect_generator(lua_State* L) {
  void* data = lua_touserdata(L, 1);
  if (data && lua_objlen(L, 1) == sizeof(Ref<Generator>)) *static_cast<Ref<Generator>*>(data) = {};
  return 0;
}

uint64_t check_seed(lua_State* L, State& state, int i, const char* op) {
  return uint64_t(check_integer(L, state, i, op, "seed", "a whole number"));
}

// Generator(seed) → a new stream of random numbers.
int new_generator(lua_State* L, State& state) {
  Ref<Generator> generator(new Generator(lua_isnoneornil(L, 1) ? 0 : check_seed(L, state, 1, "Generator")));
  note_generator(state, generator);
  kGeneratorMetatable.push_table(L);
  new (lua_newuserdata(L, sizeof(Ref<Generator>))) Ref<Generator>(std::move(generator));
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
  return 1;
}

int manual_seed(lua_State* L, State& state) {
  state.ctx.generator->seed(check_seed(L, state, 1, "manual_seed"));
  return 0;
}

Generator& check_generator(lua_State* L, State& state) {
  if (Generator* g = to_generator(L, state, 1)) return *g;
  bad_argument("Generator", "generator", "a Generator", describe(L, state, 1));
}

int seed_generator(lua_State* L, State& state) {
  check_generator(L, state).seed(check_seed(L, state, 2, "seed"));
  lua_settop(L, 1);
  return 1;
}

// state() → seed, tick; set_state(seed, tick). A seed that a Lua number cannot represent, as in the body of a loop, is
// a string.
int generator_state(lua_State* L, State& state) {
  const RandomKey key = check_generator(L, state).state();
  const int64_t seed = int64_t(key.seed);  // as a signed number, so that negative seeds are returned unchanged
  if (std::abs(double(seed)) <= 9007199254740992.0)
    lua_pushnumber(L, double(seed));
  else
    lua_pushstring(L, std::to_string(seed).c_str());
  lua_pushnumber(L, double(key.tick));
  return 2;
}

int set_generator_state(lua_State* L, State& state) {
  const bool text = lua_type(L, 2) == LUA_TSTRING;
  const uint64_t seed =
      text ? uint64_t(std::strtoll(lua_tostring(L, 2), nullptr, 10)) : check_seed(L, state, 2, "set_state");
  check_generator(L, state).set_state({seed, check_seed(L, state, 3, "set_state")});
  return 0;
}

// The states of all generators at one time.
struct Streams {
  struct Stream {
    Ref<Generator> generator;
    RandomKey state;
    bool used = false;  // in a call of in_step
  };
  std::vector<Stream> streams;
};

int collect_streams(lua_State* L) {
  if (auto* handle = to_handle<Streams>(L, 1, kStreamsClass)) std::exchange(handle->streams, {});
  return 0;
}

Streams& check_streams(lua_State* L) {
  if (auto* handle = to_handle<Streams>(L, 1, kStreamsClass)) return *handle;
  throw Error("random_streams: bad argument 'self'");
}

// random_streams() → the states of all generators now.
int random_streams(lua_State* L, State& state) {
  std::erase_if(state.generators, [](const Ref<Generator>& g) { return g->unique(); });
  kStreamsClass.push_table(L);
  auto* handle = new (lua_newuserdata(L, sizeof(Streams))) Streams;
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
  handle->streams.push_back({state.ctx.generator, state.ctx.generator->state()});
  for (const Ref<Generator>& g : state.generators) handle->streams.push_back({g, g->state()});
  return 1;
}

// streams:restore() gives the generators these states again.
int restore_streams(lua_State* L, State&) {
  for (const auto& s : check_streams(L).streams) s.generator->set_state(s.state);
  return 0;
}

// streams:in_step(step, f, …) → the results of f, which draws the same numbers as that step of a loop or branch in a
// graph, or for step 0 as a condition before the first step. The generators do not advance.
int in_step(lua_State* L, State& state) {
  std::vector<Streams::Stream>& streams = check_streams(L).streams;
  const auto step = uint64_t(lua_tonumber(L, 2));
  const auto start = [&](const Streams::Stream& s) { return step == 0 ? s.state : body_stream(s.state, 0, step); };
  for (const auto& s : streams) s.generator->set_state(start(s));
  const int status = protected_call(L, lua_gettop(L) - 3, LUA_MULTRET);
  for (auto& s : streams) {
    s.used = s.used || s.generator->state() != start(s);
    s.generator->set_state(s.state);
  }
  state.update_modes();
  if (status) {
    note_reraise(L, state);
    return lua_error(L);
  }
  return lua_gettop(L) - 2;
}

// streams:take_ticks() advances the generators used by in_step as one random op does, if they have not advanced since.
int take_ticks(lua_State* L, State&) {
  for (const auto& s : check_streams(L).streams)
    if (s.used && s.generator->state() == s.state) s.generator->next();
  return 0;
}

}  // namespace

void note_generator(State& state, Ref<Generator> generator) {
  std::vector<Ref<Generator>>& all = state.generators;
  if (all.size() >= kFewGenerators && all.size() == all.capacity())
    std::erase_if(all, [](const Ref<Generator>& g) { return g->unique(); });
  all.push_back(std::move(generator));
}

void open_random(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"Generator", entry<new_generator>},
                      {"manual_seed", entry<manual_seed>},
                      {"random_streams", entry<random_streams>}});
  make_class(
      L, state, kGeneratorMetatable, collect_generator,
      {{"seed", entry<seed_generator>}, {"state", entry<generator_state>}, {"set_state", entry<set_generator_state>}});
  kGeneratorMetatable.push_table(L);
  state.generator_metatable = lua_topointer(L, -1);
  lua_pop(L, 1);
  make_class(L, state, kStreamsClass, collect_streams,
             {{"restore", entry<restore_streams>}, {"in_step", entry<in_step>}, {"take_ticks", entry<take_ticks>}});
}

}  // namespace pg::vm
