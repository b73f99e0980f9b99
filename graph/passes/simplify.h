// Declarations that the rules of the pass simplify share.
#pragma once
#include <optional>
#include <span>

#include "graph/passes/rewrite.h"
#include "tensor/op.h"

namespace pg {

// The graph under construction, as rules see it. Its nodes are already simplified.
class Simplifier {
 public:
  explicit Simplifier(Graph& graph) : graph_(graph) {}
  const Graph& graph() const { return graph_; }
  const Type& type(const Operand& operand) const { return graph_.type(operand); }

  // Returns the node behind an operand if it applies that op, else null. The pointer is invalid after emit().
  const Node* producer(const Operand& operand, const OpDef& op) const;
  template <OpName name>
  const Node* producer(const Operand& operand) const {
    return producer(operand, op_named<name>());
  }

  // Applies an op and simplifies the result in turn.
  template <OpName name>
  Operand emit(std::initializer_list<Operand> inputs, AttrList attrs = {}) {
    const OpDef& op = op_named<name>();
    return simplified(make_node(graph_, op, {inputs.begin(), inputs.size()}, make_attrs(op, attrs), line));
  }
  Operand full(const Type& type, double value);
  Operand reshape(const Operand& x, const Dims& shape);

  // Returns the simplest operand for the output of a node: the result of a rule, or the node itself.
  Operand simplified(Node node);

  // Whether the elements of an operand are always row-major without gaps. Kernels that add up may do so in the order of
  // the layout, so a rule may replace their operand only if the old and the new one are dense.
  bool is_dense(const Operand& operand) const;

  // Properties of the node that is being simplified:
  int32_t line = -1;
  bool read_elementwise = false;  // only pointwise ops read it, so its layout does not matter

 private:
  Graph& graph_;
  int depth_ = 0;
};

// Returns a replacement, of the same type, for the only output of the node. Returns kNone if the rule does not apply.
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

// Returns the number that every element of an operand has, if it is known.
std::optional<double> number_everywhere(const Simplifier& s, const Operand& operand);
bool is_number(const Operand& operand, double number);  // whether it is an immediate with these bits

}  // namespace pg
