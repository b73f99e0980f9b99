// Execution of plans.
#pragma once
#include <span>

#include "graph/plan/plan.h"
#include "tensor/context.h"
#include "tensor/function_ref.h"

namespace pg {

// Runs a plan on inputs of its input types, with any strides. The RandomKeys of the graph refer to generators by index
// in `generators`, which holds their states at the start of the run. The run does not advance them.
//
// Outputs are fresh contiguous buffers, or alias inputs and constants that the graph returns. If a step of the commit
// section rewrites an input that is writable (Array::writable(): the caller moved in the only reference), that input is
// moved out of `inputs` and becomes an output. Otherwise that output is fresh. If run throws, all inputs are unchanged.
// Errors of kernels are thrown as PositionedError if the node has a script line.
//
// spare(output) returns the place of a value that the output replaces, or null. The run may move the value out and
// write the output in its memory. It does so only where no later step can fail, and only for outputs that are
// PlanOptions::lendable. From there on it cannot be interrupted, so it leaves the values in place if it took long to
// get there. If the scratch memory of a kernel cannot be allocated later, the run throws and these values are zeros.
using Spare = FunctionRef<Value*(int32_t output)>;
Values run(const Plan& plan, Context& ctx, std::span<Value> inputs, std::span<const RandomKey> generators = {},
           const Spare* spare = nullptr);

// The same with the outputs in `out`, whose storage is reused. targets: by output, arrays of the caller that the run
// may write outputs into; undefined, or no targets at all, for new ones. A target is used if it can hold the output as
// the plan writes it, and if all targets have the types and strides of their outputs. It is then the output itself.
// Targets may not overlap inputs or each other. If the run throws, their elements are unspecified.
void run(const Plan& plan, Context& ctx, std::span<Value> inputs, std::span<const RandomKey> generators,
         std::span<const Value> targets, Values& out);

// Returns the processor time of the calling thread. A run that took longer than kPatience until its steps can no longer
// fail does not borrow memory: interrupts would wait for the rest, which in a training step takes about twice as long.
double thread_seconds();
inline constexpr double kPatience = 0.5;

// Returns the stream of a generator in step `step` of a branch or loop: SplitMix64 (Steele et al. 2014) of the
// generator's seed, the tick of the node and the step. Steps of a loop count from 1. In a cond, 1 is then and 2 is
// else.
RandomKey body_stream(const RandomKey& state, uint64_t tick, uint64_t step);

}  // namespace pg
