// Rules for views. Each kind gets one form, chains are merged and no-ops are dropped.
#include "graph/passes/simplify.h"
#include "tensor/rule.h"

namespace pg {
namespace {

Ints to_ints(const Dims& dims) { return Ints(dims.begin(), dims.end()); }

// The ops that only change the shape: reshape, flatten, squeeze and others.
Operand simplify_reshape(Simplifier& s, const Node& node) {
  Operand x = node.inputs[0];
  // If the operand is a view, the first change of shape may have copied.
  if (const Node* inner = s.producer<"reshape_to">(x); inner && (s.read_elementwise || s.is_dense(inner->inputs[0])))
    x = inner->inputs[0];
  const Dims& shape = node.types[0].shape;
  if (s.type(x).shape == shape) return x;
  if (const auto number = number_everywhere(s, x); number && s.producer<"full">(x))
    return s.full(node.types[0], *number);
  if (node.is<"reshape_to">() && x == node.inputs[0]) return {};
  return s.emit<"reshape_to">({x}, {{"shape", to_ints(shape)}});
}

// For each dim of the output, the dim of the input that it shows. The op's own view is applied to an array whose
// strides are the numbers of its dims.
Dims order_of(const Node& node, const Type& type) {
  const Ref<Array> marked = Array::make(type);
  for (int d = 0; d < type.shape.size(); ++d) marked->strides[d] = d;
  ViewArgs args(*node.op, node.attrs, *marked, node.types[0].shape);
  node.op->view(args);
  return args.strides;
}

bool is_identity(const Dims& order) {
  for (int i = 0; i < order.size(); ++i)
    if (order[i] != i) return false;
  return true;
}

// Whether the dims with more than one element keep their order.
bool moves_nothing(const Dims& order, const Dims& shape) {
  int64_t last = -1;
  for (int64_t d : order) {
    if (shape[int(d)] == 1) continue;
    if (d < last) return false;
    last = d;
  }
  return true;
}

Operand simplify_permute(Simplifier& s, const Node& node) {
  Operand x = node.inputs[0];
  Dims order = order_of(node, s.type(x));
  if (const Node* inner = s.producer<"permute">(x)) {
    const Dims before = order_of(*inner, s.type(inner->inputs[0]));
    for (int64_t& d : order) d = before[int(d)];
    x = inner->inputs[0];
  }
  if (is_identity(order)) return x;
  if (moves_nothing(order, s.type(x).shape)) return s.reshape(x, node.types[0].shape);
  if (s.producer<"full">(x)) return s.full(node.types[0], *number_everywhere(s, x));
  if (node.is<"permute">() && x == node.inputs[0]) return {};
  return s.emit<"permute">({x}, {{"dims", user_dims(order)}});
}

Operand simplify_expand(Simplifier& s, const Node& node) {
  Operand x = node.inputs[0];
  if (const Node* inner = s.producer<"broadcast_to">(x)) x = inner->inputs[0];
  const Dims& shape = node.types[0].shape;
  if (s.type(x).shape == shape) return x;
  const auto number = number_everywhere(s, x);
  if (number) return s.full(node.types[0], *number);
  if (numel(shape) == numel(s.type(x).shape)) return s.reshape(x, shape);
  // An expansion adds leading dims of size 1 by itself.
  if (const Node* inner = s.producer<"reshape_to">(x)) {
    const Dims from = s.type(inner->inputs[0]).shape, to = inner->types[0].shape;
    const int extra = to.size() - from.size();
    bool leading = extra > 0;
    for (int d = 0; leading && d < to.size(); ++d) leading = to[d] == (d < extra ? 1 : from[d - extra]);
    if (leading) x = inner->inputs[0];
  }
  if (node.is<"broadcast_to">() && x == node.inputs[0]) return {};
  return s.emit<"broadcast_to">({x}, {{"shape", to_ints(shape)}});
}

// sum_to that sums nothing.
Operand simplify_sum_to(Simplifier& s, const Node& node) {
  const Operand& x = node.inputs[0];
  if (s.type(x) == node.types[0]) return x;
  if (s.type(x).dtype != node.types[0].dtype || numel(s.type(x).shape) != numel(node.types[0].shape)) return {};
  if (is_float(s.type(x).dtype) || s.type(x).dtype == DType::kInt64) return s.reshape(x, node.types[0].shape);
  return {};
}

// clone and contiguous: values of a graph have no identity. A copy is kept if its layout matters to a reader.
Operand simplify_copy(Simplifier& s, const Node& node) {
  return s.read_elementwise || s.is_dense(node.inputs[0]) ? node.inputs[0] : Operand();
}

// A view with the type and the layout of its operand is the operand: detach, dropout that drops nothing, a full slice.
Operand simplify_any_view(Simplifier& s, const Node& node) {
  if (node.is<"contiguous">()) return {};
  const Type& type = s.type(node.inputs[0]);
  if (!(type == node.types[0])) return {};
  const Ref<Array> like = Array::make(type);
  ViewArgs args(*node.op, node.attrs, *like, type.shape);
  if (!node.op->view(args) || args.offset != 0) return {};
  for (int d = 0; d < type.shape.size(); ++d)
    if (type.shape[d] > 1 && args.strides[d] != like->strides[d]) return {};
  return node.inputs[0];
}

bool shows_one(const OpDef& op) { return op.view && op.outputs.size() == 1 && !op.has(kListOutput); }

}  // namespace

std::span<const SimplifyRow> view_rules() {
  static constexpr SimplifyRow kRows[] = {
      {any_with<kReshape>, simplify_reshape},         {any_with<kPermute>, simplify_permute},
      {any_with<kExpand>, simplify_expand},           {one_of<"sum_to">, simplify_sum_to},
      {one_of<"clone", "contiguous">, simplify_copy}, {shows_one, simplify_any_view},
  };
  return kRows;
}

}  // namespace pg
