// Batch normalization at inference. Specialization has turned it into a scale and a shift per channel. This pass folds
// them into the weights and the bias of the convolution or product before it, or writes them as plain arithmetic that
// fuses with its neighbours.
//
// They are folded only if nothing else reads the product, the dtype is float32, float64 or bfloat16, and scaling the
// weights costs less than scaling the result. With weights that last this happens once. (w s) x + (b s + t) rounds
// differently from s (w x + b) + t: results differ by a few units in the last place of the largest term of the sum,
// relatively 1e-5 in float32. In bfloat16 each scaled weight and the shift are rounded, where the product would be. The
// plain form has the bits of the kernel of scale_shift, so it is not used in bfloat16, whose ops round each.
#include "graph/passes/evaluate.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/plan/fused.h"

namespace pg {
namespace {

// The result must have at least this many times the elements of the weights. New weights are also packed again at each
// run.
constexpr int64_t kCheaper = 4;

class BatchNorms {
 public:
  explicit BatchNorms(Graph graph) : uses_(count_uses(graph)), rewrite_(std::move(graph)) {
    read_by_pointwise_.resize(rewrite_.size());
    once_.resize(rewrite_.size());
    std::vector<char> lasts(rewrite_.size());  // by node: most runs find the same value
    for (size_t i = 0; i < rewrite_.size(); ++i) {
      const Node& node = rewrite_.old(i);
      const auto known = [&](const Operand& operand) { return !operand.is_node() || lasts[size_t(operand.node)]; };
      lasts[i] = node.kind == NodeKind::kInput ? node.lasts
                 : node.kind == NodeKind::kConstant
                     ? true
                     : is_pure(node) && std::all_of(node.inputs.begin(), node.inputs.end(), known);
      if (node.is<"scale_shift">()) once_[i] = known(node.inputs[1]) && known(weight_of(node)) && known(node.inputs[2]);
      if (node.kind != NodeKind::kOp || !node.op->has(kPointwise)) continue;
      for (const Operand& operand : node.inputs)
        if (operand.is_node()) read_by_pointwise_[size_t(operand.node)] = true;
    }
  }

  Graph run() {
    for (size_t i = 0; i < rewrite_.size(); ++i) {
      const Node& old = rewrite_.old(i);
      const bool candidate = old.is<"scale_shift">() && fuses(old.types[0].device) && is_plain(old);
      const bool alone = candidate && uses_[size_t(old.inputs[0].node)] == 1;
      Node node = rewrite_.take(i);
      if (!candidate || !(alone ? fold(i, node) || expand(i, node) : expand(i, node)))
        rewrite_.keep(i, rewrite_.append(std::move(node)));
    }
    return without_dead_nodes(rewrite_.finish());
  }

 private:
  const Graph& graph() const { return rewrite_.graph(); }

  // The weights of the product that an old node scales, or that product itself.
  const Operand& weight_of(const Node& node) const {
    const Node& product = rewrite_.old(size_t(node.inputs[0].node));
    return product.has(kChannels) ? product.inputs[1] : node.inputs[0];
  }

  // Whether the node and what it computes from, all but `center`, have the same dtype, one that is folded. The scale
  // and the shift of bfloat16 are float32.
  bool is_plain(const Node& node) const {
    const DType dtype = node.types[0].dtype;
    if (dtype != DType::kFloat32 && dtype != DType::kFloat64 && dtype != DType::kBFloat16) return false;
    return std::all_of(node.inputs.begin(), node.inputs.begin() + 3, [&](const Operand& operand) {
      if (!operand.is_node()) return false;
      const DType type = rewrite_.old(size_t(operand.node)).types[size_t(operand.output)].dtype;
      return type == dtype || (dtype == DType::kBFloat16 && type == DType::kFloat32);
    });
  }

  Operand as_dtype(DType dtype, const Operand& x) {
    return graph().type(x).dtype == dtype ? x : rewrite_.emit<"to">({x}, {{"dtype", dtype}}, line_);
  }

  Operand multiplied(const Operand& x, const Operand& by, const Operand& plus) {
    return rewrite_.emit<"add">({rewrite_.emit<"mul">({x, by}, {}, line_), plus}, {}, line_);
  }

  // Returns v, which has one element per channel, as a column before `trailing` dims of size 1.
  Operand column(const Operand& v, int trailing) {
    if (trailing == 0) return v;
    Ints shape(size_t(trailing) + 1, 1);
    shape[0] = graph().type(v).shape[0];
    return rewrite_.emit<"reshape_to">({v}, {{"shape", shape}}, line_);
  }

  bool fold(size_t i, const Node& node) {
    const Node product = graph().node(node.inputs[0]);
    if (!product.has(kChannels) || product.types[0].shape.size() != graph().type(product.inputs[1]).shape.size())
      return false;
    const Operand &weight = product.inputs[1], &bias = product.inputs[2], &scale = node.inputs[1],
                  &shift = node.inputs[2];
    const Node& source = graph().node(weight);
    const DType dtype = node.types[0].dtype;
    if (source.types[size_t(weight.output)].dtype != dtype || product.types[0].dtype != dtype) return false;
    const Dims shape = graph().type(weight).shape;
    if (!once_[i] && numel(shape) * kCheaper > numel(node.types[0].shape)) return false;
    line_ = product.line;
    const Operand scaled = rewrite_.emit<"mul">({weight, column(scale, shape.size() - 1)}, {}, line_);
    const Operand moved = bias.is_none() ? shift : multiplied(bias, scale, shift);
    const Operands inputs{product.inputs[0], as_dtype(dtype, scaled), as_dtype(dtype, moved)};
    rewrite_.replace(i, 0, rewrite_.emit(*product.op, inputs, product.attrs, line_));
    return true;
  }

  // Writes the node as arithmetic if a neighbour can fuse with it.
  bool expand(size_t i, const Node& node) {
    const Node& source = graph().node(node.inputs[0]);
    if (node.types[0].dtype == DType::kBFloat16) return false;
    const bool fuses = read_by_pointwise_[i] || (source.kind == NodeKind::kOp && source.op->has(kPointwise));
    if (!fuses) return false;
    line_ = node.line;
    const int trailing = node.types[0].shape.size() - 2;
    const Operand scale = column(node.inputs[1], trailing), shift = column(node.inputs[2], trailing);
    rewrite_.replace(i, 0, multiplied(node.inputs[0], scale, shift));
    return true;
  }

  std::vector<int32_t> uses_;
  Rewrite rewrite_;
  std::vector<char> read_by_pointwise_;  // by old node
  std::vector<char> once_;               // by old node: the weights, scale and shift last
  int32_t line_ = -1;
};

}  // namespace

Graph fold_batch_norm(Graph graph) { return BatchNorms(std::move(graph)).run(); }

}  // namespace pg
