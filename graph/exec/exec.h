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

// A run that can stop between two steps and go on later: its frame and position are values. Several runs of one plan
// may be under way at once. Dropping the run abandons it. A branch or loop is one step, and so is the commit section,
// because a run that stops in it would leave inputs half written.
class SuspendableRun {
 public:
  // Holds the plan and the inputs. The context must outlive the run. Runs no step yet.
  SuspendableRun(std::shared_ptr<const Plan> plan, Context& ctx, Values inputs,
                 std::span<const RandomKey> generators = {});
  SuspendableRun(SuspendableRun&&) noexcept;
  SuspendableRun& operator=(SuspendableRun&&) noexcept;
  ~SuspendableRun();

  // Runs the next step, and more of them until stop(next step) returns true or none is left. Returns whether none is
  // left. If a step throws, the run has failed: its frame and inputs are released, and what it had not yet committed is
  // as it was. Later calls throw Error.
  bool run(FunctionRef<bool(size_t next)> stop);
  size_t next() const { return next_; }  // the step that run() starts with
  size_t steps() const;

  // Returns the outputs, as the function run does. Requires that no step is left.
  Values take();

 private:
  struct State;
  State& live() const;
  std::unique_ptr<State> state_;
  size_t next_ = 0;
};

// Returns the stream of a generator in step `step` of a branch or loop: SplitMix64 (Steele et al. 2014) of the
// generator's seed, the tick of the node and the step. Steps of a loop count from 1. In a cond, 1 is then and 2 is
// else.
RandomKey body_stream(const RandomKey& state, uint64_t tick, uint64_t step);

}  // namespace pg
