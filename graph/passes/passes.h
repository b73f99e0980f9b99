// Passes: each turns a specialized graph (inputs, constants, ops, fused nodes) into a better one that computes the
// same.
//
// Every pass keeps all inputs in their order, the types of the outputs, ops with an effect and their order, and every
// bit of the results, including NaN, infinities and the sign of zero. If a pass may change the last bits, the top of
// its file says by how much. If nothing needs the outputs of a node, the node can be removed, and with it the error it
// may raise at run time (a singular matrix, an index out of range).
#pragma once
#include <span>
#include <string>
#include <vector>

#include "graph/ir/ir.h"

namespace pg {

using PassFn = Graph (*)(Graph graph);

struct Pass {
  enum Stage : uint8_t {
    kClean,   // keeps plain ops, so that other transforms may follow; runs to a fixed point
    kShape,   // changes which ops compute; runs once, followed by kClean
    kLayout,  // chooses how values lie in memory
    kPlaces,  // moves values between devices
    kKernels  // makes fused nodes and ops that only kernels have: the last stage before planning
  };
  const char* name;
  PassFn run;
  Stage stage;
};

// All passes, in the order in which they run.
std::span<const Pass> passes();

struct PassOptions {
  std::vector<std::string> disabled;  // names, in addition to PERIGEE_DISABLE_PASSES ("fuse,cse"; "all")
  Pass::Stage last = Pass::kKernels;  // the last stage that runs, of a graph that will be split or joined first
  bool layouts = true;                // false skips kLayout, for one half of a program whose layouts are chosen
  bool verify = false;  // verifies after each pass; always on in debug builds and with PERIGEE_VERIFY_PASSES
};

// Throws Error if PERIGEE_DISABLE_PASSES has an unknown pass name.
void check_pass_settings();

// Throws Error for an unknown pass name. The graph must be valid.
Graph optimize(Graph graph, const PassOptions& options = {});

// The single passes. Their files describe them.
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
Graph place(Graph graph);
Graph choose_layouts(Graph graph);
Graph attach_epilogues(Graph graph);
Graph compute_parts(Graph graph);
Graph fuse(Graph graph);
Graph attach_addends(Graph graph);
Graph separate_outputs(Graph graph);
Graph materialize(Graph graph);

}  // namespace pg
