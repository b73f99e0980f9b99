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
#include "vm/trace.h"

namespace pg::vm {
namespace {

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

// A graph knows only how many numbers it draws from each generator.
void refuse_in_trace(const State& state, const char* op, const char* deed) {
  if (state.trace)
    state.trace->refuse(
        fmt::format("it {}", deed),
        fmt::format("{}: the traced function {}, which a graph cannot; do that outside of it", op, deed));
}

// Generator(seed) → a new stream of random numbers.
int new_generator(lua_State* L, State& state) {
  refuse_in_trace(state, "Generator", "makes a Generator");
  Ref<Generator> generator = state.new_generator({lua_isnoneornil(L, 1) ? 0 : check_seed(L, state, 1, "Generator"), 0});
  kGeneratorMetatable.push_table(L);
  new (lua_newuserdata(L, sizeof(Ref<Generator>))) Ref<Generator>(std::move(generator));
  lua_insert(L, -2);
  lua_setmetatable(L, -2);
  return 1;
}

int manual_seed(lua_State* L, State& state) {
  refuse_in_trace(state, "manual_seed", "seeds random numbers");
  state.ctx.generator->seed(check_seed(L, state, 1, "manual_seed"));
  return 0;
}

Generator& check_generator(lua_State* L, State& state) {
  if (Generator* g = to_generator(L, state, 1)) return *g;
  bad_argument("Generator", "generator", "a Generator", describe(L, state, 1));
}

int seed_generator(lua_State* L, State& state) {
  refuse_in_trace(state, "seed", "seeds a Generator");
  check_generator(L, state).seed(check_seed(L, state, 2, "seed"));
  lua_settop(L, 1);
  return 1;
}

// state() → seed, tick; set_state(seed, tick). A seed that a Lua number cannot represent, as in the body of a loop, is
// a string.
int generator_state(lua_State* L, State& state) {
  refuse_in_trace(state, "state", "reads the state of a Generator");
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
  refuse_in_trace(state, "set_state", "sets the state of a Generator");
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
    RandomKey start = {};  // of the last call of in_step
    bool used = false;     // in a call of in_step
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
// graph, or for step 0 as a condition before the first step. The generators do not advance, except in outside_streams.
int in_step(lua_State* L, State& state) {
  std::vector<Streams::Stream>& streams = check_streams(L).streams;
  const auto step = uint64_t(lua_tonumber(L, 2));
  for (auto& s : streams) {
    s.start = step == 0 ? s.state : body_stream(s.state, 0, step);
    s.generator->set_state(s.start);
  }
  RandomKey* const outside = state.outside;
  if (!outside) state.outside = &streams[0].state;
  const int status = protected_call(L, lua_gettop(L) - 3, LUA_MULTRET);
  state.outside = outside;
  for (auto& s : streams) {
    s.used = s.used || s.generator->state() != s.start;
    s.generator->set_state(s.state);
  }
  state.update_modes();
  if (status) {
    note_reraise(L, state);
    return lua_error(L);
  }
  return lua_gettop(L) - 2;
}

// in_streams() → whether in_step runs.
int in_streams(lua_State* L, State& state) {
  lua_pushboolean(L, state.outside != nullptr);
  return 1;
}

// outside_streams(f, …) → the results of f, which draws from the default generator as outside of the bodies that run.
int outside_streams(lua_State* L, State& state) {
  const Ref<Generator> generator = state.ctx.generator;
  RandomKey* const outside = std::exchange(state.outside, nullptr);
  const RandomKey inside = generator->state();
  if (outside) generator->set_state(*outside);
  const int status = protected_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  if (outside) *outside = generator->state(), generator->set_state(inside);
  state.outside = outside;
  state.update_modes();
  if (status == 0) return lua_gettop(L);
  note_reraise(L, state);
  return lua_error(L);
}

// streams:take_ticks() advances the generators used by in_step as one random op does, if they have not advanced since.
int take_ticks(lua_State* L, State&) {
  for (const auto& s : check_streams(L).streams)
    if (s.used && s.generator->state() == s.state) s.generator->next();
  return 0;
}

// Gives f(tick) to the ticks that the graph takes of a generator.
void change_ticks(Graph& graph, uint64_t generator, FunctionRef<uint64_t(uint64_t)> f) {
  for (Node& node : graph.nodes) {
    if (is_control(node)) {
      Control control = control_of(node);
      for (BodyStream& stream : control.streams)
        if (stream.generator == generator) stream.tick = f(stream.tick);
      node.attrs = control.attrs();
      continue;
    }
    for (size_t i = 0; i < node.attrs.size(); ++i)
      if (auto* key = std::get_if<RandomKey>(&node.attrs[i]); key && key->seed == generator) key->tick = f(key->tick);
    change_bodies(node, [&](const Graph& body) {
      auto copy = std::make_shared<Graph>(body);
      change_ticks(*copy, generator, f);
      return copy;
    });
  }
}

}  // namespace

Ref<Program> first_program(const TraceSession& session, const Ref<Generator>& generator,
                           const Program::Options& options) {
  if (session.drawn.empty()) return {};
  const auto& generators = session.generators;
  Graph graph = session.graph;
  change_ticks(graph, uint64_t(std::find(generators.begin(), generators.end(), generator) - generators.begin()),
               [&](uint64_t tick) {
                 uint64_t later = 0;
                 for (const auto& d : session.drawn) later += tick < d.at ? d.count : 0;
                 return tick - later;
               });
  return Ref<Program>(new Program(std::move(graph), generators, options));
}

Ref<Generator> State::new_generator(RandomKey key) {
  if (generators.size() >= next_generators) {
    std::erase_if(generators, [](const Ref<Generator>& generator) { return generator->unique(); });
    next_generators = 2 * generators.size() + 8;
  }
  generators.emplace_back(new Generator(key.seed));
  generators.back()->set_state(key);
  return generators.back();
}

void open_random(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"Generator", entry<new_generator>},
                      {"manual_seed", entry<manual_seed>},
                      {"random_streams", entry<random_streams>},
                      {"in_streams", entry<in_streams>},
                      {"outside_streams", entry<outside_streams>}});
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
