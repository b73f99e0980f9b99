// The tape: nodes that applications of ops leave, and leaves.
#include "tensor/tape.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "tensor/recompute.h"
#include "tensor/rule.h"

namespace pg {

static_assert(sizeof(TapeNode) <= 576);

bool is_large(const Value& v) { return v.is_array() && v.array().buffer && v.array().buffer->bytes > 4096; }

Value type_only(const Value& v) {
  if (!is_large(v)) return v;
  Value out(Array::make(v.type()));
  out.link(v.node(), v.node_output());
  return out;
}

namespace {

bool all_inputs_saved(const OpDef& op, uint32_t mask) { return (mask | (~0u << op.inputs.size())) == ~0u; }

bool may_be_dropped(const Value& v) {
  return v.is_array() && v.array().buffer && Bytes(v.array().buffer->bytes) >= kWorthRecomputing;
}

// whole: also the small inputs that the rule does not read, from which the op itself can be applied again.
void save_inputs(TapeNode& node, const OpDef& op, std::span<const Value> inputs, DType result, bool whole) {
  const uint32_t saved = saved_inputs(op, result);
  const bool all = all_inputs_saved(op, saved);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool keep =
        all || (saved >> input_definition(op, inputs.size(), i) & 1) || (whole && !may_be_dropped(inputs[i]));
    node.inputs.push_back(keep ? inputs[i] : type_only(inputs[i]));
  }
}

void save_outputs(TapeNode& node, const OpDef& op, std::span<const Value> outputs) {
  const uint32_t saved = saved_outputs(op, outputs[0].dtype());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool keep = saved >> std::min(i, op.outputs.size() - 1) & 1;
    node.outputs.push_back(keep ? outputs[i].array_ref() : type_only(outputs[i]).array_ref());
  }
}

bool any_hosted(std::span<const Value> values) {
  return std::any_of(values.begin(), values.end(), [](const Value& v) { return v.node() && v.node()->hosted; });
}

Ref<TapeNode> new_node(Context& ctx) {
  Ref<TapeNode> node(new TapeNode);
  node->sequence = ctx.next_sequence++;
  if (ctx.detect_anomaly && ctx.script_position) node->position = ctx.script_position();
  return node;
}

void link_outputs(const Ref<TapeNode>& node, std::span<Value> outputs) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (is_float(outputs[i].dtype())) outputs[i].link(node.get(), uint32_t(i));
}

bool wants_record(Context& ctx, std::span<const Value> inputs) {
  if (!ctx.recording) return false;
  return std::any_of(inputs.begin(), inputs.end(), [](const Value& v) { return requires_grad(v); });
}

}  // namespace

// Destroys nodes one after the other, without recursion. A node that loses its last reference while another one is
// destroyed is queued, whether an input, a value of a custom backward or the gradient of a leaf held it.
void TapeLink::destroy(TapeLink* link) {
  thread_local TapeNode* doomed = nullptr;  // the queue
  thread_local bool busy = false;
  auto* node = static_cast<TapeNode*>(link);
  node->next_doomed = std::exchange(doomed, node);
  if (busy) return;
  busy = true;
  while (doomed) delete std::exchange(doomed, doomed->next_doomed);
  busy = false;
}

void check_leaf_type(const Type& type) {
  if (!is_float(type.dtype)) bad_argument("attach_grad", "x", "a tensor of a floating dtype", to_string(type));
}

void check_gradient_type(const TapeNode& leaf, const Type& type) {
  if (!(type == leaf.leaf_type))
    bad_argument("grad", "value", "a tensor of type " + to_string(leaf.leaf_type), to_string(type));
}

Ref<TapeNode> make_leaf(const Type& type, GradReq req) {
  check_leaf_type(type);
  Ref<TapeNode> node(new TapeNode);
  node->leaf = true;
  node->req = req;
  node->leaf_type = type;
  node->grad = Ref<Cell>(new Cell);
  node->grad->value = make_filled(type, 0);
  return node;
}

void check_leaf_write(const char* op, bool leaf, bool recording) {
  if (leaf && recording)
    fail(op, "a tensor with attach_grad cannot change in place inside pg.record; use pg.pause or write outside");
}

void check_write(const char* op, const Type& old, const Type& now) {
  if (now.shape == old.shape && now.dtype == old.dtype) return;
  bad_argument(op, "x", fmt::format("a tensor of type {} to hold the result", to_string(now)), to_string(old));
}

void record(Context& ctx, const OpDef& op, std::span<const Value> inputs, const Attrs& attrs,
            std::span<Value> outputs) {
  if (!wants_record(ctx, inputs) || op.has(kNoGrad) || !op.differentiable()) return;
  if (std::none_of(outputs.begin(), outputs.end(), [](const Value& v) { return is_float(v.dtype()); })) return;
  Ref<TapeNode> node = new_node(ctx);
  node->op = &op;
  node->attrs = attrs;
  node->hosted = any_hosted(inputs);
  if (std::none_of(inputs.begin(), inputs.end(), asks_gradient)) node->frozen_from = 0;
  const bool large = may_be_dropped(outputs[0]);
  save_inputs(*node, op, inputs, outputs[0].dtype(), large && op.has(kCheap));
  save_outputs(*node, op, outputs);
  if (large || std::any_of(inputs.begin(), inputs.end(), may_be_dropped)) save_less(*node);
  link_outputs(node, outputs);
}

TapeNode* record_custom(Context& ctx, const std::string& name, std::span<const Value> inputs, std::span<Value> outputs,
                        TapeNode::CustomBackward backward, std::vector<Value> held) {
  if (!wants_record(ctx, inputs)) return nullptr;
  Ref<TapeNode> node = new_node(ctx);
  node->custom_name = name;
  node->custom = std::move(backward);
  node->held = std::move(held);
  node->hosted = any_hosted(inputs) || any_hosted(node->held);
  if (std::none_of(inputs.begin(), inputs.end(), asks_gradient)) node->frozen_from = 0;
  for (const Value& v : inputs) node->inputs.push_back(type_only(v));
  for (const Value& v : outputs) node->outputs.push_back(type_only(v).array_ref());
  link_outputs(node, outputs);
  return node->count() > 1 ? node.get() : nullptr;
}

int64_t kept_bytes(std::span<const Value> heads) {
  std::unordered_set<const TapeNode*> seen;
  std::unordered_set<const Buffer*> buffers;
  std::vector<const TapeNode*> stack;
  int64_t bytes = 0;
  const auto reach = [&](const TapeNode* node) {
    if (node && seen.insert(node).second) stack.push_back(node);
  };
  const auto count = [&](const Array& array) {
    if (array.buffer && buffers.insert(array.buffer.get()).second) bytes += int64_t(array.buffer->bytes);
  };
  const auto count_value = [&](const Value& v) {
    if (v.is_array() && !(v.node() && v.node()->leaf)) count(v.array());
  };
  for (const Value& v : heads) count_value(v), reach(v.node());
  while (!stack.empty()) {
    const TapeNode& node = *stack.back();
    stack.pop_back();
    for (const Value& v : node.inputs) count_value(v);
    for (const Value& v : node.held) count_value(v);
    for (const Ref<Array>& array : node.outputs)
      if (array) count(*array);
    each_link(node, reach);
  }
  return bytes;
}

Value with_history(Context& ctx, Value grad) {
  if (grad.node() || !grad.is_array()) return grad;
  Ref<TapeNode> node = new_node(ctx);
  node->custom_name = "a constant gradient";
  node->outputs.push_back(type_only(grad).array_ref());
  grad.link(node.get(), 0);
  return grad;
}

}  // namespace pg
