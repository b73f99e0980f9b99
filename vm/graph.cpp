// core.graph: handles of models, made of programs or read from files, for stdlib/graph.lua. model.cpp looks inside.
#include "vm/graph.h"

#include <algorithm>
#include <optional>

#include "graph/io/model_file.h"
#include "graph/io/model_names.h"
#include "tensor/io/file.h"
#include "vm/args.h"
#include "vm/bindings.h"
#include "vm/function.h"
#include "vm/handle.h"
#include "vm/model.h"
#include "vm/trace.h"
#include "vm/tree.h"

namespace pg::vm {
namespace {

const RegistryKey kModelClass, kFrozenClass;  // metatables

using ModelRef = std::shared_ptr<const Model>;

template <class T>
int collect(lua_State* L) {
  auto** handle = static_cast<T**>(lua_touserdata(L, 1));
  delete std::exchange(*handle, nullptr);
  return 0;
}

template <class T>
void push_handle(lua_State* L, const RegistryKey& key, T value) {
  auto** handle = static_cast<T**>(lua_newuserdata(L, sizeof(T*)));
  *handle = nullptr;
  key.push_table(L);
  lua_setmetatable(L, -2);
  *handle = new T(std::move(value));
}

template <class T>
T* held_at(lua_State* L, int i, const RegistryKey& key) {
  T** handle = to_handle<T*>(L, i, key);
  return handle ? *handle : nullptr;
}

FrozenGraph& check_frozen(lua_State* L, int i) {
  Ref<FrozenGraph>* graph = held_at<Ref<FrozenGraph>>(L, i, kFrozenClass);
  if (!graph) throw Error("graph: expected a frozen graph");
  return **graph;
}

GradReq request_of(const std::string& text) {
  return text == "null" ? GradReq::kNull : text == "add" ? GradReq::kAdd : GradReq::kWrite;
}
// From a program ----------------------------------------------------------------------------------------------------

ModelInput read_input(lua_State* L, int table) {
  ModelInput input;
  input.name = text_field(L, table, "name");
  const std::string role = text_field(L, table, "role");
  input.role = role == "argument"    ? ModelInput::Role::kArgument
               : role == "parameter" ? ModelInput::Role::kParameter
                                     : ModelInput::Role::kState;
  if (input.role != ModelInput::Role::kParameter) return input;
  input.req = request_of(text_field(L, table, "grad_req"));
  input.differentiable = flag_field(L, table, "differentiable", true);
  input.constant = flag_field(L, table, "constant", false);
  input.lr_mult = number_field(L, table, "lr_mult", 1);
  input.wd_mult = number_field(L, table, "wd_mult", 1);
  return input;
}

// Makes a model of a program. The inputs of the program are described by index of its tensors; constants become nodes
// of the graph.
class ProgramReader {
 public:
  ProgramReader(lua_State* L, State& state, const ProgramCall& call, int description)
      : L_(L), state_(state), call_(call), description_(description) {}

  Model read() {
    check_gradients();
    model_.name = text_field(L_, description_, "name");
    model_.graph = call_.program->trace();
    model_.generators = describe_generators(call_.program->generators(), state_.ctx.generator);
    std::erase_if(model_.graph.guards, [](const TypeGuard& g) { return g.kind == TypeGuard::kRequiresGrad; });
    take_inputs();
    for (const auto& w : call_.writes)
      if (!w.gradient) model_.writes.push_back({input_of_box_[size_t(w.box)], w.output});
    model_.arguments =
        read_trees(L_, description_, "arguments", [&](bool, int32_t i) { return input_of_box_.at(size_t(i) - 1); });
    model_.results = read_trees(L_, description_, "results", [&](bool output, int32_t i) {
      return output ? call_.results.at(size_t(i) - 1) : input_of_box_.at(size_t(i) - 1);
    });
    model_.graph = without_dead_nodes(model_.graph);
    return std::move(model_);
  }

  std::vector<int32_t> boxes;  // by input of the model: the index of its tensor in the program

 private:
  // A training step may write gradients, which the graph then drops: no step after it reads them.
  void check_gradients() const {
    const auto any = [](const auto& list, auto test) { return std::any_of(list.begin(), list.end(), test); };
    const bool reads = any(call_.input_gradients, [](char g) { return g != 0; });
    const bool writes = !call_.fresh.empty() || any(call_.writes, [](const auto& w) { return w.gradient; });
    const bool training = flag_field(L_, description_, "training", false);
    if (training && reads)
      throw Error(
          "export: the step reads a .grad from before it (grad_req = \"add\"); call zero_grad() first or use "
          "\"write\"");
    if (!training && (reads || writes))
      throw Error("export: the function reads or writes .grad of its tensors, which a graph for prediction cannot do");
  }

  // Adds the inputs in the order of `position`: arguments, then tensors of the block.
  void take_inputs() {
    input_of_box_.assign(size_t(call_.boxes), -1);
    lua_getfield(L_, description_, "inputs");
    const int inputs = lua_gettop(L_);
    std::vector<std::pair<double, size_t>> order;
    const std::vector<int32_t> before = std::exchange(model_.graph.inputs, {});
    for (size_t k = 0; k < before.size(); ++k) {
      lua_rawgeti(L_, inputs, call_.input_boxes[k] + 1);
      order.emplace_back(number_field(L_, lua_gettop(L_), "position", 0), k);
      lua_pop(L_, 1);
    }
    std::sort(order.begin(), order.end());
    for (const auto& [position, k] : order) {
      const int32_t box = call_.input_boxes[k];
      lua_rawgeti(L_, inputs, box + 1);
      take_input(model_.graph.nodes[size_t(before[k])], before[k], box, lua_gettop(L_));
      lua_pop(L_, 1);
    }
    lua_pop(L_, 1);
  }

  void take_input(Node& node, int32_t index, int32_t box, int table) {
    if (text_field(L_, table, "role") == "constant") {
      lua_getfield(L_, table, "box");
      node.kind = NodeKind::kConstant;
      node.req = GradReq::kNull;
      node.constant =
          to_contiguous(state_.ctx, check_value(L_, state_, lua_gettop(L_), "export", "constant").detached());
      node.name.clear();
      lua_pop(L_, 1);
      return;
    }
    ModelInput input = read_input(L_, table);
    describe_input(node, input);
    input_of_box_[size_t(box)] = int32_t(model_.inputs.size());
    boxes.push_back(box);
    model_.graph.inputs.push_back(index);
    model_.inputs.push_back(std::move(input));
  }

  lua_State* L_;
  State& state_;
  const ProgramCall& call_;
  int description_;
  Model model_;
  std::vector<int32_t> input_of_box_;
};

// model_of(program, {name=, inputs = {{name=, role=, position=, …}, …} by tensor of the program, arguments = trees,
// results = trees}) → the model, and by input of the model the index of its tensor in the program. The inputs are
// sorted by `position`.
int model_of(lua_State* L, State& state) {
  ProgramReader reader(L, state, check_program(L, 1), 2);
  Model model = reader.read();
  verify(model);
  push_model(L, std::move(model));
  push_places(L, reader.boxes);
  return 2;
}

// Programs ----------------------------------------------------------------------------------------------------------

std::vector<Ref<Generator>> new_generators(State& state, const Model& model) {
  std::vector<Ref<Generator>> out;
  for (const ModelGenerator& generator : model.generators)
    out.push_back(generator.is_default ? state.ctx.generator : state.new_generator(generator.state));
  return out;
}

std::unique_ptr<ProgramCall> call_of(State& state, const Model& model, Program::Options options) {
  auto call = std::make_unique<ProgramCall>();
  call->boxes = int32_t(model.inputs.size());
  for (int32_t k = 0; k < call->boxes; ++k) call->input_boxes.push_back(k);
  call->input_gradients.resize(model.inputs.size());
  for (const Model::Write& w : model.writes) call->writes.push_back({w.input, w.output, false});
  for_each_leaf(model.results, [&](const Tree& leaf) {
    if (leaf.kind == Tree::Kind::kOutput) call->results.push_back(leaf.index);
  });
  options.lasting = lasting_inputs(model);
  call->program = Ref<Program>(new Program(model.graph, new_generators(state, model), std::move(options)));
  return call;
}

// Returns f(), which runs the graph of a model.
template <class F>
Values at_caller(const Graph& graph, F&& f) {
  try {
    return f();
  } catch (const PositionedError& e) {
    throw error_of_caller(graph, e);
  } catch (const Retrace& e) {
    throw error_of_caller(graph, e);
  }
}

// program(model, {static_shape=, static_alloc=}) → a program over all inputs. Its results are the output leaves in
// order.
int make_program(lua_State* L, State& state) {
  const Model& model = check_model(L, 1);
  Program::Options options;
  options.name = model.name;
  if (lua_istable(L, 2)) {
    options.static_alloc = flag_field(L, 2, "static_alloc", true);
    options.static_shape = flag_field(L, 2, "static_shape", false);
  }
  auto call = call_of(state, model, std::move(options));
  call->of_model = true;
  push_program(L, std::move(call));
  return 1;
}

// Sets the value of the box as a write of the script would: a leaf stays a leaf.
void rebind(Box& box, Value value) {
  TapeNode* leaf = box.get().node();
  value = value.detached();
  if (leaf && leaf->leaf) value.link(leaf, 0);
  set_value(box, std::move(value));
}

}  // namespace

Error error_of_caller(const Graph& graph, const Error& e) {
  const std::string_view text = e.what();
  for (const std::string& line : graph.lines) {
    const std::string place = position_of(line);
    if (text.starts_with(place + ": "))
      return Error(fmt::format("{} (at {} of the graph)", text.substr(place.size() + 2), place));
  }
  return e;
}

int replay_program(lua_State* L, State& state) {
  state.update_modes();
  const ProgramCall& call = check_program(L, 1);
  const char* name = call.program->options().name.c_str();
  const SmallVector<Box*, 16> boxes = check_boxes(L, state, call, name);
  Values inputs;
  for (size_t k = 0; k < call.input_boxes.size(); ++k) {
    if (call.input_gradients[k]) throw Error(fmt::format("{}: a program over gradients cannot be replayed", name));
    inputs.push_back(boxes[size_t(call.input_boxes[k])]->get());
  }
  const Graph& graph = call.program->trace();
  const auto run = [&] { return replay(state.ctx, graph, inputs, call.program->generators()); };
  Values out = call.of_model ? at_caller(graph, run) : run();
  for (const auto& w : call.writes) rebind(*boxes[size_t(w.box)], out[size_t(w.output)]);
  return push_call_results(L, state, call, std::move(out));
}

namespace {

// roundtrip(program) → the same program, written as files and read again. For tests: hidden ops are allowed.
int roundtrip(lua_State* L, State& state) {
  const ProgramCall& old = check_program(L, 1);
  Model model;
  model.name = old.program->options().name;
  model.graph = old.program->trace();
  model.generators = describe_generators(old.program->generators(), state.ctx.generator);
  Values values;
  for (size_t k = 0; k < model.graph.inputs.size(); ++k) {
    model.inputs.push_back({});
    model.inputs.back().name = fmt::format("input{}", k + 1);
    model.arguments.push_back(Tree::input(int32_t(k)));
    values.emplace_back();
  }
  for (size_t k = 0; k < model.graph.outputs.size(); ++k) model.results.push_back(Tree::output(int32_t(k)));
  const NamedTensors tensors = model_tensors(model, values);
  const std::string text = model_json(model);
  LoadedModel loaded = parse_model(text, {"roundtrip.json", &tensors, "roundtrip.safetensors", true});
  if (to_string(loaded.model.graph) != to_string(model.graph) || model_json(loaded.model) != text)
    throw Error("roundtrip: the graph that was read differs from the one that was written");
  auto call = std::make_unique<ProgramCall>(old);
  const auto generators = old.program->generators();
  call->program = Ref<Program>(
      new Program(std::move(loaded.model.graph), {generators.begin(), generators.end()}, old.program->options()));
  push_program(L, std::move(call));
  return 1;
}

// Files -------------------------------------------------------------------------------------------------------------

// Reads the tensors of the table at i, by input of the model. Arguments and false are undefined values.
Values values_at(lua_State* L, State& state, int i, const Model& model, const char* op) {
  Values values;
  for (size_t k = 0; k < model.inputs.size(); ++k) {
    lua_rawgeti(L, i, int(k) + 1);
    const bool wanted = model.inputs[k].role != ModelInput::Role::kArgument && to_box(L, state, -1);
    values.push_back(wanted ? check_value(L, state, lua_gettop(L), op, model.inputs[k].name.c_str()).detached()
                            : Value());
    lua_pop(L, 1);
  }
  return values;
}

// save(model, json path, tensors path, tensors by input)
int save_files(lua_State* L, State& state) {
  const Model& model = check_model(L, 1);
  const std::string json = check_string(L, state, 2, "export", "path");
  const std::string tensors = check_string(L, state, 3, "export", "path");
  Values values = values_at(L, state, 4, model, "export");
  for (Value& value : values)
    if (value.defined()) value = to_contiguous(state.ctx, value);
  access_files(state, "export", [&] { save_model(json, tensors, model, values); });
  return 0;
}

int push_loaded(lua_State* L, State& state, LoadedModel loaded) {
  push_model(L, std::move(loaded.model));
  lua_createtable(L, int(loaded.values.size()), 0);
  for (size_t k = 0; k < loaded.values.size(); ++k) {
    if (loaded.values[k].defined())
      push_box(L, state, std::move(loaded.values[k]));
    else
      lua_pushboolean(L, false);
    lua_rawseti(L, -2, int(k) + 1);
  }
  return 2;
}

// load(json path, tensors path or nil, op) → model, tensors by input. op is the name of the caller.
int load_files(lua_State* L, State& state) {
  const std::string json = check_string(L, state, 1, "imports", "json");
  const std::string params = lua_isnoneornil(L, 2) ? "" : check_string(L, state, 2, "imports", "params");
  const std::string op = check_string(L, state, 3, "imports", "op");
  std::optional<LoadedModel> loaded;
  access_files(state, op, [&] { loaded = load_model(json, params); });
  return push_loaded(L, state, std::move(*loaded));
}

// json(model) → the text of its JSON file
int json_text(lua_State* L, State&) {
  const std::string text = model_json(check_model(L, 1));
  lua_pushlstring(L, text.data(), text.size());
  return 1;
}

// Frozen graphs -----------------------------------------------------------------------------------------------------

// freeze(model, tensors by input) → a frozen graph with copies of them
int freeze(lua_State* L, State& state) {
  const Model& model = check_model(L, 1);
  const Values values = values_at(L, state, 2, model, "freeze");
  push_handle(L, kFrozenClass, Ref<FrozenGraph>(new FrozenGraph(model, values, state.ctx.generator->state())));
  return 1;
}

// run_frozen(graph, arguments) → the leaves of the results
int run_frozen(lua_State* L, State& state) {
  state.make_room(L);
  state.update_modes();
  FrozenGraph& graph = check_frozen(L, 1);
  Values arguments = read_values(L, state, 2, graph.model().name.c_str(), "input", false);
  if (state.trace) throw Error(fmt::format("{}: a frozen graph cannot be part of a trace", graph.model().name));
  Values out = at_caller(graph.model().graph, [&] { return graph.run(state.ctx, arguments); });
  arguments.clear();
  push_results(L, state, out);
  return int(out.size());
}

// frozen_parts(graph) → its model, copies of the tensors by input
int frozen_parts(lua_State* L, State& state) {
  FrozenGraph& graph = check_frozen(L, 1);
  return push_loaded(L, state, {graph.model(), [&] {
                                  std::vector<Value> values;
                                  for (const Value& v : graph.values()) values.push_back(v);
                                  return values;
                                }()});
}

void make_class(lua_State* L, const RegistryKey& key, lua_CFunction collector) {
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, collector);
  lua_setfield(L, -2, "__gc");
  lua_pushstring(L, "perigee");
  lua_setfield(L, -2, "__metatable");
  key.set(L);
}

}  // namespace

void push_model(lua_State* L, Model model) {
  push_handle(L, kModelClass, ModelRef(std::make_shared<Model>(std::move(model))));
}

const Model& check_model(lua_State* L, int i) {
  ModelRef* model = held_at<ModelRef>(L, i, kModelClass);
  if (!model) throw Error("graph: expected a model");
  return **model;
}

void push_frozen_graph(lua_State* L, Ref<FrozenGraph> graph) {
  need_stack(L, 8, "frozen graph");
  lua_getglobal(L, "require");
  lua_pushliteral(L, "perigee");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, "graph");
  push_handle(L, kFrozenClass, std::move(graph));
  lua_call(L, 1, 1);
  lua_remove(L, -2);
}

Ref<FrozenGraph> to_frozen_graph(lua_State* L, int i) {
  if (!lua_istable(L, i)) return {};
  lua_pushliteral(L, "_frozen");
  lua_rawget(L, i < 0 ? i - 1 : i);
  Ref<FrozenGraph>* graph = held_at<Ref<FrozenGraph>>(L, -1, kFrozenClass);
  Ref<FrozenGraph> out = graph ? *graph : Ref<FrozenGraph>();
  lua_pop(L, 1);
  return out;
}

void open_graph(lua_State* L, State& state) {
  make_class(L, kModelClass, collect<ModelRef>);
  make_class(L, kFrozenClass, collect<Ref<FrozenGraph>>);
  lua_newtable(L);
  open_model(L, state);
  register_functions(L, state,
                     {{"model_of", entry<model_of>},
                      {"program", entry<make_program>},
                      {"replay", entry<replay_program>},
                      {"save", entry<save_files>},
                      {"load", entry<load_files>},
                      {"json", entry<json_text>},
                      {"freeze", entry<freeze>},
                      {"run_frozen", entry<run_frozen>},
                      {"frozen_parts", entry<frozen_parts>},
                      {"roundtrip", entry<roundtrip>}});
  lua_setfield(L, -2, "graph");
}

}  // namespace pg::vm
