// replay: a traced graph applied again, node by node.
#include <algorithm>

#include "graph/builder.h"
#include "graph/model.h"
#include "graph/program.h"
#include "graph/specialize.h"
#include "tensor/rule.h"

namespace pg {
namespace {

class Replayer {
 public:
  Replayer(Context& ctx, const Graph& graph, std::span<const Ref<Generator>> generators)
      : ctx_(ctx), graph_(graph), tracer_(ctx.interpreter->tracer()), builder_(dynamic_cast<GraphBuilder*>(tracer_)),
        generators_(generators), values_(graph.nodes.size()) {
    for (size_t g = 0; g < generators.size(); ++g) {
      const uint64_t ticks = g < graph.ticks.size() ? graph.ticks[g] : 0;
      states_.push_back(builder_ ? builder_->take_ticks(generators[g], ticks) : generators[g]->state());
    }
    for (const TypeGuard& guard : graph.guards) guards_.push_back(&guard);
    std::stable_sort(guards_.begin(), guards_.end(), [](const TypeGuard* a, const TypeGuard* b) { return a->of.node < b->of.node; });
  }

  Values run(std::span<const Value> inputs) {
    for (size_t k = 0; k < graph_.inputs.size(); ++k) values_[size_t(graph_.inputs[k])].push_back(inputs[k]);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      sequences_.push_back(ctx_.next_sequence);
      if (node.kind != NodeKind::kInput) {
        const Imposed imposed(*this, node);
        values_[i] = with_name(name_of(node), [&] { return results(node); });
      }
      check_guards(i);
    }
    if (!tracer_)
      for (size_t g = 0; g < generators_.size() && g < graph_.ticks.size(); ++g)
        generators_[g]->set_state({states_[g].seed, states_[g].tick + graph_.ticks[g]});
    Values out;
    for (const Operand& operand : graph_.outputs) out.push_back(value(operand));
    return out;
  }

 private:
  // What the script called the op, where that is not its name.
  std::string_view name_of(const Node& node) const {
    return node.line < 0 ? std::string_view() : name_in(graph_.lines[size_t(node.line)]);
  }

  // What this graph needs of types, the one that it becomes part of needs too.
  void check_guards(size_t i) {
    for (; next_guard_ < guards_.size() && guards_[next_guard_]->of.node <= int32_t(i); ++next_guard_) {
      const TypeGuard& guard = *guards_[next_guard_];
      if (guard.kind == TypeGuard::kOutputs) continue;
      const Value& v = value(guard.of);
      check_guard(guard, v, guard.line >= 0 ? position_of(graph_.lines[size_t(guard.line)]) : "");
      if (builder_ && v.is_array() && builder_->owns(v)) builder_->guard(v, guard.kind, guard.dim, guard.value);
    }
  }

  // The flags that the script fixed around this node.
  class Imposed {
   public:
    Imposed(Replayer& r, const Node& node)
        : r_(r), training_(r.ctx_.training, node.training == Mode::kAuto ? r.ctx_.training : node.training == Mode::kOn),
          recording_(r.ctx_.recording, node.recording == Mode::kAuto ? r.ctx_.recording : node.recording == Mode::kOn) {
      if (!r.builder_) return;
      before_training_ = r.builder_->imposed_training;
      before_recording_ = r.builder_->imposed_recording;
      if (node.training != Mode::kAuto) r.builder_->imposed_training = node.training;
      if (node.recording != Mode::kAuto) r.builder_->imposed_recording = node.recording;
      before_name_ = r.builder_->imposed_name;
      if (const std::string_view name = r.name_of(node); !name.empty()) r.builder_->imposed_name = name;
    }
    ~Imposed() {
      if (!r_.builder_) return;
      r_.builder_->imposed_training = before_training_;
      r_.builder_->imposed_recording = before_recording_;
      r_.builder_->imposed_name = before_name_;
    }

   private:
    Replayer& r_;
    ScopedFlag training_, recording_;
    Mode before_training_ = Mode::kAuto, before_recording_ = Mode::kAuto;
    std::string_view before_name_;
  };

  const Value& value(const Operand& operand) const { return values_[size_t(operand.node)][size_t(operand.output)]; }

  Values gather(const Node& node) const {
    Values out;
    for (const Operand& operand : node.inputs) {
      if (operand.is_number())
        out.emplace_back(operand.number);
      else
        out.push_back(operand.is_none() ? Value() : value(operand));
    }
    return out;
  }

  Values results(const Node& node) {
    Values in = gather(node);
    switch (node.kind) {
      case NodeKind::kConstant: return {node.constant};
      case NodeKind::kOp: {
        Values out = apply(ctx_, *node.op, in, attrs_of(node));
        check_outputs(node, out.size(), graph_);
        return out;
      }
      case NodeKind::kDetach: return {tracer_ ? tracer_->detach(ctx_, in[0]) : in[0].detached()};
      case NodeKind::kLeaf:
        if (node.create_graph && builder_) return {builder_->fresh_input(ctx_, in[0])};
        if (node.create_graph && in[0].has_node()) return apply(ctx_, op_named<"reshape_as">(), Values{in[0], in[0]}, {});
        return {as_leaf(in[0], node.req)};
      case NodeKind::kWrite:
        return {write(node, in[1], in[0])};
      case NodeKind::kGradient: return gradient(node, in);
      case NodeKind::kCustom: return custom(node, in);
      case NodeKind::kCond:
      case NodeKind::kLoop: return builder_ ? traced_control(node, in) : run_control(node, in);
      default: throw Error("graph: this kind of node cannot be replayed");
    }
  }

  Attrs attrs_of(const Node& node) const {
    Attrs attrs = node.attrs;
    if (node.op->random_attr < 0) return attrs;
    AttrValue& value = attrs[size_t(node.op->random_attr)];
    const auto& key = std::get<RandomKey>(value);
    value = RandomKey{states_[key.seed].seed, states_[key.seed].tick + key.tick};
    return attrs;
  }

  Value write(const Node& node, const Value& old, const Value& now) {
    const bool leaf = is_leaf(old.node());
    if (!node.name.empty()) {
      check_leaf_write(node.name.c_str(), leaf, ctx_.recording);
      check_write(node.name.c_str(), old.type(), now.type());
    }
    if (tracer_) return tracer_->write(ctx_, node.name, old, now);
    if (!leaf) return now;
    Value out = now.detached();
    out.link(old.node(), old.node_output());
    return out;
  }

  Value as_leaf(const Value& v, GradReq req) {
    leaves_.push_back(make_leaf(v.type(), req));
    if (tracer_) return tracer_->leaf(ctx_, v, leaves_.back().get());
    Value out = v.detached();
    out.link(leaves_.back().get(), 0);
    return out;
  }

  Values gradient(const Node& node, const Values& in) {
    const size_t heads = size_t(node.heads);
    const uint64_t first = node.first > 0 && size_t(node.first) < sequences_.size() ? sequences_[size_t(node.first)] : 0;
    Values head_values, cotangents, wanted;
    for (size_t k = 0; k < in.size(); ++k) (k < heads ? head_values : k < 2 * heads ? cotangents : wanted).push_back(in[k]);
    if (tracer_) return tracer_->gradient(ctx_, head_values, cotangents, wanted, node.create_graph, first);
    Values flowing, with;
    for (size_t k = 0; k < heads; ++k)
      if (head_values[k].has_node()) flowing.push_back(head_values[k]), with.push_back(cotangents[k]);
    Values out = flowing.empty() ? Values(wanted.size()) : gradients(ctx_, flowing, with, wanted, {true, node.create_graph, first});
    for (size_t k = 0; k < out.size(); ++k)
      if (!out[k].defined()) out[k] = make_filled(wanted[k].type(), 0);
    return out;
  }

  Values custom(const Node& node, const Values& in) {
    const size_t inputs = size_t(node.heads), outputs = node.types.size();
    Values from, out, saved;
    for (size_t k = 0; k < in.size(); ++k) (k < inputs ? from : k < inputs + outputs ? out : saved).push_back(in[k]);
    if (builder_) return builder_->custom(ctx_, node.name, from, out, saved, node.bodies[0]);
    for (Value& v : out) v = v.detached();
    const std::shared_ptr<const Graph> body = node.bodies[0];
    const std::vector<Ref<Generator>> generators(generators_.begin(), generators_.end());
    record_custom(ctx_, node.name, from, out,
                  [body, generators](Context& ctx, TapeNode& entry, std::span<const Value> dys) {
                    Values arguments{std::span<const Value>(entry.held)};
                    for (size_t k = 0; k < dys.size(); ++k)
                      arguments.push_back(dys[k].defined() ? dys[k] : make_filled(entry.outputs[k]->type, 0));
                    return replay(ctx, *body, arguments, generators);
                  },
                  {saved.begin(), saved.end()});
    return out;
  }

  // A body for inputs of these types and histories, its outputs as symbols in it.
  Values replay_body(GraphBuilder& to, const Graph& body, const Values& inputs) {
    to.own_streams = true;
    to.imposed_training = builder_->imposed_training;
    to.imposed_recording = builder_->imposed_recording;
    Interpreter* const outer = std::exchange(ctx_.interpreter, &to);
    Values own, out;
    for (const Value& v : inputs) {
      own.push_back(to.add_input(v.type()));
      own.back().link(v.node(), v.node_output());
    }
    try {
      out = replay(ctx_, body, own, generators_);
    } catch (...) {
      ctx_.interpreter = outer;
      throw;
    }
    ctx_.interpreter = outer;
    for (const Value& v : out) to.graph.outputs.push_back(to.operand_of(v));
    if (!to.captures.empty()) throw Error("graph: a body is not closed");
    return out;
  }

  // The ticks that name the node's streams are among those of this graph, taken at its start.
  std::vector<BodyStream> streams_of(const Node& node) const {
    std::vector<BodyStream> out;
    for (const BodyStream& s : node.streams) out.push_back({states_[s.generator].seed, states_[s.generator].tick + s.tick});
    return out;
  }

  static Value row_of(const Value& v) {
    Value row(Array::make(row_type(v.type())));
    row.link(v.node(), v.node_output());
    return row;
  }

  Values traced_control(const Node& node, const Values& in) {
    Node copy = node;
    copy.line = -1;  // of this graph; the builder asks for its own
    copy.bodies.clear();
    copy.types.clear();
    std::vector<char> flows;
    auto add_output = [&](const Value& v, const Type& type) {
      copy.types.push_back(type);
      flows.push_back(requires_grad(v));
    };
    if (node.kind == NodeKind::kCond) {
      GraphBuilder a(GraphBuilder::Stage::kTrace, builder_), b(GraphBuilder::Stage::kTrace, builder_);
      Values captures;
      for (size_t k = 1; k < in.size(); ++k) captures.push_back(in[k]);
      const Values x = replay_body(a, *node.bodies[0], captures), y = replay_body(b, *node.bodies[1], captures);
      for (size_t k = 0; k < x.size(); ++k) add_output(requires_grad(x[k]) ? x[k] : y[k], x[k].type());
      copy.streams = streams_of(node);
      for (GraphBuilder* body : {&a, &b}) copy.bodies.push_back(std::make_shared<const Graph>(std::move(body->graph)));
      return builder_->control(ctx_, std::move(copy), in, flows);
    }
    LoopForm& form = copy.loop;
    const bool condition = node.bodies.size() == 2;
    const size_t first = size_t(form.first_slice(condition)), slices = size_t(form.slices), carries = size_t(form.carries);
    if (slices > 0 && !form.counted && !form.conditional) form.limit = in[first].shape()[0];
    GraphBuilder body(GraphBuilder::Stage::kTrace, builder_), test(GraphBuilder::Stage::kTrace, builder_);
    const Value index(Array::make(Type{DType::kInt64, {}, {}}));
    Values inputs{index}, tested{index};
    for (size_t k = first; k < in.size(); ++k) {
      inputs.push_back(k < first + slices ? row_of(in[k]) : in[k]);
      if (k >= first + slices) tested.push_back(in[k]);
    }
    const Values out = replay_body(body, *node.bodies[0], inputs);
    if (condition) replay_body(test, *node.bodies[1], tested);
    const size_t flag = form.conditional && !condition;
    add_output(index, index.type());
    for (size_t k = flag; k < out.size(); ++k)
      add_output(out[k], k < flag + carries ? out[k].type() : stack_type(out[k].type(), std::max<int64_t>(form.limit, 0)));
    copy.streams = streams_of(node);
    copy.bodies.push_back(std::make_shared<const Graph>(std::move(body.graph)));
    if (condition) copy.bodies.push_back(std::make_shared<const Graph>(std::move(test.graph)));
    return builder_->control(ctx_, std::move(copy), in, flows);
  }

  // As a program of its own.
  Values run_control(const Node& node, const Values& in) {
    Graph graph;
    graph.ticks = graph_.ticks;
    Node copy = node;
    copy.line = -1;
    for (size_t k = 0; k < in.size(); ++k) {
      Node input;
      input.kind = NodeKind::kInput;
      input.types.push_back(in[k].type());
      copy.inputs[k] = Operand::of(k);
      graph.inputs.push_back(int32_t(k));
      graph.nodes.push_back(std::move(input));
    }
    for (size_t k = 0; k < copy.types.size(); ++k) graph.outputs.push_back(Operand::of(in.size(), k));
    graph.nodes.push_back(std::move(copy));
    const Ref<Program> program(new Program(std::move(graph), {generators_.begin(), generators_.end()}, {}));
    Values arguments = in;
    return program->run_with(ctx_, arguments, states_);
  }

  Context& ctx_;
  const Graph& graph_;
  Tracer* tracer_;
  GraphBuilder* builder_;
  std::span<const Ref<Generator>> generators_;
  std::vector<RandomKey> states_;
  std::vector<const TypeGuard*> guards_;  // in the order of the nodes
  size_t next_guard_ = 0;
  std::vector<Values> values_;
  std::vector<uint64_t> sequences_;
  std::vector<Ref<TapeNode>> leaves_;
};

}  // namespace

Values replay(Context& ctx, const Graph& graph, std::span<const Value> inputs, std::span<const Ref<Generator>> generators) {
  if (inputs.size() != graph.inputs.size())
    throw Error(fmt::format("graph: takes {} inputs, got {}", graph.inputs.size(), inputs.size()));
  return Replayer(ctx, graph, generators).run(inputs);
}

}  // namespace pg
