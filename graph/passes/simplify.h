// What the rules of the pass simplify share.
#pragma once
#include <optional>
#include <span>

#include "graph/passes/rewrite.h"
#include "tensor/op.h"

namespace pg {

// The graph under construction, as rules see it: every node in it is already as simple as the rules make it.
class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph) {}
  const Graph& graph() const { return graph_; }
  const Type& type(const Operand& operand) const { return graph_.type(operand); }

  // The op node behind an operand when it is one of that op, else null. Not to be held while something is emitted.
  const Node* producer(const Operand& operand, const OpDef& op) const;
  template <OpName name>
  const Node* producer(const Operand& operand) const {
    return producer(operand, op_named<name>());
  }

  // An application of an op, simplified in turn.
  template <OpName name>
  Operand emit(std::initializer_list<Operand> inputs, AttrList attrs = {}) {
    const OpDef& op = op_named<name>();
    return simplified(make_node(graph_, op, {inputs.begin(), inputs.size()}, make_attrs(op, attrs), line));
  }
  Operand full(const Type& type, double value);
  Operand reshape(const Operand& x, const Dims& shape);

  // The simplest operands for the outputs of a node: what a rule answers, or the node itself.
  Operand simplified(Node node);

  // Whether the elements behind an operand lie row-major without gaps whatever the run: kernels that add may do so in
  // the order of the layout, so a rule may hand another operand to them only when both are dense.
  bool is_dense(const Operand& operand) const;

  // Of the node that is being simplified:
  int32_t line = -1;
  bool read_elementwise = false;  // only pointwise ops read it, to which layouts are all the same

 private:
  Graph& graph_;
  int depth_ = 0;
};

// Answers what the (only) output of the node can be instead, of the same type; kNone where the rule does not apply.
using SimplifyRule = Operand (*)(Simplifier& s, const Node& node);
struct SimplifyRow {
  bool (*applies)(const OpDef& op);
  SimplifyRule rule;
};
template <OpName... names>
bool one_of(const OpDef& op) {
  return ((&op == &op_named<names>()) || ...);
}
template <Traits trait>
bool any_with(const OpDef& op) {
  return op.has(trait);
}
std::span<const SimplifyRow> view_rules();
std::span<const SimplifyRow> arithmetic_rules();

// The number that every element of an operand is known to be.
std::optional<double> number_everywhere(const Simplifier& s, const Operand& operand);
bool is_number(const Operand& operand, double number);  // an immediate of these bits

}  // namespace pg
