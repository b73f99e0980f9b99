// The block of memory in which a recorded run leaves its residuals to its backward. Forward keeps temporaries where no
// residual is written yet, backward where it has read one for the last time.
#pragma once
#include "graph/exec/exec.h"

namespace pg {

// Returns places for the residuals that forward computes on the CPU: its outputs from `first` on. They are in the order
// in which forward makes them: backward reads the last ones first, so the block becomes free from its end. Returns an
// empty block if they are small.
ValueBlock place_residuals(const Graph& forward, size_t first);

// Returns the part of the block that a plan leaves, as inputs of the plan that consumes it: input `first` is output
// `outputs` of the other.
ValueBlock block_left_by(const Plan& plan, size_t outputs, size_t first);

// Whether the members among the arguments are in one buffer at the places of the block.
bool is_block(const ValueBlock& block, std::span<const Value> arguments);

// Moves the members among the arguments to a new buffer, at the places of the block.
void copy_block(Context& ctx, const ValueBlock& block, std::span<Value> arguments);

}  // namespace pg
