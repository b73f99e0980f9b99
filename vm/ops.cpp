// Lua functions, methods and operators of all ops, derived from the registry.
#include <algorithm>
#include <deque>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/rule.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/hints.h"

namespace pg::vm {
namespace {

// One binding per op, then one per alias. They are never freed, since rows never change.
const std::vector<OpBinding>& bindings() {
  static const auto* all = [] {
    auto* list = new std::vector<OpBinding>;
    for (const OpDef* row : registry().ops()) list->push_back(make_binding(*row));
    for (const AliasOf& a : registry().aliases()) list->push_back(make_binding(*a.op, a.alias));
    return list;
  }();
  return *all;
}

const OpBinding& binding_of(const OpDef& op) {
  const auto ops = registry().ops();
  for (size_t i = 0; i < ops.size(); ++i)
    if (ops[i] == &op) return bindings()[i];
  throw Error("op is not registered");
}

bool any_op(const OpDef&) { return true; }

// Upvalue 2 is the binding of the op, which must satisfy `fits`. A script may have replaced it, even by the binding of
// another of our functions.
template <bool (*fits)(const OpDef&) = any_op>
const OpBinding& upvalue_binding(lua_State* L) {
  static const OpBinding* const first = bindings().data();
  static const size_t bytes = bindings().size() * sizeof(OpBinding);
  const auto* binding = static_cast<const OpBinding*>(lua_touserdata(L, lua_upvalueindex(2)));
  const size_t at = reinterpret_cast<uintptr_t>(binding) - reinterpret_cast<uintptr_t>(first);
  if (at >= bytes || at % sizeof(OpBinding) != 0 || !fits(*binding->op))
    throw Error("perigee: an upvalue of this function was replaced");
  return *binding;
}

int push_outputs(lua_State* L, State& state, const OpDef& op, Values& out) {
  if (!op.has(kListOutput)) {
    push_results(L, state, out);
    return int(out.size());
  }
  push_list(L, state, out);
  return 1;
}

// Applies an op. If memory runs out it tries again after a full collection, which may free unreachable tensors. A
// collector that the host has stopped stays stopped.
template <class F>
Values run_or_collect(lua_State* L, State& state, F&& run) {
  try {
    return run();
  } catch (const OutOfMemory&) {
    if (allocation_failed()) throw;  // a test requested the failure
  }
  state.collect_garbage(L);
  return run();
}
Values apply_or_collect(lua_State* L, State& state, const OpDef& op, std::span<Value> inputs, const Attrs& attrs) {
  return run_or_collect(L, state, [&] { return apply(state.ctx, op, inputs, attrs); });
}

// Applies the ops that a call with options expands to. Their errors show the name of the op that was called.
Values expand_or_collect(lua_State* L, State& state, const OpDef& op, const Call& call) {
  return run_or_collect(L, state, [&] {
    return with_name(op.name, [&] { return expanded(state.ctx, op, call.inputs, call.attrs, call.options); });
  });
}

int call_op(lua_State* L, State& state) {
  const OpBinding& binding = upvalue_binding(L);
  state.make_room(L);
  state.update_modes();
  Call call;
  read_arguments(L, state, binding, 1, call);
  Values out = call.options.size() ? expand_or_collect(L, state, *binding.op, call)
                                   : apply_or_collect(L, state, *binding.op, call.inputs, call.attrs);
  return push_outputs(L, state, *binding.op, out);
}

// Returns the name by which the script called the op, if that is an alias that means just the op, else the op's name.
std::string called_name(lua_State* L, const OpDef& op) {
  lua_Debug frame;
  if (!lua_getstack(L, 0, &frame) || !lua_getinfo(L, "n", &frame) || !frame.name) return op.name;
  for (const Alias& alias : op.aliases)
    if (!alias.attr && std::string_view(alias.name) == frame.name) return alias.name;
  return op.name;
}

// Throws again an error of the op in terms of the call: with the alias that the script wrote, and with a hint that a
// colon may be missing, as in x.reshape(2, 3).
[[noreturn]] void rethrow_as_called(lua_State* L, const OpDef& op, const Error& e) {
  if (typeid(e) != typeid(Error)) throw;
  std::string text = e.what();
  const std::string name = called_name(L, op);
  if (name != op.name && text.starts_with(op.name + std::string(": "))) text.replace(0, std::strlen(op.name), name);
  const bool is_first = !op.has(kFunctionOnly) && !op.inputs.empty() && op.inputs[0].arity == Arity::kOne &&
                        text.starts_with(fmt::format("{}: bad argument '{}' (", name, op.inputs[0].name));
  const int type = lua_type(L, 1);
  if (is_first && (type == LUA_TNUMBER || type == LUA_TSTRING) && text.find(" with a colon") == std::string::npos)
    text = fmt::format("{}; write x:{}(…) with a colon to pass x)", text.substr(0, text.size() - 1), name);
  throw Error(text);
}

int call_public_op(lua_State* L, State& state) {
  try {
    return call_op(L, state);
  } catch (const Error& e) {
    rethrow_as_called(L, *upvalue_binding(L).op, e);
  }
}

// Whether the results refuse in-place changes, as those of x[…] do.
bool is_read(const OpDef& op) { return op.has(kIndexing); }

// Marks the box on top of the stack as the result of an indexing read.
void mark_read(lua_State* L, State& state, const Value& whole) {
  Box& box = *to_box(L, state, -1);
  box.read_only = true;
  if (whole.is_array() && box.value.is_array()) note_view(L, state, whole);
}

int call_read(lua_State* L, State& state) {
  const OpBinding& binding = upvalue_binding<is_read>(L);
  state.update_modes();
  Call call;
  read_arguments(L, state, binding, 1, call);
  Values out = apply(state.ctx, *binding.op, call.inputs, call.attrs);
  const int results = push_outputs(L, state, *binding.op, out);
  if (!lua_istable(L, -1)) return mark_read(L, state, call.inputs[0]), results;
  for (int i = 1, n = int(lua_objlen(L, -1)); i <= n; ++i) {
    lua_rawgeti(L, -1, i);
    mark_read(L, state, call.inputs[0]);
    lua_pop(L, 1);
  }
  return results;
}

Value operand(lua_State* L, State& state, int i, const OpDef& op) {
  if (lua_type(L, i) == LUA_TNUMBER) return Value(double(lua_tonumber(L, i)));
  const char* name = op.inputs[size_t(i - 1)].name;
  if (!to_box(L, state, i))
    bad_argument(op.name, name, expected_input(op, size_t(i - 1)), describe_instead_of_tensor(L, state, i, op.name));
  return check_value(L, state, i, op.name, name);
}

bool is_operator(const OpDef& op) { return op.inputs.size() == 2 && op.attrs.empty() && op.has(kPointwise); }

// Calls an operator: two operands, no attributes.
int call_operator(lua_State* L, State& state) {
  const OpDef& op = *upvalue_binding<is_operator>(L).op;
  state.make_room(L);
  state.update_modes();
  Value in[2] = {operand(L, state, 1, op), operand(L, state, 2, op)};
  Values out = apply_or_collect(L, state, op, in, {});
  push_box(L, state, std::move(out[0]));
  return 1;
}

int call_negation(lua_State* L, State& state) {
  lua_settop(L, 1);
  return call_op(L, state);
}

bool holds_box(lua_State* L, State& state, const Box& box) {
  for (int i = 2; i <= lua_gettop(L); ++i)
    if (to_box(L, state, i) == &box) return true;
  return false;
}

void check_result_type(const char* name, const Value& old, const Type& result) {
  if (result.shape == old.shape() && result.dtype == old.dtype()) return;
  bad_argument(name, "x", fmt::format("a tensor of type {} to hold the result", to_string(result)),
               to_string(old.type()));
}

bool is_public(const OpDef& op) { return !op.has(kHidden); }

bool has_method(const OpDef& op) {
  return is_public(op) && !op.has(kFunctionOnly) && !op.inputs.empty() && op.inputs[0].arity == Arity::kOne &&
         binding_of(op).slots[0].is_input && binding_of(op).slots[0].index == 0;
}

bool gives_one_array(const OpDef& op) {
  return !op.has(kView) && !op.has(kDynamicShape) && op.outputs.size() == 1 && !op.has(kListOutput) && is_public(op) &&
         !op.has(kFunctionOnly) && !op.inputs.empty() && op.inputs[0].arity == Arity::kOne;
}

// x:op_(…) stores the result in the first input's box.
int call_in_place(lua_State* L, State& state) {
  const OpBinding& binding = upvalue_binding<gives_one_array>(L);
  const OpDef& op = *binding.op;
  const std::string name = std::string(op.name) + "_";
  state.update_modes();
  Box& box = check_box(L, state, 1, name.c_str(), op.inputs[0].name);
  require_value(L, box, 1, name.c_str(), op.inputs[0].name);
  check_in_place(L, state, box, name.c_str());
  Call call;
  read_arguments(L, state, binding, 1, call);
  if (call.options.size()) {
    Values out = expand_or_collect(L, state, op, call);
    check_result_type(name.c_str(), box.get(), out[0].type());
    rebind_in_place(state, box, std::move(out[0]), name.c_str());
    lua_settop(L, 1);
    return 1;
  }
  SmallVector<Type, 2> types;
  infer_types(op, call.inputs, call.attrs, types);
  check_result_type(name.c_str(), box.get(), types[0]);
  const bool shared = holds_box(L, state, box);
  const bool replaced = &call.inputs[0].array() != &box.get().array();  // by OpDef::complete
  Value held;
  Value& own = replaced ? held : call.inputs[0];
  own = Value();
  Lent lent(box, own, name);
  if (shared)  // x:add_(x): the other inputs share the value, which is no longer unique
    for (size_t i = 1; i < call.inputs.size(); ++i)
      if (call.inputs[i].is_array() && !call.inputs[i].defined()) call.inputs[i] = own;
  Values out = apply(state.ctx, op, call.inputs, call.attrs);
  call.inputs.clear();
  lent.finish(std::move(out[0]));
  lua_settop(L, 1);
  return 1;
}

// The boxes in the lists that pg.op_(…) rewrites, in the order of the outputs. Throws if one appears twice.
std::vector<Box*> rewritten_boxes(lua_State* L, State& state, const OpDef& op, const char* name) {
  std::vector<Box*> boxes;
  for (int definition : op.in_place) {
    const char* list = op.inputs[size_t(definition)].name;
    if (lua_type(L, definition + 1) != LUA_TTABLE)
      bad_argument(name, list, "a table of tensors", describe(L, state, definition + 1));
    const int n = int(lua_objlen(L, definition + 1));
    for (int k = 1; k <= n; ++k) {
      lua_rawgeti(L, definition + 1, k);
      Box& box = check_box(L, state, lua_gettop(L), name, list);
      lua_pop(L, 1);
      check_in_place(L, state, box, name);
      boxes.push_back(&box);
    }
  }
  std::vector<Box*> sorted = boxes;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
    bad_argument(name, op.inputs[0].name, "tensors to rewrite that are all different", "the same tensor twice");
  return boxes;
}

// pg.op_(…) of an op over lists (see OpDef::in_place) stores the results in the boxes of the rewritten lists.
bool rewrites_lists(const OpDef& op) { return !op.in_place.empty(); }

int call_lists_in_place(lua_State* L, State& state) {
  const OpBinding& binding = upvalue_binding<rewrites_lists>(L);
  const OpDef& op = *binding.op;
  const std::string name = std::string(op.name) + "_";
  state.update_modes();
  Call call;
  read_arguments(L, state, binding, 1, call);
  const std::vector<Box*> boxes = rewritten_boxes(L, state, op, name.c_str());
  std::deque<Lent> lent;
  for (size_t i = 0; i < boxes.size(); ++i) {
    Value& place = call.inputs[rewritten_input(op, call.inputs.size(), i)];
    place = Value();
    lent.emplace_back(*boxes[i], place, name);
  }
  Values out = apply(state.ctx, op, call.inputs, call.attrs);
  call.inputs.clear();
  for (size_t i = 0; i < boxes.size(); ++i) lent[i].finish(std::move(out[i]));
  return 0;
}

// Errors of the op show the name that the script called: `add_`, not `add`.
template <int (*call)(lua_State*, State&)>
int named_in_place(lua_State* L, State& state) {
  const std::string name = std::string(upvalue_binding(L).op->name) + "_";
  return run_as(state, name.c_str(), [&] { return call(L, state); });
}

lua_CFunction function_of(const OpDef& op) { return is_read(op) ? entry<call_read> : entry<call_public_op>; }

void push_closure(lua_State* L, State& state, const OpBinding& binding, lua_CFunction f) {
  lua_pushlightuserdata(L, &state);
  lua_pushlightuserdata(L, const_cast<OpBinding*>(&binding));
  lua_pushcclosure(L, f, 2);
}

int refuse_order(lua_State*, State&) {
  throw Error(
      "tensors cannot be compared with < or <=, which return one boolean; use x:lt(y), x:le(y), x:gt(y), x:ge(y) for a "
      "tensor of booleans");
}

// x(…), and `for v in x`, which calls x with two nils.
int refuse_call(lua_State* L, State& state) {
  if (const std::string hint = self_is_tensor(L, state); !hint.empty()) throw Error(hint);
  if (lua_gettop(L) == 3 && lua_isnil(L, 2) && lua_isnil(L, 3))
    throw Error("a tensor is no iterator; write for row in x:iter() do … end, or for i = 1, #x do … x[i] … end");
  throw Error(
      "a tensor cannot be called; x[i] selects a row, x[{i, j}] an element, x:op(…) calls an op, and x.T is a field, "
      "without parentheses");
}

int refuse_concatenation(lua_State*, State&) {
  throw Error(
      "a tensor cannot be joined with ..; write tostring(x), or x:item() for the number of a one-element tensor");
}

void set_operator(lua_State* L, State& state, const char* event, const OpDef& op) {
  push_closure(L, state, binding_of(op), is_operator(op) ? entry<call_operator> : entry<call_negation>);
  lua_setfield(L, -2, event);
}

// --- The tables core.ops and core.tensor_methods, which are filled as names are looked up ---

const RegistryKey kOps, kMethods, kMakeOps;

// What the tables have under a name.
struct OpFunction {
  const OpBinding* binding = nullptr;  // null: no op gives the name a function of its own
  lua_CFunction function = nullptr;
  bool in_ops = false, in_methods = false;
};

OpFunction find_function(std::string_view name) {
  const auto row = [](std::string_view of) {
    const OpDef* op = registry().find(of);
    return op && !op->has(kBodies) ? op : nullptr;  // see vm/control.cpp
  };
  if (const OpDef* op = row(name); op && is_public(*op))
    return {&binding_of(*op), function_of(*op), true, has_method(*op)};
  if (const AliasOf* a = registry().find_alias(name))
    return {&bindings()[registry().ops().size() + size_t(a - registry().aliases().data())], function_of(*a->op), true,
            has_method(*a->op)};
  if (name.starts_with('_')) {
    const OpDef* op = row(name.substr(1));
    if (op && !is_public(*op)) return {&binding_of(*op), entry<call_op>, true, false};
  }
  if (name.ends_with('_')) {
    const OpDef* op = row(name.substr(0, name.size() - 1));
    if (!op || !is_public(*op)) return {};
    if (rewrites_lists(*op)) return {&binding_of(*op), entry<named_in_place<call_lists_in_place>>, true, false};
    if (has_method(*op) && gives_one_array(*op))
      return {&binding_of(*op), entry<named_in_place<call_in_place>>, false, true};
  }
  return {};
}

// The name of the op and its ending "_" for an alias that sets no attribute, whose function is that of its op.
std::string aliased_name(std::string_view name) {
  for (const std::string_view end : {"", "_"}) {
    if (!name.ends_with(end)) continue;
    const AliasOf* a = registry().find_alias(name.substr(0, name.size() - end.size()));
    if (a && !a->alias->attr) return a->op->name + std::string(end);
  }
  return "";
}

// Sets field `name` of a table to the value on top of the stack unless it has been set.
void set_absent(lua_State* L, const RegistryKey& table, const std::string& name) {
  table.push_table(L);
  lua_pushstring(L, name.c_str());
  lua_rawget(L, -2);
  if (lua_isnil(L, -1)) {
    lua_pushvalue(L, -3);
    lua_setfield(L, -3, name.c_str());
  }
  lua_pop(L, 2);
}

// The __index of both tables. An alias is the very function of its op, unless it sets an attribute.
int make_function(lua_State* L, State& state) {
  if (!lua_istable(L, 1) || lua_type(L, 2) != LUA_TSTRING) return 0;
  size_t size;
  const char* text = lua_tolstring(L, 2, &size);
  const std::string name(text, size), original = aliased_name(name);
  if (!original.empty()) {
    lua_getfield(L, 1, original.c_str());
    if (!lua_isnil(L, -1)) lua_pushvalue(L, -1), lua_setfield(L, 1, name.c_str());
    return 1;
  }
  const OpFunction made = find_function(name);
  if (!made.binding) return 0;
  push_closure(L, state, *made.binding, made.function);
  if (made.in_ops) set_absent(L, kOps, name);
  if (made.in_methods) set_absent(L, kMethods, name);
  lua_pushvalue(L, 2);
  lua_rawget(L, 1);
  return 1;
}

// core.make_ops() fills both tables, for those who go through their names.
int make_all(lua_State* L, State&) {
  std::vector<std::string> names;
  for (const OpDef* op : registry().ops()) names.push_back(op->name);
  for (const AliasOf& a : registry().aliases()) names.push_back(a.alias->name);
  for (const RegistryKey* table : {&kOps, &kMethods}) {
    table->push_table(L);
    for (const std::string& name : names)
      for (const std::string& key : {name, name + "_", "_" + name}) lua_getfield(L, -1, key.c_str()), lua_pop(L, 1);
    lua_pop(L, 1);
  }
  return 0;
}

}  // namespace

void open_ops(lua_State* L, State& state) {
  lua_newtable(L);  // their metatable
  register_functions(L, state, {{"__index", entry<make_function>}});
  const std::pair<const RegistryKey*, const char*> tables[] = {{&kOps, "ops"}, {&kMethods, "tensor_methods"}};
  for (const auto& [key, name] : tables) {
    lua_newtable(L);
    lua_pushvalue(L, -2);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    key->set(L);
    lua_setfield(L, -3, name);
  }
  lua_pop(L, 1);
  register_functions(L, state, {{"make_ops", entry<make_all>}});
  lua_getfield(L, -1, "make_ops");
  kMakeOps.set(L);
  kTensorMetatable.push_table(L);
  set_operator(L, state, "__add", op_named<"add">());
  set_operator(L, state, "__sub", op_named<"sub">());
  set_operator(L, state, "__mul", op_named<"mul">());
  set_operator(L, state, "__div", op_named<"div">());
  set_operator(L, state, "__mod", op_named<"remainder">());
  set_operator(L, state, "__pow", op_named<"pow">());
  set_operator(L, state, "__unm", op_named<"neg">());
  register_functions(L, state,
                     {{"__lt", entry<refuse_order>},
                      {"__le", entry<refuse_order>},
                      {"__call", entry<refuse_call>},
                      {"__concat", entry<refuse_concatenation>}});
  lua_pop(L, 1);
}

void make_ops(lua_State* L) {
  kMakeOps.push(L);
  lua_call(L, 0, 0);
}

}  // namespace pg::vm
