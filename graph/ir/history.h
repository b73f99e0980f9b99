// Which inputs the history of an output goes back to. Backward from an output touches no other leaf.
#pragma once
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "graph/ir/control.h"

namespace pg {

// Returns the leaves that the trace makes (attach_grad) and returns: nodes of kind kLeaf, each once, in the order of
// the outputs.
std::vector<int32_t> returned_leaves(const Graph& trace);

// The node of the leaf that the trace makes and that the output is, also with contents that were written to it. -1:
// none.
int32_t made_leaf(const Graph& trace, Operand output);

// An input (its position) that a history goes back to.
struct Origin {
  int32_t input = 0;
  // The trace only writes over it in place. The new contents keep the history of a leaf, but not that of a result.
  bool if_leaf = false;
};

// Finds what is behind the outputs of graphs. What it has found of a body it keeps, by the address of the body, so it
// must not outlive the graphs.
class Histories {
 public:
  // Returns the inputs of a trace (positions in graph.inputs) that the history of `output` goes back to if the trace
  // runs with recording on, in ascending order. These nodes of kind kLeaf count as further inputs. The result follows
  // from the structure of the graph: it may name inputs that no gradient reaches, but it never misses one that a
  // gradient reaches.
  std::vector<Origin> inputs_behind(const Graph& trace, const Operand& output, std::span<const int32_t> leaves = {});

  // The same for an output of a branch or loop of a trace. Returns positions among its operands.
  std::vector<Origin> operands_behind(const Control& control, int32_t output);

 private:
  const std::vector<Origin>& inputs_behind(const Graph& body, int32_t output);
  std::vector<Origin> behind_branch(const Control& control, int32_t output);
  std::vector<Origin> behind_loop(const Control& control, int32_t output);

  std::map<std::pair<const Graph*, int32_t>, std::vector<Origin>> found_;  // by body and output
};

// Returns those that count for an application to these inputs. Positions beyond them are of leaves.
std::vector<int32_t> origins_among(std::span<const Origin> origins, std::span<const Value> inputs);

}  // namespace pg
