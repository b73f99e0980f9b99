// Splits the joint program into forward and backward. A value that both need becomes a residual, unless recomputing it
// is cheap. An effect belongs to the one half that can run it: to backward if it depends on a cotangent, else to
// forward.
#include <algorithm>
#include <map>
#include <set>

#include "graph/passes/rewrite.h"
#include "graph/specialize/specialize.h"

namespace pg {
namespace {

// Copies nodes of a graph into another graph, and records where each node went.
class Copier {
 public:
  explicit Copier(const Graph& from) : from_(from), places_(from.nodes.size(), -1) {
    out.lines = from.lines;
    out.ticks = from.ticks;
  }
  Graph out;

  bool has(int32_t node) const { return places_[size_t(node)] >= 0; }

  // `again`: another graph runs the node too, with its effects.
  int32_t copy(int32_t node, bool again = false) {
    if (has(node)) return places_[size_t(node)];
    Node copied = from_.nodes[size_t(node)];
    if (again && is_control(copied))
      change_bodies(copied, [](const Graph& body) { return std::make_shared<const Graph>(without_effects(body)); });
    for (Operand& operand : copied.inputs)
      if (operand.is_node()) operand = place(operand);
    return append(node, std::move(copied));
  }

  // Adds an input that replaces output `operand` of the source.
  void stand_in(const Operand& operand) {
    Node input;
    input.kind = NodeKind::kInput;
    input.types.push_back(from_.type(operand));
    input.op = from_.node(operand).op;
    places_[size_t(operand.node)] = kStandIns;
    stand_ins_[{operand.node, operand.output}] = Operand::of(out.nodes.size());
    out.inputs.push_back(int32_t(out.nodes.size()));
    out.nodes.push_back(std::move(input));
  }

  Operand place(const Operand& operand) const {
    const int32_t node = places_[size_t(operand.node)];
    return node == kStandIns ? stand_ins_.at({operand.node, operand.output}) : Operand{node, operand.output, 0};
  }

 private:
  int32_t append(int32_t node, Node copied) {
    places_[size_t(node)] = int32_t(out.nodes.size());
    if (copied.kind == NodeKind::kInput) out.inputs.push_back(int32_t(out.nodes.size()));
    out.nodes.push_back(std::move(copied));
    return places_[size_t(node)];
  }

  static constexpr int32_t kStandIns = -2;

  const Graph& from_;
  std::vector<int32_t> places_;                               // by node: its copy, kStandIns or -1
  std::map<std::pair<int32_t, int32_t>, Operand> stand_ins_;  // by node and output
};

// Returns the nodes that forward runs: what the outputs and the effects need, except for effects that are `late`.
std::vector<char> forward_nodes(const Graph& graph, std::span<const Operand> outputs, const std::vector<char>& late) {
  std::vector<char> live(graph.nodes.size());
  for (const Operand& output : outputs) live[size_t(output.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (has_effect(node) && !late[i]) live[i] = true;
    if (!live[i]) continue;
    for (const Operand& operand : node.inputs)
      if (operand.is_node()) live[size_t(operand.node)] = true;
  }
  return live;
}

// Whether the value needs no memory between forward and backward because computing it again costs nothing.
bool is_cheap(const Node& node) { return (node.kind == NodeKind::kOp && node.op->view) || filled_with(node); }

// Whether the node is a loop that returns stacks of unknown length. Forward cannot pass such stacks to backward.
bool is_unlimited(const Node& node) {
  return node.is<"loop">() && loop_form(node).limit < 0 && node.types.size() > size_t(1 + loop_form(node).carries);
}

// Returns the nodes that backward runs: those that only gradients and late effects need, and those that are cheap to
// compute again.
std::vector<char> backward_nodes(const Graph& graph, std::span<const Operand> gradients,
                                 const std::vector<char>& in_forward, const std::vector<char>& late, bool recompute) {
  std::vector<char> asked(graph.nodes.size()), chosen(graph.nodes.size());
  for (const Operand& gradient : gradients) asked[size_t(gradient.node)] = true;
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (late[i] && has_effect(node)) asked[i] = true;
    if (!asked[i] || node.kind == NodeKind::kInput) continue;
    chosen[i] = (recompute && !has_effect(node)) || !in_forward[i] || node.kind == NodeKind::kConstant ||
                is_cheap(node) || is_unlimited(node);
    if (!chosen[i]) continue;
    for (const Operand& operand : node.inputs)
      if (operand.is_node()) asked[size_t(operand.node)] = true;
  }
  return chosen;
}

}  // namespace

Split split(const Specialized& joint, bool recompute) {
  const Graph& graph = joint.graph;
  const std::span<const Operand> all(graph.outputs);
  const auto results = all.subspan(0, joint.outputs), gradients = all.subspan(joint.outputs);
  const size_t call_inputs = graph.inputs.size() - joint.heads.size();
  const std::vector<char> late = behind_inputs(graph, call_inputs), in_forward = forward_nodes(graph, results, late);
  const std::vector<char> in_backward = backward_nodes(graph, gradients, in_forward, late, recompute);
  Split out;
  Copier forward(graph), backward(graph);
  for (size_t k = 0; k < call_inputs; ++k) forward.copy(graph.inputs[k]);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (in_forward[i] && graph.nodes[i].kind != NodeKind::kInput) forward.copy(int32_t(i));
  for (const Operand& output : results) forward.out.outputs.push_back(forward.place(output));
  // The values that backward reads from outside, in order of first use: inputs first, then residuals.
  std::vector<char> read(graph.nodes.size());
  std::vector<Operand> residuals;
  std::set<std::pair<int32_t, int32_t>> found;  // the residuals
  auto use = [&](const Operand& operand) {
    if (!operand.is_node() || in_backward[size_t(operand.node)]) return;
    if (graph.node(operand).kind == NodeKind::kInput)
      read[size_t(operand.node)] = true;
    else if (found.emplace(operand.node, operand.output).second)
      residuals.push_back(operand);
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (in_backward[i])
      for (const Operand& operand : graph.nodes[i].inputs) use(operand);
  for (const Operand& output : gradients) use(output);
  for (size_t k = 0; k < call_inputs; ++k) {
    if (!read[size_t(graph.inputs[k])]) continue;
    out.kept.push_back(int32_t(k));
    backward.copy(graph.inputs[k]);
  }
  for (const Operand& residual : residuals) {
    forward.out.outputs.push_back(forward.place(residual));
    backward.stand_in(residual);
  }
  for (size_t k = call_inputs; k < graph.inputs.size(); ++k) backward.copy(graph.inputs[k]);
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    if (in_backward[i]) backward.copy(int32_t(i), in_forward[i]);
  for (const Operand& output : gradients) backward.out.outputs.push_back(backward.place(output));
  out.forward = std::move(forward.out);
  out.backward = without_dead_nodes(backward.out);
  return out;
}

}  // namespace pg
