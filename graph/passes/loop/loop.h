// Declarations that the passes over loops share: a loop taken apart, and ops applied to the rows of all steps at once.
#pragma once
#include <optional>
#include <utility>

#include "graph/passes/rewrite.h"

namespace pg {

// A loop in parts. Parts can be added, dropped and turned into one another. write() makes a node of them.
class LoopEdit {
 public:
  struct Part {
    Operand from;   // operand of the loop's node
    int32_t input;  // the node of the body for it
  };
  struct Carry {
    Operand from;
    int32_t input;
    Operand next;
    std::vector<int32_t> outputs;  // outputs of the old node that are its final value
  };
  struct Stack {
    Operand row;
    Type type;  // of all rows
    std::vector<int32_t> outputs;
  };

  explicit LoopEdit(const Node& node);

  Graph body;
  Operand count, flag, next_flag;  // none if the loop has no such operand
  std::vector<Part> slices, captures;
  std::vector<Carry> carries;
  std::vector<Stack> stacks;

  const LoopForm& form() const { return control_.loop; }
  LoopForm& form() { return control_.loop; }
  int32_t line() const { return control_.line; }
  // Whether every row is a step: the loop has neither a count nor a condition.
  bool runs_all() const { return !form().counted && !form().conditional && form().limit >= 0; }
  bool surely_runs() const { return runs_all() && form().limit > 0; }

  // Turns a node of the body into a slice or capture of this operand. The body no longer computes it.
  void make_slice(int32_t node, const Operand& from) { slices.push_back({from, make_input(node)}); }
  void make_capture(int32_t node, const Operand& from) { captures.push_back({from, make_input(node)}); }
  // Returns the position of the stack with these rows. Adds the stack if there is none.
  size_t add_stack(const Operand& row);
  // Replaces `from` by `to` in the operands of the body.
  void redirect(const Operand& from, const Operand& to);
  // The outputs that the body has to compute: the next flag, carries and rows of stacks.
  std::vector<Operand> wanted() const;

  // Appends the loop to the new graph, with its outputs in place of those of old node i. Returns its index.
  size_t write(Rewrite& rewrite, size_t i);
  Operand final_of(size_t at, size_t carry) const { return Operand::of(at, 1 + carry); }
  Operand stack_of(size_t at, size_t stack) const { return Operand::of(at, 1 + carries.size() + stack); }

 private:
  int32_t make_input(int32_t node);

  Control control_;
};

// Copies a line of a body to the graph around it. Returns its index there.
int32_t line_in(Graph& graph, const Graph& body, int32_t line);

// Moves a body, on trial, out of its loop. The Lifter holds a graph in which nodes of the body have a counterpart: the
// value itself (kSame) if it is loop-invariant, or all its rows (kRows) if it depends only on rows.
class Lifter {
 public:
  enum class Kind : uint8_t { kNone, kSame, kRows };
  Lifter(const Graph& body, int64_t rows) : body_(body), rows_(rows), places_(body.nodes.size()) {}

  // Sets the counterpart of an output of a node: a value that the caller names by `source`.
  void put(const Operand& operand, Kind kind, int32_t source);
  // Adds a counterpart for op node i. Returns whether there is one.
  bool lift(size_t i);
  Kind kind(const Operand& operand) const;
  const Operand& at(const Operand& operand) const { return places_[size_t(operand.node)].at; }

  // Appends further nodes to the lifter's graph.
  template <OpName name>
  Operand emit(std::initializer_list<Operand> inputs, AttrList attrs = {}) {
    return emit(op_named<name>(), {inputs.begin(), inputs.size()}, make_attrs(op_named<name>(), attrs));
  }
  Operand emit(const OpDef& op, std::span<const Operand> inputs, Attrs attrs);
  Operand reshape(const Operand& x, const Dims& shape);
  Operand add_input(const Type& type, int32_t source);
  const Type& type(const Operand& operand) const { return graph_.type(operand); }
  int32_t line = -1;  // the line in the body, for emitted nodes

  // Copies the nodes that `operand` needs into a graph, each once. `source` returns the operand for an input.
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

// The values of a loop's body, seen after the loop: the rows of all steps. Rows of slices and of views of them are
// available anyway. For other values the loop gets a further stack.
class AfterLoop {
 public:
  explicit AfterLoop(LoopEdit& loop);

  Lifter lifter;

  // Returns all rows of an operand of the body.
  Operand rows(const Operand& operand);
  // Whether the rows are available without a further stack.
  bool has_rows(const Operand& operand) const;
  // Whether the operand is loop-invariant.
  bool is_same(const Operand& operand) const { return lifter.kind(operand) == Lifter::Kind::kSame; }
  // Copies the operand of the lifter's graph into the graph around the loop. `at` is the node of the loop.
  Operand copy(const Operand& operand, Rewrite& to, size_t at);

 private:
  LoopEdit& loop_;
  std::vector<Operand> sources_;  // of captures and slices
  std::vector<Operand> stacked_;  // operands of the body that are stacked
};

// Whether the rows of all steps may be in memory at once, instead of one row.
bool affordable(const Type& row, int64_t rows);

// Appends a fill and returns it.
Operand fill(Rewrite& rewrite, const Type& type, double value);

// Whether the node is a product. The products of all rows can be computed as one.
bool is_product(const Node& node);

}  // namespace pg
