// Common subexpressions: nodes that compute the same from the same operands become one.
//
// Two nodes are the same if their ops, attributes, operands and types are equal. Numbers are compared bit by bit. The
// operands of commutative ops may be in either order. Ops with an effect or random state, and ops that leave elements
// unset, are never merged. Equal constants are merged up to kCompareBytes. The first of the equal nodes is kept, so the
// order of the nodes stays valid.
#include <bit>
#include <string_view>
#include <unordered_map>

#include "graph/passes/evaluate.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace pg {
namespace {

constexpr Bytes kCompareBytes = Bytes(4096);

size_t hash_of(const Operand& operand) {
  size_t hash = size_t(operand.node) * 31 + size_t(operand.output);
  mix(hash, std::bit_cast<uint64_t>(operand.number));
  return hash;
}

std::string_view bytes(const Value& v) {
  return {static_cast<const char*>(v.array().data()), bytes_of(v.type()).count()};
}

bool comparable(const Node& constant) {
  const Type& type = constant.types[0];
  return host_reads(type.device) && constant.constant.array().contiguous && constant.constant.array().buffer &&
         bytes_of(type) <= kCompareBytes;
}

size_t hash_of(const Node& node) {
  size_t hash = std::hash<const void*>()(node.op);
  if (node.kind == NodeKind::kConstant)
    mix(hash, comparable(node) ? std::hash<std::string_view>()(bytes(node.constant))
                               : std::hash<const void*>()(node.constant.array_ref().get()));
  size_t operands = 0;
  for (const Operand& operand : node.inputs) {
    if (node.has(kCommutative))
      operands += hash_of(operand);
    else
      mix(operands, hash_of(operand));
  }
  mix(hash, operands);
  mix(hash, hash_of(node.attrs));
  for (const Type& type : node.types) {
    mix(hash, size_t(type.dtype) + 16 * size_t(type.device.kind));
    for (int64_t d : type.shape) mix(hash, size_t(d));
  }
  return hash;
}

bool same_operands(const Node& a, const Node& b) {
  if (a.inputs.size() != b.inputs.size()) return false;
  const auto equal = [](const Operand& x, const Operand& y) {
    return x.node == y.node && x.output == y.output && same_bits(x.number, y.number);
  };
  bool same = true;
  for (size_t i = 0; i < a.inputs.size(); ++i) same &= equal(a.inputs[i], b.inputs[i]);
  return same || (a.has(kCommutative) && equal(a.inputs[0], b.inputs[1]) && equal(a.inputs[1], b.inputs[0]));
}

bool same(const Node& a, const Node& b) {
  if (a.kind != b.kind || a.op != b.op || a.types.size() != b.types.size()) return false;
  for (size_t k = 0; k < a.types.size(); ++k)
    if (!(a.types[k] == b.types[k])) return false;
  if (a.kind == NodeKind::kConstant) {
    if (a.constant.array_ref().get() == b.constant.array_ref().get()) return true;
    return comparable(a) && comparable(b) && bytes(a.constant) == bytes(b.constant);
  }
  return same_operands(a, b) && same_attrs(a, b);
}

bool mergeable(const Node& node) { return node.kind == NodeKind::kConstant || is_pure(node); }

}  // namespace

Graph eliminate_common(Graph graph) {
  Rewrite rewrite(std::move(graph));
  std::unordered_multimap<size_t, size_t> seen;
  for (size_t i = 0; i < rewrite.size(); ++i) {
    Node node = rewrite.take(i);
    if (!mergeable(node)) {
      rewrite.keep(i, rewrite.append(std::move(node)));
      continue;
    }
    const size_t hash = hash_of(node);
    const auto [begin, end] = seen.equal_range(hash);
    auto found = begin;
    while (found != end && !same(rewrite.graph().nodes[found->second], node)) ++found;
    const size_t at = found != end ? found->second : rewrite.append(std::move(node));
    if (found == end) seen.emplace(hash, at);
    rewrite.keep(i, at);
  }
  return rewrite.finish();
}

}  // namespace pg
