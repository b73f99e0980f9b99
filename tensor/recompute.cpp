// The gradient of a batch normalization reads the tensor before it, which the tape therefore keeps. The activation
// after it, which the next convolution reads, is computed again from that one.
//
// Invariants. (1) A node that has dropped an array can compute it until it is released: chains are counted when they
// are recorded, from arrays that nodes keep. (2) A walk releases a node after the nodes that are computed from it.
// Others that read it later would fail without this, too, because their walk reaches the released node. (3) Arrays that
// a node keeps never change: in-place ops copy what is shared.
#include "tensor/recompute.h"

#include <algorithm>

#include "tensor/rule.h"

namespace pg {
namespace {

bool has_data(const Value& v) { return !v.is_array() || v.array().buffer; }

// The length of the chain of ops that computes the value, 0 if some node keeps it, or -1.
int chain_of(const Value& v) {
  if (has_data(v)) return 0;
  const TapeNode* node = v.node();
  if (!node || !node->op || node->released || v.node_output() >= node->outputs.size()) return -1;
  if (node->outputs[v.node_output()]->buffer) return 0;
  return node->chain > 0 && v.node_output() == 0 ? node->chain : -1;
}

// Returns the length of the chain that computes output 1 of the node, or 0.
int new_chain(const TapeNode& node) {
  int chain = 1;
  for (int32_t k : recomputation(*node.op, node.inputs.size()).operands) {
    const int before = k >= 0 ? chain_of(node.inputs[size_t(k)]) : node.outputs[size_t(~k)]->buffer ? 0 : -1;
    if (before < 0 || before >= kRecomputeDepth) return 0;
    chain = std::max(chain, before + 1);
  }
  return chain;
}

Ref<Array> output(Context& ctx, TapeNode& node, bool keep);

Value input(Context& ctx, const TapeNode& node, size_t k, bool keep) {
  const Value& v = node.inputs[k];
  if (k >= 64 || !(node.again >> k & 1)) return v;
  TapeNode& from = *v.node();
  if (from.released)
    throw Error(
        "backward: the graph was released by a backward function that ran backward over it; pass retain_graph = true "
        "there");
  Value out(v.node_output() == 0 ? output(ctx, from, keep) : from.outputs[v.node_output()]);
  out.link(v.node(), v.node_output());
  return out;
}

// keep: until the node is released, for its other readers.
Ref<Array> output(Context& ctx, TapeNode& node, bool keep) {
  if (node.outputs[0]->buffer) return node.outputs[0];
  const ScopedFlag quiet(ctx.recording, false);
  const Recomputation how = recomputation(*node.op, node.inputs.size());
  Values in;
  for (int32_t k : how.operands)
    in.push_back(k >= 0 ? input(ctx, node, size_t(k), false).detached() : Value(node.outputs[size_t(~k)]));
  const Value out = apply(ctx, *how.op, in, how.op == node.op ? node.attrs : make_attrs(*how.op))[0];
  if (keep) node.outputs[0] = out.array_ref();
  return out.array_ref();
}

DType result_of(const TapeNode& node) { return node.outputs[0]->type.dtype; }

}  // namespace

Recomputation recomputation(const OpDef& op, size_t inputs) {
  if (&op == &op_named<"batch_norm_train">()) return {&op_named<"batch_norm_apply">(), {0, ~1, ~2, 3, 4}};
  Recomputation out{&op, {}};
  for (size_t k = 0; k < inputs; ++k) out.operands.push_back(int32_t(k));
  return out;
}

void save_less(TapeNode& node) {
  const size_t n = std::min<size_t>(node.inputs.size(), 64);
  for (size_t k = 0; k < n; ++k) {
    Value& v = node.inputs[k];
    if (!v.is_array() || !v.array().buffer || bytes_of(v.type()) < kWorthRecomputing) continue;
    Value without = type_only(v);
    if (!v.node() || v.node()->chain == 0 || chain_of(without) <= 0) continue;
    v = std::move(without);
    node.again |= uint64_t(1) << k;
  }
  const Value result(node.outputs[0]);
  if (!node.op->has(kCheap) || !is_float(result.dtype()) || bytes_of(result.type()) < kWorthRecomputing) return;
  node.chain = uint8_t(new_chain(node));
  if (node.chain == 0) return;
  if (node.outputs[0]->buffer) node.outputs[0] = type_only(result).array_ref();
  for (size_t k = 0; k < n; ++k)
    if (!has_data(node.inputs[k]) && !(node.again >> k & 1) && chain_of(node.inputs[k]) >= 0)
      node.again |= uint64_t(1) << k;
}

Value rule_input(Context& ctx, TapeNode& node, size_t k) {
  const bool reads = saved_inputs(*node.op, result_of(node)) >> input_definition(*node.op, node.inputs.size(), k) & 1;
  return reads ? input(ctx, node, k, true) : node.inputs[k];
}

Value rule_output(Context& ctx, TapeNode& node, size_t k) {
  const bool again = k == 0 && node.chain > 0 && saved_outputs(*node.op, result_of(node)) & 1;
  Value out(again ? output(ctx, node, true) : node.outputs[k]);
  if (is_float(out.dtype())) out.link(&node, uint32_t(k));
  return out;
}

}  // namespace pg
