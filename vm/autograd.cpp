// Modes, leaves and backward. stdlib/autograd.lua builds the scopes that take a function on push_modes and pop_modes.
#include <algorithm>

#include "graph/io/model_names.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/function.h"
#include "vm/handle.h"
#include "vm/trace.h"
#include "vm/write_log.h"

namespace pg::vm {
namespace {

constexpr int kMaxNested = 60;  // backward calls nested in backward functions; they share the C stack

// Sets the coroutine in which callbacks run, during a call.
class Running {
 public:
  Running(State& state, lua_State* L) : state_(state), saved_(state.running) {
    if (state.walks == kMaxNested)
      throw Error(fmt::format("backward: {} nested calls of backward inside backward functions; does one reach itself?",
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

// push_modes(recording, training) → guard. nil does not change a flag.
int push_modes(lua_State* L, State& state) {
  ModeScope scope{};
  scope.owner = L;
  scope.sets_recording = !lua_isnil(L, 1);
  scope.recording = lua_toboolean(L, 1);
  scope.sets_training = !lua_isnil(L, 2);
  scope.training = lua_toboolean(L, 2);
  scope.token = state.next_token++;
  push_guard(L, state, scope.token);
  state.modes.push_back(scope);
  return 1;
}

int pop_modes(lua_State* L, State& state) {
  remove_modes(state, guarded_scope(L));
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
  for (size_t k = 0; k < std::size(kRequestNames); ++k)
    if (text == kRequestNames[k]) return GradReq(k);
  bad_argument(op, "grad_req", "\"write\", \"add\" or \"null\"", '"' + text + '"');
}

// The box at stack index i. A trace captures it.
Box& touched(lua_State* L, State& state, int i, const char* op) {
  Box& box = check_box(L, state, i, op, "x");
  if (state.trace && box.get().defined()) state.trace->touch(L, box, i);
  return box;
}

TapeNode* leaf_of(Box& box) {
  TapeNode* node = box.get().defined() ? box.get().node() : nullptr;
  return node && node->leaf ? node : nullptr;
}

// x:attach_grad(req) → x. Makes x a leaf with a zero gradient.
int attach_grad(lua_State* L, State& state) {
  Value& value = check_value(L, state, 1, "attach_grad", "x");
  const GradReq req = check_req(L, state, 2, "attach_grad");
  Ref<TapeNode> leaf = make_leaf(value.type(), req);
  if (state.trace) {
    if (state.trace->is_captured(*to_box(L, state, 1)))
      fail("attach_grad",
           "a traced function cannot make an outer tensor a leaf; call attach_grad before the function, or on "
           "x:detach()");
    leaf->grad->value = state.ctx.interpreter->filled(state.ctx, value.type(), 0);
    value = state.ctx.interpreter->tracer()->leaf(state.ctx, value, leaf.get());
  } else {
    note_write(*to_box(L, state, 1));
    value = value.detached();
    value.link(leaf.get(), 0);
    lua_settop(L, 1);
    state.track(L, *to_box(L, state, 1));  // its gradient may get a history
  }
  lua_settop(L, 1);
  return 1;
}

// recording_is_open() → whether each run of the trace in progress decides if the ops that follow are recorded.
int recording_is_open(lua_State* L, State& state) {
  state.update_modes();
  lua_pushboolean(L, state.trace && state.trace->recording_mode(state.ctx) == Mode::kAuto);
  return 1;
}

// fresh_input(x, exports) → in the body of a branch or loop, or in a trace of an export, a tensor with the value of x
// for which gradients can be computed; else nil.
int fresh_input(lua_State* L, State& state) {
  state.update_modes();
  const Value& value = check_value(L, state, 1, "grad", "x");
  if (!state.trace || !(state.trace->body || lua_toboolean(L, 2))) return lua_pushnil(L), 1;
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

// x.grad = t. nil sets zeros.
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
  note_write(state, leaf->grad);
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
  lua_pushboolean(L, note_requires_grad(state, touched(L, state, 1, "requires_grad").get()));
  return 1;
}

// is_recorded(x) → as requires_grad, but true also for results of tensors that all request no gradient.
// pg.autograd.grad can ask for it.
int is_recorded(lua_State* L, State& state) {
  const Value& v = touched(L, state, 1, "is_recorded").get();
  const bool asks = note_requires_grad(state, v);
  if (!asks && state.trace && has_history(v)) state.trace->read_flags(true, false);
  lua_pushboolean(L, asks || has_history(v));
  return 1;
}

// grad_state(x) → "write", "add", "null" or nil, whether backward has written the gradient since mark_stale, and
// whether something besides x holds its place on the tape, so that a later backward may write it.
int grad_state(lua_State* L, State& state) {
  TapeNode* leaf = leaf_of(touched(L, state, 1, "grad_state"));
  if (!leaf) return lua_pushnil(L), 1;
  const Ref<TapeNode> held(leaf);  // lua_pushstring may run the finalizer of x, if x was the key of a weak table
  const bool shared = leaf->count() > 2;
  lua_pushstring(L, kRequestNames[int(leaf->req)]);
  lua_pushboolean(L, state.trace ? state.trace->fresh(*leaf) : leaf->fresh);
  lua_pushboolean(L, shared);
  return 3;
}

template <bool kFresh>
int mark(lua_State* L, State& state) {
  TapeNode* leaf = leaf_of(touched(L, state, 1, kFresh ? "mark_fresh" : "mark_stale"));
  if (leaf && state.trace)
    state.trace->set_fresh(*leaf, kFresh);
  else if (leaf)
    leaf->fresh = kFresh;
  return 0;
}

BackwardOptions read_options(lua_State* L, int i) {
  BackwardOptions o;
  o.create_graph = flag_option(L, i, "create_graph");
  o.retain_graph = flag_option(L, i, "retain_graph") || o.create_graph;
  return o;
}

// backward(heads, grads or nil, options or nil)
int run_backward(lua_State* L, State& state) {
  state.relieve_backward(L);
  state.update_modes();
  Running running(state, L);
  check_options(L, state, 3, "backward", {"retain_graph", "create_graph", "train_mode"});
  const Values heads = read_values(L, state, 1, "backward", "heads", false);
  const Values grads = read_values(L, state, 2, "backward", "grads", true);
  if (!grads.empty() && grads.size() != heads.size())
    bad_argument("backward", "grads", fmt::format("{} gradients, one per head", heads.size()),
                 std::to_string(grads.size()));
  BackwardOptions options = read_options(L, 3);
  if (state.write_log && !state.trace)
    options.on_final = [&](Context&, TapeNode& leaf, Value gradient) {
      note_write(state, leaf.grad);
      return gradient;
    };
  backward(state.ctx, heads, grads, options);
  return 0;
}

// The tensors that the body of a checkpoint read from outside. Those that no gradient needs have only a type and a
// place on the tape.
Values read_outside(lua_State* L, State& state, int i) {
  Values out;
  for (int k = 1; k <= int(lua_objlen(L, i)); ++k) {
    lua_rawgeti(L, i, k);
    out.push_back(check_box(L, state, lua_gettop(L), "grad", "variables").get());
    lua_pop(L, 1);
  }
  return out;
}

// gradients(heads, wanted, grads or nil, options or nil) → a list of gradients, false for a tensor that no gradient
// reaches. With the option `first`, a tape position, the entries before it are not followed.
int run_gradients(lua_State* L, State& state) {
  state.update_modes();
  Running running(state, L);
  check_options(L, state, 4, "grad", {"retain_graph", "create_graph", "first"});
  const Values heads = read_values(L, state, 1, "grad", "heads", false);
  const Values cotangents = read_values(L, state, 3, "grad", "head_grads", true);
  BackwardOptions options = read_options(L, 4);
  const bool in_checkpoint = lua_istable(L, 4) && option(L, 4, "first");
  if (in_checkpoint) options.first = uint64_t(lua_tonumber(L, -1));
  const Values wanted =
      in_checkpoint ? read_outside(L, state, 2) : read_values(L, state, 2, "grad", "variables", false);
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

int set_detect_anomaly(lua_State* L, State& state) {
  lua_pushboolean(L, state.ctx.detect_anomaly);
  state.ctx.detect_anomaly = lua_toboolean(L, 1);
  return 1;
}

// detach(x) → a tensor with the same value and no history.
int detach(lua_State* L, State& state) {
  const Value& value = check_value(L, state, 1, "detach", "x");
  push_box(L, state, state.trace ? state.ctx.interpreter->tracer()->detach(state.ctx, value) : value.detached());
  return 1;
}

// alias(x) → another box with the same value and history.
int alias(lua_State* L, State& state) {
  push_box(L, state, check_value(L, state, 1, "alias", "x"));
  return 1;
}

}  // namespace

void open_autograd(lua_State* L, State& state) {
  open_functions(L, state);
  open_write_log(L, state);
  register_functions(L, state,
                     {{"pop_modes", entry<pop_modes>},
                      {"is_recording", entry<is_recording>},
                      {"is_training", entry<is_training>},
                      {"fresh_input", entry<fresh_input>},
                      {"recording_is_open", entry<recording_is_open>},
                      {"attach_grad", entry<attach_grad>},
                      {"get_grad", entry<get_grad>},
                      {"set_grad", entry<set_grad>},
                      {"requires_grad", entry<get_requires_grad>},
                      {"is_recorded", entry<is_recorded>},
                      {"grad_state", entry<grad_state>},
                      {"mark_stale", entry<mark<false>>},
                      {"mark_fresh", entry<mark<true>>},
                      {"backward", entry<run_backward>},
                      {"gradients", entry<run_gradients>},
                      {"set_detect_anomaly", entry<set_detect_anomaly>},
                      {"alias", entry<alias>},
                      {"detach", entry<detach>}});
  register_guard(L, state, "push_modes", entry<push_modes>, collect_guard<remove_modes>);
}

}  // namespace pg::vm
