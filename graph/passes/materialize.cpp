// Small `full` tensors that no pointwise op has taken as a number become constants, so that a run does not fill them
// again. Simplification prefers `full` to constants because pointwise ops can take it as a number.
//
// The elements are those that the op computes. Applied only on the CPU and up to kBytes per tensor.
#include "graph/passes/evaluate.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace pg {

Graph materialize(Graph graph) {
  constexpr Bytes kBytes = Bytes(64 << 10);
  return rewrite_each(std::move(graph), [&](Rewrite&, size_t, Node& node) {
    if (filled_with(node) && host_reads(node.types[0].device) && bytes_of(node.types[0]) <= kBytes)
      if (const auto result = evaluate(node, {})) node = constant_node(node.types[0], (*result)[0], node.line);
    return false;
  });
}

}  // namespace pg
