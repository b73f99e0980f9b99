#include "graph/specialize/specializer.h"

#include <algorithm>
#include <unordered_set>

#include "graph/ir/history.h"
#include "tensor/rule.h"

namespace pg {
namespace {

Ref<TapeNode> fresh_leaf(Context& ctx, const Type& type, GradReq req) {
  Ref<TapeNode> leaf(new TapeNode);
  leaf->leaf = true;
  leaf->req = req;
  leaf->leaf_type = type;
  leaf->sequence = ctx.next_sequence++;
  return leaf;
}

std::string describe(TypeGuard::Kind kind, int32_t dim, int64_t value) {
  switch (kind) {
    case TypeGuard::kDim:
      return fmt::format("size {} of dim {}", value, dim + 1);
    case TypeGuard::kRank:
      return fmt::format("{} dims", value);
    case TypeGuard::kDType:
      return name_of(DType(value));
    case TypeGuard::kDevice:
      return name_of(Device{uint8_t(value >> 8), uint8_t(value)});
    case TypeGuard::kRequiresGrad:
      return value ? "requires_grad" : "no requires_grad";
    case TypeGuard::kOutputs:
      return fmt::format("{} outputs", value);
  }
  return "";
}

int64_t answer(const TypeGuard& guard, const Value& v) {
  switch (guard.kind) {
    case TypeGuard::kDim:
      return guard.dim < v.rank() ? v.shape()[guard.dim] : -1;
    case TypeGuard::kRank:
      return v.rank();
    case TypeGuard::kDType:
      return int64_t(v.dtype());
    case TypeGuard::kDevice:
      return int64_t(v.device().kind) << 8 | v.device().index;
    case TypeGuard::kRequiresGrad:
      return asks_gradient(v);
    case TypeGuard::kOutputs:
      return guard.value;  // see check_outputs
  }
  return 0;
}

}  // namespace

std::unordered_set<const TapeNode*> history_of(std::span<const Value> heads) {
  std::unordered_set<const TapeNode*> seen;
  std::vector<const TapeNode*> open;
  auto meet = [&](const Value& v) {
    if (v.has_node() && seen.insert(v.node()).second) open.push_back(v.node());
  };
  for (const Value& head : heads) meet(head);
  while (!open.empty()) {
    const TapeNode* node = open.back();
    open.pop_back();
    for (const Value& v : node->inputs) meet(v);
  }
  return seen;
}

Specializer::Specializer(const Graph& trace, const Signature& signature, Heads heads)
    : TraceInterpreter(own_ctx_),
      trace_(trace),
      signature_(signature),
      heads_(std::move(heads)),
      builder_(GraphBuilder::Stage::kReplay) {
  ctx_.interpreter = &builder_;
  builder_.graph.lines = trace.lines;
  builder_.graph.ticks = trace.ticks;
}

Specialized Specializer::run() {
  const Values inputs = add_inputs();
  Values outputs;
  {
    const ScopedFlag recording(ctx_.recording, signature_.recording), training(ctx_.training, signature_.training);
    outputs = interpret(trace_, inputs);
  }
  Specialized out;
  out.outputs = outputs.size();
  for (const Value& v : outputs) {
    builder_.graph.outputs.push_back(builder_.operand_of(v));
    flows.push_back(v.has_node() && is_float(v.dtype()));
  }
  if (signature_.recording && heads_.differentiate) differentiate(inputs, outputs, out);
  results_ = std::move(outputs);
  out.graph = without_dead_nodes(with_extensions(builder_.graph, extensions_));
  return out;
}

Values Specializer::add_inputs() {
  Values inputs;
  for (size_t i = 0; i < trace_.inputs.size(); ++i) {
    const Node& node = trace_.nodes[size_t(trace_.inputs[i])];
    Value v = builder_.add_input(signature_.types[i], node.name);
    const Flow flow = signature_.flows[i];
    Ref<TapeNode>& leaf = input_leaves_.emplace_back();
    if (flow != Flow::kNone) {
      leaf = fresh_leaf(ctx_, v.type(), flow == Flow::kAdd ? GradReq::kAdd : GradReq::kWrite);
      v.link(leaf.get(), 0);
      if (flow == Flow::kHistory) histories_.insert(leaf.get());
    }
    inputs.push_back(v);
  }
  return inputs;
}

// A node of the trace has a line of the script. The nodes of a nested graph get the line of the node that contains it.
Values Specializer::apply_node(const Node& node) {
  if (&graph() != &trace_) return results(node);
  builder_.current_line = node.line;
  try {
    return results(node);
  } catch (const PositionedError&) {
    throw;
  } catch (const Retrace&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    if (node.line < 0) throw;
    throw PositionedError(error_at(trace_.lines[size_t(node.line)], e.what()));
  }
}

bool Specializer::is_leaf(const Value& x) const { return x.node() && x.node()->leaf && !histories_.count(x.node()); }

Ref<TapeNode> Specializer::new_leaf(const Type& type, GradReq req) {
  check_leaf_type(type);
  return fresh_leaf(ctx_, type, req);
}

Values Specializer::gradient(const Node& node, const Values& heads, const Values& cotangents, const Values& wanted,
                             uint64_t first) {
  const size_t from = builder_.graph.nodes.size();
  Values out = TraceInterpreter::gradient(node, heads, cotangents, wanted, first);
  if (node.quiet) remove_effects(builder_.graph, from);
  return out;
}

TraceInterpreter::Backward Specializer::backward_of(const std::shared_ptr<const Graph>& body) {
  return [this, body](Context&, std::span<const Value> arguments) { return interpret(*body, arguments); };
}

size_t Specializer::output_of(int32_t node) const {
  const auto at = std::find_if(trace_.outputs.begin(), trace_.outputs.end(),
                               [&](const Operand& output) { return output.node == node; });
  return size_t(at - trace_.outputs.begin());
}

void Specializer::differentiate(const Values& inputs, const Values& outputs, Specialized& out) {
  Values heads, cotangents, wanted, sources = inputs;
  const size_t nodes = builder_.graph.nodes.size();
  for (int32_t leaf : heads_.leaves) sources.push_back(outputs[output_of(leaf)]);
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (std::count(heads_.leaves.begin(), heads_.leaves.end(), made_leaf(trace_, trace_.outputs[k]))) continue;
    if (!flows[k] || (!heads_.chosen.empty() && !heads_.chosen[k])) continue;
    out.heads.push_back(int32_t(k));
    heads.push_back(outputs[k]);
    cotangents.push_back(builder_.add_input(outputs[k].type(), fmt::format("cotangent {}", k + 1)));
  }
  if (heads.empty()) return;
  const std::unordered_set<const TapeNode*> history = history_of(heads);
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].has_node()) continue;
    wanted.push_back(sources[i]);
    if (history.count(sources[i].node())) out.reached.push_back(int32_t(i));
  }
  builder_.current_line = -1;
  Values grads = gradients(ctx_, heads, cotangents, wanted, {true, false, 0});
  size_t next = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i].has_node()) continue;
    Value& grad = grads[next++];
    if (!grad.defined()) continue;
    out.wanted.push_back(int32_t(i));
    builder_.graph.outputs.push_back(builder_.operand_of(grad));
  }
  if (out.reached.empty()) {  // the history of the heads reaches none of them
    builder_.graph.nodes.resize(nodes);
    std::erase_if(extensions_, [&](const Extension& e) { return size_t(e.by) >= nodes; });
    builder_.graph.inputs.resize(inputs.size());
    out.heads.clear();
  }
}

bool Signature::operator==(const Signature& other) const {
  return recording == other.recording && training == other.training &&
         std::equal(types.begin(), types.end(), other.types.begin(), other.types.end()) &&
         std::equal(flows.begin(), flows.end(), other.flows.begin(), other.flows.end());
}

void check_guard(const TypeGuard& guard, const Value& value, const std::string& line) {
  const int64_t now = answer(guard, value);
  if (now == guard.value) return;
  throw Retrace(fmt::format("{}{}the script read {}, now it is {}", line, line.empty() ? "" : ": ",
                            describe(guard.kind, guard.dim, guard.value), describe(guard.kind, guard.dim, now)));
}

void check_outputs(const Node& node, size_t outputs, const Graph& of) {
  if (outputs == node.types.size()) return;
  const std::string line = node.line >= 0 ? position_of(of.lines[size_t(node.line)]) : "";
  throw Retrace(fmt::format("{}{}the script got {} outputs of {}, now there are {}", line, line.empty() ? "" : ": ",
                            node.types.size(), node.op->name, outputs));
}

Specialized specialize(const Graph& trace, const Signature& signature, std::span<const int32_t> leaves) {
  Heads heads;
  heads.leaves = leaves;
  return Specializer(trace, signature, std::move(heads)).run();
}

}  // namespace pg
