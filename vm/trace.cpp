// core.trace: traces a function with its arguments and makes a program of the trace.
#include <algorithm>
#include <set>

#include "graph/ir/history.h"
#include "vm/args.h"
#include "vm/handle.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

using Call = ProgramCall;

struct TraceHandle {
  TraceSession* session;
  std::vector<int32_t>* results;
};

const RegistryKey kTraceClass;  // a metatable

TraceHandle& check_trace(lua_State* L) {
  TraceHandle* handle = to_handle<TraceHandle>(L, 1, kTraceClass);
  if (!handle || !handle->session) throw Error("trace: expected a trace that is not finished");
  return *handle;
}

int collect_trace(lua_State* L) {
  auto* handle = static_cast<TraceHandle*>(lua_touserdata(L, 1));
  delete std::exchange(handle->session, nullptr);
  delete std::exchange(handle->results, nullptr);
  return 0;
}

// Sets the state and the context up for tracing, during a call. Ends the scopes that the call has left open, which it
// could not end itself if it was interrupted.
class Tracing {
 public:
  Tracing(State& state, TraceSession& session)
      : state_(state),
        interpreter_(state.ctx.interpreter),
        trace_(state.trace),
        first_token_(state.next_token),
        anomaly_(state.ctx.detect_anomaly) {
    state.trace = &session;
    state.ctx.interpreter = &session;
  }
  ~Tracing() {
    state_.trace = trace_;
    state_.ctx.interpreter = interpreter_;
    std::erase_if(state_.modes, [&](const ModeScope& m) { return m.token >= first_token_; });
    state_.ctx.detect_anomaly = anomaly_;
  }
  Tracing(const Tracing&) = delete;

 private:
  State& state_;
  Interpreter* interpreter_;
  TraceSession* trace_;
  uint64_t first_token_;
  bool anomaly_;
};

// trace(f, n, …) → ok, then the trace and the results of f, or the error and, if f can only run as plain Lua, why. f
// cannot yield across this frame.
int trace_function(lua_State* L, State& state) {
  state.update_modes();
  if (state.trace) throw Error("trace: a trace is in progress");
  const lua_Number given = lua_tonumber(L, 2);  // from scripts too, which can call what a block has in _exec
  if (!(given >= 0 && given <= lua_gettop(L) - 2)) throw Error("trace: a wrong number of arguments");
  const int n = int(given);
  auto* handle = static_cast<TraceHandle*>(lua_newuserdata(L, sizeof(TraceHandle)));
  *handle = {};
  kTraceClass.push_table(L);
  lua_setmetatable(L, -2);
  lua_insert(L, 1);  // handle, f, n, …
  lua_remove(L, 3);
  handle->results = new std::vector<int32_t>;
  handle->session = new TraceSession(L, state);
  TraceSession& session = *handle->session;
  int status;
  {
    const Tracing tracing(state, session);
    status = protected_call(L, n, LUA_MULTRET);
    if (status && session.failed.empty()) session.failed = "error";
  }
  state.update_modes();
  session.end();
  if (session.failed.empty()) {
    lua_pushboolean(L, true);
    lua_insert(L, 1);
    return lua_gettop(L);
  }
  lua_pushboolean(L, false);
  if (status && (!session.plain.empty() || session.failed == "error"))
    lua_pushvalue(L, -2);
  else
    lua_pushstring(L, session.failed.c_str());
  if (session.plain.empty()) return 2;
  lua_pushstring(L, session.plain.c_str());
  return 3;
}

// trace:captured() → the captured tensors in the order of the arguments of run, each {box =, written =}.
int captured_tensors(lua_State* L, State&) {
  TraceSession& session = *check_trace(L).session;
  lua_newtable(L);
  session.boxes.push(L);
  int count = 0;
  for (size_t i = 0; i < session.captured.size(); ++i) {
    const auto& c = session.captured[i];
    if (!c.box) continue;
    lua_createtable(L, 0, 3);
    lua_rawgeti(L, -2, int(i) + 1);
    lua_setfield(L, -2, "box");
    lua_pushstring(L, "box");
    lua_setfield(L, -2, "kind");
    lua_pushboolean(L, c.output >= 0);
    lua_setfield(L, -2, "written");
    lua_rawseti(L, -3, ++count);
  }
  lua_pop(L, 1);
  return 1;
}

int32_t box_place(const TraceSession& session, int32_t i) { return session.captured[size_t(i)].place; }

// trace:name_inputs({name or false, …}, {whether it is a parameter of a block, …}) describes the inputs of captured().
int name_inputs(lua_State* L, State&) {
  TraceSession& session = *check_trace(L).session;
  luaL_checktype(L, 2, LUA_TTABLE);
  int place = 0;
  luaL_checktype(L, 3, LUA_TTABLE);
  for (auto& c : session.captured) {
    if (!c.box) continue;
    lua_rawgeti(L, 3, ++place);
    c.parameter = lua_toboolean(L, -1);
    lua_pop(L, 1);
    lua_rawgeti(L, 2, place);
    if (c.input >= 0 && lua_type(L, -1) == LUA_TSTRING)
      session.graph.nodes[size_t(session.graph.inputs[size_t(c.input)])].name = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  return 0;
}

// trace:input_of(x) → the index of x in captured(), from 1, or nil.
int trace_input_of(lua_State* L, State&) {
  TraceSession& session = *check_trace(L).session;
  const int32_t i = session.input_of(L, 2);
  if (i < 0) return lua_pushnil(L), 1;
  lua_pushnumber(L, box_place(session, i) + 1);
  return 1;
}

// trace:output(x) → the index of x among the results of run, from 1.
int trace_output(lua_State* L, State& state) {
  TraceHandle& handle = check_trace(L);
  handle.results->push_back(handle.session->output(L, 2));
  handle.session->read_only.push_back(to_box(L, state, 2)->read_only);
  lua_pushnumber(L, double(handle.results->size()));
  return 1;
}

// trace:text() → the graph as text. Equal texts mean equal programs.
int trace_text(lua_State* L, State&) {
  lua_pushstring(L, to_string(check_trace(L).session->graph).c_str());
  return 1;
}

// Makes the leaves that the outputs of a trace depend on outputs too. A run then puts them on the tape, so that the
// caller can walk back from results whose history ends within the call.
void return_leaves(Graph& graph) {
  std::vector<int32_t> leaves;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.kind == NodeKind::kLeaf && !node.create_graph && node.req != GradReq::kNull) leaves.push_back(int32_t(i));
  }
  if (leaves.empty()) return;
  Histories histories;
  std::set<int32_t> behind;
  for (const Operand& output : graph.outputs)
    for (const Origin& k : histories.inputs_behind(graph, output, leaves))
      if (size_t(k.input) >= graph.inputs.size()) behind.insert(leaves[size_t(k.input) - graph.inputs.size()]);
  for (int32_t leaf : returned_leaves(graph)) behind.erase(leaf);
  for (int32_t leaf : behind) graph.outputs.push_back(Operand::of(size_t(leaf)));
}

// Makes the first contents of the leaves that were written to before they are returned outputs too.
void return_first_contents(Graph& graph) {
  const size_t outputs = graph.outputs.size();
  std::set<int32_t> written;
  for (size_t k = 0; k < outputs; ++k)
    if (const int32_t leaf = made_leaf(graph, graph.outputs[k]); leaf >= 0 && leaf != graph.outputs[k].node)
      written.insert(leaf);
  for (int32_t leaf : returned_leaves(graph)) written.erase(leaf);
  for (int32_t leaf : written) graph.outputs.push_back(Operand::of(size_t(leaf)));
}

// Whether the graph takes gradients with respect to tensors from outside. Others, as of pg.grad, end in it.
bool takes_outer_gradients(const Graph& graph) {
  const auto is_inner = [&](Operand wanted) {
    while (wanted.is_node() && graph.node(wanted).kind == NodeKind::kWrite) wanted = graph.node(wanted).inputs[1];
    return !wanted.is_node() || graph.node(wanted).kind != NodeKind::kInput;
  };
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (node.kind == NodeKind::kGradient &&
        !std::all_of(node.inputs.begin() + 2 * node.heads, node.inputs.end(), is_inner))
      return true;
    const auto bodies = bodies_of(node);
    return std::any_of(bodies.begin(), bodies.end(), [](const Graph* body) { return takes_outer_gradients(*body); });
  });
}

// Whether the function has a pg.record of its own, around anything.
bool opens_record(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    const auto bodies = bodies_of(node);
    return node.recording == Mode::kOn ||
           std::any_of(bodies.begin(), bodies.end(), [](const Graph* body) { return opens_record(*body); });
  });
}

// Fixes that what the graph leaves open is not recorded.
void leave_unrecorded(Graph& graph) {
  for (Node& node : graph.nodes) {
    if (node.recording == Mode::kAuto) node.recording = Mode::kOff;
    change_bodies(node, [](const Graph& body) {
      auto copy = std::make_shared<Graph>(body);
      leave_unrecorded(*copy);
      return copy;
    });
  }
}

std::unique_ptr<Call> make_call(TraceSession& session, const Ref<Generator>& generator, std::vector<int32_t> results,
                                Program::Options options) {
  // A backward inside the trace has consumed what was recorded.
  const bool differentiates = std::any_of(session.graph.nodes.begin(), session.graph.nodes.end(),
                                          [](const Node& node) { return node.kind == NodeKind::kGradient; });
  return_first_contents(session.graph);
  if (!differentiates) return_leaves(session.graph);
  const bool records = session.records && !differentiates;
  if (!differentiates && opens_record(session.graph)) session.guards_recording = session.recording();
  if (records) leave_unrecorded(session.graph);  // a run records, but only what the function does under its pg.record
  auto call = std::make_unique<Call>();
  call->input_boxes.resize(session.graph.inputs.size());
  call->input_gradients.resize(session.graph.inputs.size());
  for (size_t i = 0; i < session.captured.size(); ++i) {
    const auto& c = session.captured[i];
    const int32_t place = box_place(session, c.box ? int32_t(i) : c.owner);
    call->boxes += c.box != nullptr;
    if (c.input >= 0) {
      call->input_boxes[size_t(c.input)] = place;
      call->input_gradients[size_t(c.input)] = !c.box;
    }
    if (c.input >= 0 && c.parameter) options.lasting.push_back(c.input);
    if (c.output < 0) continue;
    if (c.box && c.input >= 0) options.replacements.push_back({c.output, c.input});
    if (!c.box && c.input < 0) {
      if (size_t(c.output) >= call->replaced.size()) call->replaced.resize(size_t(c.output) + 1, -1);
      call->replaced[size_t(c.output)] = int32_t(call->writes.size());
      options.lendable.push_back(c.output);
    }
    call->writes.push_back({place, c.output, !c.box, c.op});
    if (c.box) call->writes.back().leaf = is_leaf(c.before.node());
  }
  if (!session.freshness.empty() || reads_flows(session.graph))
    for (size_t i = 0; i < session.captured.size(); ++i) {
      const auto& c = session.captured[i];
      const TapeNode* node = c.box ? c.before.node() : nullptr;
      if (node && node->leaf && node->req == GradReq::kNull)
        call->unrequested.push_back(box_place(session, int32_t(i)));
    }
  if (takes_outer_gradients(session.graph))
    for (size_t i = 0; i < session.captured.size(); ++i) {
      const auto& c = session.captured[i];
      if (c.box && !has_history(c.before)) call->without_history.push_back(box_place(session, int32_t(i)));
    }
  for (const auto& f : session.freshness)
    call->fresh.push_back({box_place(session, f.owner), int8_t(f.read ? f.before : -1), f.after, f.leaf->req});
  call->made_leaves = session.made_leaves;
  call->results = std::move(results);
  call->read_only = session.read_only;
  call->recording = session.guards_recording;
  call->training = session.guards_training;
  call->records = records;
  call->first = first_program(session, generator, options);
  call->program = Ref<Program>(new Program(session.graph, session.generators, std::move(options)));
  return call;
}

// trace:finish{name=, static_alloc=, static_shape=} → a program. The trace cannot be used afterwards.
int finish_trace(lua_State* L, State& state) {
  TraceHandle& handle = check_trace(L);
  Program::Options options;
  if (lua_istable(L, 2)) {
    if (option(L, 2, "name")) options.name = check_string(L, state, lua_gettop(L), "finish", "name"), lua_pop(L, 1);
    if (option(L, 2, "static_alloc")) options.static_alloc = lua_toboolean(L, -1), lua_pop(L, 1);
    if (option(L, 2, "static_shape")) options.static_shape = lua_toboolean(L, -1), lua_pop(L, 1);
  }
  push_program(L, make_call(*handle.session, state.ctx.generator, *handle.results, std::move(options)));
  delete std::exchange(handle.session, nullptr);
  return 1;
}

Values boxes_at(lua_State* L, State& state, int i) {
  Values out;
  for (int k = 1, n = int(lua_objlen(L, i)); k <= n; ++k) {
    lua_rawgeti(L, i, k);
    out.push_back(check_value(L, state, lua_gettop(L), "Function", "tensor"));
    lua_pop(L, 1);
  }
  return out;
}

// Traces backward(saved, dy…) → gradients as a closed body. Its inputs are the saved tensors, captures and cotangents.
std::shared_ptr<const Graph> trace_backward(lua_State* L, State& state, int function, const char* name,
                                            std::span<const Value> inputs, std::span<const Value> outputs,
                                            Values& saved) {
  BodyBuilder body(L, state, *state.trace, BodyBuilder::Kind::kBackward);
  const int top = lua_gettop(L);
  need_stack(L, int(saved.size() + outputs.size()) + 8, "too many tensors");
  lua_pushvalue(L, function);
  Values given;
  for (const Value& v : saved) given.push_back(body.add_input(v.type()));
  push_list(L, state, given);
  for (const Value& y : outputs) push_box(L, state, body.add_input(y.type()));
  if (protected_call(L, int(outputs.size()) + 1, LUA_MULTRET)) {
    const std::string text = lua_tostring(L, -1) ? lua_tostring(L, -1) : "error in a backward function";
    lua_settop(L, top);
    note_reraise(L, state, text);
    throw PositionedError(text);
  }
  const int results = lua_gettop(L) - top;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int place = top + 1 + int(i);
    const bool given = int(i) < results && !lua_isnil(L, place) && !lua_isboolean(L, place);
    const Value gradient = given ? check_value(L, state, place, name, fmt::format("gradient {}", i + 1).c_str())
                                 : body.filled(state.ctx, inputs[i].type(), 0);
    body.graph.outputs.push_back(body.operand_of(gradient));
  }
  lua_settop(L, top);
  // Orders the inputs: saved, captured, cotangents. Captured tensors are saved too.
  std::vector<int32_t>& order = body.graph.inputs;
  const size_t first = saved.size(), count = outputs.size();
  std::rotate(order.begin() + ptrdiff_t(first), order.begin() + ptrdiff_t(first + count), order.end());
  for (const Value& v : body.captured_values) saved.push_back(v);
  return std::make_shared<Graph>(std::move(body.graph));
}

// trace_function_gradient(name, inputs, outputs, saved, backward): inside a trace, makes backward(saved, dy…) the
// gradient of the tensors in `outputs`.
int trace_function_gradient(lua_State* L, State& state) {
  state.update_modes();
  const std::string name = check_string(L, state, 1, "Function", "name");
  const Values inputs = boxes_at(L, state, 2), outputs = boxes_at(L, state, 3);
  Values saved = boxes_at(L, state, 4);
  if (!state.trace) throw Error(name + ": no trace is in progress");
  auto backward = trace_backward(L, state, 5, name.c_str(), inputs, outputs, saved);
  Values linked = state.trace->innermost->custom(state.ctx, name, inputs, outputs, saved, std::move(backward));
  for (size_t i = 0; i < linked.size(); ++i) {
    lua_rawgeti(L, 3, int(i) + 1);
    set_value(*to_box(L, state, lua_gettop(L)), std::move(linked[i]));
    lua_pop(L, 1);
  }
  return 0;
}

// outside_zeros(x) → zeros of x's type that count as made outside of the trace, so they become an input of the graph.
int outside_zeros(lua_State* L, State& state) {
  Box& box = push_box(L, state, make_filled(check_value(L, state, 1, "zeros", "x").type(), 0));
  box.serial = 0;
  leave_scope(box);
  return 1;
}

// number_table(rows, columns) → a float64 tensor for set_numbers, which counts as made outside of the trace.
int number_table(lua_State* L, State& state) {
  const Dims shape{check_integer(L, state, 1, "number_table", "rows"),
                   check_integer(L, state, 2, "number_table", "columns")};
  Box& box = push_box(L, state, make_filled(Type{DType::kFloat64, {}, shape}, 0));
  box.serial = 0;
  leave_scope(box);
  return 1;
}

// set_numbers(t, numbers… or a list) sets the elements of a tensor made by number_table, in order.
int set_numbers(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "set_numbers", "t");
  const bool listed = lua_istable(L, 2);
  const int n = listed ? int(lua_objlen(L, 2)) : lua_gettop(L) - 1;
  if (!box.get().is_array() || box.get().dtype() != DType::kFloat64 || box.get().numel() != n)
    throw Error("set_numbers: the tensor has a different number of elements");
  if (!box.get().array().writable()) set_value(box, make_array(box.get().type()));
  double* to = static_cast<double*>(box.get().array().data());
  for (int i = 0; i < n; ++i) {
    if (listed) lua_rawgeti(L, 2, i + 1);
    to[i] = lua_tonumber(L, listed ? -1 : i + 2);
    if (listed) lua_pop(L, 1);
  }
  return 0;
}

// The number of ticks that the ops traced so far will take from a generator.
uint64_t ticks_so_far(const TraceSession& trace, const Ref<Generator>& generator) {
  const auto at = std::find(trace.generators.begin(), trace.generators.end(), generator);
  return at == trace.generators.end() ? 0 : trace.graph.ticks[size_t(at - trace.generators.begin())];
}

void move_ticks(const Ref<Generator>& generator, uint64_t by) {
  const RandomKey now = generator->state();
  generator->set_state({now.seed, now.tick + by});
}

// untraced(f, …) → the results of f. Its ops are not part of the trace in progress, and types that it reads are not
// guarded. It draws the random numbers that it would draw eagerly at this place of the script.
int run_untraced(lua_State* L, State& state) {
  TraceSession *const trace = std::exchange(state.trace, nullptr), *const paused = state.paused_trace;
  if (trace) state.paused_trace = trace;
  const Ref<Generator> generator = state.ctx.generator;
  const uint64_t ahead = trace ? ticks_so_far(*trace, generator) : 0;
  move_ticks(generator, ahead);
  const uint64_t start = generator->state().tick;
  Interpreter* const interpreter = std::exchange(state.ctx.interpreter, &eager_interpreter());
  const int status = protected_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  if (ahead > 0 && generator->state().tick != start) trace->drawn.push_back({ahead, generator->state().tick - start});
  move_ticks(generator, -ahead);
  state.trace = trace;
  state.paused_trace = paused;
  state.ctx.interpreter = interpreter;
  state.update_modes();
  if (status == 0) return lua_gettop(L);
  note_reraise(L, state);
  return lua_error(L);
}

// run_as(name, f, …) → the results of f. Where ops that it traces raise when they run, the error shows this name.
int run_named(lua_State* L, State& state) {
  const char* const before = std::exchange(state.written, lua_tostring(L, 1));
  const int status = protected_call(L, lua_gettop(L) - 2, LUA_MULTRET);
  state.written = before;
  if (status == 0) return lua_gettop(L) - 1;
  note_reraise(L, state);
  return lua_error(L);
}

// made_here(x) → whether a function that is being traced has made the tensor.
int made_here(lua_State* L, State& state) {
  const Box* box = to_box(L, state, 1);
  lua_pushboolean(L, box && state.trace && state.trace->made(*box));
  return 1;
}

// tracing() → whether a function is traced, and whether the trace is in the body of a branch, loop or backward
// function.
int is_tracing(lua_State* L, State& state) {
  lua_pushboolean(L, state.trace != nullptr);
  lua_pushboolean(L, state.trace && state.trace->body);
  return 2;
}

}  // namespace

void open_trace(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"trace", entry<trace_function>},
                      {"tracing", entry<is_tracing>},
                      {"made_here", entry<made_here>},
                      {"outside_zeros", entry<outside_zeros>},
                      {"number_table", entry<number_table>},
                      {"set_numbers", entry<set_numbers>},
                      {"trace_function_gradient", entry<trace_function_gradient>},
                      {"run_as", entry<run_named>},
                      {"untraced", entry<run_untraced>}});
  open_control(L, state);
  open_program(L, state);
  make_class(L, state, kTraceClass, collect_trace,
             {{"captured", entry<captured_tensors>},
              {"input_of", entry<trace_input_of>},
              {"name_inputs", entry<name_inputs>},
              {"output", entry<trace_output>},
              {"text", entry<trace_text>},
              {"finish", entry<finish_trace>}});
}

}  // namespace pg::vm
