#include "graph/ir/history.h"

#include <set>
#include <utility>

namespace pg {
namespace {

class History {
 public:
  explicit History(const Graph& graph) : graph_(graph), seen_(graph.nodes.size()) {}

  std::vector<int32_t> inputs_of(const Operand& output) {
    meet(output);
    while (!open_.empty()) {
      const Operand at = open_.back();
      open_.pop_back();
      follow(at);
    }
    std::vector<int32_t> out;
    for (size_t k = 0; k < graph_.inputs.size(); ++k)
      if (seen_[size_t(graph_.inputs[k])]) out.push_back(int32_t(k));
    return out;
  }

 private:
  static bool recorded(const Node& node) { return node.recording != Mode::kOff; }

  void meet(const Operand& operand) {
    if (!operand.is_node()) return;
    const Node& node = graph_.node(operand);
    const bool control = node.kind == NodeKind::kCond || node.kind == NodeKind::kLoop;
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
        break;
      case NodeKind::kCustom:
        if (!recorded(node)) return;
        count = size_t(node.heads);
        break;
      case NodeKind::kCond:
      case NodeKind::kLoop:
        if (!recorded(node)) return;
        for (int32_t k : operands_behind(node, at.output)) meet(node.inputs[size_t(k)]);
        return;
      default:
        break;
    }
    for (size_t k = 0; k < count; ++k) meet(node.inputs[k]);
  }

  const Graph& graph_;
  std::vector<char> seen_;                         // nodes
  std::set<std::pair<int32_t, int32_t>> outputs_;  // of branches and loops
  std::vector<Operand> open_;
};

std::vector<int32_t> behind_branch(const Node& node, int32_t output) {
  std::set<int32_t> found;
  for (const auto& body : node.bodies)
    for (int32_t k : inputs_behind(*body, body->outputs[size_t(output)])) found.insert(1 + k);
  return {found.begin(), found.end()};
}

// A carry goes back to what it was at first, and through the steps to the carries that they compute it from.
std::vector<int32_t> behind_loop(const Node& node, int32_t output) {
  if (output == 0) return {};  // the number of steps
  const bool condition = node.bodies.size() == 2;
  const Graph& body = *node.bodies[0];
  const int32_t first = node.loop.first_slice(condition), flag = node.loop.conditional && !condition;
  const int32_t first_carry = 1 + node.loop.slices, end = first_carry + node.loop.carries;  // among the body's inputs
  std::set<int32_t> found, outputs{flag + output - 1};
  std::vector<int32_t> open(outputs.begin(), outputs.end());
  auto carry = [&](int32_t k) {
    found.insert(first + node.loop.slices + k);
    if (outputs.insert(flag + k).second) open.push_back(flag + k);
  };
  if (output - 1 < node.loop.carries) carry(output - 1);
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

std::vector<int32_t> inputs_behind(const Graph& trace, const Operand& output) {
  return History(trace).inputs_of(output);
}

std::vector<int32_t> operands_behind(const Node& node, int32_t output) {
  return node.kind == NodeKind::kCond ? behind_branch(node, output) : behind_loop(node, output);
}

}  // namespace pg
