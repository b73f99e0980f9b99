// Running one node of a graph on values, for passes that compute ahead.
#pragma once
#include <optional>

#include "graph/ir/ir.h"
#include "tensor/context.h"

namespace pg {

// Whether a node is an op that returns the same for the same inputs: no effect, no random state, no values
// that are left unset.
bool is_pure(const Node& node);

// The outputs of an op node on the CPU, contiguous; nothing where the op refuses the values (the run will say so).
std::optional<Values> evaluate(const Node& node, std::span<const Value> inputs);

}  // namespace pg
