// Execution of plans.
#pragma once
#include <span>

#include "graph/plan/plan.h"
#include "tensor/context.h"

namespace pg {

// Runs a plan on inputs of its input types, with any strides. The RandomKeys of the graph refer to generators by index
// in `generators`, which holds their states at the start of the run. The run does not advance them.
//
// Outputs are fresh contiguous buffers, or alias inputs and constants that the graph returns. If a step of the commit
// section rewrites an input that is writable (Array::writable(): the caller moved in the only reference), that input is
// moved out of `inputs` and becomes an output. Otherwise that output is fresh. If run throws, all inputs are unchanged.
// Errors of kernels are thrown as PositionedError if the node has a script line.
Values run(const Plan& plan, Context& ctx, std::span<Value> inputs, std::span<const RandomKey> generators = {});

// Returns the stream of a generator in step `step` of a branch or loop: SplitMix64 (Steele et al. 2014) of the
// generator's seed, the tick of the node and the step. Steps of a loop count from 1. In a cond, 1 is then and 2 is
// else.
RandomKey body_stream(const RandomKey& state, uint64_t tick, uint64_t step);

}  // namespace pg
