#include "graph/specialize_replay.h"

#include <algorithm>
#include <unordered_set>

#include "tensor/rule.h"

namespace pg {
namespace {

bool flag_of(Mode mode, bool run) { return mode == Mode::kAuto ? run : mode == Mode::kOn; }

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
    case TypeGuard::kDim: return fmt::format("size {} of dim {}", value, dim + 1);
    case TypeGuard::kRank: return fmt::format("{} dims", value);
    case TypeGuard::kDType: return name_of(DType(value));
    case TypeGuard::kDevice: return name_of(Device{uint8_t(value >> 8), uint8_t(value)});
    case TypeGuard::kRequiresGrad: return value ? "requires_grad" : "no requires_grad";
    case TypeGuard::kOutputs:
      return fmt::format("{} outputs", value);
  }
  return "";
}

int64_t answer(const TypeGuard& guard, const Value& v) {
  switch (guard.kind) {
    case TypeGuard::kDim: return guard.dim < v.rank() ? v.shape()[guard.dim] : -1;
    case TypeGuard::kRank: return v.rank();
    case TypeGuard::kDType: return int64_t(v.dtype());
    case TypeGuard::kDevice: return int64_t(v.device().kind) << 8 | v.device().index;
    case TypeGuard::kRequiresGrad: return requires_grad(v);
    case TypeGuard::kOutputs:
      return guard.value;  // see check_outputs
  }
  return 0;
}

// The tape entries that backward from the heads comes to.
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

}  // namespace

Replay::Replay(const Graph& trace, const Signature& signature, Heads heads)
    : trace_(trace), signature_(signature), heads_(std::move(heads)), builder_(GraphBuilder::Stage::kReplay), values_(trace.nodes.size()) {
  ctx_.interpreter = &builder_;
  builder_.graph.lines = trace.lines;
  builder_.graph.ticks = trace.ticks;
}

Specialized Replay::run() {
  add_inputs();
  Guards guards(trace_);
  for (size_t i = 0; i < trace_.nodes.size(); ++i) {
    first_sequences_.push_back(ctx_.next_sequence);
    replay(i);
    guards.check(*this, i);
  }
  Values outputs;
  for (const Operand& operand : trace_.outputs) outputs.push_back(value(operand));
  Specialized out;
  out.outputs = outputs.size();
  for (const Value& v : outputs) {
    builder_.graph.outputs.push_back(builder_.operand_of(v));
    flows.push_back(v.has_node() && is_float(v.dtype()));
  }
  if (signature_.recording && heads_.differentiate) differentiate(outputs, out);
  out.graph = without_dead_nodes(builder_.graph);
  return out;
}

void Replay::add_inputs() {
  for (size_t i = 0; i < trace_.inputs.size(); ++i) {
    const Node& node = trace_.nodes[size_t(trace_.inputs[i])];
    Value v = builder_.add_input(signature_.types[i], node.name);
    const Flow flow = signature_.flows[i];
    if (flow != Flow::kNone) {
      leaves_.push_back(fresh_leaf(ctx_, v.type(), flow == Flow::kAdd ? GradReq::kAdd : GradReq::kWrite));
      v.link(leaves_.back().get(), 0);
      if (flow == Flow::kHistory) histories_.insert(leaves_.back().get());
    }
    inputs_.push_back(v);
    values_[size_t(trace_.inputs[i])].push_back(v);
  }
}

Replay::Guards::Guards(const Graph& graph) : graph_(graph) {
  for (const TypeGuard& guard : graph.guards) sorted_.push_back(&guard);
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [](const TypeGuard* a, const TypeGuard* b) { return a->of.node < b->of.node; });
}

void Replay::Guards::check(Replay& replay, size_t i) {
  for (; next_ < sorted_.size() && sorted_[next_]->of.node <= int32_t(i); ++next_)
    replay.check_one(*sorted_[next_], graph_);
}

void Replay::check_one(const TypeGuard& guard, const Graph& of) {
  if (guard.kind == TypeGuard::kOutputs) return;
  check_guard(guard, value(guard.of), guard.line >= 0 ? position_of(of.lines[size_t(guard.line)]) : "");
}

Values Replay::gather(std::span<const Operand> operands) const {
  Values out;
  for (const Operand& operand : operands) {
    if (operand.is_number())
      out.emplace_back(operand.number);
    else
      out.push_back(operand.is_none() ? Value() : value(operand));
  }
  return out;
}

void Replay::replay(size_t i) {
  const Node& node = trace_.nodes[i];
  if (node.kind == NodeKind::kInput) return;
  builder_.current_line = node.line;
  ScopedFlag recording(ctx_.recording, flag_of(node.recording, signature_.recording));
  ScopedFlag training(ctx_.training, flag_of(node.training, signature_.training));
  try {
    values_[i] = results(node);
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

Values Replay::results(const Node& node) {
  Values in = gather(node.inputs);
  switch (node.kind) {
    case NodeKind::kConstant: return {builder_.add_constant(node.constant)};
    case NodeKind::kOp: {
      Values out = apply(ctx_, *node.op, in, node.attrs);
      check_outputs(node, out.size(), *of_);
      return out;
    }
    case NodeKind::kDetach: return {in[0].detached()};
    case NodeKind::kLeaf:
      if (node.create_graph && in[0].has_node()) return apply(ctx_, op_named<"reshape_as">(), Values{in[0], in[0]}, {});
      return {as_leaf(in[0], node.req)};
    case NodeKind::kWrite:
      return {write(node, in[1], in[0])};
    case NodeKind::kGradient: return gradient(node, in);
    case NodeKind::kCustom: return custom(node, in);
    case NodeKind::kCond: return cond(node, in);
    case NodeKind::kLoop: return loop(node, in);
    default: throw Error("a trace cannot hold this kind of node");
  }
}

Value Replay::write(const Node& node, const Value& old, const Value& now) {
  const bool leaf = old.node() && old.node()->leaf && !histories_.count(old.node());
  if (!node.name.empty()) {
    check_leaf_write(node.name.c_str(), leaf, ctx_.recording);
    check_write(node.name.c_str(), old.type(), now.type());
  }
  if (!leaf) return now;
  if (!(old.type() == now.type())) return as_leaf(now, old.node()->req);
  Value out = now.detached();
  out.link(old.node(), old.node_output());
  return out;
}

Value Replay::as_leaf(const Value& v, GradReq req) {
  check_leaf_type(v.type());
  leaves_.push_back(fresh_leaf(ctx_, v.type(), req));
  Value out = v.detached();
  out.link(leaves_.back().get(), 0);
  return out;
}

Values Replay::gradient(const Node& node, const Values& in) {
  const size_t heads = size_t(node.heads);
  BackwardOptions options{true, node.create_graph, 0};
  if (node.first > 0) options.first = sequence_of(size_t(node.first));
  Values head_values, cotangents, wanted;
  for (size_t k = 0; k < in.size(); ++k) (k < heads ? head_values : k < 2 * heads ? cotangents : wanted).push_back(in[k]);
  Values out = flowing_gradients(head_values, cotangents, wanted, options);
  for (size_t k = 0; k < out.size(); ++k)
    if (!out[k].defined()) out[k] = builder_.filled(ctx_, wanted[k].type(), 0);
  return out;
}

// Heads without history contribute nothing.
Values Replay::flowing_gradients(const Values& heads, const Values& cotangents, const Values& wanted, BackwardOptions options) {
  Values flowing, with;
  for (size_t k = 0; k < heads.size(); ++k)
    if (heads[k].has_node()) flowing.push_back(heads[k]), with.push_back(k < cotangents.size() ? cotangents[k] : Value());
  return flowing.empty() ? Values(wanted.size()) : gradients(ctx_, flowing, with, wanted, options);
}

Values Replay::custom(const Node& node, const Values& in) {
  const size_t inputs = size_t(node.heads), outputs = node.types.size();
  Values from, out, saved;
  for (size_t k = 0; k < in.size(); ++k) (k < inputs ? from : k < inputs + outputs ? out : saved).push_back(in[k]);
  for (Value& v : out) v = v.detached();
  const std::shared_ptr<const Graph> backward = node.bodies[0];
  record_custom(ctx_, node.name, from, out, [this, backward, saved](Context&, TapeNode& entry, std::span<const Value> dys) {
    Values arguments = saved;
    for (size_t k = 0; k < dys.size(); ++k)
      arguments.push_back(dys[k].defined() ? dys[k] : builder_.filled(ctx_, entry.outputs[k]->type, 0));
    return inlined(*backward, arguments);
  });
  return out;
}

// The outputs of a closed graph, applied here.
Values Replay::inlined(const Graph& body, const Values& arguments) {
  std::vector<Values> values(body.nodes.size());
  for (size_t k = 0; k < body.inputs.size(); ++k) values[size_t(body.inputs[k])].push_back(arguments[k]);
  std::swap(values, values_);
  const Graph* outer = std::exchange(of_, &body);
  Guards guards(body);
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    if (body.nodes[i].kind != NodeKind::kInput) values_[i] = results(body.nodes[i]);
    guards.check(*this, i);
  }
  Values out;
  for (const Operand& operand : body.outputs) out.push_back(value(operand));
  std::swap(values, values_);
  of_ = outer;
  return out;
}

void Replay::differentiate(const Values& outputs, Specialized& out) {
  Values heads, cotangents, wanted;
  const size_t nodes = builder_.graph.nodes.size();
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!flows[k] || (!heads_.chosen.empty() && !heads_.chosen[k])) continue;
    out.heads.push_back(int32_t(k));
    heads.push_back(outputs[k]);
    cotangents.push_back(builder_.add_input(outputs[k].type(), fmt::format("cotangent {}", k + 1)));
  }
  if (heads.empty()) return;
  const std::unordered_set<const TapeNode*> history = history_of(heads);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].has_node()) continue;
    wanted.push_back(inputs_[i]);
    if (history.count(inputs_[i].node())) out.reached.push_back(int32_t(i));
  }
  builder_.current_line = -1;
  Values grads = gradients(ctx_, heads, cotangents, wanted, {true, false, 0});
  size_t next = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].has_node()) continue;
    Value& grad = grads[next++];
    if (!grad.defined()) continue;
    out.wanted.push_back(int32_t(i));
    builder_.graph.outputs.push_back(builder_.operand_of(grad));
  }
  if (out.reached.empty()) {  // the history ends inside
    builder_.graph.nodes.resize(nodes);
    builder_.graph.inputs.resize(inputs_.size());
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

Specialized specialize(const Graph& trace, const Signature& signature) { return Replay(trace, signature).run(); }

}  // namespace pg
