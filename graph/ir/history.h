// Which inputs the history of an output goes back to. Backward from an output touches no other leaf.
#pragma once
#include <span>
#include <vector>

#include "graph/ir/control.h"

namespace pg {

// Returns the leaves that the trace makes (attach_grad) and returns: nodes of kind kLeaf, each once, in the order of
// the outputs. A leaf that is written to afterwards is none of them.
std::vector<int32_t> returned_leaves(const Graph& trace);

// Returns the inputs of a trace (positions in graph.inputs) that the history of `output` goes back to if the trace runs
// with recording on. These nodes of kind kLeaf count as further inputs. The result follows from the structure of the
// graph: it may name inputs that no gradient reaches, but it never misses one that a gradient reaches.
std::vector<int32_t> inputs_behind(const Graph& trace, const Operand& output, std::span<const int32_t> leaves = {});

// The same for an output of a branch or loop of a trace. Returns positions among its operands.
std::vector<int32_t> operands_behind(const Control& control, int32_t output);

}  // namespace pg
