// Evaluates one node of a graph on values, for passes that compute results ahead of the run.
#pragma once
#include <optional>

#include "graph/ir/ir.h"
#include "tensor/context.h"

namespace pg {

// Whether the node is an op that returns the same for the same inputs: it has no effect, no random state and no unset
// elements.
bool is_pure(const Node& node);

// Returns the outputs of an op node, on the CPU and contiguous. Returns nothing if the op rejects the values: the run
// will raise the error.
std::optional<Values> evaluate(const Node& node, std::span<const Value> inputs);

}  // namespace pg
