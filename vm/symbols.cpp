// pg.symbol: symbols outside of traces. All symbols of a state belong to one graph. Every call with a symbol among its
// arguments adds nodes to it; only that call is traced. The graph is freed with the last box of a symbol, or when the
// next symbol is made after LuaJIT has skipped a finalizer.
#include "graph/io/model.h"
#include "vm/args.h"
#include "vm/trace.h"

namespace pg::vm {
namespace {

const RegistryKey kLive;  // a table with weak keys: the tensors that hold symbols

bool is_symbol(lua_State* L, State& state, int i) {
  Box* box = to_box(L, state, i);
  return box && state.symbols->knows(box->get());
}

// Whether the value at i is a symbol or a plain list with a symbol among its elements.
bool mentions_symbol(lua_State* L, State& state, int i) {
  if (lua_type(L, i) == LUA_TUSERDATA) return is_symbol(L, state, i);
  if (lua_type(L, i) != LUA_TTABLE || !lua_checkstack(L, 4)) return false;
  bool found = false;
  for (int k = 1, n = int(lua_objlen(L, i)); k <= n && !found; ++k) {
    lua_rawgeti(L, i, k);
    found = is_symbol(L, state, lua_gettop(L));
    lua_pop(L, 1);
  }
  return found;
}

// Makes the session the trace of the state during one call.
class Active {
 public:
  explicit Active(State& state) : state_(state), session_(*state.symbols), interpreter_(state.ctx.interpreter) {
    state.trace = &session_;
    state.ctx.interpreter = &session_;
  }
  ~Active() {
    state_.trace = nullptr;
    state_.ctx.interpreter = interpreter_;
    session_.failed.clear();
    session_.rest();
  }
  Active(const Active&) = delete;

 private:
  State& state_;
  TraceSession& session_;
  Interpreter* interpreter_;
};

// Keeps the graph during a call that may make symbols of it. Does not free it.
class Kept {
 public:
  explicit Kept(State& state) : boxes_(state.symbol_boxes) { ++boxes_; }
  ~Kept() { --boxes_; }
  Kept(const Kept&) = delete;

 private:
  int64_t& boxes_;
};

// Adds the symbols among the results of a call to kLive.
void note_results(lua_State* L, State& state, int count) {
  if (!lua_checkstack(L, 6)) return;
  const int top = lua_gettop(L);
  kLive.push_table(L);
  auto note = [&](int i) {
    if (!is_symbol(L, state, i)) return;
    Box& box = *to_box(L, state, i);
    if (!box.symbolic) ++state.symbol_boxes;
    box.symbolic = true;
    lua_pushvalue(L, i);
    lua_pushboolean(L, true);
    lua_rawset(L, top + 1);
  };
  for (int i = top - count + 1; i <= top; ++i) {
    note(i);
    for (int k = 1, n = lua_type(L, i) == LUA_TTABLE ? int(lua_objlen(L, i)) : 0; k <= n; ++k) {
      lua_rawgeti(L, i, k);
      note(lua_gettop(L));
      lua_pop(L, 1);
    }
  }
  lua_settop(L, top);
}

// new(name, shape, dtype) → a symbol
int new_symbol(lua_State* L, State& state) {
  if (state.trace) throw Error("symbol: a trace is in progress");
  const std::string name = check_string(L, state, 1, "symbol", "name");
  Type type{check_dtype(L, state, 3, "symbol", "dtype"), state.default_device, {}};
  for (int d = 1, n = int(lua_objlen(L, 2)); d <= n; ++d) {
    lua_rawgeti(L, 2, d);
    type.shape.push_back(check_integer(L, state, lua_gettop(L), "symbol", "shape"));
    lua_pop(L, 1);
  }
  checked_numel("symbol", type.shape);
  const Kept kept(state);
  kLive.push_table(L);
  lua_pushnil(L);
  if (!lua_next(L, -2)) delete std::exchange(state.symbols, nullptr);  // no symbol of the old graph is left
  if (!state.symbols) state.symbols = new TraceSession(L, state, true);
  push_box(L, state, state.symbols->add_input(type, name));
  note_results(L, state, 1);
  return 1;
}

int is_symbol_at(lua_State* L, State& state) {
  bool found = false;
  for (int i = 1; i <= lua_gettop(L) && state.symbols && !found; ++i) found = mentions_symbol(L, state, i);
  return lua_pushboolean(L, found), 1;
}

Operand operand_at(lua_State* L, State& state, int list, int k, const char* what) {
  lua_rawgeti(L, list, k);
  Box* box = to_box(L, state, lua_gettop(L));
  if (!box || !state.symbols || !state.symbols->knows(box->get()))
    bad_argument("graph", what, "symbols (see pg.symbol)", describe(L, state, lua_gettop(L)));
  const Operand operand = state.symbols->symbol_of(box->get());
  lua_pop(L, 1);
  return operand;
}

// The part of the session's graph between these inputs and outputs.
class Cut {
 public:
  Cut(const TraceSession& session, std::vector<Operand> inputs, const std::vector<Operand>& outputs)
      : session_(session), graph_(session.graph), arguments_(std::move(inputs)) {
    graph_.outputs = outputs;
    need_.resize(graph_.nodes.size());
    for (const Operand& o : outputs) need_[size_t(o.node)] = true;
    for (const Operand& o : arguments_) need_[size_t(o.node)] = true;
    for (size_t i = graph_.nodes.size(); i-- > 0;)
      for (const Operand& o : graph_.nodes[i].inputs)
        if (need_[i] && o.is_node()) need_[size_t(o.node)] = true;
  }

  std::vector<int32_t> captured;  // indices in the session, in the order of the inputs after the arguments

  std::unique_ptr<ProgramCall> call(size_t results) {
    auto call = std::make_unique<ProgramCall>();
    const std::vector<int32_t> before = std::exchange(graph_.inputs, {});
    for (const Operand& argument : arguments_) graph_.inputs.push_back(argument.node);
    for (size_t i = 0; i < session_.captured.size(); ++i) add_captured(int32_t(i), before, *call);
    check_inputs();
    for (Node& node : graph_.nodes)
      if (!need_[size_t(&node - graph_.nodes.data())])
        node.kind = NodeKind::kConstant, node.op = nullptr, node.inputs.clear();
    std::erase_if(graph_.guards, [&](const TypeGuard& g) { return !need_[size_t(g.of.node)]; });
    call->boxes = int32_t(graph_.inputs.size());
    for (int32_t k = 0; k < call->boxes; ++k) call->input_boxes.push_back(k);
    call->input_gradients.resize(size_t(call->boxes));
    for (size_t k = 0; k < results; ++k) call->results.push_back(int32_t(k));
    Program::Options options;
    call->program = Ref<Program>(new Program(without_dead_nodes(graph_), session_.generators, options));
    return call;
  }

 private:
  void add_captured(int32_t i, const std::vector<int32_t>& before, ProgramCall& call) {
    const auto& c = session_.captured[size_t(i)];
    if (c.input < 0 || !c.box || !need_[size_t(before[size_t(c.input)])]) return;
    const Operand now = session_.symbol_of(c.now);
    const bool written = now.node != before[size_t(c.input)] && also_needed(graph_, now, need_);
    if (written) {
      call.writes.push_back({int32_t(graph_.inputs.size()), int32_t(graph_.outputs.size()), false});
      graph_.outputs.push_back(now);
    }
    captured.push_back(i);
    graph_.inputs.push_back(before[size_t(c.input)]);
  }

  void check_inputs() const {
    std::vector<char> known(graph_.nodes.size());
    for (int32_t input : graph_.inputs) {
      if (graph_.nodes[size_t(input)].kind != NodeKind::kInput)
        throw Error("graph: an input is not a symbol of pg.symbol but computed from others");
      if (known[size_t(input)]++)
        throw Error(fmt::format("graph: the input '{}' appears twice", graph_.nodes[size_t(input)].name));
    }
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (need_[i] && graph_.nodes[i].kind == NodeKind::kInput && !known[i])
        throw Error(fmt::format("graph: the outputs depend on the symbol '{}', which is not among the inputs",
                                graph_.nodes[i].name));
  }

  const TraceSession& session_;
  Graph graph_;
  std::vector<Operand> arguments_;
  std::vector<char> need_;
};

// program({outputs}, {inputs}) → a program over the inputs and the captured tensors, these tensors, and the names of
// the inputs
int symbols_program(lua_State* L, State& state) {
  std::vector<Operand> outputs, inputs;
  for (int k = 1, n = int(lua_objlen(L, 1)); k <= n; ++k) outputs.push_back(operand_at(L, state, 1, k, "outputs"));
  for (int k = 1, n = int(lua_objlen(L, 2)); k <= n; ++k) inputs.push_back(operand_at(L, state, 2, k, "inputs"));
  TraceSession& session = *state.symbols;
  std::vector<std::string> names;
  for (const Operand& o : inputs) names.push_back(session.graph.node(o).name);
  Cut cut(session, inputs, outputs);
  auto call = cut.call(outputs.size());
  std::vector<char> written(size_t(call->boxes));
  for (const auto& w : call->writes) written[size_t(w.box)] = true;
  push_program(L, std::move(call));
  lua_newtable(L);
  session.boxes.push(L);
  for (size_t k = 0; k < cut.captured.size(); ++k) {
    lua_createtable(L, 0, 2);
    lua_rawgeti(L, -2, cut.captured[k] + 1);
    lua_setfield(L, -2, "box");
    lua_pushboolean(L, written[inputs.size() + k]);
    lua_setfield(L, -2, "written");
    lua_rawseti(L, -3, int(k) + 1);
  }
  lua_pop(L, 1);
  push_names(L, names);
  return 3;
}

// Wraps a function whose calls are not part of the graph of its arguments.
template <Function F>
int plain(lua_State* L) {
  State* const state = state_of(L);
  if (!state) return refuse_upvalue(L);
  try {
    return F(L, *state);
  } catch (const std::exception& e) {
    push_error(L, e.what());
  }
  return lua_error(L);
}

}  // namespace

int call_with_symbols(lua_State* L, State& state, Function f) {
  const int top = lua_gettop(L);
  bool found = false;
  for (int i = 1; i <= top && !found; ++i) found = mentions_symbol(L, state, i);
  if (!found) return f(L, state);
  const Kept kept(state);
  int results;
  {
    const Active active(state);
    results = f(L, state);
  }
  note_results(L, state, results);
  return results;
}

void free_symbols(State& state) {
  if (state.symbol_boxes == 0) delete std::exchange(state.symbols, nullptr);
}

void open_symbols(lua_State* L, State& state) {
  push_weak_table(L, "k");
  kLive.set(L);
  lua_newtable(L);
  register_functions(L, state,
                     {{"new", plain<new_symbol>}, {"any", plain<is_symbol_at>}, {"program", plain<symbols_program>}});
  lua_setfield(L, -2, "symbols");
}

}  // namespace pg::vm
