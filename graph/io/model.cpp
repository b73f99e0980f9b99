#include "graph/io/model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>

#include "graph/specialize/specialize.h"
#include "tensor/attr_check.h"
#include "tensor/error.h"

namespace pg {
namespace {

[[noreturn]] void bad_node(const Graph& graph, size_t i, const std::string& what) {
  const Node& node = graph.nodes[i];
  throw Error(fmt::format("graph: node {} ({}): {}", i, node.op ? node.op->name : node.name, what));
}

// Attributes --------------------------------------------------------------------------------------------------------

void check_attr(const Graph& graph, size_t i, const AttrDef& def, const AttrValue& value) {
  if (value.index() == 0 && !def.optional && def.fallback.index() == 0)
    bad_node(graph, i, fmt::format("lacks the attribute '{}'", def.name));
  try {
    pg::check_attr(*graph.nodes[i].op, def, value);
  } catch (const Error& error) {
    throw Error(fmt::format("graph: node {}: {}", i, error.what()));
  }
}

// A graph that is being checked, and its position in the model.
struct Place {
  const Model& model;
  const Graph& graph;
  const Control* owner = nullptr;  // the branch or loop around it, whose streams its ticks belong to
  int depth = 0;
};

// Ticks of a body count from the start of the stream of a step. Their number per step is not stored.
void check_tick(const Place& at, size_t i, uint64_t generator, uint64_t tick) {
  if (generator >= at.model.generators.size())
    bad_node(at.graph, i, fmt::format("generator {} does not exist", int64_t(generator)));
  if (at.owner) {
    const auto& streams = at.owner->streams;
    if (std::none_of(streams.begin(), streams.end(), [&](const BodyStream& s) { return s.generator == generator; }))
      bad_node(at.graph, i, fmt::format("the body has no stream of generator {}", generator));
    return;
  }
  const std::vector<uint64_t>& ticks = at.model.graph.ticks;
  if (generator >= ticks.size() || tick >= ticks[generator])
    bad_node(at.graph, i, fmt::format("tick {} of generator {} is beyond those of a run", tick, generator));
}

void check_random(const Place& at, size_t i, const AttrValue& value) {
  const auto* key = std::get_if<RandomKey>(&value);
  if (!key) bad_node(at.graph, i, "names no generator");
  check_tick(at, i, key->seed, key->tick);
}

// Nodes -------------------------------------------------------------------------------------------------------------

void check_arity(const Graph& graph, size_t i) {
  const Node& node = graph.nodes[i];
  size_t singles = 0, lists = 0;
  for (const InputDef& def : node.op->inputs) ++(def.arity == Arity::kList ? lists : singles);
  const size_t count = node.inputs.size();
  if (count == singles && lists == 0) return;
  if (lists == 0 || count < singles || (count - singles) % lists != 0)
    bad_node(graph, i, fmt::format("has {} operands, which its op does not take", count));
}

void check_op(const Place& at, size_t i, bool hidden_ops) {
  const Graph& graph = at.graph;
  const Node& node = graph.nodes[i];
  const OpDef& op = *node.op;
  if (op.has(kDynamicShape)) bad_node(graph, i, "the shape of its output depends on values");
  if (!is_for_programs(op) && !hidden_ops) bad_node(graph, i, "this op is not for programs");
  check_arity(graph, i);
  if (node.attrs.size() == 0 && !op.attrs.empty()) {
    const Attrs defaults = make_attrs(op);
    for (size_t k = 0; k < op.attrs.size(); ++k)
      if (op.attrs[k].kind != AttrKind::kRandom) check_attr(graph, i, op.attrs[k], defaults[k]);
  }
  for (size_t k = 0; k < node.attrs.size() && k < op.attrs.size(); ++k)
    if (op.attrs[k].kind != AttrKind::kRandom) check_attr(graph, i, op.attrs[k], node.attrs[k]);
  if (op.random_attr < 0) return;
  const bool optional = op.attrs[size_t(op.random_attr)].optional;
  if (node.attrs.size() != op.attrs.size()) {
    if (optional) return;
    bad_node(graph, i, "names no generator");
  }
  if (optional && node.attrs[size_t(op.random_attr)].index() == 0) return;
  check_random(at, i, node.attrs[size_t(op.random_attr)]);
}

const Node* operand_node(const Graph& graph, const Operand& operand) {
  return operand.is_node() ? &graph.nodes[size_t(operand.node)] : nullptr;
}

void require_same_type(const Graph& graph, size_t i, const Operand& operand, const Type& type) {
  if (operand_node(graph, operand) && graph.type(operand) == type) return;
  bad_node(graph, i, "an operand is not of the type it must have");
}

void check_gradient(const Graph& graph, size_t i) {
  const Node& node = graph.nodes[i];
  const size_t heads = size_t(node.heads);
  if (node.first < 0 || size_t(node.first) > i) bad_node(graph, i, "its walk starts nowhere");
  for (size_t k = 0; k < heads; ++k) {
    const Operand &head = node.inputs[k], &cotangent = node.inputs[heads + k];
    if (!head.is_node()) bad_node(graph, i, "a head is no node");
    if (!cotangent.is_none()) require_same_type(graph, i, cotangent, graph.type(head));
  }
  for (size_t k = 0; k < node.types.size(); ++k) require_same_type(graph, i, node.inputs[2 * heads + k], node.types[k]);
}

void check_custom(const Graph& graph, size_t i) {
  const Node& node = graph.nodes[i];
  const Graph& body = *node.body;
  const size_t inputs = node.heads < 0 ? node.inputs.size() + 1 : size_t(node.heads), outputs = node.types.size();
  if (inputs + outputs > node.inputs.size()) bad_node(graph, i, "has fewer operands than inputs and outputs");
  const size_t saved = node.inputs.size() - inputs - outputs;
  if (body.inputs.size() != saved + outputs || body.outputs.size() != inputs)
    bad_node(graph, i, "its backward takes or returns a wrong number of tensors");
  for (const Operand& operand : node.inputs)
    if (!operand.is_node()) bad_node(graph, i, "an operand is no node");
  for (size_t k = 0; k < outputs; ++k) require_same_type(graph, i, node.inputs[inputs + k], node.types[k]);
}

void check_graph(const Place& at, bool hidden_ops);

void check_streams(const Place& at, size_t i, const Control& control) {
  if (!(control.attrs() == at.graph.nodes[i].attrs)) bad_node(at.graph, i, "needs five numbers for each stream");
  std::set<uint64_t> seen;
  for (const BodyStream& stream : control.streams) {
    check_tick(at, i, stream.generator, stream.tick);
    if (!(stream == BodyStream{stream.generator, stream.tick})) bad_node(at.graph, i, "a stream of a part of a loop");
    if (!seen.insert(stream.generator).second)
      bad_node(at.graph, i, fmt::format("two streams of generator {}", stream.generator));
  }
}

void check_bodies(const Place& at, size_t i, const Control& control, bool hidden_ops) {
  check_streams(at, i, control);
  for (const auto& body : control.bodies) {
    if (body->ticks.size() > at.model.generators.size())
      bad_node(at.graph, i, "a body with ticks of generators that are not there");
    check_graph({at.model, *body, &control, at.depth + 1}, hidden_ops);
  }
}

void require_scalar(const Graph& graph, size_t i, const char* what, const Type& type, DType dtype) {
  if (type.dtype != dtype || type.shape.size() != 0)
    bad_node(graph, i, fmt::format("its {} is {}, not {} scalar", what, to_string(type), name_of(dtype)));
}

// Checks sizes of a loop that verify(Graph) does not check and that a run relies on.
void check_loop(const Graph& graph, size_t i, const Control& control) {
  const Node& node = graph.nodes[i];
  const LoopForm& loop = control.loop;
  const Graph& body = *control.bodies[0];
  if (loop.conditional != control.has_condition())
    bad_node(graph, i, "a second body is the condition of a conditional loop in a trace");
  if (loop.counted) require_scalar(graph, i, "count", graph.type(node.inputs[0]), DType::kInt64);
  require_scalar(graph, i, "number of steps", node.types[0], DType::kInt64);
  const auto input = [](const Graph& g, size_t k) -> const Type& { return g.nodes[size_t(g.inputs[k])].types[0]; };
  for (const auto& each : control.bodies) require_scalar(graph, i, "index", input(*each, 0), DType::kInt64);
  const int64_t rows = std::max<int64_t>(loop.limit, 0);
  const size_t first = size_t(loop.first_slice(true)), slices = size_t(loop.slices), carries = size_t(loop.carries);
  for (size_t k = 0; k < slices; ++k)
    if (graph.type(node.inputs[first + k]).shape[0] != rows)
      bad_node(graph, i, fmt::format("slice {} does not have {} rows", k + 1, rows));
  for (size_t k = 1 + carries; k < node.types.size(); ++k)
    if (node.types[k].shape.size() == 0 || node.types[k].shape[0] != rows)
      bad_node(graph, i, fmt::format("stacked output {} does not have {} rows", k - carries, rows));
  if (!loop.conditional) return;
  const Graph& condition = *control.bodies[1];
  if (numel(condition.type(condition.outputs[0]).shape) != 1)
    bad_node(graph, i, "its condition returns more than one element");
  for (size_t k = 1; k < condition.inputs.size(); ++k)
    if (!(input(condition, k) == input(body, slices + k)))
      bad_node(graph, i, fmt::format("input {} of its condition is of another type", k + 1));
}

void check_control(const Place& at, size_t i, bool hidden_ops) {
  const Control control = control_of(at.graph.nodes[i]);
  if (control.is_loop()) check_loop(at.graph, i, control);
  check_bodies(at, i, control, hidden_ops);
}

void check_guards(const Graph& graph) {
  for (const TypeGuard& guard : graph.guards) {
    const Node* node = operand_node(graph, guard.of);
    if (!node || guard.dim < 0 || guard.line >= int32_t(graph.lines.size()))
      throw Error("graph: a guard names a node, a dim or a line that does not exist");
    if (guard.kind == TypeGuard::kOutputs && guard.value != int64_t(node->types.size()))
      throw Error(
          fmt::format("graph: a guard expects {} outputs of a node that has {}", guard.value, node->types.size()));
  }
}

void check_graph(const Place& at, bool hidden_ops) {
  const Graph& graph = at.graph;
  if (at.depth > kMaxGraphDepth)
    throw Error(fmt::format("graph: more than {} graphs within one another", kMaxGraphDepth));
  check_guards(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    switch (node.kind) {
      case NodeKind::kOp:
        check_op(at, i, hidden_ops);
        if (is_control(node)) check_control(at, i, hidden_ops);
        break;
      case NodeKind::kFused:
        bad_node(graph, i, "is not of a traced graph");
      case NodeKind::kLeaf:
      case NodeKind::kDetach:
      case NodeKind::kWrite:
        for (const Operand& operand : node.inputs) require_same_type(graph, i, operand, node.types[0]);
        break;
      case NodeKind::kGradient:
        check_gradient(graph, i);
        break;
      case NodeKind::kCustom:
        check_graph({at.model, *node.body, at.owner, at.depth + 1}, hidden_ops);
        check_custom(graph, i);
        break;
      case NodeKind::kInput:
      case NodeKind::kConstant:
        break;
    }
    for (const Type& type : node.types) checked_numel("graph", type.shape);
  }
}

int depth_of(const Graph& graph, int depth) {
  if (depth > kMaxGraphDepth) throw Error(fmt::format("graph: more than {} graphs within one another", kMaxGraphDepth));
  int deepest = depth;
  for (const Node& node : graph.nodes)
    for (const Graph* body : bodies_of(node)) deepest = std::max(deepest, depth_of(*body, depth + 1));
  return deepest;
}

// The rest of the model ---------------------------------------------------------------------------------------------

void check_tree(const Model& model, const Tree& tree, bool arguments, std::vector<char>& seen, int depth) {
  const char* what = arguments ? "arguments" : "results";
  if (depth > kMaxTreeDepth) throw Error(fmt::format("graph: the {} nest more than {} deep", what, kMaxTreeDepth));
  switch (tree.kind) {
    case Tree::Kind::kInput:
      if (tree.index < 0 || size_t(tree.index) >= model.inputs.size())
        throw Error(fmt::format("graph: {}: no input {}", what, tree.index));
      if (arguments && model.inputs[size_t(tree.index)].role != ModelInput::Role::kArgument)
        throw Error(fmt::format("graph: arguments: '{}' is no argument", model.inputs[size_t(tree.index)].name));
      if (arguments && seen[size_t(tree.index)]++)
        throw Error(fmt::format("graph: arguments: input {} occurs twice", tree.index));
      break;
    case Tree::Kind::kOutput:
      if (arguments || tree.index < 0 || size_t(tree.index) >= model.graph.outputs.size())
        throw Error(fmt::format("graph: {}: no output {}", what, tree.index));
      break;
    case Tree::Kind::kTable:
      if (tree.keys.size() != tree.values.size()) throw Error(fmt::format("graph: {}: keys without values", what));
      for (const Tree& key : tree.keys)
        if (key.kind != Tree::Kind::kString && (key.kind != Tree::Kind::kNumber || std::isnan(key.number)))
          throw Error(fmt::format("graph: {}: a key is neither a string nor a number", what));
      for (const Tree& value : tree.values) check_tree(model, value, arguments, seen, depth + 1);
      break;
    default:
      break;
  }
}

void check_names(const Model& model) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < model.inputs.size(); ++i) {
    const ModelInput& input = model.inputs[i];
    if (input.name.empty()) throw Error(fmt::format("graph: input {} has no name", i));
    if (!names.insert(input.name).second) throw Error(fmt::format("graph: two inputs have the name '{}'", input.name));
  }
}

void check_writes(const Model& model) {
  std::vector<char> written(model.inputs.size());
  for (const Model::Write& write : model.writes) {
    if (write.input < 0 || size_t(write.input) >= model.inputs.size() || write.output < 0 ||
        size_t(write.output) >= model.graph.outputs.size())
      throw Error(
          fmt::format("graph: a write of output {} to input {}, which do not exist", write.output, write.input));
    if (written[size_t(write.input)]++) throw Error(fmt::format("graph: two writes to input {}", write.input));
  }
}

}  // namespace

Tree Tree::input(int32_t index) {
  Tree tree;
  tree.kind = Kind::kInput;
  tree.index = index;
  return tree;
}

Tree Tree::output(int32_t index) {
  Tree tree = input(index);
  tree.kind = Kind::kOutput;
  return tree;
}

bool Tree::operator==(const Tree& other) const {
  return kind == other.kind && boolean == other.boolean && index == other.index && text == other.text &&
         keys == other.keys && values == other.values &&
         (number == other.number || (std::isnan(number) && std::isnan(other.number)));
}

bool is_for_programs(const OpDef& op) { return !op.has(kHidden) || (op.traits & (kIndexing | kBodies)); }

const OpDef& op_for_programs(std::string_view name, bool hidden_ops) {
  const OpDef* op = registry().find(name);
  if (!op) {
    std::vector<std::string_view> known;
    for (const OpDef* each : registry().ops())
      if (!each->has(kHidden)) known.push_back(each->name);
    const std::string near = suggest(name, known);
    throw Error(fmt::format("unknown op '{}'{}", name.substr(0, 60),
                            near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near)));
  }
  if (!is_for_programs(*op) && !hidden_ops) fail(op->name, "this op is not for programs");
  return *op;
}

void describe_input(Node& node, const ModelInput& input) {
  node.name = input.name;
  node.req = input.role == ModelInput::Role::kParameter && input.differentiable ? input.req : GradReq::kNull;
}

std::vector<int32_t> lasting_inputs(const Model& model) {
  std::vector<int32_t> out;
  for (int32_t k = 0; k < int32_t(model.inputs.size()); ++k) {
    const bool written =
        std::any_of(model.writes.begin(), model.writes.end(), [&](const Model::Write& w) { return w.input == k; });
    if (model.inputs[size_t(k)].role != ModelInput::Role::kArgument && !written) out.push_back(k);
  }
  return out;
}

std::vector<ModelGenerator> describe_generators(std::span<const Ref<Generator>> generators,
                                                const Ref<Generator>& default_generator) {
  std::vector<ModelGenerator> out;
  for (const Ref<Generator>& generator : generators) {
    const bool is_default = generator == default_generator;
    out.push_back({is_default, is_default ? RandomKey() : generator->state()});
  }
  return out;
}

void verify(const Model& model, bool hidden_ops) {
  const Graph& graph = model.graph;
  depth_of(graph, 0);
  verify(graph, false);
  if (model.inputs.size() != graph.inputs.size())
    throw Error(fmt::format("graph: {} inputs are described, it has {}", model.inputs.size(), graph.inputs.size()));
  if (model.generators.size() != graph.ticks.size())
    throw Error("graph: its generators and their ticks differ in number");
  check_graph({model, graph}, hidden_ops);
  verify(graph, true);
  check_names(model);
  check_writes(model);
  std::vector<char> seen(model.inputs.size());
  for (const Tree& tree : model.arguments) check_tree(model, tree, true, seen, 0);
  for (size_t i = 0; i < model.inputs.size(); ++i)
    if (model.inputs[i].role == ModelInput::Role::kArgument && !seen[i])
      throw Error(fmt::format("graph: the argument '{}' is not among the arguments", model.inputs[i].name));
  for (const Tree& tree : model.results) check_tree(model, tree, false, seen, 0);
}

std::vector<Internal> internals(const Model& model) {
  std::vector<Internal> out;
  std::unordered_map<std::string, int> counts;
  std::set<std::string> taken;
  for (const ModelInput& input : model.inputs) taken.insert(input.name);
  std::vector<int32_t> input_of(model.graph.nodes.size(), -1);
  for (size_t k = 0; k < model.inputs.size(); ++k) input_of[size_t(model.graph.inputs[k])] = int32_t(k);
  for (size_t i = 0; i < model.graph.nodes.size(); ++i) {
    const Node& node = model.graph.nodes[i];
    if (input_of[i] >= 0) {
      out.push_back({model.inputs[size_t(input_of[i])].name, Operand::of(i)});
      continue;
    }
    const std::string kind = node.op                            ? node.op->name
                             : node.kind == NodeKind::kConstant ? "constant"
                             : node.name.empty()                ? "node"
                                                                : node.name;
    std::string name;
    do name = fmt::format("{}{}", kind, ++counts[kind]);
    while (taken.count(name));
    for (size_t k = 0; k < node.types.size(); ++k)
      out.push_back({k == 0 ? name : fmt::format("{}:{}", name, k + 1), Operand::of(i, k)});
  }
  return out;
}

bool also_needed(const Graph& graph, const Operand& operand, std::vector<char>& needed) {
  std::vector<char> asked(size_t(operand.node) + 1);
  asked[size_t(operand.node)] = true;
  for (size_t i = asked.size(); i-- > 0;) {
    if (!asked[i] || needed[i]) continue;
    if (graph.nodes[i].kind == NodeKind::kInput) return false;
    for (const Operand& o : graph.nodes[i].inputs)
      if (o.is_node()) asked[size_t(o.node)] = true;
  }
  for (size_t i = 0; i < asked.size(); ++i) needed[i] = needed[i] || asked[i];
  return true;
}

Model with_outputs(const Model& model, std::span<const Operand> outputs, std::vector<int32_t>* kept) {
  const Graph& graph = model.graph;
  std::vector<char> needed = needed_nodes(graph, outputs);  // without the writes
  Model out;
  out.name = model.name;
  out.generators = model.generators;
  Graph cut = graph;
  cut.outputs.assign(outputs.begin(), outputs.end());
  std::erase_if(cut.guards, [&](const TypeGuard& guard) { return !needed[size_t(guard.of.node)]; });
  for (size_t k = 0; k < outputs.size(); ++k) out.results.push_back(Tree::output(int32_t(k)));
  std::vector<Model::Write> writes;
  for (const Model::Write& write : model.writes) {
    const Operand& source = graph.outputs[size_t(write.output)];
    if (!needed[size_t(graph.inputs[size_t(write.input)])] || !also_needed(graph, source, needed)) continue;
    writes.push_back({write.input, int32_t(cut.outputs.size())});
    cut.outputs.push_back(source);
  }
  // Inputs that nothing needs become constants, which are removed as dead code.
  std::vector<int32_t> moved(model.inputs.size(), -1);
  cut.inputs.clear();
  for (size_t k = 0; k < model.inputs.size(); ++k) {
    const int32_t node = graph.inputs[k];
    if (!needed[size_t(node)] && model.inputs[k].role != ModelInput::Role::kArgument) {
      cut.nodes[size_t(node)].kind = NodeKind::kConstant;
      continue;
    }
    moved[k] = int32_t(out.inputs.size());
    out.inputs.push_back(model.inputs[k]);
    if (kept) kept->push_back(int32_t(k));
    cut.inputs.push_back(node);
  }
  for (const Model::Write& write : writes) out.writes.push_back({moved[size_t(write.input)], write.output});
  out.graph = without_dead_nodes(cut);
  out.arguments = model.arguments;
  auto renumber = [&](auto& self, Tree& tree) -> void {
    if (tree.kind == Tree::Kind::kInput) tree.index = moved[size_t(tree.index)];
    for (Tree& value : tree.values) self(self, value);
  };
  for (Tree& tree : out.arguments) renumber(renumber, tree);
  return out;
}

std::vector<Type> infer(const Model& model, std::span<const Type> inputs) {
  Signature signature;
  for (const Type& type : inputs) {
    signature.types.push_back(type);
    signature.flows.push_back(Flow::kNone);
  }
  const Specialized special = specialize(model.graph, signature);
  std::vector<Type> out;
  for (size_t k = 0; k < special.outputs; ++k) out.push_back(special.graph.type(special.graph.outputs[k]));
  return out;
}

}  // namespace pg
