// perigee_call, perigee_set and perigee_get: values of scripts by their paths.
#include <vector>

#include "vm/host/values.h"

using namespace pg;
using namespace pg::host;

perigee_status perigee_call(perigee_state* state, const char* path, const perigee_value* args, size_t arg_count,
                            perigee_value* results, size_t capacity, size_t* result_count) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_call";
    need(path, kName, "path");
    need(args || arg_count == 0, kName, "args");
    need(results || capacity == 0, kName, "results");
    need(arg_count <= 200, kName, "arg_count", "at most 200");
    std::vector<HandedOut> kept;
    size_t count = 0;
    in_state(state, kName, [&] {
      lua_State* L = state->lua;
      vm::need_stack(L, int(arg_count) + 20, kName);
      push_function(L, kName, path);
      for (size_t i = 0; i < arg_count; ++i) push_value(*state, args[i]);
      forget_strings(L);  // the arguments may have been among them
      lua_call(L, int(arg_count), LUA_MULTRET);
      count = size_t(lua_gettop(L));
      vm::need_stack(L, 8, kName);
      kept = read_values(*state, 1, std::min(count, capacity));
    });
    for (size_t i = 0; i < kept.size(); ++i) results[i] = kept[i].release();
    if (result_count) *result_count = count;
  });
}

perigee_status perigee_set(perigee_state* state, const char* path, const perigee_value* value) {
  return guarded(PERIGEE_INTERNAL, [&] {
    need(path, "perigee_set", "path");
    need(value, "perigee_set", "value");
    in_state(state, "perigee_set", [&] {
      push_path(state->lua, path, true);
      push_value(*state, *value);
      lua_settable(state->lua, -3);
    });
  });
}

perigee_status perigee_get(perigee_state* state, const char* path, perigee_value* value) {
  return guarded(PERIGEE_INTERNAL, [&] {
    need(path, "perigee_get", "path");
    need(value, "perigee_get", "value");
    HandedOut kept;
    in_state(state, "perigee_get", [&] {
      push_path(state->lua, path, false);
      forget_strings(state->lua);
      kept.read(*state, lua_gettop(state->lua));
    });
    *value = kept.release();
  });
}
