#include "graph/specialize/interpret.h"

#include <algorithm>

#include "tensor/rule.h"
#include "tensor/stack_depth.h"

namespace pg {
namespace {

bool flag_of(Mode mode, bool run) { return mode == Mode::kAuto ? run : mode == Mode::kOn; }

// Returns `count` of the values, starting at `first`.
Values part(const Values& values, size_t first, size_t count) {
  return Values(std::span<const Value>(values).subspan(first, count));
}

}  // namespace

Values TraceInterpreter::interpret(const Graph& graph, std::span<const Value> inputs) {
  check_body_depth();
  Frame frame{&graph, std::vector<Values>(graph.nodes.size()), {}, {}, 0};
  for (size_t k = 0; k < graph.inputs.size(); ++k) frame.values[size_t(graph.inputs[k])].push_back(inputs[k]);
  for (const TypeGuard& guard : graph.guards) frame.guards.push_back(&guard);
  std::stable_sort(frame.guards.begin(), frame.guards.end(),
                   [](const TypeGuard* a, const TypeGuard* b) { return a->of.node < b->of.node; });
  struct Restore {
    Frame*& current;
    Frame* before;
    ~Restore() { current = before; }
  } const restore{frame_, std::exchange(frame_, &frame)};
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    frame.sequences.push_back(ctx_.next_sequence);
    if (node.kind != NodeKind::kInput) {
      const ScopedFlag recording(ctx_.recording, flag_of(node.recording, ctx_.recording));
      const ScopedFlag training(ctx_.training, flag_of(node.training, ctx_.training));
      frame.values[i] = apply_node(node);
    }
    check_guards(i);
  }
  Values out;
  for (const Operand& operand : graph.outputs) out.push_back(value(operand));
  return out;
}

void TraceInterpreter::check_guards(size_t node) {
  Frame& f = *frame_;
  for (; f.next_guard < f.guards.size() && f.guards[f.next_guard]->of.node <= int32_t(node); ++f.next_guard) {
    const TypeGuard& guard = *f.guards[f.next_guard];
    if (guard.kind == TypeGuard::kOutputs) continue;
    const Value& v = value(guard.of);
    check_guard(guard, v, guard.line >= 0 ? position_of(f.graph->lines[size_t(guard.line)]) : "");
    held(guard, v);
  }
}

std::string_view TraceInterpreter::name_of(const Node& node) const {
  return node.line < 0 ? std::string_view() : name_in(graph().lines[size_t(node.line)]);
}

Values TraceInterpreter::apply_node(const Node& node) {
  return with_name(name_of(node), [&] { return results(node); });
}

Values TraceInterpreter::gather(std::span<const Operand> operands) const {
  Values out;
  for (const Operand& operand : operands) {
    if (operand.is_number())
      out.emplace_back(operand.number);
    else
      out.push_back(operand.is_none() ? Value() : value(operand));
  }
  return out;
}

Attrs TraceInterpreter::attrs_of(const Node& node) const {
  Attrs attrs = node.attrs;
  if (node.op->random_attr < 0) return attrs;
  AttrValue& value = attrs[size_t(node.op->random_attr)];
  if (value.index() == 0) return attrs;  // of an older file
  const RandomKey key = std::get<RandomKey>(value), state = state_of(key.seed);
  value = RandomKey{state.seed, state.tick + key.tick};
  return attrs;
}

Values TraceInterpreter::results(const Node& node) {
  Values in = gather(node.inputs);
  const size_t heads = size_t(node.heads), outputs = node.types.size();
  switch (node.kind) {
    case NodeKind::kConstant:
      return {node.constant};
    case NodeKind::kOp: {
      if (is_control(node)) return control(node, in);
      Values out = apply(ctx_, *node.op, in, attrs_of(node));
      check_outputs(node, out.size(), graph());
      return out;
    }
    case NodeKind::kDetach:
      return {detach(in[0])};
    case NodeKind::kLeaf:
      return {leaf(node, in[0])};
    case NodeKind::kWrite: {
      if (!node.name.empty()) {
        check_leaf_write(node.name.c_str(), is_leaf(in[1]), ctx_.recording);
        check_write(node.name.c_str(), in[1].type(), in[0].type());
      }
      return {write(node, in[1], in[0])};
    }
    case NodeKind::kGradient: {
      const uint64_t first =
          node.first > 0 && size_t(node.first) < frame_->sequences.size() ? frame_->sequences[size_t(node.first)] : 0;
      return gradient(node, part(in, 0, heads), part(in, heads, heads), part(in, 2 * heads, in.size() - 2 * heads),
                      first);
    }
    case NodeKind::kCustom:
      return custom(node, part(in, 0, heads), part(in, heads, outputs),
                    part(in, heads + outputs, in.size() - heads - outputs));
    default:
      throw Error("graph: a trace cannot hold this kind of node");
  }
}

Value TraceInterpreter::leaf(const Node& node, const Value& x) {
  if (node.create_graph && x.has_node()) return apply(ctx_, op_named<"reshape_as">(), Values{x, x}, {})[0];
  return as_leaf(x, node.req);
}

Value TraceInterpreter::as_leaf(const Value& x, GradReq req) {
  leaves_.push_back(new_leaf(x.type(), req));
  Value out = x.detached();
  out.link(leaves_.back().get(), 0);
  return out;
}

Value TraceInterpreter::write(const Node&, const Value& old, const Value& now) {
  if (!is_leaf(old)) return now;
  if (!(old.type() == now.type())) return as_leaf(now, old.node()->req);
  Value out = now.detached();
  out.link(old.node(), old.node_output());
  return out;
}

Values TraceInterpreter::gradient(const Node& node, const Values& heads, const Values& cotangents, const Values& wanted,
                                  uint64_t first) {
  Values flowing, with;  // a head without history contributes nothing
  for (size_t k = 0; k < heads.size(); ++k)
    if (heads[k].has_node()) flowing.push_back(heads[k]), with.push_back(cotangents[k]);
  Values out = flowing.empty() ? Values(wanted.size())
                               : gradients(ctx_, flowing, with, wanted, {true, node.create_graph, first});
  for (size_t k = 0; k < out.size(); ++k)
    if (!out[k].defined()) out[k] = ctx_.interpreter->filled(ctx_, wanted[k].type(), 0);
  return out;
}

// By saved tensor of a Function: the output that it is, or -1.
static std::vector<int> saved_outputs(const Graph& graph, const Node& node, const Values& saved) {
  const auto source = [&](size_t k) {
    Operand operand = node.inputs[k];
    while (operand.is_node() && graph.node(operand).kind == NodeKind::kDetach) operand = graph.node(operand).inputs[0];
    return operand;
  };
  const size_t outputs = node.types.size(), first = size_t(node.heads);
  std::vector<int> out(saved.size(), -1);
  for (size_t i = 0; i < saved.size(); ++i)
    for (size_t k = 0; k < outputs; ++k)  // an input that is an output too has the history of the input
      if (!saved[i].has_node() && source(first + outputs + i) == source(first + k)) out[i] = int(k);
  return out;
}

Values TraceInterpreter::custom(const Node& node, const Values& inputs, Values outputs, const Values& saved) {
  for (Value& v : outputs) v = v.detached();
  const Backward backward = backward_of(node.body);
  const std::vector<int> links = saved_outputs(graph(), node, saved);
  record_custom(
      ctx_, node.name, inputs, outputs,
      [backward, links](Context& ctx, TapeNode& entry, std::span<const Value> dys) {
        Values arguments{std::span<const Value>(entry.held)};
        for (size_t i = 0; i < links.size(); ++i)
          if (links[i] >= 0) arguments[i].link(&entry, uint32_t(links[i]));
        for (size_t k = 0; k < dys.size(); ++k)
          arguments.push_back(dys[k].defined() ? dys[k] : ctx.interpreter->filled(ctx, entry.outputs[k]->type, 0));
        return backward(ctx, arguments);
      },
      {saved.begin(), saved.end()});
  return outputs;
}

}  // namespace pg
