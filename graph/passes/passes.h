// Passes: from a specialized graph (inputs, constants, ops, fused nodes) to a better one that computes the same.
//
// What every pass keeps: the inputs, all of them and in their order; the types of the outputs; ops with an effect,
// their order too; NaN, infinities, the sign of zero and every other bit of the results. Where a pass may change the
// last bits, the first lines of its file say how far. A run-time refusal (a singular matrix, an index out of range) of
// a node whose outputs nobody needs goes with the node.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "graph/ir/ir.h"

namespace pg {

using PassFn = Graph (*)(Graph graph);

struct Pass {
  enum Stage : uint8_t {
    kClean,   // keeps plain ops, so that other transforms may follow; run to a fixed point
    kShape,   // changes which ops compute; once, cleaned up after
    kKernels  // makes fused nodes and ops for kernels alone: the last step before planning
  };
  const char* name;
  const char* doc;
  PassFn run;
  Stage stage;
  bool on = true;
};

// The explicit list, in the order in which the passes run.
std::span<const Pass> passes();

struct PassOptions {
  std::vector<std::string> disabled;  // names, besides those in PERIGEE_DISABLE_PASSES ("fuse,cse"; "all")
  std::vector<std::string> enabled;   // of passes that are off by default
  bool kernels = true;                // false: no stage kKernels. For graphs that will be split or joined first
  bool verify = false;                // after each pass; always in debug builds and with PERIGEE_VERIFY_PASSES
};

// Throws Error for a name that no pass has. The graph must be valid.
Graph optimize(Graph graph, const PassOptions& options = {});

// The passes one by one; see their files.
Graph fold(Graph graph);
Graph eliminate_common(Graph graph);
Graph simplify(Graph graph);
Graph eliminate_dead(Graph graph);
Graph count_steps(Graph graph);
Graph prune(Graph graph);
Graph hoist(Graph graph);
Graph gather_gradients(Graph graph);
Graph sink(Graph graph);
Graph fold_batch_norm(Graph graph);
Graph recompute(Graph graph);
Graph attach_epilogues(Graph graph);
Graph fuse(Graph graph);
Graph materialize(Graph graph);

}  // namespace pg
