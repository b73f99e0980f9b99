#include "graph/ir/history.h"

#include <algorithm>
#include <set>
#include <utility>

namespace pg {
namespace {

class History {
 public:
  explicit History(const Graph& graph) : graph_(graph), seen_(graph.nodes.size()) {}

  std::vector<int32_t> inputs_of(const Operand& output, std::span<const int32_t> leaves) {
    meet(output);
    while (!open_.empty()) {
      const Operand at = open_.back();
      open_.pop_back();
      follow(at);
    }
    std::vector<int32_t> out;
    for (size_t k = 0; k < graph_.inputs.size(); ++k)
      if (seen_[size_t(graph_.inputs[k])]) out.push_back(int32_t(k));
    for (size_t k = 0; k < leaves.size(); ++k)
      if (seen_[size_t(leaves[k])]) out.push_back(int32_t(graph_.inputs.size() + k));
    return out;
  }

 private:
  static bool recorded(const Node& node) { return node.recording != Mode::kOff; }

  void meet(const Operand& operand) {
    if (!operand.is_node()) return;
    const Node& node = graph_.node(operand);
    const bool control = is_control(node);
    if (control ? !outputs_.emplace(operand.node, operand.output).second : bool(seen_[size_t(operand.node)])) return;
    seen_[size_t(operand.node)] = true;
    open_.push_back(operand);
  }

  void follow(const Operand& at) {
    const Node& node = graph_.node(at);
    size_t count = node.inputs.size();
    switch (node.kind) {
      case NodeKind::kInput:
      case NodeKind::kConstant:
      case NodeKind::kDetach:
        return;
      case NodeKind::kLeaf:
      case NodeKind::kGradient:
        if (!node.create_graph) return;
        break;
      case NodeKind::kOp:
        if (!recorded(node) || node.op->has(kNoGrad)) return;
        if (is_control(node)) {
          for (int32_t k : operands_behind(control_of(node), at.output)) meet(node.inputs[size_t(k)]);
          return;
        }
        break;
      case NodeKind::kCustom:
        if (!recorded(node)) return;
        count = size_t(node.heads);
        break;
      default:
        break;
    }
    for (size_t k = 0; k < count; ++k) meet(node.inputs[k]);
  }

  const Graph& graph_;
  std::vector<char> seen_;                         // nodes
  std::set<std::pair<int32_t, int32_t>> outputs_;  // outputs of branches and loops
  std::vector<Operand> open_;
};

std::vector<int32_t> behind_branch(const Control& control, int32_t output) {
  std::set<int32_t> found;
  for (const auto& body : control.bodies)
    for (int32_t k : inputs_behind(*body, body->outputs[size_t(output)])) found.insert(1 + k);
  return {found.begin(), found.end()};
}

// The history of a carry goes back to its initial value and, through the steps, to the carries that it is computed
// from.
std::vector<int32_t> behind_loop(const Control& control, int32_t output) {
  if (output == 0) return {};  // output 0 is the number of steps, which has no history
  const bool condition = control.has_condition();
  const Graph& body = *control.bodies[0];
  const int32_t first = control.loop.first_slice(condition), flag = control.loop.conditional && !condition;
  const int32_t first_carry = 1 + control.loop.slices,
                end = first_carry + control.loop.carries;  // positions among the body's inputs
  std::set<int32_t> found, outputs{flag + output - 1};
  std::vector<int32_t> open(outputs.begin(), outputs.end());
  auto carry = [&](int32_t k) {
    found.insert(first + control.loop.slices + k);
    if (outputs.insert(flag + k).second) open.push_back(flag + k);
  };
  if (output - 1 < control.loop.carries) carry(output - 1);
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    for (int32_t k : inputs_behind(body, body.outputs[size_t(at)])) {
      if (k >= first_carry && k < end)
        carry(k - first_carry);
      else if (k > 0)
        found.insert(first + k - 1);
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace

std::vector<int32_t> returned_leaves(const Graph& trace) {
  std::vector<int32_t> out;
  for (const Operand& output : trace.outputs) {
    const Node& node = trace.node(output);
    if (node.kind == NodeKind::kLeaf && !node.create_graph &&
        std::find(out.begin(), out.end(), output.node) == out.end())
      out.push_back(output.node);
  }
  return out;
}

std::vector<int32_t> inputs_behind(const Graph& trace, const Operand& output, std::span<const int32_t> leaves) {
  return History(trace).inputs_of(output, leaves);
}

std::vector<int32_t> operands_behind(const Control& control, int32_t output) {
  return control.is_loop() ? behind_loop(control, output) : behind_branch(control, output);
}

}  // namespace pg
