// Epilogues: an activation after linear or a convolution, and a bias added to a product, become part of it, so that the
// result passes through the caches once.
//
// This happens only if nothing else reads the intermediate value, and only in the dtype of the product. The bits stay:
// the kernels add the bias to the finished sum and apply the op's own activation. A bias is attached only in float32
// and float64, because the other floats would round once less, and only if the product runs in the same kernel with it.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace pg {
namespace {

class Epilogues {
 public:
  explicit Epilogues(Graph graph) : uses_(count_uses(graph)), rewrite_(std::move(graph)) {
    made_from_.resize(rewrite_.size());
  }

  Graph run() {
    for (size_t i = 0; i < rewrite_.size(); ++i) {
      Node node = rewrite_.take(i);
      if (node.kind == NodeKind::kOp && node.types.size() == 1) {
        if (node.is<"add">())
          add_bias(node);
        else
          add_activation(node);
      }
      const size_t at = rewrite_.append(std::move(node));
      made_from_.resize(at + 1, 0);
      made_from_[at] = int32_t(i);
      rewrite_.keep(i, at);
    }
    return without_dead_nodes(rewrite_.finish());
  }

 private:
  const Graph& graph() const { return rewrite_.graph(); }

  // Returns the node behind an operand if only `reader` reads it and both have the same type, else null.
  const Node* only_producer(const Operand& operand, const Node& reader) const {
    if (!operand.is_node()) return nullptr;
    const Node& node = graph().node(operand);
    if (node.kind != NodeKind::kOp || uses_[size_t(made_from_[size_t(operand.node)])] != 1) return nullptr;
    return node.types[0] == reader.types[0] ? &node : nullptr;
  }

  void add_activation(Node& node) {
    if (!node.op->epilogue) return;
    const Node* product = only_producer(node.inputs[0], node);
    if (!product || !product->op->with_epilogue) return;
    const OpDef& op = product->op->with_epilogue();
    const Epilogue end = node.op->epilogue(AttrReader(*node.op, node.attrs));
    Attrs attrs = make_attrs(op, {{"activation", std::string(end.activation)}, {"slope", end.slope}});
    for (size_t k = 0; k < product->attrs.size(); ++k) attrs[k] = product->attrs[k];
    node = make_node(graph(), op, Operands(product->inputs), std::move(attrs),
                     product->line >= 0 ? product->line : node.line);
  }

  static bool full_precision(const Node& node) {
    return node.types[0].dtype == DType::kFloat32 || node.types[0].dtype == DType::kFloat64;
  }

  void add_bias(Node& node) {
    if (!full_precision(node)) return;
    for (size_t at : {0u, 1u}) {
      const Node* product = only_producer(node.inputs[at], node);
      const Operand bias = node.inputs[1 - at];
      if (!product || !bias.is_node()) continue;
      const Type& type = graph().type(bias);
      if (type.dtype != node.types[0].dtype || type.shape.size() != 1) continue;
      Operand x, weight;
      if (!read_product(*product, x, weight) || graph().type(weight).shape[0] != type.shape[0]) continue;
      node = make_node(graph(), op_named<"linear">(), Operands{x, weight, bias}, {}, node.line);
      return;
    }
  }

  // A product with views runs in another kernel than linear does.
  bool is_view(const Operand& operand) const {
    const Node& node = graph().node(operand);
    return node.kind == NodeKind::kOp && node.op->view && !node.op->has(kReshape);
  }

  // Matches what linear computes: linear without bias, or the product of a matrix or vector with a transposed matrix.
  bool read_product(const Node& product, Operand& x, Operand& weight) const {
    x = product.inputs[0];
    if (product.is<"linear">() && product.inputs[2].is_none()) {
      weight = product.inputs[1];
      return true;
    }
    if (!product.is<"matmul">() || !product.inputs[1].is_node() || graph().type(x).shape.size() > 2) return false;
    const Node& transposed = graph().node(product.inputs[1]);
    if (!transposed.is<"permute">() || transposed.types[0].shape.size() != 2) return false;
    weight = transposed.inputs[0];
    if (is_view(x) || is_view(weight)) return false;
    return graph().type(x).dtype == product.types[0].dtype && graph().type(weight).dtype == product.types[0].dtype;
  }

  std::vector<int32_t> uses_;  // of the nodes of the old graph
  Rewrite rewrite_;
  std::vector<int32_t> made_from_;  // by new node: the old node it was made from
};

}  // namespace

Graph attach_epilogues(Graph graph) { return Epilogues(std::move(graph)).run(); }

}  // namespace pg
