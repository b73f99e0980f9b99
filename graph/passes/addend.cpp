// Addends: what is added to a matrix product becomes part of it, on devices that have a kernel for both.
//
// This happens after fusion, so that only additions remain that no kernel takes in, and only if nothing else reads the
// product. The bits stay: the kernel adds to the finished sum, in float32 and float64. Other floats would round once
// less.
#include <algorithm>
#include <map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/device_table.h"

namespace pg {
namespace {

// Returns the operand behind changes of shape that nothing else reads, if nothing else reads it either.
std::optional<Operand> whole_product(const Graph& graph, const std::vector<int32_t>& uses, Operand at) {
  for (;;) {
    if (!at.is_node() || uses[size_t(at.node)] != 1) return {};
    const Node& node = graph.node(at);
    if (!node.is<"reshape_to">()) return node.is<"matmul">() || node.is<"linear">() ? std::optional(at) : std::nullopt;
    at = node.inputs[0];
  }
}

// Returns the sum of a product of the new graph and an addend with as many elements, if one kernel computes it.
std::optional<Operand> with_addend(Rewrite& rewrite, const Operand& product, Operand addend, int32_t line) {
  const Node node = rewrite.graph().node(product);
  const Type type = node.types[0];
  for (const Operand& operand : node.inputs)
    if (operand.is_node() && rewrite.graph().type(operand).dtype != type.dtype) return {};
  const auto reshaped = [&](const Operand& x, const Dims& shape) {
    if (rewrite.graph().type(x).shape == shape) return x;
    return rewrite.emit<"reshape_to">({x}, {{"shape", Ints(shape.begin(), shape.end())}}, line);
  };
  Operand x = node.inputs[0], y = node.inputs[1];
  Dims of_product = type.shape;
  if (node.is<"linear">()) {
    if (!node.inputs[2].is_none()) return {};
    const Dims weight = rewrite.graph().type(y).shape;
    const int64_t rows = weight[0] > 0 ? numel(of_product) / weight[0] : 0;
    of_product = {rows, weight[0]};
    x = reshaped(x, {rows, weight[1]});
    y = rewrite.emit<"permute">({y}, {{"dims", Ints{2, 1}}}, node.line);
  }
  const Dims shape = rewrite.graph().type(addend).shape;
  const Operand sum = rewrite.emit<"matmul_add">({x, y, reshaped(addend, of_product)}, {}, line);
  return reshaped(sum, shape);
}

}  // namespace

Graph attach_addends(Graph graph) {
  const auto fits = [&](const Node& node) {
    if (!node.is<"add">()) return false;
    const Type& type = node.types[0];
    return (type.dtype == DType::kFloat32 || type.dtype == DType::kFloat64) &&
           registry().kernel(op_named<"matmul_add">(), type.device).fn != nullptr &&
           std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](const Operand& o) { return o.is_node() && graph.type(o) == type; });
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), fits)) return graph;
  const std::vector<int32_t> uses = count_uses(graph);
  std::map<size_t, std::pair<Operand, Operand>> sums;  // by addition: the product and the addend
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    for (const size_t at : {0u, 1u})
      if (fits(node))
        if (const auto product = whole_product(graph, uses, node.inputs[at])) sums[i] = {*product, node.inputs[1 - at]};
  }
  return without_dead_nodes(rewrite_each(std::move(graph), [&](Rewrite& rewrite, size_t i, Node& node) {
    const auto sum = sums.find(i);
    if (sum == sums.end()) return false;
    const auto& [product, addend] = sum->second;
    const auto better = with_addend(rewrite, rewrite.translated(product), rewrite.translated(addend), node.line);
    if (better) rewrite.replace(i, 0, *better);
    return better.has_value();
  }));
}

}  // namespace pg
