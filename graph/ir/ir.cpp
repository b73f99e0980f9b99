#include "graph/ir/ir.h"

#include <algorithm>
#include <cmath>

#include "graph/ir/control.h"
#include "tensor/attr_check.h"
#include "tensor/context.h"
#include "tensor/error.h"

namespace pg {
namespace {

const char* kind_name(const Node& node) {
  switch (node.kind) {
    case NodeKind::kInput:
      return "input";
    case NodeKind::kConstant:
      return "constant";
    case NodeKind::kOp:
      return node.op->name;
    case NodeKind::kFused:
      return "fused";
    case NodeKind::kLeaf:
      return "leaf";
    case NodeKind::kDetach:
      return "detach";
    case NodeKind::kWrite:
      return "write";
    case NodeKind::kGradient:
      return "gradient";
    case NodeKind::kCustom:
      return "custom";
  }
  return "?";
}

[[noreturn]] void bad_node(const Graph& graph, size_t i, const std::string& what) {
  const Node& node = graph.nodes[i];
  const char* name = node.kind == NodeKind::kOp && !node.op ? "?" : kind_name(node);
  throw Error(fmt::format("graph: node {} ({}): {}", i, name, what));
}

void verify_operand(const Graph& graph, size_t i, const Operand& operand) {
  if (operand.is_none() || operand.is_number()) return;
  if (operand.node < 0 || size_t(operand.node) >= i)
    bad_node(graph, i, fmt::format("operand {} is not an earlier node", operand.node));
  if (operand.output < 0 || size_t(operand.output) >= graph.node(operand).types.size())
    bad_node(graph, i, fmt::format("node {} has no output {}", operand.node, operand.output));
}

void verify_attrs(const Graph& graph, size_t i) {
  const Node& node = graph.nodes[i];
  if (node.attrs.size() == 0) return;  // every attribute has its default, or the op has no attributes
  if (node.attrs.size() != node.op->attrs.size())
    bad_node(graph, i, fmt::format("has {} attributes, its op {}", node.attrs.size(), node.op->attrs.size()));
  for (size_t k = 0; k < node.attrs.size(); ++k) {
    const AttrDef& def = node.op->attrs[k];
    if (node.attrs[k].index() != 0 && !has_kind(def, node.attrs[k]))
      bad_node(graph, i, fmt::format("attribute '{}' is of another kind: {}", def.name, to_string(node.attrs[k])));
  }
}

void verify_types(const Graph& graph, size_t i) {
  const Node& node = graph.nodes[i];
  SmallVector<Value, 4> inputs;
  for (const Operand& operand : node.inputs) {
    if (operand.is_number())
      inputs.emplace_back(operand.number);
    else if (operand.is_none())
      inputs.emplace_back();
    else
      inputs.emplace_back(Array::make(graph.type(operand)));
  }
  SmallVector<Type, 2> types;
  infer_types(*node.op, inputs, node.attrs, types);
  if (types.size() != node.types.size())
    bad_node(graph, i, fmt::format("has {} outputs, its op {}", node.types.size(), types.size()));
  for (size_t k = 0; k < types.size(); ++k)
    if (!(types[k] == node.types[k]))
      bad_node(graph, i,
               fmt::format("output {} is {}, its op returns {}", k, to_string(node.types[k]), to_string(types[k])));
}

// Verifies the bodies, and that the node has the operands and outputs that they require.
void verify_control(const Graph& graph, size_t i, bool types) {
  const Node& node = graph.nodes[i];
  if (node.attrs.size() != node.op->attrs.size()) bad_node(graph, i, "lacks its attributes");
  for (size_t k = 0; k < node.attrs.size(); ++k)
    if (node.attrs[k].index() == 0 && !node.op->attrs[k].optional)
      bad_node(graph, i, fmt::format("lacks the attribute '{}'", node.op->attrs[k].name));
  for (const Operand& operand : node.inputs)
    if (!operand.is_node()) bad_node(graph, i, "takes arrays only");
  const Control control = control_of(node);
  for (const auto& body : control.bodies) verify(*body, types);
  try {
    check_layout(control, node.inputs.size());
  } catch (const Error& error) {
    bad_node(graph, i, error.what());
  }
  const Graph& body = *control.bodies[0];
  const size_t outputs =
      body.outputs.size() + control.is_loop() - (control.loop.conditional && !control.has_condition());
  if (node.types.size() < outputs) bad_node(graph, i, "lacks outputs");
  if (node.types.size() > outputs)
    bad_node(graph, i, fmt::format("has {} outputs, its body returns {}", node.types.size(), outputs));
}

void verify_node(const Graph& graph, size_t i, bool types) {
  const Node& node = graph.nodes[i];
  if (node.kind == NodeKind::kOp && !node.op) bad_node(graph, i, "has no op");
  for (const Operand& operand : node.inputs) verify_operand(graph, i, operand);
  if (node.line >= int32_t(graph.lines.size())) bad_node(graph, i, "its script line is out of range");
  switch (node.kind) {
    case NodeKind::kOp:
      verify_attrs(graph, i);
      if (is_control(node)) verify_control(graph, i, types);
      if (types) verify_types(graph, i);
      break;
    case NodeKind::kInput:
      if (!node.inputs.empty() || node.types.size() != 1) bad_node(graph, i, "an input has no operands and one output");
      break;
    case NodeKind::kConstant:
      if (!node.inputs.empty() || node.types.size() != 1 || !node.constant.is_array() ||
          !(node.constant.type() == node.types[0]))
        bad_node(graph, i, "a constant has no operands and one value of its type");
      break;
    case NodeKind::kFused:
    case NodeKind::kCustom:
      if (!node.body) bad_node(graph, i, "needs a body");
      verify(*node.body, types);
      break;
    case NodeKind::kWrite:
      if (node.inputs.size() != 2 || !node.inputs[0].is_node() || !node.inputs[1].is_node() || node.types.size() != 1)
        bad_node(graph, i, "takes two operands");
      break;
    case NodeKind::kLeaf:
    case NodeKind::kDetach:
      if (node.inputs.size() != 1 || !node.inputs[0].is_node() || node.types.size() != 1)
        bad_node(graph, i, "takes one operand");
      break;
    case NodeKind::kGradient:
      if (node.heads < 1 || node.inputs.size() < size_t(2 * node.heads) ||
          node.types.size() != node.inputs.size() - size_t(2 * node.heads))
        bad_node(graph, i, "needs heads, one cotangent per head, and one output per other operand");
      break;
  }
  if (node.kind != NodeKind::kFused) return;
  const Graph& body = *node.body;
  if (body.inputs.size() != node.inputs.size() || body.outputs.size() != node.types.size())
    bad_node(graph, i, "its body has a different number of inputs or outputs");
  for (size_t k = 0; k < node.types.size(); ++k)
    if (!(body.type(body.outputs[k]) == node.types[k])) bad_node(graph, i, "its body returns other types");
}

std::string operand_text(const Operand& operand, const Graph& graph) {
  if (operand.is_none()) return "nil";
  if (operand.is_number()) return std::isnan(operand.number) ? "nan" : fmt::format("{}", operand.number);
  if (graph.node(operand).types.size() == 1) return fmt::format("%{}", operand.node);
  return fmt::format("%{}:{}", operand.node, operand.output + 1);
}

std::string constant_text(const Value& v) {
  if (v.array().buffer && host_reads(v.device()) && v.numel() == 1) return fmt::format("{}", item(v));
  return "…";
}

std::string attr_text(const Node& node) {
  std::string text;
  auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  for (size_t k = 0; node.kind == NodeKind::kOp && k < node.attrs.size(); ++k) {
    const AttrDef& def = node.op->attrs[k];
    if (const auto* key = std::get_if<RandomKey>(&node.attrs[k]))
      add(fmt::format("{} = generator {} + {}", def.name, key->seed, key->tick));
    else if (def.kind != AttrKind::kGraph && !(node.attrs[k] == def.fallback))
      add(fmt::format("{} = {}", def.name, to_string(node.attrs[k])));
  }
  if (node.training != Mode::kAuto) add(node.training == Mode::kOn ? "train" : "predict");
  if (node.recording != Mode::kAuto) add(node.recording == Mode::kOn ? "recorded" : "not recorded");
  if (node.create_graph) add("create_graph");
  if (node.req != GradReq::kNull) add(node.req == GradReq::kAdd ? "grad_req = add" : "grad_req = write");
  return text.empty() ? "" : " {" + text + "}";
}

std::string types_text(const Node& node) {
  std::string text;
  for (const Type& type : node.types) {
    text += text.empty() ? "" : ", ";
    text += fmt::format("{} {}", name_of(type.dtype), to_string(type.shape));
    if (!type.device.is_cpu()) text += " " + name_of(type.device);
  }
  return text;
}

void print_nodes(const Graph& graph, const std::string& indent, std::string& text) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    text += fmt::format("{}%{} = {}", indent, i, kind_name(node));
    if (!node.name.empty()) text += " \"" + node.name + '"';
    if (node.kind == NodeKind::kConstant) text += " " + constant_text(node.constant);
    if (node.kind != NodeKind::kInput && node.kind != NodeKind::kConstant) {
      std::string operands;
      for (const Operand& operand : node.inputs)
        operands += (operands.empty() ? "" : ", ") + operand_text(operand, graph);
      text += "(" + operands + ")";
    }
    text += attr_text(node) + " : " + types_text(node);
    if (node.line >= 0) text += "  -- " + graph.lines[size_t(node.line)];
    text += "\n";
    for (const Graph* body : bodies_of(node)) print_nodes(*body, indent + "  | ", text);
  }
  text += indent + "return";
  for (size_t k = 0; k < graph.outputs.size(); ++k) text += (k ? ", " : " ") + operand_text(graph.outputs[k], graph);
  text += "\n";
}

std::string escaped(const std::string& s) {
  std::string text;
  for (char c : s) text += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return text;
}

}  // namespace

bool Operand::operator==(const Operand& other) const {
  if (node != other.node || output != other.output) return false;
  return number == other.number ? std::signbit(number) == std::signbit(other.number)
                                : std::isnan(number) && std::isnan(other.number);
}

void verify(const Graph& graph, bool types) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) verify_node(graph, i, types);
  size_t found = 0;
  for (const Node& node : graph.nodes) found += node.kind == NodeKind::kInput;
  if (found != graph.inputs.size()) throw Error("graph: the list of inputs does not name every input node once");
  std::vector<char> seen(graph.nodes.size());
  for (int32_t input : graph.inputs) {
    if (input < 0 || size_t(input) >= graph.nodes.size() || graph.nodes[size_t(input)].kind != NodeKind::kInput ||
        seen[size_t(input)]++)
      throw Error(fmt::format("graph: input {} is not an input node of its own", input));
  }
  for (const Operand& output : graph.outputs) {
    if (!output.is_node() || size_t(output.node) >= graph.nodes.size() || output.output < 0 ||
        size_t(output.output) >= graph.node(output).types.size())
      throw Error(fmt::format("graph: output %{}:{} does not exist", output.node, output.output));
  }
}

SmallVector<const Graph*, 2> bodies_of(const Node& node) {
  SmallVector<const Graph*, 2> out;
  if (node.body) out.push_back(node.body.get());
  if (!is_control(node)) return out;
  for (size_t k = 0; k < node.attrs.size(); ++k)
    if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&node.attrs[k]); body && *body)
      out.push_back(body->get());
  return out;
}

void change_bodies(Node& node, BodyChange f) {
  const auto change = [&](std::shared_ptr<const Graph>& body) {
    if (auto better = body ? f(*body) : nullptr) body = std::move(better);
  };
  change(node.body);
  if (!is_control(node)) return;
  for (size_t k = 0; k < node.attrs.size(); ++k)
    if (auto* body = std::get_if<std::shared_ptr<const Graph>>(&node.attrs[k])) change(*body);
}

Node constant_node(const Type& type, Value value, int32_t line) {
  Node node;
  node.kind = NodeKind::kConstant;
  node.line = line;
  node.types.push_back(type);
  node.constant = std::move(value);
  return node;
}

bool has_effect(const Node& node) {
  if (node.kind != NodeKind::kOp) return false;
  if (node.op->has(kEffect)) return true;
  if (!is_control(node)) return false;
  for (const Graph* body : bodies_of(node))
    if (std::any_of(body->nodes.begin(), body->nodes.end(), [](const Node& n) { return has_effect(n); })) return true;
  return false;
}

std::vector<char> needed_nodes(const Graph& graph, std::span<const Operand> roots) {
  std::vector<char> needed(graph.nodes.size());
  for (const Operand& root : roots)
    if (root.is_node()) needed[size_t(root.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    if (has_effect(graph.nodes[i])) needed[i] = true;
    if (!needed[i]) continue;
    for (const Operand& operand : graph.nodes[i].inputs)
      if (operand.is_node()) needed[size_t(operand.node)] = true;
  }
  return needed;
}

std::string to_string(const Graph& graph) {
  std::string text;
  print_nodes(graph, "", text);
  return text;
}

std::string to_dot(const Graph& graph) {
  std::string text = "digraph {\n  node [shape=box];\n";
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string label = kind_name(node) + (node.name.empty() ? "" : " " + node.name) + attr_text(node);
    text += fmt::format("  n{} [label=\"{}\\n{}\"];\n", i, escaped(label), escaped(types_text(node)));
    for (const Operand& operand : node.inputs)
      if (operand.is_node()) text += fmt::format("  n{} -> n{};\n", operand.node, i);
  }
  for (size_t k = 0; k < graph.outputs.size(); ++k)
    text += fmt::format("  out{} [label=\"output {}\", shape=ellipse];\n  n{} -> out{};\n", k, k + 1,
                        graph.outputs[k].node, k);
  return text + "}\n";
}

std::vector<int32_t> count_uses(const Graph& graph) {
  std::vector<int32_t> uses(graph.nodes.size());
  for (const Node& node : graph.nodes)
    for (const Operand& operand : node.inputs)
      if (operand.is_node()) ++uses[size_t(operand.node)];
  for (const Operand& output : graph.outputs) ++uses[size_t(output.node)];
  return uses;
}

void remove_effects(Graph& graph, size_t from, std::span<const char> stays) {
  for (size_t i = from; i < graph.nodes.size(); ++i) {
    Node& node = graph.nodes[i];
    if (!stays.empty() && stays[i]) continue;
    node.quiet |= node.kind == NodeKind::kGradient;
    if (!has_effect(node)) continue;
    change_bodies(node, [](const Graph& body) { return std::make_shared<const Graph>(without_effects(body)); });
    if (is_control(node) || !node.types.empty()) continue;
    node = constant_node(Type{}, make_filled(Type{}, 0), node.line);  // the nodes that follow keep their numbers
  }
}

Graph without_effects(const Graph& graph, size_t kept) {
  Graph out = graph;
  remove_effects(out, 0, kept < graph.inputs.size() ? behind_inputs(graph, kept) : std::vector<char>());
  return out;
}

std::vector<char> behind_inputs(const Graph& graph, size_t first) {
  std::vector<char> out(graph.nodes.size());
  for (size_t k = first; k < graph.inputs.size(); ++k) out[size_t(graph.inputs[k])] = true;
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const Operand& operand : graph.nodes[i].inputs)
      if (operand.is_node() && out[size_t(operand.node)]) out[i] = true;
  return out;
}

Graph without_dead_nodes(const Graph& graph) {
  std::vector<char> live(graph.nodes.size());
  for (const Operand& output : graph.outputs) live[size_t(output.node)] = true;
  for (const TypeGuard& guard : graph.guards) live[size_t(guard.of.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (node.kind == NodeKind::kInput || node.kind == NodeKind::kWrite || has_effect(node)) live[i] = true;
    if (!live[i]) continue;
    for (const Operand& operand : node.inputs)
      if (operand.is_node()) live[size_t(operand.node)] = true;
  }
  std::vector<int32_t> moved(graph.nodes.size(), -1);
  Graph out{{}, {}, {}, graph.lines, {}, graph.ticks};
  auto place = [&](Operand operand) {
    if (operand.is_node()) operand.node = moved[size_t(operand.node)];
    return operand;
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    moved[i] = int32_t(out.nodes.size());
    Node& node = out.nodes.emplace_back(graph.nodes[i]);
    for (Operand& operand : node.inputs) operand = place(operand);
  }
  for (int32_t input : graph.inputs) out.inputs.push_back(moved[size_t(input)]);
  for (const Operand& output : graph.outputs) out.outputs.push_back(place(output));
  for (TypeGuard guard : graph.guards) {
    guard.of = place(guard.of);
    out.guards.push_back(guard);
  }
  return out;
}

Graph with_extensions(const Graph& graph, std::span<const Extension> extensions) {
  if (extensions.empty()) return graph;
  std::vector<int32_t> first(graph.nodes.size()), last(graph.nodes.size()), moved(graph.nodes.size(), -1);
  for (size_t i = 0; i < first.size(); ++i) first[i] = last[i] = int32_t(i);
  for (const Extension& e : extensions) {
    first[size_t(e.by)] = first[size_t(e.node)];
    last[size_t(first[size_t(e.node)])] = e.by;
  }
  Graph out = graph;
  out.nodes.clear();
  const auto place = [&](Operand& operand) {
    if (operand.is_node()) operand.node = moved[size_t(first[size_t(operand.node)])];
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (first[i] != int32_t(i)) continue;
    moved[i] = int32_t(out.nodes.size());
    for (Operand& operand : out.nodes.emplace_back(graph.nodes[size_t(last[i])]).inputs) place(operand);
  }
  for (int32_t& input : out.inputs) input = moved[size_t(input)];
  for (Operand& output : out.outputs) place(output);
  for (TypeGuard& guard : out.guards) place(guard.of);
  return out;
}

// A file's name may contain the separator ": ". A line number is not a name.
std::string_view name_in(std::string_view line) {
  const size_t at = line.rfind(": ");
  if (at == line.npos) return {};
  const std::string_view name = line.substr(at + 2);
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == name.npos ? name : std::string_view();
}

std::string position_of(const std::string& line) {
  const std::string_view name = name_in(line);
  return name.empty() ? line : line.substr(0, line.size() - name.size() - 2);
}

std::string error_at(const std::string& line, std::string_view text) {
  const std::string_view name = name_in(line);
  const std::string position = position_of(line);
  return position + (position.empty() ? "" : ": ") +
         (name.empty() ? std::string(text) : renamed(text, public_name(name)));
}

}  // namespace pg
