// Parameters: boxes with Lua fields that may have no value yet.
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

}  // namespace

void open_parameter(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"new_parameter", entry<new_parameter>},
                      {"extra", entry<extra>},
                      {"has_value", entry<has_value>},
                      {"bind", entry<bind>},
                      {"unbind", entry<unbind>}});
}

}  // namespace pg::vm
