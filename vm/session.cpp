// TraceSession: captures of boxes by a trace, and guards on types that the script reads.
#include "vm/trace.h"

#include <algorithm>

#include "graph/passes/rewrite.h"
#include "tensor/buffer.h"
#include "vm/args.h"

namespace pg::vm {

TraceSession::TraceSession(lua_State* L, State& state, bool lasting)
    : GraphBuilder(Stage::kTrace),
      L_(L),
      state_(state),
      first_box_(lasting ? ~uint64_t(0) : state.next_box),
      first_token_(lasting ? ~uint64_t(0) : state.next_token),
      recording_(state.ctx.recording),
      training_(state.ctx.training),
      lasting_(lasting) {
  lua_newtable(L);
  boxes = Reference(L, state);
}

TraceSession::~TraceSession() { lasting_ ? rest() : end(); }

TraceSession::Captured* TraceSession::find(const Box& box) {
  const auto at = places_.find(&box);
  return at == places_.end() ? nullptr : &captured[size_t(at->second)];
}

int32_t TraceSession::owner_of(TapeNode* leaf) const {
  const auto owns = [&](const Captured& c) { return c.box && c.before.node() == leaf; };
  const auto found = owners_.find(leaf);
  if (found != owners_.end() && owns(captured[size_t(found->second)])) return found->second;
  for (size_t i = 0; lasting_ && i < captured.size(); ++i)  // its boxes may have got other leaves
    if (owns(captured[i])) return int32_t(i);
  return -1;
}

// If a lasting session has captured the box, gives it its symbol again and returns true.
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
  if (box.cell && cells_.count(box.cell.get())) return;
  if (box.serial >= first_box_ && !box.cell) return;  // made inside of the trace from constants only
  if (!value.array().buffer) throw Error("a traced tensor is used after its trace");
  if (lasting_) awake_.push_back(int32_t(captured.size()));
  Captured& c = captured.emplace_back();
  c.box = &box;
  c.place = tensors_++;
  c.before = value;
  c.symbol = c.now = add_input(value.type());
  c.input = int32_t(graph.inputs.size()) - 1;
  places_[&box] = int32_t(captured.size()) - 1;
  if (box.cell) cells_.emplace(box.cell.get(), int32_t(captured.size()) - 1);
  TapeNode* node = value.node();
  Value symbol = c.symbol;
  if (node && node->leaf) {
    owners_.emplace(node, int32_t(captured.size()) - 1);
    graph.nodes.back().req = node->req;
    link_leaf(symbol, node);
    symbol.link(node, 0);
  } else if (node) {
    link_outside(symbol, c.before);
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
  c.place = tensors_;
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
  if (known_freshness_.insert(&leaf).second) freshness.push_back({&leaf, owner, leaf.fresh, true, leaf.fresh});
  return leaf.fresh;
}

void TraceSession::set_fresh(TapeNode& leaf, bool fresh) {
  const int32_t owner = owner_of(&leaf);
  if (owner >= 0 && known_freshness_.insert(&leaf).second)
    freshness.push_back({&leaf, owner, leaf.fresh, false, leaf.fresh});
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
      records |= c.box && !recording_ && owns(now) && now.has_node() && !is_leaf(now.node());
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
    const Value& value = box->get();
    const bool leaf = is_leaf(value.node()) && owns(value) && owns(value.node()->grad->value);
    records |= !recording_ && owns(value) && value.has_node() && !leaf;
    graph.outputs.push_back(operand_of(value));
    if (leaf) {
      const auto output = int32_t(graph.outputs.size()) - 1;
      const Operand gradient = operand_of(value.node()->grad->value);
      const bool zeros = filled_with(graph.node(gradient)) == 0;
      if (!zeros) graph.outputs.push_back(gradient);
      made_leaves.push_back({output, zeros ? -1 : output + 1, value.node()->fresh});
      return output;
    }
  } else {  // a gradient, whose value has been restored already
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
  put_value(*box, c.before);
  return int32_t(captured.size()) - 1;
}

void TraceSession::refuse(const std::string& why, const std::string& error) {
  plain = why;
  if (failed.empty()) failed = error;
  throw Error(error);
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

bool note_requires_grad(State& state, const Value& v) {
  const bool answer = v.defined() && asks_gradient(v);
  note(state, v, TypeGuard::kRequiresGrad, 0, answer);
  return answer;
}

namespace {

void note_type(lua_State* L, State& state, int i) {
  Box* box = to_box(L, state, i);
  if (!box || !box->get().is_array()) return;
  const Value& v = box->get();
  note_shape(state, v);
  note_device(state, v);
  note(state, v, TypeGuard::kDType, 0, int64_t(v.dtype()));
  note_requires_grad(state, v);
}

}  // namespace

void note_failure(lua_State* L, State& state) {
  try {
    for (int i = lua_gettop(L) - 1; i > 0; --i) {  // the message is on top
      note_type(L, state, i);
      if (!lua_istable(L, i) || !lua_checkstack(L, 4)) continue;
      for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1)) note_type(L, state, lua_gettop(L));
    }
  } catch (const std::bad_alloc&) {
    if (state.trace->failed.empty()) state.trace->failed = "out of memory";
  }
}

void push_value_read(lua_State* L, State& state) {
  push_error(
      L, fmt::format("{}: the value of a traced tensor cannot be read: it does not exist while the graph is made. Use "
                     "pg.cond(pred, f, g) for a branch, pg.while_loop or pg.loop for a loop, pg.where for a choice per "
                     "element, pg.print to see the value; pg.debug(f) runs f as plain Lua",
                     called_name(L))
             .c_str());
  if (state.trace && state.trace->failed.empty()) state.trace->failed = lua_tostring(L, -1);
}

}  // namespace pg::vm
