// Addends: what is added to a matrix product becomes part of it, on devices that have a kernel for both.
//
// This happens after fusion, so that only additions remain that no kernel takes in, and only if nothing else reads the
// product. The bits stay: the kernel adds to the finished sum, in float32 and float64. Other floats would round once
// less.
#include <map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/device_table.h"

namespace pg {
namespace {

// Returns the sum as one node, or nullopt. `product` is one of the operands of the addition.
std::optional<Node> with_addend(Rewrite& rewrite, const Node& sum, const Operand& product, const Operand& addend) {
  const Graph& graph = rewrite.graph();
  const Node made_by = graph.node(product);
  const Type& type = sum.types[0];
  if (made_by.kind != NodeKind::kOp || !(graph.type(product) == type) || !(graph.type(addend) == type)) return {};
  for (const Operand& operand : made_by.inputs)
    if (operand.is_node() && graph.type(operand).dtype != type.dtype) return {};
  Operand y = made_by.inputs.size() > 1 ? made_by.inputs[1] : Operand();
  if (made_by.is<"linear">() && made_by.inputs[2].is_none())
    y = rewrite.emit<"permute">({y}, {{"dims", Ints{2, 1}}}, made_by.line);
  else if (!made_by.is<"matmul">())
    return {};
  return make_node(rewrite.graph(), op_named<"matmul_add">(), Operands{made_by.inputs[0], y, addend}, {}, sum.line);
}

}  // namespace

Graph attach_addends(Graph graph) {
  const auto fits = [](const Node& node) {
    if (!node.is<"add">()) return false;
    const Type& type = node.types[0];
    return (type.dtype == DType::kFloat32 || type.dtype == DType::kFloat64) &&
           registry().kernel(op_named<"matmul_add">(), type.device).fn != nullptr;
  };
  const std::vector<int32_t> uses = count_uses(graph);
  std::map<size_t, std::vector<size_t>> products;  // by addition: its operands that may be products of its own
  for (size_t i = 0; i < graph.nodes.size(); ++i)
    for (const size_t at : {1u, 0u}) {
      const Node& node = graph.nodes[i];
      if (fits(node) && node.inputs[0].is_node() && node.inputs[1].is_node() && uses[size_t(node.inputs[at].node)] == 1)
        products[i].push_back(at);
    }
  if (products.empty()) return graph;
  return without_dead_nodes(rewrite_each(std::move(graph), [&](Rewrite& rewrite, size_t i, Node& node) {
    if (!products.count(i)) return false;
    for (const size_t at : products[i])
      if (auto better = with_addend(rewrite, node, node.inputs[at], node.inputs[1 - at])) {
        node = std::move(*better);
        break;
      }
    return false;
  }));
}

}  // namespace pg
