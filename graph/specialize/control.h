// Declarations that control.cpp, checkpoint.cpp and loop_gradient.cpp of graph/specialize share.
#pragma once
#include "graph/specialize/specializer.h"

namespace pg {

inline void append(Values& to, std::span<const Value> more) {
  for (const Value& v : more) to.push_back(v);
}

// The layout of a loop's operands and of the corresponding inputs of its body. The condition, if any, is closed.
struct Layout {
  Layout(const LoopForm& form, size_t operands)
      : flag(form.conditional),
        first(size_t(form.first_slice(false))),
        slices(size_t(form.slices)),
        carries(size_t(form.carries)),
        captures(operands - first - slices - carries) {}
  size_t flag, first, slices, carries, captures;

  size_t body_input(size_t operand) const { return operand - first + 1; }
  size_t operand(size_t body_input) const { return body_input - 1 + first; }
  bool is_slice(size_t body_input) const { return body_input >= 1 && body_input < 1 + slices; }
  bool is_carry(size_t body_input) const { return body_input >= 1 + slices && body_input < 1 + slices + carries; }
  size_t carry(size_t k) const { return 1 + slices + k; }  // as an input of the body
};

inline const Type& index_type() {
  static const Type type{DType::kInt64, {}, {}};
  return type;
}

// Uses another interpreter, without recording, until the end of the C++ scope.
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

// Returns the joint program with only the gradients as outputs, and only the effects that depend on cotangents.
inline Graph gradients_of(const Specialized& joint) {
  Graph graph = joint.graph;
  graph.outputs.erase(graph.outputs.begin(), graph.outputs.begin() + ptrdiff_t(joint.outputs));
  return without_dead_nodes(without_effects(graph, graph.inputs.size() - joint.heads.size()));
}

// The same as gradients_of(joint), the program of a body for this signature, as a trace that can be differentiated in
// turn. `joint` has neither what stops gradients, nor the backward of Functions, nor the rules of ops that it
// decomposes.
Graph traced_gradients_of(Context& ctx, const Graph& body, const Signature& signature, const Specialized& joint);

// An applied branch or loop, with what its gradient needs.
struct Specializer::Applied {
  Control control;                                   // as in the trace, except that the condition is closed
  Values in;                                         // with their history
  std::vector<Signature> signatures;                 // of the bodies, with the flows that the fixed point found
  std::vector<std::vector<char>> flows;              // by body: whether gradients flow through an output
  std::vector<std::shared_ptr<const Graph>> bodies;  // the specialized bodies
  std::vector<size_t> flowing;                       // the outputs of the node that gradients flow through
  size_t first = 0;  // the operand of the first input of the bodies (of loops: of the second)
  int32_t at = -1;   // the node in the program
};

}  // namespace pg
