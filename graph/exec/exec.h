// Execution of plans.
#pragma once
#include <span>

#include "graph/plan/plan.h"
#include "tensor/context.h"

namespace pg {

// Runs a plan on inputs of its input types (strides and devices' buffers as they come). RandomKeys of the graph name a
// generator by its index in `generators`, which holds their states at the start of the run; nothing advances them.
//
// Outputs are fresh contiguous buffers, or alias inputs and constants that the graph returns. An input that a step of
// the commit section rewrites, and that is writable (Array::writable(): the caller moved in the only reference), is
// moved out of `inputs` and becomes an output; otherwise that output is fresh. On an exception all inputs are as they
// were. Errors of kernels arrive as PositionedError where the node has a script line.
Values run(const Plan& plan, Context& ctx, std::span<Value> inputs, std::span<const RandomKey> generators = {});

// The stream of a generator in step `step` (from 1; of a cond: 1 then, 2 else) of a branch or loop: SplitMix64 (Steele
// et al. 2014) of the generator's seed, the tick of the node and the step.
RandomKey body_stream(const RandomKey& state, uint64_t tick, uint64_t step);

}  // namespace pg
