// What graph/specialize/control.cpp and loop_gradient.cpp share.
#pragma once
#include "graph/specialize/specializer.h"

namespace pg {

inline void append(Values& to, std::span<const Value> more) {
  for (const Value& v : more) to.push_back(v);
}

// The parts of a loop's operands and of what belongs to them in its body; the condition is closed.
struct Layout {
  explicit Layout(const Node& node)
      : flag(node.loop.conditional),
        first(size_t(node.loop.first_slice(false))),
        slices(size_t(node.loop.slices)),
        carries(size_t(node.loop.carries)),
        captures(node.inputs.size() - first - slices - carries) {}
  size_t flag, first, slices, carries, captures;

  size_t body_input(size_t operand) const { return operand - first + 1; }
  size_t operand(size_t body_input) const { return body_input - 1 + first; }
  bool is_slice(size_t body_input) const { return body_input >= 1 && body_input < 1 + slices; }
  bool is_carry(size_t body_input) const { return body_input >= 1 + slices && body_input < 1 + slices + carries; }
  size_t carry(size_t k) const { return 1 + slices + k; }  // as body input
};

inline const Type& index_type() {
  static const Type type{DType::kInt64, {}, {}};
  return type;
}

// Uses another interpreter, without recording, for the extent of a C++ scope.
class Writing {
 public:
  Writing(Context& ctx, Interpreter& interpreter) : ctx_(ctx), before_(ctx.interpreter), quiet_(ctx.recording, false) {
    ctx.interpreter = &interpreter;
  }
  ~Writing() { ctx_.interpreter = before_; }
  Writing(const Writing&) = delete;

 private:
  Context& ctx_;
  Interpreter* before_;
  ScopedFlag quiet_;
};

// Only the gradients of a joint program.
inline Graph gradients_of(const Specialized& joint) {
  Graph graph = joint.graph;
  graph.outputs.erase(graph.outputs.begin(), graph.outputs.begin() + ptrdiff_t(joint.outputs));
  return without_dead_nodes(without_effects(graph));
}

// A branch or loop as it was applied, which its gradient needs to know.
struct Specializer::Applied {
  Node node;                                         // as a trace has it, but for a closed condition
  Values in;                                         // with their history
  std::vector<Signature> signatures;                 // of the bodies, with the flows that were found
  std::vector<std::vector<char>> flows;              // by body: which outputs gradients flow through
  std::vector<std::shared_ptr<const Graph>> bodies;  // specialized
  std::vector<size_t> flowing;                       // outputs of the node that gradients flow through
  size_t first = 0;  // the operand that is the bodies' first input; of loops their second
  int32_t at = -1;   // the node in the program
};

}  // namespace pg
