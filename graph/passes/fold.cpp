// Constant folding: an op on constants and numbers becomes constants. The eager interpreter computes them, so the bits
// are the same.
//
// Not folded: ops with an effect or random state, ops that do not run on the CPU, filled tensors (`full`, which
// pointwise kernels take as a number), results that need more memory than kFoldBytes and than the constants they
// replace, ops that reject the values (the run raises the same error), and ops that make a NaN.
#include "graph/passes/evaluate.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace pg {
namespace {

constexpr Bytes kFoldBytes = Bytes(64 << 10), kMaxFoldBytes = Bytes(16 << 20), kViewBytes = Bytes(1 << 10);

// Returns the values of the operands if all are known.
std::optional<SmallVector<Value, 4>> known_operands(const Graph& graph, const Node& node) {
  SmallVector<Value, 4> values;
  for (const Operand& operand : node.inputs) {
    if (operand.is_none())
      values.emplace_back();
    else if (operand.is_number())
      values.emplace_back(operand.number);
    else if (graph.node(operand).kind == NodeKind::kConstant)
      values.push_back(graph.node(operand).constant);
    else
      return std::nullopt;
  }
  return values;
}

bool pays(const Node& node, std::span<const Value> inputs) {
  Bytes before, after;
  for (const Value& v : inputs) {
    if (!v.is_array()) continue;
    if (!host_reads(v.device())) return false;
    before += bytes_of(v.type());
  }
  for (const Type& type : node.types) {
    if (!host_reads(type.device)) return false;
    after += bytes_of(type);
  }
  return after <= kMaxFoldBytes && before <= kMaxFoldBytes && (after <= kFoldBytes || after <= before);
}

// Whether the node is a view whose result, from a contiguous operand, is not contiguous.
bool scatters(const Node& node, std::span<const Value> inputs) {
  if (!node.op->view || inputs.empty() || !inputs[0].is_array()) return false;
  const Ref<Array> like = Array::make(inputs[0].type());
  for (size_t k = 0; k < node.types.size(); ++k) {
    ViewArgs args(*node.op, node.attrs, *like, node.types[k].shape, int(k));
    if (node.op->view(args) && !is_contiguous(node.types[k].shape, args.strides)) return true;
  }
  return false;
}

std::optional<Values> fold_node(const Graph& graph, const Node& node) {
  if (!is_pure(node) || node.op->fill) return std::nullopt;
  const auto inputs = known_operands(graph, node);
  if (!inputs || !pays(node, *inputs)) return std::nullopt;
  if (bytes_of(node.types[0]) > kViewBytes && scatters(node, *inputs)) return std::nullopt;
  auto results = evaluate(node, *inputs);
  if (!results || results->size() != node.types.size()) return std::nullopt;
  for (size_t k = 0; k < results->size(); ++k)
    if (!((*results)[k].type() == node.types[k])) return std::nullopt;
  return results;
}

}  // namespace

bool is_pure(const Node& node) {
  return node.kind == NodeKind::kOp && !(node.op->traits & (kEffect | kRandom | kDynamicShape | kUnset | kBodies));
}

std::optional<Values> evaluate(const Node& node, std::span<const Value> inputs) try {
  Context ctx;
  ctx.detect_anomaly = !inputs.empty();  // the run makes the NaN, where pg.autograd.detect_anomaly finds it
  SmallVector<Value, 4> in(inputs);
  Values out = apply(ctx, *node.op, in, node.attrs.size() ? node.attrs : make_attrs(*node.op));
  for (Value& v : out) v = to_contiguous(ctx, v.detached());
  return out;
} catch (const Error&) {
  return std::nullopt;
}

Graph fold(Graph graph) {
  return rewrite_each(std::move(graph), [](Rewrite& rewrite, size_t i, const Node& node) {
    const auto results = fold_node(rewrite.graph(), node);
    for (size_t k = 0; results && k < results->size(); ++k)
      rewrite.replace(i, k, Operand::of(rewrite.append(constant_node(node.types[k], (*results)[k], node.line))));
    return results.has_value();
  });
}

}  // namespace pg
