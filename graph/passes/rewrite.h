// Rewrite: copies a graph node by node into a new one, so that a pass says only what it does differently.
#pragma once
#include <initializer_list>
#include <optional>
#include <span>

#include "graph/ir/ir.h"
#include "tensor/context.h"

namespace pg {

using Operands = SmallVector<Operand, 3>;

// A node that applies the op, its types inferred from the operands' in `graph`. Throws the op's errors.
Node make_node(const Graph& graph, const OpDef& op, std::span<const Operand> inputs, Attrs attrs, int32_t line);

// The operands as infer sees them: arrays without buffers, numbers, undefined Values.
SmallVector<Value, 4> typed_values(const Graph& graph, std::span<const Operand> operands);

// Equal down to the bits of their numbers (so NaN equals NaN and 0 differs from -0).
bool same_bits(double a, double b);
bool same_attrs(const Node& a, const Node& b);

// Equal as programs.
bool same_graph(const Graph& a, const Graph& b);

// Ops that show elements without computing.
bool is_view(const Node& node);

// The number that all elements are, of a node that reads nothing.
std::optional<double> filled_with(const Node& node);

class Rewrite {
 public:
  explicit Rewrite(Graph from);

  size_t size() const { return from_.nodes.size(); }
  const Node& old(size_t i) const { return from_.nodes[i]; }
  const Graph& graph() const { return to_; }  // what stands so far
  Graph& graph() { return to_; }
  const std::vector<Operand>& old_outputs() const { return from_.outputs; }

  // The node of the old graph, moved out, its operands translated.
  Node take(size_t i);
  Operand translated(const Operand& operand) const;

  // Appends a node; answers its index.
  size_t append(Node node);
  // Appends an application of an op.
  Operand emit(const OpDef& op, std::span<const Operand> inputs, Attrs attrs, int32_t line = -1);
  template <OpName name>
  Operand emit(std::span<const Operand> inputs, AttrList attrs = {}, int32_t line = -1) {
    return emit(op_named<name>(), inputs, make_attrs(op_named<name>(), attrs), line);
  }
  template <OpName name>
  Operand emit(std::initializer_list<Operand> inputs, AttrList attrs = {}, int32_t line = -1) {
    return emit<name>(std::span(inputs.begin(), inputs.size()), attrs, line);
  }
  // Says that the outputs of old node i are those of new node `at`, or one by one another operand of the same type.
  void keep(size_t i, size_t at);
  void replace(size_t i, size_t output, const Operand& by);
  // Says that what stands for output of old node i is to be of this type; its readers must take it.
  void retype(size_t i, size_t output, const Type& type) { from_.nodes[i].types[output] = type; }
  void copy(size_t i) { keep(i, append(take(i))); }

  Graph finish();

 private:
  Graph from_, to_;
  std::vector<size_t> first_;  // of the outputs of a node in places_
  std::vector<Operand> places_;
};

}  // namespace pg
