// Fills that are left: small `full` tensors, which simplification prefers to constants because pointwise ops take them
// as a number, become constants once nobody can, so that no run fills them again.
//
// The elements are those that the op gives. Only on the CPU and up to kBytes each.
#include "graph/passes/evaluate.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace pg {

Graph materialize(Graph graph) {
  constexpr Bytes kBytes = Bytes(64 << 10);
  Rewrite rewrite(std::move(graph));
  for (size_t i = 0; i < rewrite.size(); ++i) {
    Node node = rewrite.take(i);
    if (filled_with(node) && node.types[0].device.is_cpu() && bytes_of(node.types[0]) <= kBytes)
      if (const auto result = evaluate(node, {})) {
        Node constant;
        constant.kind = NodeKind::kConstant;
        constant.line = node.line;
        constant.types = node.types;
        constant.constant = (*result)[0];
        node = std::move(constant);
      }
    rewrite.keep(i, rewrite.append(std::move(node)));
  }
  return rewrite.finish();
}

}  // namespace pg
