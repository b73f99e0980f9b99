// Which inputs the tape of a graph's outputs goes back to: backward from an output touches no other leaf.
#pragma once
#include <vector>

#include "graph/ir/ir.h"

namespace pg {

// The inputs of a trace (positions in graph.inputs) that the history of `output` goes back to when the trace runs with
// recording on. By structure alone, so it may name inputs that no gradient reaches, but never misses one that is
// reached.
std::vector<int32_t> inputs_behind(const Graph& trace, const Operand& output);

// The same for an output of a branch or loop of a trace: positions among the node's operands.
std::vector<int32_t> operands_behind(const Node& node, int32_t output);

}  // namespace pg
