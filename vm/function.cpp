#include "vm/function.h"

#include <algorithm>
#include <memory>
#include <map>
#include <unordered_set>

#include "graph/passes/rewrite.h"
#include "vm/args.h"
#include "vm/trace.h"

namespace pg::vm {

constexpr int kMaxGaps = 1 << 20;  // the greatest length of a list of gradients with gaps

void remove_modes(State& state, uint64_t token) {
  const auto remove = [&](Dynamics& from) {
    return std::erase_if(from.modes, [&](const ModeScope& m) { return m.token == token; }) > 0;
  };
  if (remove(state)) return;
  for (Dynamics* parked : state.parked)  // of a coroutine that the collector frees in another chain
    if (remove(*parked)) return;
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

namespace {

// Whether a missing cotangent is passed to a Lua function as zeros, as in a graph, or as nil.
enum class Absent { kZeros, kNil };

// The Lua function of a tape entry. The entry itself holds the saved tensors.
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

  // Calls function(saved, dy…), which returns one gradient or nil per input.
  Values run(Context& ctx, TapeNode& node, std::span<const Value> cotangents) {
    lua_State* L = state_.running;
    const NestedCall nested(state_, "backward");
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
    const int status = protected_call(L, int(cotangents.size()) + 1, LUA_MULTRET);
    remove_modes(state_, token);
    ctx.recording = recording;
    ctx.training = training;
    if (status) {
      const std::string text = lua_tostring(L, -1) ? lua_tostring(L, -1) : "error in a backward function";
      lua_settop(L, top);
      note_reraise(L, state_, text);
      throw PositionedError(text);
    }
    Values out;
    const int results = lua_gettop(L) - top;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (int(i) >= results || lua_isnil(L, top + 1 + int(i)) || lua_isboolean(L, top + 1 + int(i))) {
        out.emplace_back();
        continue;
      }
      const std::string name = fmt::format("gradient {}", i + 1);
      out.push_back(check_value(L, state_, top + 1 + int(i), node.custom_name.c_str(), name.c_str()));
    }
    lua_settop(L, top);
    return out;
  }

 private:
  void push_function(lua_State* L) const {
    if (reference) return reference.push(L);
    kLoose.push_table(L);
    lua_rawgeti(L, -1, int(place) + 1);
    lua_remove(L, -2);
  }

  void push_saved(lua_State* L, TapeNode& node) {
    std::vector<Value> saved = node.held;
    for (size_t i = 0; i < saved.size(); ++i)
      if (saved_outputs_[i] >= 0) saved[i].link(&node, uint32_t(saved_outputs_[i]));
    push_list(L, state_, saved);
  }

  State& state_;
  std::vector<int> saved_outputs_;
  Absent absent_;
};

void link_custom(State& state, const std::string& name, Values inputs, Values& outputs, Values saved,
                 Reference function, Absent absent) {
  std::vector<int> saved_outputs(saved.size(), -1);
  for (size_t i = 0; i < saved.size(); ++i)
    for (size_t k = 0; k < outputs.size(); ++k)  // an input that is an output too has the history of the input
      if (!saved[i].has_node() && saved[i].array_ref() == outputs[k].array_ref()) saved_outputs[i] = int(k);
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

// Removes the links of the values to the tape.
void unlink(Values& values) {
  for (Value& v : values) v = v.detached();
}

// record_custom(name, inputs, outputs, saved, backward) links the output boxes to a tape entry with the Lua function
// backward(saved, dy…).
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

// tape_position() → the sequence number of the next tape entry.
int tape_position(lua_State* L, State& state) {
  lua_pushnumber(L, double(state.ctx.next_sequence));
  return 1;
}

// recorded_since(x, position) → whether x is the result of a tape entry that is not older.
int recorded_since(lua_State* L, State& state) {
  const TapeNode* node = check_value(L, state, 1, "checkpoint", "x").node();
  lua_pushboolean(L, node && !node->leaf && node->sequence >= uint64_t(lua_tonumber(L, 2)));
  return 1;
}

const Buffer* buffer_of(const Value& v) { return v.is_array() ? v.array().buffer.get() : nullptr; }

struct AttrMark {
  template <class T>
  size_t operator()(const T& v) const {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) return std::hash<T>()(v);
    if constexpr (std::is_enum_v<T>) return size_t(v);
    return 0;
  }
  template <class T>
  size_t operator()(const std::vector<T>& list) const {
    size_t mark = list.size();
    for (const T& v : list) mix(mark, (*this)(v));
    return mark;
  }
};

constexpr int64_t kFewElements = 64;

// The numbers in a tensor of few elements that the host can read, such as pg.tensor{n}.
size_t mark_of(const Value& v) {
  if (v.is_number()) return std::hash<double>()(v.number());
  if (v.node() || !buffer_of(v) || is_large(v) || v.numel() > kFewElements || !(v.device() == Device{})) return 0;
  const Array& array = v.array();
  size_t mark = size_t(v.numel());
  for (int64_t i = 0; i < v.numel(); ++i) {
    int64_t at = 0, rest = i;
    for (int d = v.rank() - 1; d >= 0; rest /= v.shape()[d], --d) at += rest % v.shape()[d] * array.strides[d];
    const double number = load_number(v.dtype(), static_cast<const char*>(array.data()) + at * size_of(v.dtype()));
    mix(mark, number == number ? std::hash<double>()(number) : 0);
  }
  return mark;
}

// What tells two runs of the same function apart: the op of an entry, its attributes and the numbers among its inputs.
void mix_entry(size_t& mark, const TapeNode& node) {
  mix(mark, node.op ? std::hash<std::string_view>()(node.op->name) : 0);
  for (size_t i = 0; i < node.attrs.size(); ++i) mix(mark, std::visit(AttrMark{}, node.attrs[i]));
  for (const Value& v : node.inputs) mix(mark, mark_of(v));
}

constexpr double kNoEntries = 1;  // the mark of no entries

// Adds the leaves, and the results of entries before `start`, that the outputs were computed from; with their data if
// an entry has kept that. Returns a mark of the entries between, which is 0 if graphs are among them: a block may run
// as a graph or as plain Lua.
double collect_outside(const Values& outputs, uint64_t start, Values& outside) {
  size_t mark = 0;
  bool graphs = false;
  std::vector<TapeNode*> stack;
  std::unordered_set<const TapeNode*> seen;
  std::map<std::pair<const TapeNode*, uint32_t>, size_t> taken;
  auto reach = [&](const Value& v) {
    TapeNode* node = v.node();
    if (!node) return;
    if (!node->leaf && node->sequence >= start) {
      if (seen.insert(node).second) stack.push_back(node);
      return;
    }
    const auto [at, added] = taken.try_emplace({node, v.node_output()}, outside.size());
    if (added)
      outside.push_back(v);
    else if (!buffer_of(outside[at->second]))
      outside[at->second] = v;
  };
  for (const Value& v : outputs) reach(v);
  while (!stack.empty()) {
    TapeNode* node = stack.back();
    stack.pop_back();
    graphs |= bool(node->behind);
    mix_entry(mark, *node);
    for (const Value& v : node->inputs) reach(v);
  }
  return graphs ? 0 : double(mark >> 12) + kNoEntries;
}

// record_checkpoint(outputs, position, backward) → the mark of collect_outside. Replaces the entries since `position`
// by one entry, whose inputs are the earlier values that they use. backward({those values}, dy…) recomputes.
int record_checkpoint(lua_State* L, State& state) {
  state.update_modes();
  Values outputs = read_values(L, state, 1, "checkpoint", "outputs", false);
  Values outside;
  lua_pushnumber(L, collect_outside(outputs, uint64_t(lua_tonumber(L, 2)), outside));
  if (outside.empty()) return 1;
  unlink(outputs);
  lua_pushvalue(L, 3);
  const Values saved = outside;
  link_custom(state, "checkpoint", outside, outputs, saved, Reference(L, state), Absent::kNil);
  rebind_outputs(L, state, 1, outputs);
  return 1;
}

constexpr const char* kOtherOps =
    "checkpoint: f computes something else when backward runs it again (expected the ops and numbers of its first run; "
    "assignments to variables and fields happen twice, so let f count and flip tensors only, or do so outside of f)";

// check_recomputed(outputs, position, outside, mark) raises unless the outputs, computed again since `position`, come
// from the values that record_checkpoint found, as far as entries have kept them, by the same ops. Among the outputs,
// false is one that is no tensor.
int check_recomputed(lua_State* L, State& state) {
  Values before, now;
  for (int k = 1; k <= int(lua_objlen(L, 3)); ++k, lua_pop(L, 1)) {
    lua_rawgeti(L, 3, k);
    before.push_back(to_box(L, state, -1)->get());
  }
  for (int k = 1; k <= int(lua_objlen(L, 1)); ++k, lua_pop(L, 1)) {
    lua_rawgeti(L, 1, k);
    if (lua_isboolean(L, -1)) throw Error(kOtherOps);
  }
  const double mark =
      collect_outside(read_values(L, state, 1, "checkpoint", "outputs", false), uint64_t(lua_tonumber(L, 2)), now);
  const double first = lua_tonumber(L, 4);
  if (mark != first && mark != 0 && (first != 0 || mark == kNoEntries)) throw Error(kOtherOps);
  for (const Value& v : now) {
    const auto old = std::find_if(before.begin(), before.end(), [&](const Value& o) {
      return o.node() == v.node() && o.node_output() == v.node_output();
    });
    const bool same = old == before.end() ? v.node()->leaf  // f may make leaves
                                          : !buffer_of(*old) || !buffer_of(v) || buffer_of(*old) == buffer_of(v);
    if (!same)
      throw Error(
          fmt::format("checkpoint: a tensor that f reads ({}) has changed since f ran; change it after backward",
                      to_string(v.type())));
  }
  return 0;
}

}  // namespace

void open_functions(lua_State* L, State& state) {
  register_functions(L, state,
                     {{"record_custom", entry<record_function>},
                      {"record_checkpoint", entry<record_checkpoint>},
                      {"check_recomputed", entry<check_recomputed>},
                      {"tape_position", entry<tape_position>},
                      {"recorded_since", entry<recorded_since>}});
}

}  // namespace pg::vm
