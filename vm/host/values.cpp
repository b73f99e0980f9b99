#include "vm/host/values.h"

#include "vm/box.h"
#include "vm/graph.h"

namespace pg::host {
namespace {

const vm::RegistryKey kHandedOut;  // a list of the strings that the host may still read

}  // namespace

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

void HandedOut::read(perigee_state& state, int i) {
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
    if (!tensor_->value.array().buffer) throw Failure(PERIGEE_UNSUPPORTED, "perigee: a traced tensor has no elements");
    value_.kind = PERIGEE_TENSOR;
    return;
  }
  const Ref<FrozenGraph> graph = vm::to_frozen_graph(L, i);
  if (!graph)
    throw Failure(PERIGEE_UNSUPPORTED, fmt::format("perigee: a {} is no value for the host", luaL_typename(L, i)));
  model_ = Ref<perigee_model>(new perigee_model(graph));
  value_.kind = PERIGEE_MODEL;
}

perigee_value HandedOut::release() {
  if (value_.kind == PERIGEE_TENSOR) value_.as.tensor = give(tensor_);
  if (value_.kind == PERIGEE_MODEL) value_.as.model = give(model_);
  return value_;
}

std::vector<HandedOut> read_values(perigee_state& state, int i, size_t count) {
  std::vector<HandedOut> values(count);
  for (size_t k = 0; k < count; ++k) values[k].read(state, i + int(k));
  return values;
}

void forget_strings(lua_State* L) {
  lua_newtable(L);
  kHandedOut.set(L);
}

void push_path(lua_State* L, std::string_view path, bool parent) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  for (size_t begin = 0;;) {
    const size_t dot = path.find('.', begin);
    const bool last = dot == std::string_view::npos;
    const std::string_view name = path.substr(begin, last ? dot : dot - begin);
    if (name.empty()) throw Failure(PERIGEE_NOT_FOUND, fmt::format("perigee: '{}' has an empty name", path));
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

void push_function(lua_State* L, const char* caller, const char* path) {
  push_path(L, path, false);
  if (lua_isnil(L, -1)) throw Failure(PERIGEE_NOT_FOUND, fmt::format("{}: there is no '{}'", caller, path));
  if (lua_isfunction(L, -1)) return;
  if (!luaL_getmetafield(L, -1, "__call"))
    throw Failure(PERIGEE_NOT_FOUND,
                  fmt::format("{}: '{}' is a {}, not a function", caller, path, luaL_typename(L, -1)));
  lua_pop(L, 1);
}

}  // namespace pg::host
