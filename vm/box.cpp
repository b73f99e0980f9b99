#include "vm/box.h"

#include <algorithm>
#include <climits>

#include "tensor/error.h"
#include "vm/trace.h"
#include "vm/write_log.h"

namespace pg::vm {
namespace {

constexpr int64_t kBoxOverhead = 256;  // a box, its header and a small buffer

// Whether the value has a buffer that no box has counted, and marks it. A buffer counts for its first box, views of it
// as overhead only. It counts although a tape holds it as well: once that releases it, only the collector frees it.
bool is_new(const Value& v) {
  Buffer* const buffer = v.is_array() ? v.array().buffer.get() : nullptr;
  if (!buffer || buffer->borrowed || buffer->counted.load(std::memory_order_relaxed)) return false;
  buffer->counted.store(true, std::memory_order_relaxed);  // if two threads count it, the collectors work a little more
  return true;
}

int64_t counted_bytes(const Value& v) { return kBoxOverhead + (is_new(v) ? int64_t(v.array().buffer->bytes) : 0); }

// Whether something else holds the memory of the value too, such as a view.
bool is_held(const Value& v) {
  return v.is_array() && v.array().buffer && !(v.array_ref()->unique() && v.array().buffer->unique());
}

// Other finalizers may still reach a box after its own finalizer has run. So it is not destroyed but becomes a released
// tensor.
int collect_box(lua_State* L) {
  void* data = lua_touserdata(L, 1);
  if (!data || lua_objlen(L, 1) != sizeof(Box)) return 0;
  Box* box = static_cast<Box*>(data);
  leave_scope(*box);
  forget_view(*box);
  box->state->live_bytes -= std::exchange(box->bytes, 0);
  if (!box->collected) --box->state->tensors;
  box->value = Value();
  box->cell = {};
  box->released = true;
  box->collected = true;
  if (box->logged)
    for (WriteLog* log : box->state->logs) log->forget(*box);
  box->logged = false;
  if (!box->symbolic) return 0;
  box->symbolic = false;
  --box->state->symbol_boxes;
  free_symbols(*box->state);
  return 0;
}

// Returns the string field of the table at index i that __index does not see, or "".
std::string raw_string(lua_State* L, int i, const char* key) {
  lua_pushstring(L, key);
  lua_rawget(L, i);
  std::string text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
  lua_pop(L, 1);
  return text;
}

bool has_raw(lua_State* L, int i, const char* key) {
  lua_pushstring(L, key);
  lua_rawget(L, i);
  const bool found = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return found;
}

// Describes a table: the library's classes and their objects by name (see stdlib/support/class.lua, nn/block.lua).
std::string describe_table(lua_State* L, int i) {
  if (i < 0) i = lua_gettop(L) + 1 + i;
  const int top = lua_gettop(L);
  std::string text = "table";
  if (lua_checkstack(L, 6) && lua_getmetatable(L, i)) {
    const int meta = top + 1;
    const auto name_of_class = [&](int at) {
      return raw_string(L, at, has_raw(L, at, "_is_class") ? "_name" : "name");
    };
    if (has_raw(L, meta, "_class_meta"))
      text = "class " + name_of_class(i);
    else if (lua_getmetatable(L, meta) && has_raw(L, top + 2, "_class_meta"))
      text = (has_raw(L, meta, "_is_class") ? "block " : "object ") + name_of_class(meta);
    if (text == "block block") text = "block";  // one made by nn.block
  }
  lua_settop(L, top);
  return text;
}

}  // namespace

std::string describe_instead_of_tensor(lua_State* L, State& state, int i, const char* op) {
  const std::string text = describe_argument(L, state, i);
  const OpDef* row = registry().find(op);
  const bool method = !row || !row->has(kFunctionOnly);
  if (method && i == 1 && (lua_isnone(L, i) || lua_type(L, i) == LUA_TNUMBER))
    return fmt::format("{}; write x:{}(…) with a colon to pass x", text, op);
  if (text == "cdata") return "cdata; pg.tensor(v) makes a tensor of an FFI integer";
  if (text == "table") return "table; pg.tensor(list) makes a tensor of a list";
  if (text.starts_with("block"))
    return text + "; net(x) calls a block, and its forward takes self first: function(self, x)";
  if (text.starts_with("class ")) return text + "; call the class to make an object";
  return text;
}

std::string parameter_name(lua_State* L, Box& box, int i) {
  if (!box.has_extra) return "";
  push_extra(L, box, i);
  lua_getfield(L, -1, "name");
  const char* text = lua_tostring(L, -1);
  std::string name = text ? text : "";
  lua_pop(L, 2);
  return name;
}

// A userdata of the size of a box that contains the address of this State is a box, since no other userdata holds that
// pointer. This check runs for every operand and costs half of a comparison of metatables.
Box* to_box(lua_State* L, State& state, int i) {
  if (lua_type(L, i) != LUA_TUSERDATA || lua_objlen(L, i) != sizeof(Box)) return nullptr;
  Box* box = static_cast<Box*>(lua_touserdata(L, i));
  return box->state == &state ? box : nullptr;
}

Box& check_box(lua_State* L, State& state, int i, const char* op, const char* name) {
  Box* box = to_box(L, state, i);
  if (!box) bad_argument(op, name, "a tensor", describe_instead_of_tensor(L, state, i, op));
  return *box;
}

// Whether `initialize` has run and the value of the parameter waits for its shape.
bool is_pending(lua_State* L, Box& box, int i) {
  if (!box.has_extra) return false;
  push_extra(L, box, i);
  lua_getfield(L, -1, "pending");
  const bool pending = lua_toboolean(L, -1);
  lua_pop(L, 2);
  return pending;
}

void require_value(lua_State* L, Box& box, int i, const char* op, const char* name) {
  if (box.state->trace) box.state->trace->touch(L, box, i);
  const Value& value = box.get();
  const TraceSession* trace = box.state->trace ? box.state->trace : box.state->paused_trace;
  if (value.is_array() && !value.array().buffer && !(trace && trace->sees(value)))
    bad_argument(op, name, "a tensor with a value", "a traced tensor after its trace");
  if (value.defined()) return;
  if (box.released) bad_argument(op, name, "a tensor", "a released tensor");
  const std::string parameter = parameter_name(L, box, i);
  bad_argument(op, name, "a tensor with a value",
               fmt::format("parameter{} without one: {}", parameter.empty() ? "" : " '" + parameter + "'",
                           is_pending(L, box, i) ? "its shape is known after the first call of its block, net(x)"
                                                 : "call initialize() before the first call: net:initialize()"));
}

Value& check_value(lua_State* L, State& state, int i, const char* op, const char* name) {
  Box& box = check_box(L, state, i, op, name);
  require_value(L, box, i, op, name);
  return box.get();
}

Box& push_box(lua_State* L, State& state, Value value) {
  state.relieve_pressure(L);
  Box* box = new (lua_newuserdata(L, sizeof(Box))) Box;
  box->state = &state;
  box->serial = state.next_box++;
  box->bytes = counted_bytes(value);
  box->value = std::move(value);
  state.live_bytes += box->bytes;
  state.pending_bytes += box->bytes;
  ++state.tensors;
  lua_rawgeti(L, LUA_REGISTRYINDEX, state.tensor_metatable_ref);
  if (lua_topointer(L, -1) != state.tensor_metatable) lua_pop(L, 1), kTensorMetatable.push_table(L);
  lua_setmetatable(L, -2);  // from here on its finalizer runs, also after an error
  enter_scope(L, state, -1, state.scopes.size());
  if (const TapeNode* node = box->value.node(); node && (node->hosted || is_leaf(node))) state.track(L, *box);
  return *box;
}

void leave_scope(Box& box) { box.scope = 0; }

void enter_scope(lua_State* L, State& state, int i, size_t below) {
  while (below-- > 0) {
    BoxScope& scope = state.scopes[below];
    if (lua_status(scope.owner) == LUA_YIELD) continue;
    lua_pushvalue(L, i);
    scope.boxes.push(L);
    lua_insert(L, -2);
    lua_rawseti(L, -2, scope.count + 1);
    lua_pop(L, 1);
    ++scope.count;
    static_cast<Box*>(lua_touserdata(L, i))->scope = scope.id;
    return;
  }
}

void push_results(lua_State* L, State& state, Values& values, int share) {
  if (values.size() > size_t(INT_MAX) - 2 || !lua_checkstack(L, int(values.size()) + 2))
    throw Error(fmt::format("a call cannot return {} tensors, more than Lua's stack has room for; stack them into one",
                            values.size()));
  for (Value& v : values) {
    const int64_t bytes = push_box(L, state, std::move(v)).bytes;
    state.pending_bytes -= bytes - bytes / share;
  }
}

void push_list(lua_State* L, State& state, std::span<const Value> values) {
  lua_createtable(L, int(values.size()), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    push_box(L, state, values[i]);
    lua_rawseti(L, -2, int(i) + 1);
  }
}

void set_value(Box& box, Value value, bool held) {
  note_write(box);
  put_value(box, std::move(value), held);
}

void put_value(Box& box, Value value, bool held) {
  if (box.collected) return;
  if (box.cell) {
    box.cell->value = std::move(value);
    return;
  }
  // The bytes stay counted while the value is lent or replaced by a symbol.
  const Buffer* const before = box.value.is_array() ? box.value.array().buffer.get() : nullptr;
  const bool is_fresh = is_new(value);
  const bool same = value.is_array() && (!before || !value.array().buffer || value.array().buffer.get() == before);
  const int64_t bytes = is_fresh ? kBoxOverhead + int64_t(value.array().buffer->bytes)
                        : same   ? box.bytes
                                 : kBoxOverhead;
  box.state->live_bytes += bytes - box.bytes;
  // Memory that a view holds is freed by the collector, not here.
  if (is_fresh)
    box.state->pending_bytes += held || is_held(box.value) ? bytes : std::max<int64_t>(bytes - box.bytes, 0);
  box.bytes = bytes;
  box.value = std::move(value);
}

Value written(State& state, const char* op, const Value& old, Value now) {
  if (state.trace) return state.ctx.interpreter->tracer()->write(state.ctx, op, old, now);
  if (is_leaf(old.node())) now.link(old.node(), old.node_output());
  return now;
}

Lent::Lent(Box& box, Value& place, std::string op)
    : box_(box), place_(place), op_(std::move(op)), held_(is_held(box.get())), lends_(!box.state->ctx.suspender) {
  note_write(box);
  place_ = box.get();
  if (lends_) box.get() = Value();
  if (box.state->trace) kept_ = place_;
  kept_.link(place_.node(), place_.node_output());
  if (is_leaf(kept_.node())) place_.link(nullptr, 0);
}

Lent::~Lent() {
  if (done_ || !lends_) return;
  box_.get() = place_.detached();
  box_.get().link(kept_.node(), kept_.node_output());
}

void Lent::finish(Value result) {
  set_value(box_, written(*box_.state, op_.c_str(), kept_, std::move(result)), held_);
  done_ = true;
}

void check_writable(const Box& box, const char* op) {
  if (box.read_only)
    fail(op,
         "this tensor is the result of an indexing read, so an in-place change would be lost; write x[{{1, 2}}] = 5 on "
         "the tensor itself, or take x[1]:clone()");
}

void check_in_place(lua_State*, State& state, Box& box, const char* op) {
  check_writable(box, op);
  check_leaf_write(op, is_leaf(box.get().node()), state.ctx.recording);
}

void rebind_in_place(State& state, Box& box, Value value, const char* op) {
  check_write(op, box.get().type(), value.type());
  set_value(box, written(state, op, box.get(), std::move(value)));
}

void push_extra(lua_State* L, Box& box, int i) {
  if (i < 0) i = lua_gettop(L) + 1 + i;
  if (!box.has_extra) {
    lua_newtable(L);
    lua_setfenv(L, i);
    box.has_extra = true;
  }
  lua_getfenv(L, i);
}

// The text for a userdata that wraps an object: see stdlib/support/no_list.lua.
std::string describe_userdata(lua_State* L, int i) {
  const int top = lua_gettop(L);
  std::string text = "table";
  if (lua_checkstack(L, 3) && luaL_getmetafield(L, i, "__index") && lua_istable(L, -1)) text = describe_table(L, -1);
  lua_settop(L, top);
  return text == "table" ? luaL_typename(L, i) : text;
}

std::string describe(lua_State* L, State& state, int i) {
  if (Box* box = to_box(L, state, i))
    return box->get().defined() ? to_string(box->get().type()) : "a tensor without value";
  switch (lua_type(L, i)) {
    case LUA_TNONE:
    case LUA_TNIL:
      return "nil";
    case LUA_TNUMBER:
      return fmt::format("number {:.14g}", lua_tonumber(L, i));
    case LUA_TBOOLEAN:
      return lua_toboolean(L, i) ? "true" : "false";
    case LUA_TSTRING:
      return fmt::format("\"{}\"", std::string(lua_tostring(L, i)).substr(0, 60));
    case LUA_TTABLE:
      return describe_table(L, i);
    case LUA_TUSERDATA:
      return describe_userdata(L, i);
    default:
      return luaL_typename(L, i);
  }
}

bool is_object(lua_State* L, int i) {
  if (!lua_istable(L, i) || !lua_getmetatable(L, i)) return false;
  lua_pop(L, 1);
  return describe_table(L, i) != "table";
}

std::string describe_argument(lua_State* L, State& state, int i) {
  if (lua_isnone(L, i)) return "nothing";
  if (lua_isnil(L, i)) return "nil; a misspelled variable or field is nil";
  return describe(L, state, i);
}

void open_box(lua_State* L, State& state) {
  lua_createtable(L, 0, 24);
  lua_pushcfunction(L, collect_box);
  lua_setfield(L, -2, "__gc");
  state.tensor_metatable = lua_topointer(L, -1);
  lua_pushvalue(L, -1);
  lua_pushvalue(L, -1);
  kTensorMetatable.set(L);
  state.tensor_metatable_ref = luaL_ref(L, LUA_REGISTRYINDEX);
}

}  // namespace pg::vm
