#include "graph/ir/history.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace pg {
namespace {

class History {
 public:
  History(Histories& histories, const Graph& graph)
      : histories_(histories), graph_(graph), seen_(graph.nodes.size()), written_(graph.nodes.size()) {}

  std::vector<Origin> inputs_of(const Operand& output, std::span<const int32_t> leaves) {
    meet(output);
    while (!open_.empty()) {
      const Operand at = open_.back();
      open_.pop_back();
      follow(at);
    }
    std::vector<Origin> out;
    auto add = [&](int32_t node, size_t position) {
      if (seen_[size_t(node)] || written_[size_t(node)]) out.push_back({int32_t(position), !seen_[size_t(node)]});
    };
    for (size_t k = 0; k < graph_.inputs.size(); ++k) add(graph_.inputs[k], k);
    for (size_t k = 0; k < leaves.size(); ++k) add(leaves[k], graph_.inputs.size() + k);
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

  // The old contents of a tensor that the trace writes to: only a leaf stays behind the new contents.
  void meet_written(Operand old) {
    while (old.is_node() && graph_.node(old).kind == NodeKind::kWrite) old = graph_.node(old).inputs[1];
    if (!old.is_node()) return;
    const Node& node = graph_.node(old);
    if (node.kind == NodeKind::kInput) written_[size_t(old.node)] = true;
    if (node.kind == NodeKind::kLeaf) meet(old);
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
          for (const Origin& k : histories_.operands_behind(control_of(node), at.output))
            k.if_leaf ? meet_written(node.inputs[size_t(k.input)]) : meet(node.inputs[size_t(k.input)]);
          return;
        }
        break;
      case NodeKind::kWrite:
        meet_written(node.inputs[1]);
        count = 1;
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

  Histories& histories_;
  const Graph& graph_;
  std::vector<char> seen_;                         // nodes
  std::vector<char> written_;                      // inputs that are written to
  std::set<std::pair<int32_t, int32_t>> outputs_;  // outputs of branches and loops
  std::vector<Operand> open_;
};

class Origins {
 public:
  void add(const Origin& k) {
    const auto [at, added] = found_.emplace(k.input, k.if_leaf);
    if (!added) at->second = at->second && k.if_leaf;
  }

  std::vector<Origin> list() const {
    std::vector<Origin> out;
    for (const auto& [input, if_leaf] : found_) out.push_back({input, if_leaf});
    return out;
  }

 private:
  std::map<int32_t, bool> found_;
};

}  // namespace

int32_t made_leaf(const Graph& trace, Operand output) {
  while (output.is_node() && trace.node(output).kind == NodeKind::kWrite) output = trace.node(output).inputs[1];
  if (!output.is_node()) return -1;
  const Node& node = trace.node(output);
  return node.kind == NodeKind::kLeaf && !node.create_graph ? output.node : -1;
}

std::vector<int32_t> returned_leaves(const Graph& trace) {
  std::vector<int32_t> out;
  for (const Operand& output : trace.outputs) {
    const bool is_leaf = output.is_node() && made_leaf(trace, output) == output.node;
    if (is_leaf && std::find(out.begin(), out.end(), output.node) == out.end()) out.push_back(output.node);
  }
  return out;
}

std::vector<Origin> Histories::inputs_behind(const Graph& trace, const Operand& output,
                                             std::span<const int32_t> leaves) {
  return History(*this, trace).inputs_of(output, leaves);
}

const std::vector<Origin>& Histories::inputs_behind(const Graph& body, int32_t output) {
  const auto found = found_.find({&body, output});
  if (found != found_.end()) return found->second;
  return found_[{&body, output}] = inputs_behind(body, body.outputs[size_t(output)]);
}

std::vector<Origin> Histories::operands_behind(const Control& control, int32_t output) {
  return control.is_loop() ? behind_loop(control, output) : behind_branch(control, output);
}

std::vector<Origin> Histories::behind_branch(const Control& control, int32_t output) {
  Origins found;
  for (const auto& body : control.bodies)
    for (const Origin& k : inputs_behind(*body, output)) found.add({1 + k.input, k.if_leaf});
  return found.list();
}

// The history of a carry goes back to its initial value and, through the steps, to the carries that it is computed
// from.
std::vector<Origin> Histories::behind_loop(const Control& control, int32_t output) {
  if (output == 0) return {};  // output 0 is the number of steps, which has no history
  const bool condition = control.has_condition();
  const Graph& body = *control.bodies[0];
  const int32_t first = control.loop.first_slice(condition), flag = control.loop.conditional && !condition;
  const int32_t first_carry = 1 + control.loop.slices,
                end = first_carry + control.loop.carries;  // positions among the body's inputs
  Origins found;
  std::set<int32_t> outputs{flag + output - 1};
  std::vector<int32_t> open(outputs.begin(), outputs.end());
  auto carry = [&](int32_t k) {
    found.add({first + control.loop.slices + k});
    if (outputs.insert(flag + k).second) open.push_back(flag + k);
  };
  if (output - 1 < control.loop.carries) carry(output - 1);
  while (!open.empty()) {
    const int32_t at = open.back();
    open.pop_back();
    for (const Origin& k : inputs_behind(body, at)) {
      if (k.input >= first_carry && k.input < end)
        carry(k.input - first_carry);
      else if (k.input > 0)
        found.add({first + k.input - 1, k.if_leaf});
    }
  }
  return found.list();
}

std::vector<int32_t> origins_among(std::span<const Origin> origins, std::span<const Value> inputs) {
  std::vector<int32_t> out;
  for (const Origin& k : origins)
    if (!k.if_leaf || size_t(k.input) >= inputs.size() || is_leaf(inputs[size_t(k.input)].node()))
      out.push_back(k.input);
  return out;
}

}  // namespace pg
