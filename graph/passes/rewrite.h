// Rewrite: copies a graph node by node into a new graph, so that a pass contains only its changes.
#pragma once
#include <initializer_list>
#include <optional>
#include <span>

#include "graph/ir/control.h"
#include "tensor/context.h"

namespace pg {

using Operands = SmallVector<Operand, 3>;

// Returns a node that applies the op. Its types are inferred from those of the operands in `graph`. Throws the op's
// errors.
Node make_node(const Graph& graph, const OpDef& op, std::span<const Operand> inputs, Attrs attrs, int32_t line);

// The operands as infer takes them: arrays without buffers, numbers, undefined Values.
SmallVector<Value, 4> typed_values(const Graph& graph, std::span<const Operand> operands);

// Equal in every bit of their numbers: NaN equals NaN, and 0 differs from -0.
bool same_bits(double a, double b);
bool same_attrs(const Node& a, const Node& b);

// A hash of all of the attributes. Those that are the same have the same hash.
size_t hash_of(const Attrs& attrs);
void mix(size_t& hash, size_t value);

// Whether the graphs are equal as programs.
bool same_graph(const Graph& a, const Graph& b);

// Whether the node is an op that returns elements of its operand without computing or copying.
bool is_view(const Node& node);

// The number that all elements of the node's output have, if the node is a fill without operands.
std::optional<double> filled_with(const Node& node);

class Rewrite {
 public:
  explicit Rewrite(Graph from);

  size_t size() const { return from_.nodes.size(); }
  const Node& old(size_t i) const { return from_.nodes[i]; }
  const Graph& graph() const { return to_; }  // the new graph so far
  Graph& graph() { return to_; }
  const std::vector<Operand>& old_outputs() const { return from_.outputs; }

  // Moves node i out of the old graph, with its operands translated to the new graph.
  Node take(size_t i);
  Operand translated(const Operand& operand) const;

  // Appends a node and returns its index.
  size_t append(Node node);
  // Appends an application of an op and returns its output.
  Operand emit(const OpDef& op, std::span<const Operand> inputs, Attrs attrs, int32_t line = -1);
  template <OpName name>
  Operand emit(std::span<const Operand> inputs, AttrList attrs = {}, int32_t line = -1) {
    return emit(op_named<name>(), inputs, make_attrs(op_named<name>(), attrs), line);
  }
  template <OpName name>
  Operand emit(std::initializer_list<Operand> inputs, AttrList attrs = {}, int32_t line = -1) {
    return emit<name>(std::span(inputs.begin(), inputs.size()), attrs, line);
  }
  // Maps the outputs of old node i to those of new node `at`, or one output to another operand of the same type.
  void keep(size_t i, size_t at);
  void replace(size_t i, size_t output, const Operand& by);
  // Sets the type that the replacement of an output of old node i must have. The readers must accept that type.
  void retype(size_t i, size_t output, const Type& type) { from_.nodes[i].types[output] = type; }
  void copy(size_t i) { keep(i, append(take(i))); }

  Graph finish();

 private:
  Graph from_, to_;
  std::vector<size_t> first_;  // by node: the place of its first output in places_
  std::vector<Operand> places_;
};

// Copies the graph. change(rewrite, i, node) may change the copy of node i, or replaces its outputs and returns true.
template <class Change>
Graph rewrite_each(Graph graph, const Change& change) {
  Rewrite rewrite(std::move(graph));
  for (size_t i = 0; i < rewrite.size(); ++i) {
    Node node = rewrite.take(i);
    if (!change(rewrite, i, node)) rewrite.keep(i, rewrite.append(std::move(node)));
  }
  return rewrite.finish();
}

}  // namespace pg
