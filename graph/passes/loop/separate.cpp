// Separate outputs: a value that the body of a loop returns several times has to be in memory of its own each time
// (OutputPlaces lists the exceptions). The fused node that computes it writes it several times, which saves a copy in
// each step.
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/plan/fused.h"

namespace pg {
namespace {

// Returns a further output of the fused node with the value of `output`, or `output` itself if it may have none.
Operand repeated(Graph& body, const Operand& output) {
  Node& node = body.nodes[size_t(output.node)];
  if (node.kind != NodeKind::kFused || node.types.size() >= size_t(kMaxFusedOutputs)) return output;
  Graph inner = *node.body;
  const Operand value = inner.outputs[size_t(output.output)];
  if (!fusable(inner.node(value))) return output;
  inner.outputs.push_back(value);
  node.types.push_back(Type(node.types[size_t(output.output)]));
  node.body = std::make_shared<const Graph>(std::move(inner));
  return Operand::of(size_t(output.node), node.types.size() - 1);
}

std::shared_ptr<const Graph> separated(const LoopForm& form, const Graph& body) {
  const OutputPlaces places = output_places(form, body);
  Graph better = body;
  for (size_t k = 0; k < body.outputs.size(); ++k) {
    const auto at = body.outputs.begin() + ptrdiff_t(k);
    if (places.same_as[k] < 0 && std::find(body.outputs.begin(), at, *at) != at)
      better.outputs[k] = repeated(better, *at);
  }
  return better.outputs == body.outputs ? nullptr : std::make_shared<const Graph>(std::move(better));
}

}  // namespace

Graph separate_outputs(Graph graph) {
  for (Node& node : graph.nodes)
    if (node.is<"loop">()) change_bodies(node, [&](const Graph& body) { return separated(loop_form(node), body); });
  return graph;
}

}  // namespace pg
