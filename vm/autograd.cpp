// Modes, leaves and backward. The scopes that take a function are written in stdlib/autograd.lua on top of
// push_modes and pop_modes.
#include <algorithm>
#include <memory>
#include <set>
#include <unordered_set>

#include "graph/io/model_names.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

constexpr int kMaxGaps = 1 << 20;  // places of a list of gradients with gaps

struct ModeGuard {
  State* state;
  uint64_t token;
};

constexpr int kMaxNested = 60;  // walks that run inside each other's backward functions: they share the C stack

// Names the coroutine that callbacks run in, for the extent of a call.
class Running {
 public:
  Running(State& state, lua_State* L) : state_(state), saved_(state.running) {
    if (state.walks == kMaxNested)
      throw Error(fmt::format("backward: {} backward functions run backward inside each other; does one reach itself?",
                              kMaxNested));
    state.running = L;
    ++state.walks;
  }
  ~Running() {
    state_.running = saved_;
    --state_.walks;
  }
  Running(const Running&) = delete;

 private:
  State& state_;
  lua_State* saved_;
};

void remove_modes(State& state, uint64_t token) {
  for (size_t i = state.modes.size(); i-- > 0;)
    if (state.modes[i].token == token) return void(state.modes.erase(state.modes.begin() + ptrdiff_t(i)));
}

int collect_guard(lua_State* L) {
  auto* guard = static_cast<ModeGuard*>(lua_touserdata(L, 1));
  if (!guard || lua_objlen(L, 1) != sizeof(ModeGuard) || !is_live(guard->state)) return 0;
  remove_modes(*guard->state, guard->token);
  return 0;
}

// push_modes(recording, training) → guard; nil leaves a flag as it is. The guard's environment holds the coroutine,
// so the scope of an abandoned coroutine ends before the coroutine is freed.
int push_modes(lua_State* L, State& state) {
  ModeScope scope{};
  scope.owner = L;
  scope.sets_recording = !lua_isnil(L, 1);
  scope.recording = lua_toboolean(L, 1);
  scope.sets_training = !lua_isnil(L, 2);
  scope.training = lua_toboolean(L, 2);
  scope.token = state.next_token++;
  auto* guard = static_cast<ModeGuard*>(lua_newuserdata(L, sizeof(ModeGuard)));
  *guard = {&state, scope.token};
  lua_pushvalue(L, table_upvalue(L, 2));
  lua_setmetatable(L, -2);
  lua_createtable(L, 1, 0);
  lua_pushthread(L);
  lua_rawseti(L, -2, 1);
  lua_setfenv(L, -2);
  state.modes.push_back(scope);
  return 1;
}

int pop_modes(lua_State* L, State& state) {
  remove_modes(state, static_cast<ModeGuard*>(lua_touserdata(L, 1))->token);
  return 0;
}

int is_recording(lua_State* L, State& state) {
  state.update_modes();
  if (state.trace) state.trace->read_flags(true, false);
  lua_pushboolean(L, state.ctx.recording);
  return 1;
}

int is_training(lua_State* L, State& state) {
  state.update_modes();
  if (state.trace) state.trace->read_flags(false, true);
  lua_pushboolean(L, state.ctx.training);
  return 1;
}

GradReq check_req(lua_State* L, State& state, int i, const char* op) {
  if (lua_isnoneornil(L, i)) return GradReq::kWrite;
  const std::string text = check_string(L, state, i, op, "grad_req", "\"write\", \"add\" or \"null\"");
  if (text == "write") return GradReq::kWrite;
  if (text == "add") return GradReq::kAdd;
  if (text == "null") return GradReq::kNull;
  bad_argument(op, "grad_req", "\"write\", \"add\" or \"null\"", '"' + text + '"');
}

// The box at stack index i, which a trace is about to look into.
Box& touched(lua_State* L, State& state, int i, const char* op) {
  Box& box = check_box(L, state, i, op, "x");
  if (state.trace && box.get().defined()) state.trace->touch(L, box, i);
  return box;
}

TapeNode* leaf_of(Box& box) {
  TapeNode* node = box.get().defined() ? box.get().node() : nullptr;
  return node && node->leaf ? node : nullptr;
}

// x:attach_grad(req) → x. An existing leaf keeps its gradient's box and changes its req.
int attach_grad(lua_State* L, State& state) {
  Value& value = check_value(L, state, 1, "attach_grad", "x");
  const GradReq req = check_req(L, state, 2, "attach_grad");
  Ref<TapeNode> leaf = make_leaf(value.type(), req);
  if (state.trace) {
    if (state.trace->is_captured(*to_box(L, state, 1)))
      fail("attach_grad",
           "a traced function cannot make a tensor from outside a leaf; call attach_grad before it, or on x:detach()");
    leaf->grad->value = state.ctx.interpreter->filled(state.ctx, value.type(), 0);
    value = state.ctx.interpreter->tracer()->leaf(state.ctx, value, leaf.get());
  } else {
    value = value.detached();
    value.link(leaf.get(), 0);
    lua_settop(L, 1);
    state.track(L, *to_box(L, state, 1));  // its gradient may get a history
  }
  lua_settop(L, 1);
  return 1;
}

// fresh_input(x) → in the body of a branch or loop, x as a tensor to take gradients by; else nil.
int fresh_input(lua_State* L, State& state) {
  state.update_modes();
  const Value& value = check_value(L, state, 1, "grad", "x");
  if (!state.trace || !state.trace->body) return lua_pushnil(L), 1;
  push_box(L, state, state.trace->innermost->fresh_input(state.ctx, value));
  return 1;
}

int get_grad(lua_State* L, State& state) {
  Box& box = touched(L, state, 1, "grad");
  TapeNode* leaf = leaf_of(box);
  if (!leaf || leaf->req == GradReq::kNull) return lua_pushnil(L), 1;
  if (state.trace) state.ctx.interpreter->tracer()->read_gradient(*leaf);
  Ref<Cell> cell = leaf->grad;
  push_box(L, state, Value()).cell = cell;
  return 1;
}

// x.grad = t, or nil for zeros.
int set_grad(lua_State* L, State& state) {
  Box& box = touched(L, state, 1, "grad");
  TapeNode* leaf = leaf_of(box);
  if (leaf && state.trace) {
    const bool fresh = leaf->fresh;
    Value value = lua_isnil(L, 2) ? state.ctx.interpreter->filled(state.ctx, leaf->leaf_type, 0)
                                  : check_value(L, state, 2, "grad", "value");
    check_gradient_type(*leaf, value.type());
    state.ctx.interpreter->tracer()->write_gradient(*leaf, state.ctx.interpreter->tracer()->detach(state.ctx, value));
    state.trace->set_fresh(*leaf, fresh);
    return 0;
  }
  if (!leaf) fail("grad", "only a tensor with attach_grad has a gradient to set");
  if (lua_isnil(L, 2)) {
    leaf->grad->value = make_filled(leaf->leaf_type, 0);
    return 0;
  }
  Value& value = check_value(L, state, 2, "grad", "value");
  check_gradient_type(*leaf, value.type());
  leaf->grad->value = value.detached();
  return 0;
}

int get_requires_grad(lua_State* L, State& state) {
  Box& box = touched(L, state, 1, "requires_grad");
  TapeNode* node = box.get().defined() ? box.get().node() : nullptr;
  const bool requires_it = node && (!node->leaf || node->req != GradReq::kNull);
  if (state.trace && state.trace->sees(box.get()))
    state.trace->note(box.get(), TypeGuard::kRequiresGrad, 0, requires_it);
  lua_pushboolean(L, requires_it);
  return 1;
}

// grad_state(x) → "write", "add", "null" or nil, and whether backward wrote since mark_stale.
int grad_state(lua_State* L, State& state) {
  TapeNode* leaf = leaf_of(touched(L, state, 1, "grad_state"));
  if (!leaf) return lua_pushnil(L), 1;
  lua_pushstring(L, kRequestNames[int(leaf->req)]);
  lua_pushboolean(L, state.trace ? state.trace->fresh(*leaf) : leaf->fresh);
  return 2;
}

int mark_stale(lua_State* L, State& state) {
  TapeNode* leaf = leaf_of(touched(L, state, 1, "mark_stale"));
  if (leaf && state.trace)
    state.trace->set_fresh(*leaf, false);
  else if (leaf)
    leaf->fresh = false;
  return 0;
}

int set_grad_req(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "grad_req", "x");
  const GradReq req = check_req(L, state, 2, "grad_req");
  TapeNode* leaf = leaf_of(box);
  if (!leaf) fail("grad_req", "only a tensor with attach_grad has a grad_req");
  leaf->req = req;
  return 0;
}

Values read_values(lua_State* L, State& state, int i, const char* op, const char* name, bool allow_nil) {
  Values out;
  if (lua_isnoneornil(L, i)) return out;
  if (to_box(L, state, i)) {
    out.push_back(check_value(L, state, i, op, name));
    return out;
  }
  if (!lua_istable(L, i)) bad_argument(op, name, "a tensor or a table of tensors", describe(L, state, i));
  int n = int(lua_objlen(L, i));
  if (allow_nil && option(L, i, "n")) {
    const double count = lua_tonumber(L, -1);
    if (!(count >= 0 && count <= kMaxGaps))
      bad_argument(op, name, fmt::format("a count n from 0 to {}", kMaxGaps), describe(L, state, -1));
    n = int(count);
    lua_pop(L, 1);
  }
  for (int k = 1; k <= n; ++k) {
    lua_rawgeti(L, i, k);
    if (allow_nil && (lua_isnil(L, -1) || lua_isboolean(L, -1)))
      out.emplace_back();
    else
      out.push_back(check_value(L, state, lua_gettop(L), op, name));
    lua_pop(L, 1);
  }
  return out;
}

bool flag(lua_State* L, int table, const char* name) {
  if (!lua_istable(L, table) || !option(L, table, name)) return false;
  const bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

BackwardOptions read_options(lua_State* L, int i) {
  BackwardOptions o;
  o.create_graph = flag(L, i, "create_graph");
  o.retain_graph = flag(L, i, "retain_graph") || o.create_graph;
  return o;
}

// backward(heads, grads or nil, options or nil)
int run_backward(lua_State* L, State& state) {
  state.update_modes();
  Running running(state, L);
  check_options(L, state, 3, "backward", {"retain_graph", "create_graph", "train_mode"});
  const Values heads = read_values(L, state, 1, "backward", "heads", false);
  const Values grads = read_values(L, state, 2, "backward", "grads", true);
  if (!grads.empty() && grads.size() != heads.size())
    bad_argument("backward", "grads", fmt::format("{} gradients, one a head", heads.size()),
                 std::to_string(grads.size()));
  backward(state.ctx, heads, grads, read_options(L, 3));
  return 0;
}

// gradients(heads, wanted, grads or nil, options or nil) → a table with false where nothing flows
int run_gradients(lua_State* L, State& state) {
  state.update_modes();
  Running running(state, L);
  check_options(L, state, 4, "grad", {"retain_graph", "create_graph", "first"});
  const Values heads = read_values(L, state, 1, "grad", "heads", false);
  const Values wanted = read_values(L, state, 2, "grad", "variables", false);
  const Values cotangents = read_values(L, state, 3, "grad", "head_grads", true);
  BackwardOptions options = read_options(L, 4);
  if (lua_istable(L, 4) && option(L, 4, "first")) options.first = uint64_t(lua_tonumber(L, -1));
  Values out = gradients(state.ctx, heads, cotangents, wanted, options);
  lua_createtable(L, int(out.size()), 0);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i].defined())
      push_box(L, state, std::move(out[i]));
    else
      lua_pushboolean(L, false);
    lua_rawseti(L, -2, int(i) + 1);
  }
  return 1;
}

// Whether a cotangent where nothing flowed is handed to a Lua function as zeros, as a graph does, or as nil.
enum class Absent { kZeros, kNil };

// What a tape entry of a Lua function keeps. The tensors that it saves are held by the entry.
class LuaBackward : public HostedFunction {
 public:
  LuaBackward(State& state, Reference function, std::vector<int> saved_outputs, Absent absent)
      : state_(state), saved_outputs_(std::move(saved_outputs)), absent_(absent) {
    reference = std::move(function);
  }
  LuaBackward(const LuaBackward&) = delete;
  ~LuaBackward() {
    if (node && !state_.closed) state_.disown(*this);
  }

  // Calls function(saved, dy…) → one gradient or nil an input.
  Values run(Context& ctx, TapeNode& node, std::span<const Value> cotangents) {
    lua_State* L = state_.running;
    const int top = lua_gettop(L);
    need_stack(L, int(cotangents.size()) + 8, "too many gradients");
    push_function(L);
    push_saved(L, node);
    for (size_t k = 0; k < cotangents.size(); ++k) {
      if (cotangents[k].defined())
        push_box(L, state_, cotangents[k]);
      else if (absent_ == Absent::kZeros)
        push_box(L, state_, make_filled(node.outputs[k]->type, 0));
      else
        lua_pushnil(L);
    }
    state_.modes.push_back({L, ctx.recording, ctx.training, true, true, state_.next_token++});
    const uint64_t token = state_.modes.back().token;
    const bool recording = ctx.recording, training = ctx.training;
    const int status = lua_pcall(L, int(cotangents.size()) + 1, LUA_MULTRET, 0);
    remove_modes(state_, token);
    ctx.recording = recording;
    ctx.training = training;
    if (status) {
      const std::string text = lua_tostring(L, -1) ? lua_tostring(L, -1) : "error in a backward function";
      lua_settop(L, top);
      throw PositionedError(text);
    }
    Values out;
    const int results = lua_gettop(L) - top;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (int(i) >= results || lua_isnil(L, top + 1 + int(i)) || lua_isboolean(L, top + 1 + int(i))) {
        out.emplace_back();
        continue;
      }
      out.push_back(gradient_at(L, top + 1 + int(i), node, i));
    }
    lua_settop(L, top);
    return out;
  }

 private:
  // Gradient i of the function's answers, of the input's shape or one that broadcasting made of it.
  Value gradient_at(lua_State* L, int place, TapeNode& node, size_t i) {
    const std::string name = fmt::format("gradient {}", i + 1);
    const Value& dy = check_value(L, state_, place, node.custom_name.c_str(), name.c_str());
    const Dims& shape = node.inputs[i].shape();
    Dims joined;
    if (!broadcast(shape, dy.shape(), &joined) || !(joined == dy.shape()))
      bad_argument(node.custom_name.c_str(), name.c_str(), "a tensor of shape " + to_string(shape),
                   to_string(dy.shape()));
    return dy;
  }

  void push_function(lua_State* L) const {
    if (reference) return reference.push(L);
    kLoose.push_table(L);
    lua_rawgeti(L, -1, int(place) + 1);
    lua_remove(L, -2);
  }

  void push_saved(lua_State* L, TapeNode& node) {
    const std::vector<Value> saved = node.held;
    lua_createtable(L, int(saved.size()), 0);
    for (size_t i = 0; i < saved.size(); ++i) {
      Value v = saved[i];
      if (saved_outputs_[i] >= 0) v.link(&node, uint32_t(saved_outputs_[i]));
      push_box(L, state_, std::move(v));
      lua_rawseti(L, -2, int(i) + 1);
    }
  }

  State& state_;
  std::vector<int> saved_outputs_;
  Absent absent_;
};

void link_custom(State& state, const std::string& name, Values inputs, Values& outputs, Values saved,
                 Reference function, Absent absent) {
  std::vector<int> saved_outputs(saved.size(), -1);
  for (size_t i = 0; i < saved.size(); ++i)
    for (size_t k = 0; k < outputs.size(); ++k)
      if (saved[i].array_ref() == outputs[k].array_ref()) saved_outputs[i] = int(k), saved[i] = saved[i].detached();
  auto keep = std::make_shared<LuaBackward>(state, std::move(function), std::move(saved_outputs), absent);
  TapeNode* node = record_custom(
      state.ctx, name, inputs, outputs,
      [keep](Context& ctx, TapeNode& entry, std::span<const Value> dys) { return keep->run(ctx, entry, dys); },
      {saved.begin(), saved.end()});
  if (node) state.adopt(*keep, *node);
}

void rebind_outputs(lua_State* L, State& state, int table, Values& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    lua_rawgeti(L, table, int(i) + 1);
    Box& box = *to_box(L, state, lua_gettop(L));
    set_value(box, outputs[i]);
    if (outputs[i].has_node()) state.track(L, box);
    lua_pop(L, 1);
  }
}

// Fresh values over the same payloads, without links.
void unlink(Values& values) {
  for (Value& v : values) v = v.detached();
}

// record_custom(name, inputs, outputs, saved, backward): links the output boxes to a tape entry whose backward is
// the Lua function backward(saved, dy…).
int record_function(lua_State* L, State& state) {
  state.update_modes();
  const std::string name = check_string(L, state, 1, "Function", "name");
  const Values inputs = read_values(L, state, 2, "Function", "inputs", false);
  Values outputs = read_values(L, state, 3, "Function", "outputs", false);
  const Values saved = read_values(L, state, 4, "Function", "saved", false);
  unlink(outputs);
  lua_pushvalue(L, 5);
  link_custom(state, name, inputs, outputs, saved, Reference(L, state), Absent::kZeros);
  rebind_outputs(L, state, 3, outputs);
  return 0;
}

// tape_position() → a mark; entries made later have a higher one.
int tape_position(lua_State* L, State& state) {
  lua_pushnumber(L, double(state.ctx.next_sequence));
  return 1;
}

void collect_outside(const Values& outputs, uint64_t start, Values& outside) {
  std::vector<TapeNode*> stack;
  std::unordered_set<const TapeNode*> seen;
  std::set<std::pair<const TapeNode*, uint32_t>> taken;
  auto reach = [&](const Value& v) {
    TapeNode* node = v.node();
    if (!node) return;
    if (!node->leaf && node->sequence >= start) {
      if (seen.insert(node).second) stack.push_back(node);
    } else if (taken.emplace(node, v.node_output()).second) {
      outside.push_back(v);
    }
  };
  for (const Value& v : outputs) reach(v);
  while (!stack.empty()) {
    TapeNode* node = stack.back();
    stack.pop_back();
    for (const Value& v : node->inputs) reach(v);
  }
}

// record_checkpoint(outputs, mark, backward): replaces what was recorded since `mark` by one entry over the values
// from before it; backward({those values}, dy…) recomputes. Answers whether anything was recorded.
int record_checkpoint(lua_State* L, State& state) {
  state.update_modes();
  Values outputs = read_values(L, state, 1, "checkpoint", "outputs", false);
  Values outside;
  collect_outside(outputs, uint64_t(lua_tonumber(L, 2)), outside);
  lua_pushboolean(L, !outside.empty());
  if (outside.empty()) return 1;
  unlink(outputs);
  lua_pushvalue(L, 3);
  const Values saved = outside;
  link_custom(state, "checkpoint", outside, outputs, saved, Reference(L, state), Absent::kNil);
  rebind_outputs(L, state, 1, outputs);
  return 1;
}

// set_recompute(true) → what to hand to set_recompute at the end: in between, in-place changes of boxes from before are
// dropped.
int set_recompute(lua_State* L, State& state) {
  lua_pushnumber(L, double(state.recompute_from));
  state.recompute_from = lua_isboolean(L, 1) ? state.next_box : uint64_t(lua_tonumber(L, 1));
  return 1;
}

int set_detect_anomaly(lua_State* L, State& state) {
  lua_pushboolean(L, state.ctx.detect_anomaly);
  state.ctx.detect_anomaly = lua_toboolean(L, 1);
  return 1;
}

// detach(x): the same value without its history.
int detach(lua_State* L, State& state) {
  const Value& value = check_value(L, state, 1, "detach", "x");
  push_box(L, state, state.trace ? state.ctx.interpreter->tracer()->detach(state.ctx, value) : value.detached());
  return 1;
}

// alias(x): another box with the same value and history.
int alias(lua_State* L, State& state) {
  push_box(L, state, check_value(L, state, 1, "alias", "x"));
  return 1;
}

}  // namespace

void open_autograd(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"pop_modes", entry<pop_modes>},
                      {"is_recording", entry<is_recording>},
                      {"is_training", entry<is_training>},
                      {"fresh_input", entry<fresh_input>},
                      {"attach_grad", entry<attach_grad>},
                      {"get_grad", entry<get_grad>},
                      {"set_grad", entry<set_grad>},
                      {"set_grad_req", entry<set_grad_req>},
                      {"requires_grad", entry<get_requires_grad>},
                      {"grad_state", entry<grad_state>},
                      {"mark_stale", entry<mark_stale>},
                      {"backward", entry<run_backward>},
                      {"gradients", entry<run_gradients>},
                      {"record_custom", entry<record_function>},
                      {"record_checkpoint", entry<record_checkpoint>},
                      {"tape_position", entry<tape_position>},
                      {"set_recompute", entry<set_recompute>},
                      {"set_detect_anomaly", entry<set_detect_anomaly>},
                      {"alias", entry<alias>},
                      {"detach", entry<detach>}});
  lua_pushlightuserdata(L, &state);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, collect_guard);
  lua_setfield(L, -2, "__gc");
  lua_pushcclosure(L, entry<push_modes>, 2);
  lua_setfield(L, -2, "push_modes");
}

}  // namespace pg::vm
