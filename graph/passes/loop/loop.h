// What the passes over loops share: a loop taken apart, and ops applied to the rows of all steps at once.
#pragma once
#include <optional>
#include <utility>

#include "graph/passes/rewrite.h"

namespace pg {

// A kLoop in parts that can be dropped, added and turned into one another; finish() makes a node of them again.
class LoopEdit {
 public:
  struct Part {
    Operand from;   // of the node
    int32_t input;  // the node of the body that stands for it
  };
  struct Carry {
    Operand from;
    int32_t input;
    Operand next;
    std::vector<int32_t> outputs;  // of the old node that it is
  };
  struct Stack {
    Operand row;
    Type type;  // of all rows
    std::vector<int32_t> outputs;
  };

  explicit LoopEdit(Node node);

  Graph body;
  Operand count, flag, next_flag;  // none where the loop has none
  std::vector<Part> slices, captures;
  std::vector<Carry> carries;
  std::vector<Stack> stacks;

  const LoopForm& form() const { return node_.loop; }
  LoopForm& form() { return node_.loop; }
  int32_t line() const { return node_.line; }
  // Whether every row is a step.
  bool runs_all() const { return !form().counted && !form().conditional && form().limit >= 0; }
  bool surely_runs() const { return runs_all() && form().limit > 0; }

  // A node of the body is not computed any more: it is a slice or capture of this operand.
  void make_slice(int32_t node, const Operand& from) { slices.push_back({from, make_input(node)}); }
  void make_capture(int32_t node, const Operand& from) { captures.push_back({from, make_input(node)}); }
  // The place among the stacks of one with these rows, a new one if need be.
  size_t add_stack(const Operand& row);
  // The body's operands that name `from` name `to`.
  void redirect(const Operand& from, const Operand& to);
  // All that the body is asked for.
  std::vector<Operand> wanted() const;

  // The loop in a new graph; its outputs take the places of those of old node i. Answers its index.
  size_t write(Rewrite& rewrite, size_t i);
  Operand final_of(size_t at, size_t carry) const { return Operand::of(at, 1 + carry); }
  Operand stack_of(size_t at, size_t stack) const { return Operand::of(at, 1 + carries.size() + stack); }

 private:
  int32_t make_input(int32_t node);

  Node node_;
};

// The nodes that operands need, and effects.
std::vector<char> needed_nodes(const Graph& graph, std::span<const Operand> roots);

// Copies lines of a body to the graph around it.
int32_t line_in(Graph& graph, const Graph& body, int32_t line);

// A body on trial outside of its loop: a graph in which nodes of the body have a counterpart, either the same value,
// where no step changes it, or all rows of it, where it depends on rows alone.
class Lifter {
 public:
  enum class Kind : uint8_t { kNone, kSame, kRows };
  Lifter(const Graph& body, int64_t rows) : body_(body), rows_(rows), places_(body.nodes.size()) {}

  // Says what stands outside for an output of a node: a value that the caller names by `source`.
  void put(const Operand& operand, Kind kind, int32_t source);
  // Finds a counterpart for op node i if there is one.
  bool lift(size_t i);
  Kind kind(const Operand& operand) const;
  const Operand& at(const Operand& operand) const { return places_[size_t(operand.node)].at; }

  // More computation there.
  template <OpName name>
  Operand emit(std::initializer_list<Operand> inputs, AttrList attrs = {}) {
    return emit(op_named<name>(), {inputs.begin(), inputs.size()}, make_attrs(op_named<name>(), attrs));
  }
  Operand emit(const OpDef& op, std::span<const Operand> inputs, Attrs attrs);
  Operand reshape(const Operand& x, const Dims& shape);
  Operand add_input(const Type& type, int32_t source);
  const Type& type(const Operand& operand) const { return graph_.type(operand); }
  int32_t line = -1;  // of the body, of what is emitted

  // Copies what `operand` needs into a graph, once; `source` says what stands for the inputs.
  template <class Source>
  Operand copy(const Operand& operand, Rewrite& to, const Source& source) {
    copied_.resize(graph_.nodes.size(), -1);
    const std::vector<Operand> root{operand};
    const std::vector<char> needed = needed_nodes(graph_, root);
    for (size_t i = 0; i <= size_t(operand.node); ++i) {
      if (!needed[i] || copied_[i] >= 0 || graph_.nodes[i].kind == NodeKind::kInput) continue;
      Node node = graph_.nodes[i];
      for (Operand& o : node.inputs) o = placed(o, source);
      node.line = line_in(to.graph(), body_, node.line);
      copied_[i] = int32_t(to.append(std::move(node)));
    }
    return placed(operand, source);
  }

 private:
  struct Place {
    Kind kind = Kind::kNone;
    Operand at;
    int32_t output = 0;
  };
  template <class Source>
  Operand placed(const Operand& operand, const Source& source) const {
    if (!operand.is_node()) return operand;
    if (graph_.node(operand).kind == NodeKind::kInput) return source(sources_[size_t(operand.node)]);
    return {copied_[size_t(operand.node)], operand.output, 0};
  }
  Operand over_rows(const Node& node);
  Operand pointwise(const Node& node);
  Operand product(const Node& node);
  Operand linear(const Node& node);
  Operand view(const Node& node);
  Operand pick(const Node& node);
  Operand rowwise(const Node& node);
  Operand slice(const Node& node);
  Operand flattened(const Operand& x, int keep);
  Operand aligned(const Operand& operand, int rank);
  Dims row_shape(const Operand& operand) const { return body_.type(operand).shape; }
  Dims with_rows(const Dims& shape) const;
  bool rows(const Operand& operand) const { return kind(operand) == Kind::kRows; }
  bool same(const Operand& operand) const { return !operand.is_node() || kind(operand) == Kind::kSame; }

  const Graph& body_;
  int64_t rows_;
  Graph graph_;
  std::vector<Place> places_;
  std::vector<int32_t> sources_, copied_;
};

// What stands after a loop for values of its body: the rows that all steps gave. Slices and views of them are there
// anyway; of other values the loop is asked to stack the rows.
class AfterLoop {
 public:
  explicit AfterLoop(LoopEdit& loop);

  Lifter lifter;

  // All rows of an operand of the body.
  Operand rows(const Operand& operand);
  // Whether they are there without a further stack.
  bool has_rows(const Operand& operand) const;
  // Whether no step changes it.
  bool is_same(const Operand& operand) const { return lifter.kind(operand) == Lifter::Kind::kSame; }
  // The operand of lifter's graph in that behind the loop, which stands at node `at`.
  Operand copy(const Operand& operand, Rewrite& to, size_t at);

 private:
  LoopEdit& loop_;
  std::vector<Operand> sources_;  // of captures and slices
  std::vector<Operand> stacked_;  // of the body
};

// Whether the rows of all steps may stand in memory where one did before.
bool affordable(const Type& row, int64_t rows);

// Appends a fill.
Operand fill(Rewrite& rewrite, const Type& type, double value);

// Products, which over the rows of all steps become one.
bool is_product(const Node& node);

}  // namespace pg
