#include "vm/trace.h"

#include <algorithm>

#include "tensor/buffer.h"
#include "vm/args.h"
#include "vm/bindings.h"

namespace pg::vm {

TraceSession::TraceSession(lua_State* L, State& state, bool lasting)
    : GraphBuilder(Stage::kTrace), L_(L), state_(state), first_box_(lasting ? ~uint64_t(0) : state.next_box),
      first_token_(lasting ? ~uint64_t(0) : state.next_token), recording_(state.ctx.recording), training_(state.ctx.training),
      lasting_(lasting) {
  lua_newtable(L);
  boxes = Reference(L, state);
}

TraceSession::~TraceSession() {
  lasting_ ? rest() : end();
}

TraceSession::Captured* TraceSession::find(const Box& box) {
  const auto at = places_.find(&box);
  return at == places_.end() ? nullptr : &captured[size_t(at->second)];
}

int32_t TraceSession::owner_of(TapeNode* leaf) const {
  for (size_t i = 0; i < captured.size(); ++i)
    if (captured[i].box && captured[i].before.node() == leaf) return int32_t(i);
  return -1;
}

// Whether the box is one that a lasting session knows; it holds its symbol again then.
bool TraceSession::wake(Box& box) {
  Captured* c = lasting_ ? find(box) : nullptr;
  if (!c || !(box.get().type() == c->before.type())) return false;
  c->before = box.get();
  put_value(box, c->now);
  awake_.push_back(places_.at(&box));
  return true;
}

void TraceSession::rest() {
  for (int32_t i : awake_) {
    Captured& c = captured[size_t(i)];
    if (owns(c.box->get())) c.now = c.box->get();
    put_value(*c.box, c.before);
  }
  awake_.clear();
}

void TraceSession::touch(lua_State* L, Box& box, int i) {
  capture(L, box, i);
  if (body && !ended_) body->touch(L, box, i);
}

void TraceSession::capture(lua_State* L, Box& box, int i) {
  Value& value = box.get();
  if (ended_ || !value.is_array() || sees(value)) return;
  if (wake(box)) return;
  if (box.cell) {
    for (const auto& [cell, place] : cells_)
      if (cell == box.cell.get()) return;
  }
  if (box.serial >= first_box_ && !box.cell) return;  // made inside of what does not change: a constant
  if (!value.array().buffer) throw Error("a traced tensor is used after its trace");
  if (lasting_) awake_.push_back(int32_t(captured.size()));
  Captured& c = captured.emplace_back();
  c.box = &box;
  c.before = value;
  c.symbol = c.now = add_input(value.type());
  c.input = int32_t(graph.inputs.size()) - 1;
  places_[&box] = int32_t(captured.size()) - 1;
  if (box.cell) cells_.emplace(box.cell.get(), int32_t(captured.size()) - 1);
  TapeNode* node = value.node();
  Value symbol = c.symbol;
  if (node && node->leaf) {
    graph.nodes.back().req = node->req;
    link_leaf(symbol, node);
    symbol.link(node, 0);
  } else if (node) {
    Ref<TapeNode> history(new TapeNode);  // where a walk ends: backward cannot go on outside of the trace
    history->leaf = true;
    symbol.link(history.get(), 0);
  }
  value = std::move(symbol);
  need_stack(L, 4, "trace");
  lua_pushvalue(L, i);
  boxes.push(L);
  lua_insert(L, -2);
  lua_rawseti(L, -2, int(captured.size()));
  lua_pop(L, 1);
}

int32_t TraceSession::capture_gradient(Ref<Cell> cell, TapeNode* leaf, bool as_input) {
  const auto found = cells_.find(cell.get());
  if (found != cells_.end()) return found->second;
  Captured& c = captured.emplace_back();
  c.cell = cell;
  c.leaf = leaf;
  c.owner = owner_of(leaf);
  c.before = cell->value;
  if (as_input) {
    c.symbol = add_input(cell->value.type());
    c.input = int32_t(graph.inputs.size()) - 1;
    cell->value = c.symbol;
  }
  cells_.emplace(cell.get(), int32_t(captured.size()) - 1);
  return int32_t(captured.size()) - 1;
}

Value TraceSession::read_gradient(TapeNode& leaf) {
  if (owner_of(&leaf) >= 0) capture_gradient(leaf.grad, &leaf, true);
  return leaf.grad->value;
}

void TraceSession::write_gradient(TapeNode& leaf, Value gradient) {
  if (owner_of(&leaf) >= 0) capture_gradient(leaf.grad, &leaf, false);
  leaf.grad->value = std::move(gradient);
  set_fresh(leaf, true);
}

bool TraceSession::fresh(TapeNode& leaf) {
  const int32_t owner = owner_of(&leaf);
  if (owner < 0) return leaf.fresh;
  for (Freshness& f : freshness)
    if (f.leaf == &leaf) return leaf.fresh;
  freshness.push_back({&leaf, owner, leaf.fresh, true, leaf.fresh});
  return leaf.fresh;
}

void TraceSession::set_fresh(TapeNode& leaf, bool fresh) {
  const int32_t owner = owner_of(&leaf);
  bool known = owner < 0;
  for (Freshness& f : freshness) known |= f.leaf == &leaf;
  if (!known) freshness.push_back({&leaf, owner, leaf.fresh, false, leaf.fresh});
  leaf.fresh = fresh;
}

void TraceSession::end() {
  if (std::exchange(ended_, true)) return;
  auto changed = [&](const Captured& c, const Value& now) {
    return now.is_array() && !(c.symbol.is_array() && owns(now) && symbol_of(now) == symbol_of(c.symbol));
  };
  for (Captured& c : captured) {
    Value& now = c.box ? c.box->get() : c.cell->value;
    const bool written = c.box || c.input >= 0 ? changed(c, now) : true;
    if (written && failed.empty() && now.is_array()) {
      c.output = int32_t(graph.outputs.size());
      graph.outputs.push_back(operand_of(stored(now)));
      if (c.box && owns(now)) c.op = graph.nodes[size_t(symbol_of(now).node)].name;
    }
    if (c.box)
      put_value(*c.box, c.before);
    else
      now = c.before;
  }
  for (Freshness& f : freshness) {
    f.after = f.leaf->fresh;
    f.leaf->fresh = f.before;
  }
}

int32_t TraceSession::output(lua_State* L, int i) {
  Box* box = to_box(L, state_, i);
  if (!box || !box->get().is_array()) throw Error("trace: not a tensor with a value");
  const auto found = box->cell ? cells_.find(box->cell.get()) : cells_.end();
  if (found == cells_.end()) {
    records |= !recording_ && owns(box->get()) && box->get().has_node();
    graph.outputs.push_back(operand_of(box->get()));
  } else {  // a gradient, which has its own value back by now
    const Captured& c = captured[size_t(found->second)];
    graph.outputs.push_back(c.output >= 0 ? graph.outputs[size_t(c.output)] : operand_of(c.symbol));
  }
  return int32_t(graph.outputs.size()) - 1;
}

int32_t TraceSession::input_of(lua_State* L, int i) {
  Box* box = to_box(L, state_, i);
  if (!box) return -1;
  if (find(*box)) return places_.at(box);
  if (box->serial >= first_box_ || !box->get().is_array()) return -1;
  ended_ = false;
  touch(L, *box, i);
  ended_ = true;
  Captured& c = captured.back();
  set_value(*box, c.before);
  return int32_t(captured.size()) - 1;
}

std::string TraceSession::position() {
  const std::string at = script_position(L_);
  return at.empty() || !state_.written ? at : at + ": " + state_.written;
}

Mode TraceSession::training_mode(Context& ctx) {
  return state_.training_token < first_token_ ? Mode::kAuto : ctx.training ? Mode::kOn : Mode::kOff;
}

Mode TraceSession::recording_mode(Context& ctx) {
  return state_.recording_token < first_token_ ? Mode::kAuto : ctx.recording ? Mode::kOn : Mode::kOff;
}

void TraceSession::read_flags(bool recording, bool training) {
  if (recording && state_.recording_token < first_token_) guards_recording = recording_;
  if (training && state_.training_token < first_token_) guards_training = training_;
}

void note(State& state, const Value& v, TypeGuard::Kind kind, int32_t dim, int64_t answer) {
  if (state.trace && state.trace->sees(v)) state.trace->note(v, kind, dim, answer);
}

void note_device(State& state, const Value& v) {
  note(state, v, TypeGuard::kDevice, 0, int64_t(v.device().kind) << 8 | v.device().index);
}

void note_rank(State& state, const Value& v) { note(state, v, TypeGuard::kRank, 0, v.rank()); }

void note_shape(State& state, const Value& v) {
  if (!state.trace) return;
  note_rank(state, v);
  for (int d = 0; d < v.rank(); ++d) note(state, v, TypeGuard::kDim, d, v.shape()[d]);
}

void push_value_read(lua_State* L, State& state) {
  push_error(L, fmt::format("{}: the value of a traced tensor cannot be read: it does not exist while the graph is made. Use "
                            "pg.cond(pred, f, g) for a branch, pg.while_loop or pg.loop for a loop, pg.where for a choice by "
                            "element, pg.print to look; or run without hybridize", called_name(L)).c_str());
  if (state.trace && state.trace->failed.empty()) state.trace->failed = lua_tostring(L, -1);
}

namespace {

using Call = ProgramCall;

struct TraceHandle {
  TraceSession* session;
  std::vector<int32_t>* results;
};

const RegistryKey kTraceClass, kProgramClass;  // metatables

template <class T>
T* to_handle(lua_State* L, int i, const RegistryKey& key) {
  void* data = lua_touserdata(L, i);
  if (!data || !lua_getmetatable(L, i)) return nullptr;
  key.push(L);
  const bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? static_cast<T*>(data) : nullptr;
}

TraceHandle& check_trace(lua_State* L) {
  TraceHandle* handle = to_handle<TraceHandle>(L, 1, kTraceClass);
  if (!handle || !handle->session) throw Error("trace: expected a trace that is not finished");
  return *handle;
}

struct ProgramHandle {
  Call* call;
};

Call& check_call(lua_State* L, int i) {
  ProgramHandle* handle = to_handle<ProgramHandle>(L, i, kProgramClass);
  if (!handle || !handle->call) throw Error("run: expected a program");
  return *handle->call;
}

int collect_trace(lua_State* L) {
  auto* handle = static_cast<TraceHandle*>(lua_touserdata(L, 1));
  delete std::exchange(handle->session, nullptr);
  delete std::exchange(handle->results, nullptr);
  return 0;
}

int collect_program(lua_State* L) {
  delete std::exchange(static_cast<ProgramHandle*>(lua_touserdata(L, 1))->call, nullptr);
  return 0;
}

// The state and the context as tracing needs them, for the extent of a call.
class Tracing {
 public:
  Tracing(State& state, TraceSession& session) : state_(state), interpreter_(state.ctx.interpreter), trace_(state.trace) {
    state.trace = &session;
    state.ctx.interpreter = &session;
  }
  ~Tracing() {
    state_.trace = trace_;
    state_.ctx.interpreter = interpreter_;
  }
  Tracing(const Tracing&) = delete;

 private:
  State& state_;
  Interpreter* interpreter_;
  TraceSession* trace_;
};

// trace(f, n, …) → ok, the trace or an error, f's results. No yield crosses this frame.
int trace_function(lua_State* L, State& state) {
  state.update_modes();
  if (state.trace) throw Error("trace: a trace is under way");
  const int n = int(lua_tointeger(L, 2));
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
    status = lua_pcall(L, n, LUA_MULTRET, 0);
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
  if (status && session.failed == "error")
    lua_pushvalue(L, -2);
  else
    lua_pushstring(L, session.failed.c_str());
  return 2;
}

// trace:captured() → the tensors from outside in the order in which run takes them, each {box =, written =}.
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

// The place of captured[i] among the captured tensors alone.
int32_t box_place(const TraceSession& session, int32_t i) {
  int32_t place = 0;
  for (int32_t k = 0; k < i; ++k) place += session.captured[size_t(k)].box != nullptr;
  return place;
}

// trace:name_inputs{name or false, …} names the inputs of captured() for the graph's text.
int name_inputs(lua_State* L, State&) {
  TraceSession& session = *check_trace(L).session;
  luaL_checktype(L, 2, LUA_TTABLE);
  int place = 0;
  for (const auto& c : session.captured) {
    if (!c.box) continue;
    lua_rawgeti(L, 2, ++place);
    if (c.input >= 0 && lua_type(L, -1) == LUA_TSTRING)
      session.graph.nodes[size_t(session.graph.inputs[size_t(c.input)])].name = lua_tostring(L, -1);
    lua_pop(L, 1);
  }
  return 0;
}

// trace:input_of(x) → which of captured() it is, from 1, or nil.
int trace_input_of(lua_State* L, State&) {
  TraceSession& session = *check_trace(L).session;
  const int32_t i = session.input_of(L, 2);
  if (i < 0) return lua_pushnil(L), 1;
  lua_pushnumber(L, box_place(session, i) + 1);
  return 1;
}

// trace:output(x) → which result of run it is, from 1.
int trace_output(lua_State* L, State&) {
  TraceHandle& handle = check_trace(L);
  handle.results->push_back(handle.session->output(L, 2));
  lua_pushnumber(L, double(handle.results->size()));
  return 1;
}

// trace:text() → the graph as text; equal texts, equal programs.
int trace_text(lua_State* L, State&) {
  lua_pushstring(L, to_string(check_trace(L).session->graph).c_str());
  return 1;
}

Call* make_call(TraceSession& session, std::vector<int32_t> results, Program::Options options) {
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
    if (c.output >= 0) call->writes.push_back({place, c.output, !c.box, c.op});
  }
  if (!session.freshness.empty() || reads_flows(session.graph))
    for (size_t i = 0; i < session.captured.size(); ++i) {
      const auto& c = session.captured[i];
      const TapeNode* node = c.box ? c.before.node() : nullptr;
      if (node && node->leaf && node->req == GradReq::kNull) call->unrequested.push_back(box_place(session, int32_t(i)));
    }
  for (const auto& f : session.freshness)
    call->fresh.push_back({box_place(session, f.owner), int8_t(f.read ? f.before : -1), f.after, f.leaf->req});
  call->results = std::move(results);
  call->recording = session.guards_recording;
  call->training = session.guards_training;
  // A backward inside has used up what was recorded.
  call->records = session.records && std::none_of(session.graph.nodes.begin(), session.graph.nodes.end(),
                                                  [](const Node& node) { return node.kind == NodeKind::kGradient; });
  call->program = Ref<Program>(new Program(without_dead_nodes(session.graph), session.generators, std::move(options)));
  return call.release();
}

// trace:finish{name=, static_alloc=, static_shape=} → a program; the trace is used up.
int finish_trace(lua_State* L, State& state) {
  TraceHandle& handle = check_trace(L);
  Program::Options options;
  if (lua_istable(L, 2)) {
    if (option(L, 2, "name")) options.name = check_string(L, state, lua_gettop(L), "finish", "name"), lua_pop(L, 1);
    if (option(L, 2, "static_alloc")) options.static_alloc = lua_toboolean(L, -1), lua_pop(L, 1);
    if (option(L, 2, "static_shape")) options.static_shape = lua_toboolean(L, -1), lua_pop(L, 1);
  }
  auto* program = static_cast<ProgramHandle*>(lua_newuserdata(L, sizeof(ProgramHandle)));
  program->call = nullptr;
  kProgramClass.push_table(L);
  lua_setmetatable(L, -2);
  program->call = make_call(*handle.session, *handle.results, std::move(options));
  delete std::exchange(handle.session, nullptr);
  return 1;
}

TapeNode* leaf_of(Box& box) {
  TapeNode* node = box.get().node();
  return node && node->leaf ? node : nullptr;
}

// The values of the boxes while a program runs. Those it rewrites are lent, so that their memory can be written in place;
// they come back when the run fails.
class Lease {
 public:
  Lease(const Call& call, std::span<Box* const> boxes, bool donate) : call_(call), boxes_(boxes), donate_(donate) {
    for (size_t i = 0; i < call.input_boxes.size(); ++i) {
      Box& box = *boxes[size_t(call.input_boxes[i])];
      inputs.push_back(call.input_gradients[i] ? leaf_of(box)->grad->value : box.get());
    }
    if (donate) lend();
  }
  ~Lease() {
    if (donate_ && !done_) take_back();
  }
  Lease(const Lease&) = delete;
  void finish() { done_ = true; }

  Values inputs;

 private:
  Value& home(size_t i) const {
    Box& box = *boxes_[size_t(call_.input_boxes[i])];
    return call_.input_gradients[i] ? leaf_of(box)->grad->value : box.get();
  }
  bool is_written(size_t i) const {
    for (const auto& w : call_.writes)
      if (w.box == call_.input_boxes[i] && w.gradient == bool(call_.input_gradients[i])) return true;
    return false;
  }
  // The box keeps its history, so that a leaf stays one; the array moves.
  void lend() {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!is_written(i)) continue;
      home(i).array_ref() = {};
      lent_.push_back(i);
    }
  }
  void take_back() {
    for (size_t i : lent_) home(i).array_ref() = inputs[i].array_ref();
  }

  const Call& call_;
  std::span<Box* const> boxes_;
  std::vector<size_t> lent_;
  bool donate_, done_ = false;
};

int refuse(lua_State* L, const std::string& reason) {
  lua_pushnil(L);
  lua_pushstring(L, reason.c_str());
  return 2;
}

constexpr const char* kChangedRequest = "the grad_req of a tensor has changed";

std::string unmet_state(const Call& call, State& state, std::span<Box* const> boxes) {
  if (call.recording && *call.recording != state.ctx.recording) return "recording is now " + std::string(state.ctx.recording ? "on" : "off");
  if (call.training && *call.training != state.ctx.training) return "training is now " + std::string(state.ctx.training ? "on" : "off");
  const uint64_t stamp = state.next_stamp++;
  for (Box* box : boxes)
    if (std::exchange(box->stamp, stamp) == stamp) return "two inputs are the same tensor now";
  for (size_t i = 0; i < call.input_boxes.size(); ++i)
    if (call.input_gradients[i] && !leaf_of(*boxes[size_t(call.input_boxes[i])])) return "a tensor has no gradient now";
  for (const auto& w : call.writes)
    if (w.gradient && !leaf_of(*boxes[size_t(w.box)])) return "a tensor has no gradient now";
  for (const auto& f : call.fresh) {
    const TapeNode* leaf = leaf_of(*boxes[size_t(f.box)]);
    if (!leaf || (f.expected >= 0 && leaf->fresh != bool(f.expected))) return "whether a gradient is fresh has changed";
    if (leaf->req != f.req) return kChangedRequest;
  }
  for (int32_t place : call.unrequested) {
    const TapeNode* leaf = leaf_of(*boxes[size_t(place)]);
    if (!leaf || leaf->req != GradReq::kNull) return kChangedRequest;
  }
  return "";
}

// Refuses what may not be written, as the script's own call does, before anything is.
void check_targets(const Call& call, std::span<Box* const> boxes) {
  for (const auto& w : call.writes)
    if (!w.gradient) check_writable(*boxes[size_t(w.box)], w.op.c_str());
}

void check_gradients(const Call& call, std::span<Box* const> boxes, const Values& out) {
  for (const auto& w : call.writes) {
    const Value& now = out[size_t(w.output)];
    if (w.gradient) check_gradient_type(*leaf_of(*boxes[size_t(w.box)]), now.type());
  }
}

void write_back(const Call& call, std::span<Box* const> boxes, Values& out) {
  for (const auto& w : call.writes) {
    Box& box = *boxes[size_t(w.box)];
    TapeNode* leaf = leaf_of(box);
    Value result = out[size_t(w.output)];
    if (w.gradient) {
      leaf->grad->value = result.detached();
      continue;
    }
    if (leaf) result.link(leaf, 0);
    set_value(box, std::move(result));
  }
  for (const auto& f : call.fresh) leaf_of(*boxes[size_t(f.box)])->fresh = f.after;
}

// Names the coroutine that taps call back into, for the extent of a run.
class Running {
 public:
  Running(State& state, lua_State* L) : state_(state), saved_(std::exchange(state.running, L)) {}
  ~Running() { state_.running = saved_; }
  Running(const Running&) = delete;

 private:
  State& state_;
  lua_State* saved_;
};

Values run_call(State& state, const Call& call, std::span<Box* const> boxes) {
  check_targets(call, boxes);
  const ScopedFlag recording(state.ctx.recording, state.ctx.recording || call.records);
  Lease lease(call, boxes, !state.ctx.recording);
  Values out = call.program->run(state.ctx, lease.inputs);
  check_gradients(call, boxes, out);
  lease.finish();
  lease.inputs.clear();
  write_back(call, boxes, out);
  return out;
}

// run(program, tensors…) → results; or nil and the reason why the script has to be traced again.
int run_program(lua_State* L, State& state) {
  if (state.trace) return replay_program(L, state);
  state.update_modes();
  const Call& call = check_call(L, 1);
  if (lua_gettop(L) != call.boxes + 1) throw Error(fmt::format("run: the program takes {} tensors, got {}", call.boxes, lua_gettop(L) - 1));
  SmallVector<Box*, 16> boxes;
  for (int i = 2; i <= call.boxes + 1; ++i) {
    Box& box = check_box(L, state, i, call.program->options().name.c_str(), "input");
    require_value(L, box, i, call.program->options().name.c_str(), "input");
    boxes.push_back(&box);
  }
  const std::string unmet = unmet_state(call, state, boxes);
  if (!unmet.empty()) return refuse(L, unmet);
  const Running running(state, L);
  Values out;
  try {
    out = run_call(state, call, boxes);
  } catch (const Retrace& e) {
    return refuse(L, e.what());
  } catch (const Refused& e) {
    return refuse(L, e.what());
  } catch (const OutOfMemory&) {
    if (allocation_failed()) throw;  // a test asked for the failure
    state.collect_garbage(L);
    out = run_call(state, call, boxes);
  }
  Values results;
  for (int32_t k : call.results) results.push_back(out[size_t(k)]);
  out.clear();
  push_results(L, state, results);
  return int(results.size());
}

// program:graph() → the text of the trace; program:graph("optimized") of what the last run ran.
int program_text(lua_State* L, State&) {
  const Program& program = *check_call(L, 1).program;
  lua_pushstring(L, to_string(lua_isnoneornil(L, 2) ? program.trace() : program.optimized()).c_str());
  return 1;
}

int program_dot(lua_State* L, State&) {
  lua_pushstring(L, to_dot(check_call(L, 1).program->trace()).c_str());
  return 1;
}

// program:info() → specializations, bytes of arenas
int program_info(lua_State* L, State&) {
  const Program& program = *check_call(L, 1).program;
  lua_pushnumber(L, double(program.specializations()));
  lua_pushnumber(L, double(program.arena_bytes()));
  return 2;
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

// Traces backward(saved, dy…) → gradients as a closed body over saved, cotangents and what else it uses.
std::shared_ptr<const Graph> trace_backward(lua_State* L, State& state, int function, const char* name, std::span<const Value> inputs,
                                            std::span<const Value> outputs, Values& saved) {
  BodyBuilder body(L, state, *state.trace, BodyBuilder::Kind::kBackward);
  const int top = lua_gettop(L);
  need_stack(L, int(saved.size() + outputs.size()) + 8, "too many tensors");
  lua_pushvalue(L, function);
  lua_createtable(L, int(saved.size()), 0);
  for (size_t i = 0; i < saved.size(); ++i) {
    push_box(L, state, body.add_input(saved[i].type()));
    lua_rawseti(L, -2, int(i) + 1);
  }
  for (const Value& y : outputs) push_box(L, state, body.add_input(y.type()));
  if (lua_pcall(L, int(outputs.size()) + 1, LUA_MULTRET, 0)) {
    const std::string text = lua_tostring(L, -1) ? lua_tostring(L, -1) : "error in a backward function";
    lua_settop(L, top);
    throw PositionedError(text);
  }
  const int results = lua_gettop(L) - top;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int place = top + 1 + int(i);
    const bool given = int(i) < results && !lua_isnil(L, place) && !lua_isboolean(L, place);
    const Value gradient = given ? check_value(L, state, place, name, "gradient") : body.filled(state.ctx, inputs[i].type(), 0);
    body.graph.outputs.push_back(body.operand_of(gradient));
  }
  lua_settop(L, top);
  // Inputs in the order saved, captured, cotangents: what is captured is saved too.
  std::vector<int32_t>& order = body.graph.inputs;
  const size_t first = saved.size(), count = outputs.size();
  std::rotate(order.begin() + ptrdiff_t(first), order.begin() + ptrdiff_t(first + count), order.end());
  for (const Value& v : body.captured_values) saved.push_back(v);
  return std::make_shared<Graph>(std::move(body.graph));
}

// trace_function_gradient(name, inputs, outputs, saved, backward): inside a trace, gives the tensors in `outputs` the
// gradient that backward(saved, dy…) computes.
int trace_function_gradient(lua_State* L, State& state) {
  state.update_modes();
  const std::string name = check_string(L, state, 1, "Function", "name");
  const Values inputs = boxes_at(L, state, 2), outputs = boxes_at(L, state, 3);
  Values saved = boxes_at(L, state, 4);
  if (!state.trace) throw Error(name + ": no trace is under way");
  auto backward = trace_backward(L, state, 5, name.c_str(), inputs, outputs, saved);
  Values linked = state.trace->innermost->custom(state.ctx, name, inputs, outputs, saved, std::move(backward));
  for (size_t i = 0; i < linked.size(); ++i) {
    lua_rawgeti(L, 3, int(i) + 1);
    set_value(*to_box(L, state, lua_gettop(L)), std::move(linked[i]));
    lua_pop(L, 1);
  }
  return 0;
}

// outside_zeros(x) → zeros of x's type that belong to nothing a trace makes: an input of the graph.
int outside_zeros(lua_State* L, State& state) {
  Box& box = push_box(L, state, make_filled(check_value(L, state, 1, "zeros", "x").type(), 0));
  box.serial = 0;
  leave_scope(box);
  return 1;
}

// number_table(rows, columns) → a float64 tensor for set_numbers, in the same sense outside.
int number_table(lua_State* L, State& state) {
  const Dims shape{check_integer(L, state, 1, "number_table", "rows"), check_integer(L, state, 2, "number_table", "columns")};
  Box& box = push_box(L, state, make_filled(Type{DType::kFloat64, {}, shape}, 0));
  box.serial = 0;
  leave_scope(box);
  return 1;
}

// set_numbers(t, …): the elements of a tensor of number_table, in order.
int set_numbers(lua_State* L, State& state) {
  Box& box = check_box(L, state, 1, "set_numbers", "t");
  const int n = lua_gettop(L) - 1;
  if (!box.get().is_array() || box.get().dtype() != DType::kFloat64 || box.get().numel() != n) throw Error("set_numbers: not as many elements");
  if (!box.get().array().writable()) set_value(box, make_array(box.get().type()));
  double* to = static_cast<double*>(box.get().array().data());
  for (int i = 0; i < n; ++i) to[i] = lua_tonumber(L, i + 2);
  return 0;
}

// The ticks that the trace's ops will take of a generator.
uint64_t ticks_so_far(const TraceSession& trace, const Ref<Generator>& generator) {
  const auto at = std::find(trace.generators.begin(), trace.generators.end(), generator);
  return at == trace.generators.end() ? 0 : trace.graph.ticks[size_t(at - trace.generators.begin())];
}

void move_ticks(const Ref<Generator>& generator, uint64_t by) {
  const RandomKey now = generator->state();
  generator->set_state({now.seed, now.tick + by});
}

// untraced(f, …) → f's results. What f does is no part of the trace under way, and what it reads of types no guard. It draws
// the numbers that it would draw eagerly at this place of the script.
int run_untraced(lua_State* L, State& state) {
  TraceSession *const trace = std::exchange(state.trace, nullptr), *const paused = state.paused_trace;
  if (trace) state.paused_trace = trace;
  const Ref<Generator> generator = state.ctx.generator;
  const uint64_t ahead = trace ? ticks_so_far(*trace, generator) : 0;
  move_ticks(generator, ahead);
  Interpreter* const interpreter = std::exchange(state.ctx.interpreter, &eager_interpreter());
  const int status = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0);
  move_ticks(generator, -ahead);
  state.trace = trace;
  state.paused_trace = paused;
  state.ctx.interpreter = interpreter;
  state.update_modes();
  return status ? lua_error(L) : lua_gettop(L);
}

int is_tracing(lua_State* L, State& state) { return lua_pushboolean(L, state.trace != nullptr), 1; }

void make_class(lua_State* L, State& state, const RegistryKey& key, lua_CFunction collect,
                std::initializer_list<Registration> methods) {
  lua_createtable(L, 0, 3);
  lua_pushcfunction(L, collect);
  lua_setfield(L, -2, "__gc");
  lua_newtable(L);
  register_functions(L, state, methods);
  lua_setfield(L, -2, "__index");
  lua_pushstring(L, "perigee");
  lua_setfield(L, -2, "__metatable");
  key.set(L);
}

}  // namespace

ProgramCall& check_program(lua_State* L, int i) { return check_call(L, i); }

void push_program(lua_State* L, std::unique_ptr<ProgramCall> call) {
  auto* program = static_cast<ProgramHandle*>(lua_newuserdata(L, sizeof(ProgramHandle)));
  program->call = nullptr;
  kProgramClass.push_table(L);
  lua_setmetatable(L, -2);
  program->call = call.release();
}

void open_trace(lua_State* L, State& state) {
  register_functions(L, state, {{"trace", entry<trace_function>}, {"run", entry<run_program>}, {"tracing", entry<is_tracing>},
                                {"outside_zeros", entry<outside_zeros>}, {"number_table", entry<number_table>},
                                {"set_numbers", entry<set_numbers>},
                                {"trace_function_gradient", entry<trace_function_gradient>}, {"untraced", entry<run_untraced>}});
  open_control(L, state);
  make_class(L, state, kTraceClass, collect_trace,
             {{"captured", entry<captured_tensors>},
              {"input_of", entry<trace_input_of>},
              {"name_inputs", entry<name_inputs>},
              {"output", entry<trace_output>},
              {"text", entry<trace_text>},
              {"finish", entry<finish_trace>}});
  make_class(L, state, kProgramClass, collect_program,
             {{"graph", entry<program_text>}, {"dot", entry<program_dot>}, {"info", entry<program_info>}});
}

}  // namespace pg::vm
