// Traces the branches and loops of a script: their functions become closed bodies of one node of the trace.
#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tensor/rule.h"
#include "vm/args.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

TraceSession& session_of(State& state) {
  if (!state.trace) throw Error("no trace is in progress");
  return *state.trace;
}

// Pops a list and returns its tensors.
Values take_list(lua_State* L, State& state, const char* op, const char* what) {
  Values out;
  if (!lua_istable(L, -1)) throw Error(fmt::format("{}: expected a list of {}", op, what));
  for (int k = 1, n = int(lua_objlen(L, -1)); k <= n; ++k) {
    lua_rawgeti(L, -1, k);
    out.push_back(check_value(L, state, lua_gettop(L), op, what));
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return out;
}

Values list_field(lua_State* L, State& state, int t, const char* key, const char* op) {
  lua_getfield(L, t, key);
  return take_list(L, state, op, key);
}

// Returns the whole number on top of the stack without popping it.
int64_t count_at_top(lua_State* L, const std::string& op, const char* name) {
  const double v = lua_tonumber(L, -1);
  if (!(v >= 0 && v <= 0x1p53 && v == std::floor(v)))
    bad_argument(op.c_str(), name, "a whole number from 0 to 2^53", fmt::format("{:g}", v));
  return int64_t(v);
}

std::string name_at(lua_State* L, int t, const char* key, size_t k) {
  lua_getfield(L, t, key);
  if (lua_isfunction(L, -1)) lua_pcall(L, 0, 1, 0);
  std::string name = fmt::format("result {}", k + 1);
  if (lua_istable(L, -1)) {
    lua_rawgeti(L, -1, int(k) + 1);
    if (lua_tostring(L, -1)) name = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return name;
}

// Calls the function below `arguments` values on the stack. Adds `where` to its error, unless an inner call has added a
// place.
void call(lua_State* L, int arguments, int results, const std::string& op, const char* where) {
  if (!protected_call(L, arguments, results)) return;
  std::string text = lua_tostring(L, -1) ? lua_tostring(L, -1) : "an error that is not a string";
  lua_pop(L, 1);
  const bool says_so = text.find(op + ": ") != text.npos || text.find(" (in the ") != text.npos;
  if (!says_so) text += fmt::format(" (in the {} of {})", where, op);
  note_reraise(L, find_state(L), text);
  throw PositionedError(text);
}

// Adds an input of a body for an outer value, with that value's history.
Value stand_in(BodyBuilder& body, const Type& type, const Value& outside) {
  Value v = body.add_input(type);
  if (outside.defined() && is_float(type.dtype)) v.link(outside.node(), outside.node_output());
  return v;
}

// An outer value that a body uses besides its arguments: a tensor of the script, or a value without a box.
struct Capture {
  Box* box = nullptr;
  Operand operand;            // in the enclosing builder, if there is no box
  Value value;                // the outer value
  Value result;               // the new value in the body that writes the tensor
  std::vector<Value> inputs;  // by body; undefined if the body does not use it
  bool written = false;
};

// Joins the captures of several bodies, which must be closed.
std::vector<Capture> join_captures(std::span<std::unique_ptr<BodyBuilder>> bodies) {
  std::vector<Capture> all;
  std::map<std::tuple<Box*, int32_t, int32_t>, size_t> places;
  for (size_t b = 0; b < bodies.size(); ++b) {
    auto find = [&](Box* box, const Operand& operand) -> Capture& {
      const auto [at, added] = places.emplace(std::tuple(box, operand.node, operand.output), all.size());
      if (!added) return all[at->second];
      Capture& c = all.emplace_back();
      c.box = box;
      c.operand = operand;
      c.inputs.resize(bodies.size());
      return c;
    };
    for (const auto& o : bodies[b]->outside) {
      Capture& c = find(o.box, {});
      c.value = o.before;
      c.inputs[b] = o.symbol;
      c.written |= o.written;
    }
    for (size_t k = 0; k < bodies[b]->captures.size(); ++k) {
      Capture& c = find(nullptr, bodies[b]->captures[k]);
      c.value = bodies[b]->captured_values[k];
      c.inputs[b] = bodies[b]->capture_inputs[k];
    }
  }
  return all;
}

// Returns the body's input for a capture. Makes it if there is none.
Value input_for(BodyBuilder& body, Capture& c, size_t b) {
  if (!c.inputs[b].defined()) c.inputs[b] = body.add_input(c.value.type());
  return c.inputs[b];
}

void set_inputs(BodyBuilder& body, std::span<const Value> inputs) {
  body.graph.inputs.clear();
  for (const Value& v : inputs) body.graph.inputs.push_back(body.symbol_of(v).node);
}

const Value* written_value(const BodyBuilder& body, const Box* box) {
  const auto* found = body.find(box);
  return found ? &found->now : nullptr;
}

void write_box(Capture& c, Value now) { set_value(*c.box, written(*c.box->state, "", c.box->get(), std::move(now))); }

Value on_host(Context& ctx, Value v, DType dtype) {
  if (v.dtype() == dtype && v.device().is_cpu()) return v;
  return pg::call<"to">(Var(ctx, std::move(v)), {{"dtype", dtype}, {"device", Device{}}}).value();
}

// Converts a tensor of one element to a 0-dim bool on the host, where conditions are evaluated.
Value as_flag(State& state, Value pred, const std::string& op, const char* name) {
  Context& ctx = state.ctx;
  note_shape(state, pred);
  if (pred.numel() != 1) bad_argument(op.c_str(), name, "a tensor of one element", to_string(pred.type()));
  if (pred.rank() > 0) pred = pg::call<"reshape">(Var(ctx, pred), {{"shape", Ints{}}}).value();
  return on_host(ctx, std::move(pred), DType::kBool);
}

// Loops -------------------------------------------------------------------------------------------------------------

struct LoopTrace {
  std::string op;
  Control control;
  Values counts, slices, carries, stacks;
  Values states;  // the new carries that the body returns
  std::vector<std::unique_ptr<BodyBuilder>> bodies;
  std::vector<Values> inputs;  // of each body: index, slices, carries
};

void read_form(lua_State* L, State& state, LoopTrace& t) {
  LoopForm& form = t.control.loop;
  t.slices = list_field(L, state, 1, "slices", t.op.c_str());
  t.carries = list_field(L, state, 1, "carries", t.op.c_str());
  form.slices = int32_t(t.slices.size());
  for (size_t k = 0; k < t.slices.size(); ++k) {
    const Value& v = t.slices[k];
    const std::string name = name_at(L, 1, "slice_names", k);
    if (v.rank() == 0) bad_argument(t.op.c_str(), name.c_str(), "a tensor with at least one dim", to_string(v.type()));
    if (v.shape()[0] != t.slices[0].shape()[0])
      throw Error(fmt::format("{}: {} has {} rows, {} has {}", t.op, name_at(L, 1, "slice_names", 0),
                              t.slices[0].shape()[0], name, v.shape()[0]));
    form.limit = v.shape()[0];
  }
  lua_getfield(L, 1, "count");
  if (lua_type(L, -1) == LUA_TNUMBER) {
    form.limit = count_at_top(L, t.op, "count");
  } else if (!lua_isnil(L, -1)) {
    Value count = check_value(L, state, lua_gettop(L), t.op.c_str(), "count");
    if (count.rank() > 0)
      bad_argument(t.op.c_str(), "count", "a whole number or a 0-dim tensor", to_string(count.type()));
    if (is_float(count.dtype())) {  // checked at each run
      const Var whole = call<"eq">(Var(state.ctx, count), call<"floor">(Var(state.ctx, count)));
      call<"assert">(whole, {{"message", t.op + ": bad argument 'count' (expected a whole number >= 0)"}});
    }
    t.counts.push_back(on_host(state.ctx, std::move(count), DType::kInt64));
    form.counted = true;
  }
  lua_pop(L, 1);
  for (const auto& [key, place] : {std::pair{"limit", &form.limit}, std::pair{"checkpoint", &form.checkpoint}}) {
    lua_getfield(L, 1, key);
    if (lua_type(L, -1) == LUA_TNUMBER) *place = count_at_top(L, t.op, key);
    lua_pop(L, 1);
  }
  lua_getfield(L, 1, "cond");
  form.conditional = !lua_isnil(L, -1);
  lua_pop(L, 1);
}

void begin_body(lua_State* L, State& state, LoopTrace& t, bool with_slices) {
  BodyBuilder& body = *t.bodies.emplace_back(
      std::make_unique<BodyBuilder>(L, state, session_of(state), BodyBuilder::Kind::kCombinator));
  Values& inputs = t.inputs.emplace_back();
  inputs.push_back(body.add_input(Type{DType::kInt64, {}, {}}));
  if (with_slices)
    for (const Value& v : t.slices) inputs.push_back(stand_in(body, row_type(v.type()), v));
  for (const Value& v : t.carries) inputs.push_back(stand_in(body, v.type(), v));
}

void trace_condition(lua_State* L, State& state, LoopTrace& t) {
  begin_body(L, state, t, false);
  BodyBuilder& body = *t.bodies.back();
  lua_getfield(L, 1, "cond");
  push_list(L, state, std::span(t.inputs.back()).subspan(1));
  lua_pushvalue(L, -1);
  lua_insert(L, -3);
  call(L, 1, 1, t.op, "condition");
  const Value flag = as_flag(state, check_value(L, state, lua_gettop(L), t.op.c_str(), "cond"), t.op, "cond");
  lua_pop(L, 1);
  const Values states = take_list(L, state, t.op.c_str(), "cond");
  body.graph.outputs.push_back(body.operand_of(flag));
  body.close();
  for (const auto& o : body.outside)
    if (o.written) throw Error(t.op + ": the condition writes to an outer tensor; do that in the body");
  for (size_t k = 0; k < states.size(); ++k)
    if (!body.owns(states[k]) || !(body.symbol_of(states[k]) == body.symbol_of(t.inputs.back()[1 + k])))
      throw Error(
          fmt::format("{}: the condition writes to {}; do that in the body", t.op, name_at(L, 1, "carry_names", k)));
}

// Traces the body. Returns false if the step function asks for another trace.
bool trace_step(lua_State* L, State& state, LoopTrace& t) {
  begin_body(L, state, t, true);
  BodyBuilder& body = *t.bodies.back();
  const std::span<const Value> inputs(t.inputs.back());
  const size_t slices = t.slices.size();
  lua_getfield(L, 1, "step");
  push_box(L, state, inputs[0]);
  push_list(L, state, inputs.subspan(1, slices));
  push_list(L, state, inputs.subspan(1 + slices));
  call(L, 3, 2, t.op, "body");
  if (lua_isnil(L, -2)) return lua_pop(L, 2), false;
  t.stacks = take_list(L, state, t.op.c_str(), "outputs");
  t.states = take_list(L, state, t.op.c_str(), "states");
  if (t.states.size() != t.carries.size())
    throw Error(fmt::format("{}: the body returned {} states (expected {})", t.op, t.states.size(), t.carries.size()));
  for (size_t k = 0; k < t.states.size(); ++k)
    if (!(t.states[k].type() == t.carries[k].type()))
      throw Error(fmt::format("{}: the body changed the type of {} (expected {}, got {})", t.op,
                              name_at(L, 1, "carry_names", k), to_string(t.carries[k].type()),
                              to_string(t.states[k].type())));
  for (const Value& v : t.states) body.graph.outputs.push_back(body.operand_of(v));
  std::vector<Operand> stacks;
  for (const Value& v : t.stacks) stacks.push_back(body.operand_of(v));
  body.close();
  for (const auto& o : body.outside) {
    if (!o.written) continue;
    if (!(o.now.type() == o.before.type()))
      throw Error(t.op + ": the body changed the type of an outer tensor that it writes to");
    body.graph.outputs.push_back(body.operand_of(o.now));
  }
  body.graph.outputs.insert(body.graph.outputs.end(), stacks.begin(), stacks.end());
  return true;
}

// Whether gradients flow through each output of the loop: steps, carries, stacked outputs.
std::vector<char> loop_flows(const LoopTrace& t, std::span<const Value> before, std::span<const Value> after) {
  std::vector<char> flows{0};
  bool spreads = false;
  for (size_t k = 0; k < after.size(); ++k) {
    flows.push_back(requires_grad(after[k]) || requires_grad(before[k]));
    spreads |= requires_grad(after[k]) && !requires_grad(before[k]);
  }
  for (const Value& v : t.stacks) flows.push_back(requires_grad(v));
  for (size_t k = 1; k < flows.size(); ++k) flows[k] |= spreads;
  return flows;
}

// trace_loop{op =, slices =, carries =, step =, cond =, count =, limit =, checkpoint =, …} → finals, stacks, steps.
// Returns nothing if step(index, slices, carries) returned nil instead of states and outputs.
int trace_loop(lua_State* L, State& state) {
  state.update_modes();
  LoopTrace t;
  t.op = text_field(L, 1, "op");
  t.control = Control::loop_of(t.op, {});
  read_form(L, state, t);
  LoopForm& form = t.control.loop;
  if (form.conditional) trace_condition(L, state, t);
  if (!trace_step(L, state, t)) return 0;
  if (form.conditional) std::swap(t.bodies[0], t.bodies[1]), std::swap(t.inputs[0], t.inputs[1]);

  std::vector<Capture> captures = join_captures(t.bodies);
  std::stable_partition(captures.begin(), captures.end(), [](const Capture& c) { return c.written; });
  Values operands = t.counts, before = t.carries, after = t.states;
  for (const Value& v : t.slices) operands.push_back(v);
  for (const Value& v : t.carries) operands.push_back(v);
  for (Capture& c : captures) {
    operands.push_back(c.value);
    if (!c.written) continue;
    before.push_back(c.value);
    after.push_back(*written_value(*t.bodies[0], c.box));
  }
  form.carries = int32_t(before.size());
  for (size_t b = 0; b < t.bodies.size(); ++b) {
    Values inputs = t.inputs[b];
    for (Capture& c : captures) inputs.push_back(input_for(*t.bodies[b], c, b));
    set_inputs(*t.bodies[b], inputs);
  }
  // Moves the outputs of written captures from the order of `outside` to that of the captures.
  std::vector<Operand>& outputs = t.bodies[0]->graph.outputs;
  for (size_t k = t.states.size(); k < after.size(); ++k) outputs[k] = t.bodies[0]->operand_of(after[k]);
  const std::vector<char> flows = loop_flows(t, before, after);
  GraphBuilder& into = *state.trace->innermost;
  for (auto& body : t.bodies) t.control.bodies.push_back(std::make_shared<const Graph>(body->graph));
  t.control.streams = into.take_streams(t.control.bodies);
  t.bodies.clear();
  const Values out = into.control(state.ctx, t.control, operands, flows);
  size_t next = 1 + t.states.size();
  for (Capture& c : captures)
    if (c.written) write_box(c, out[next++]);
  push_list(L, state, std::span(out).subspan(1, t.states.size()));
  push_list(L, state, std::span(out).subspan(next));
  push_box(L, state, out[0]);
  return 3;
}

// Branches ----------------------------------------------------------------------------------------------------------

// Traces one branch and sets its results. Returns false if the branch asks for another trace.
bool trace_one(lua_State* L, State& state, const std::string& op, int b,
               std::vector<std::unique_ptr<BodyBuilder>>& bodies, Values& results) {
  BodyBuilder& body =
      *bodies.emplace_back(std::make_unique<BodyBuilder>(L, state, session_of(state), BodyBuilder::Kind::kCombinator));
  lua_getfield(L, 1, "branches");
  lua_rawgeti(L, -1, b);
  lua_remove(L, -2);
  call(L, 0, 1, op, b == 1 ? "branch then_f" : "branch else_f");
  if (lua_isnil(L, -1)) return lua_pop(L, 1), false;
  results = take_list(L, state, op.c_str(), "results");
  for (const Value& v : results) body.graph.outputs.push_back(body.operand_of(v));
  body.close();
  for (const auto& o : body.outside)
    if (o.written) body.operand_of(o.now);  // makes it a capture if it is an outer value
  return true;
}

void check_branches(lua_State* L, const std::string& op, const Values& a, const Values& b) {
  lua_getfield(L, 1, "names");  // checks the structure
  if (!lua_isnil(L, -1)) call(L, 0, 1, op, "results");
  lua_pop(L, 1);
  if (a.size() != b.size())
    throw Error(fmt::format("{}: then_f returns {} tensors, else_f {}", op, a.size(), b.size()));
  for (size_t k = 0; k < a.size(); ++k)
    if (!(a[k].type() == b[k].type()))
      throw Error(fmt::format("{}: the branches return different types ({}: {}, else_f {})", op,
                              name_at(L, 1, "names", k), to_string(a[k].type()), to_string(b[k].type())));
}

// trace_branch{op =, pred =, branches = {f, g}, names =} → results. Returns nothing if a branch returned nil instead of
// its results.
int trace_branch(lua_State* L, State& state) {
  state.update_modes();
  const std::string op = text_field(L, 1, "op");
  lua_getfield(L, 1, "pred");
  const Value pred = as_flag(state, check_value(L, state, lua_gettop(L), op.c_str(), "pred"), op, "pred");
  lua_pop(L, 1);
  std::vector<std::unique_ptr<BodyBuilder>> bodies;
  Values results[2];
  for (int b = 0; b < 2; ++b)
    if (!trace_one(L, state, op, b + 1, bodies, results[b])) return 0;
  check_branches(L, op, results[0], results[1]);
  std::vector<Capture> captures = join_captures(bodies);
  Control control = Control::cond(op);
  std::vector<char> flows;
  for (size_t k = 0; k < results[0].size(); ++k) {
    flows.push_back(requires_grad(results[0][k]) || requires_grad(results[1][k]));
  }
  Values operands{pred};
  for (Capture& c : captures) {
    operands.push_back(c.value);
    for (size_t b = 0; b < 2; ++b) input_for(*bodies[b], c, b);
    if (!c.written) continue;
    bool flow = requires_grad(c.value);
    for (size_t b = 0; b < 2; ++b) {
      const Value* now = written_value(*bodies[b], c.box);
      const Value& value = now ? *now : c.inputs[b];
      if (!(value.type() == c.value.type()))
        throw Error(op + ": a branch changed the type of an outer tensor that it writes to");
      bodies[b]->graph.outputs.push_back(bodies[b]->operand_of(value));
      flow |= requires_grad(value);
    }
    flows.push_back(flow);
  }
  for (size_t b = 0; b < 2; ++b) {
    Values inputs;
    for (Capture& c : captures) inputs.push_back(c.inputs[b]);
    set_inputs(*bodies[b], inputs);
  }
  GraphBuilder& into = *state.trace->innermost;
  for (auto& body : bodies) control.bodies.push_back(std::make_shared<const Graph>(body->graph));
  control.streams = into.take_streams(control.bodies);
  bodies.clear();
  const Values out = into.control(state.ctx, control, operands, flows);
  size_t next = results[0].size();
  for (Capture& c : captures)
    if (c.written) write_box(c, out[next++]);
  push_list(L, state, std::span(out).subspan(0, results[0].size()));
  return 1;
}

}  // namespace

void open_control(lua_State* L, State& state) {
  register_functions(L, state, {{"trace_loop", entry<trace_loop>}, {"trace_branch", entry<trace_branch>}});
}

}  // namespace pg::vm
