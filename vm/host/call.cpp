// perigee_call, perigee_set and perigee_get: values of scripts by their paths.
#include <string_view>

#include "vm/box.h"
#include "vm/graph.h"
#include "vm/host/state.h"

using namespace pg;
using namespace pg::host;

namespace {

const vm::RegistryKey kHandedOut;  // a list of the strings that the host may still read

void push_value(perigee_state& state, const perigee_value& value) {
  lua_State* L = state.lua;
  switch (value.kind) {
    case PERIGEE_NIL:
      return lua_pushnil(L);
    case PERIGEE_BOOLEAN:
      return lua_pushboolean(L, value.as.boolean != 0);
    case PERIGEE_NUMBER:
      return lua_pushnumber(L, value.as.number);
    case PERIGEE_STRING:
      if (!value.as.string.data && value.as.string.size) break;
      return lua_pushlstring(L, value.as.string.data ? value.as.string.data : "", value.as.string.size);
    case PERIGEE_TENSOR:
      if (!value.as.tensor) break;
      vm::push_box(L, *state.data, value.as.tensor->value);
      return;
    case PERIGEE_MODEL:
      if (!value.as.model) break;
      return vm::push_frozen_graph(L, value.as.model->graph);
  }
  throw Failure(PERIGEE_BAD_ARGUMENT, "perigee: a perigee_value of no kind, or with a NULL pointer");
}

// A value for the host. It owns references until release().
class HandedOut {
 public:
  HandedOut() = default;
  HandedOut(HandedOut&&) = default;

  void read(perigee_state& state, int i) {
    lua_State* L = state.lua;
    switch (lua_type(L, i)) {
      case LUA_TNIL:
        value_.kind = PERIGEE_NIL;
        return;
      case LUA_TBOOLEAN:
        value_.kind = PERIGEE_BOOLEAN, value_.as.boolean = lua_toboolean(L, i);
        return;
      case LUA_TNUMBER:
        value_.kind = PERIGEE_NUMBER, value_.as.number = lua_tonumber(L, i);
        return;
      case LUA_TSTRING:
        value_.kind = PERIGEE_STRING;
        value_.as.string.data = lua_tolstring(L, i, &value_.as.string.size);
        kHandedOut.push(L);
        lua_pushvalue(L, i);
        lua_rawseti(L, -2, int(lua_objlen(L, -2)) + 1);
        return lua_pop(L, 1);
    }
    if (vm::to_box(L, *state.data, i)) {
      tensor_ = Ref<perigee_tensor>(new perigee_tensor(vm::check_value(L, *state.data, i, "perigee_call", "result")));
      if (!tensor_->value.array().buffer)
        throw Failure(PERIGEE_UNSUPPORTED, "perigee: a traced tensor has no elements");
      value_.kind = PERIGEE_TENSOR;
      return;
    }
    const Ref<FrozenGraph> graph = vm::to_frozen_graph(L, i);
    if (!graph)
      throw Failure(PERIGEE_UNSUPPORTED, fmt::format("perigee: a {} is no value for the host", luaL_typename(L, i)));
    model_ = Ref<perigee_model>(new perigee_model(graph));
    value_.kind = PERIGEE_MODEL;
  }

  perigee_value release() {
    if (value_.kind == PERIGEE_TENSOR) value_.as.tensor = give(tensor_);
    if (value_.kind == PERIGEE_MODEL) value_.as.model = give(model_);
    return value_;
  }

 private:
  perigee_value value_ = {};
  Ref<perigee_tensor> tensor_;
  Ref<perigee_model> model_;
};

void forget_strings(lua_State* L) {
  lua_newtable(L);
  kHandedOut.set(L);
}

// Pushes the value of the path, or, with `parent`, the table that holds it and its last name.
void push_path(lua_State* L, std::string_view path, bool parent) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    const bool last = dot == std::string_view::npos;
    const std::string_view name = path.substr(begin, last ? dot : dot - begin);
    lua_pushlstring(L, name.data(), name.size());
    if (last && parent) return;
    lua_gettable(L, -2);
    lua_remove(L, -2);
    if (last) return;
    if (!lua_istable(L, -1) && !lua_isuserdata(L, -1))
      throw Failure(PERIGEE_NOT_FOUND,
                    fmt::format("perigee: '{}' is {}, not a table", path.substr(0, dot), luaL_typename(L, -1)));
    begin = dot + 1;
  }
}

}  // namespace

perigee_status perigee_call(perigee_state* state, const char* path, const perigee_value* args, size_t arg_count,
                            perigee_value* results, size_t capacity, size_t* result_count) {
  return guarded(PERIGEE_INTERNAL, [&] {
    constexpr const char* kName = "perigee_call";
    need(path, kName, "path");
    need(args || arg_count == 0, kName, "args");
    need(results || capacity == 0, kName, "results");
    need(arg_count <= 200, kName, "arg_count", "at most 200");
    std::vector<HandedOut> kept(capacity);
    size_t count = 0;
    in_state(state, kName, [&] {
      lua_State* L = state->lua;
      vm::need_stack(L, int(arg_count) + 20, kName);
      forget_strings(L);
      push_path(L, path, false);
      if (lua_isnil(L, -1)) throw Failure(PERIGEE_NOT_FOUND, fmt::format("perigee_call: there is no '{}'", path));
      for (size_t i = 0; i < arg_count; ++i) push_value(*state, args[i]);
      lua_call(L, int(arg_count), LUA_MULTRET);
      count = size_t(lua_gettop(L));
      vm::need_stack(L, 8, kName);
      for (size_t i = 0; i < std::min(count, capacity); ++i) kept[i].read(*state, int(i) + 1);
    });
    for (size_t i = 0; i < std::min(count, capacity); ++i) results[i] = kept[i].release();
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
      forget_strings(state->lua);
      push_path(state->lua, path, false);
      kept.read(*state, lua_gettop(state->lua));
    });
    *value = kept.release();
  });
}
