// replay: applies a traced graph again, eagerly or as part of the trace under construction.
#include "graph/exec/program.h"
#include "graph/io/model.h"
#include "graph/ir/builder.h"
#include "graph/specialize/interpret.h"

namespace pg {
namespace {

class EagerReplay : public TraceInterpreter {
 public:
  EagerReplay(Context& ctx, const Graph& graph, std::span<const Ref<Generator>> generators)
      : TraceInterpreter(ctx), graph_(graph), generators_(generators.begin(), generators.end()) {
    for (const Ref<Generator>& generator : generators) states_.push_back(generator->state());
  }

  Values run(std::span<const Value> inputs) {
    Values out = interpret(graph_, inputs);
    for (size_t g = 0; g < generators_.size() && g < graph_.ticks.size(); ++g)
      generators_[g]->set_state({states_[g].seed, states_[g].tick + graph_.ticks[g]});
    return out;
  }

 private:
  RandomKey state_of(uint64_t generator) const override { return states_[generator]; }

  Backward backward_of(const std::shared_ptr<const Graph>& body) override {
    return [body, generators = generators_](Context& ctx, std::span<const Value> arguments) {
      return replay(ctx, *body, arguments, generators);
    };
  }

  // Runs the branch or loop as a program of its own.
  Values control(const Node& node, const Values& in) override {
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
    const Ref<Program> program(new Program(std::move(graph), generators_, {}));
    Values arguments = in;
    return program->run_with(ctx_, arguments, states_);
  }

  const Graph& graph_;
  std::vector<Ref<Generator>> generators_;
  std::vector<RandomKey> states_;
};

// Leaves open what a trace leaves open: random keys, modes, gradients.
class TracedReplay : public TraceInterpreter {
 public:
  TracedReplay(Context& ctx, GraphBuilder& builder, const Graph& graph, std::span<const Ref<Generator>> generators)
      : TraceInterpreter(ctx), builder_(builder), graph_(graph), generators_(generators) {
    for (size_t g = 0; g < generators.size(); ++g)
      states_.push_back(builder.take_ticks(generators[g], g < graph.ticks.size() ? graph.ticks[g] : 0));
  }

  Values run(std::span<const Value> inputs) { return interpret(graph_, inputs); }

 private:
  // Passes to the builder the modes and the name that the graph fixed for the node.
  Values apply_node(const Node& node) override {
    struct Imposed {
      GraphBuilder& builder;
      Mode training, recording;
      std::string_view name;
      ~Imposed() {
        builder.imposed_training = training, builder.imposed_recording = recording, builder.imposed_name = name;
      }
    } const before{builder_, builder_.imposed_training, builder_.imposed_recording, builder_.imposed_name};
    if (node.training != Mode::kAuto) builder_.imposed_training = node.training;
    if (node.recording != Mode::kAuto) builder_.imposed_recording = node.recording;
    if (const std::string_view name = name_of(node); !name.empty()) builder_.imposed_name = name;
    return TraceInterpreter::apply_node(node);
  }

  // The guards of this graph become guards of the trace that it becomes part of.
  void held(const TypeGuard& guard, const Value& v) override {
    if (v.is_array() && builder_.owns(v)) builder_.guard(v, guard.kind, guard.dim, guard.value);
  }

  RandomKey state_of(uint64_t generator) const override { return states_[generator]; }
  Value detach(const Value& x) override { return builder_.detach(ctx_, x); }
  Value leaf(const Node& node, const Value& x) override {
    if (node.create_graph) return builder_.fresh_input(ctx_, x);
    leaves_.push_back(make_leaf(x.type(), node.req));
    return builder_.leaf(ctx_, x, leaves_.back().get());
  }
  Value write(const Node& node, const Value& old, const Value& now) override {
    return builder_.write(ctx_, node.name, old, now);
  }
  Values gradient(const Node& node, const Values& heads, const Values& cotangents, const Values& wanted,
                  uint64_t first) override {
    Values out = builder_.gradient(ctx_, heads, cotangents, wanted, node.create_graph, first);
    builder_.graph.nodes.back().quiet = node.quiet;
    return out;
  }
  Values custom(const Node& node, const Values& inputs, Values outputs, const Values& saved) override {
    return builder_.custom(ctx_, node.name, inputs, outputs, saved, node.body);
  }

  // Replays a body for inputs of these types and histories. Returns its outputs as symbols of `to`.
  Values replay_body(GraphBuilder& to, const Graph& body, const Values& inputs) {
    to.own_streams = true;
    to.imposed_training = builder_.imposed_training;
    to.imposed_recording = builder_.imposed_recording;
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

  // Ticks name the streams. They are ticks of this graph, counted from the state that replay took at its start.
  std::vector<BodyStream> streams_of(const std::vector<BodyStream>& streams) const {
    std::vector<BodyStream> out;
    for (const BodyStream& s : streams) out.push_back({states_[s.generator].seed, states_[s.generator].tick + s.tick});
    return out;
  }

  static Value row_of(const Value& v) {
    Value row(Array::make(row_type(v.type())));
    row.link(v.node(), v.node_output());
    return row;
  }

  Values control(const Node& node, const Values& in) override {
    Control copy = control_of(node);
    copy.line = -1;  // a line of this graph; the builder sets its own
    copy.streams = streams_of(copy.streams);
    std::vector<char> flows;
    GraphBuilder first(GraphBuilder::Stage::kTrace, &builder_), second(GraphBuilder::Stage::kTrace, &builder_);
    if (copy.is_loop())
      replay_loop(first, second, copy, in, flows);
    else
      replay_branches(first, second, copy, in, flows);
    const size_t bodies = copy.bodies.size();
    copy.bodies.clear();
    for (GraphBuilder* body : {&first, &second})
      if (copy.bodies.size() < bodies) copy.bodies.push_back(std::make_shared<const Graph>(std::move(body->graph)));
    return builder_.control(ctx_, copy, in, flows);
  }

  // Both set `flows`: whether gradients flow through an output.
  void replay_branches(GraphBuilder& then, GraphBuilder& other, const Control& control, const Values& in,
                       std::vector<char>& flows) {
    Values captures;
    for (size_t k = 1; k < in.size(); ++k) captures.push_back(in[k]);
    const Values x = replay_body(then, *control.bodies[0], captures),
                 y = replay_body(other, *control.bodies[1], captures);
    for (size_t k = 0; k < x.size(); ++k) flows.push_back(requires_grad(x[k]) || requires_grad(y[k]));
  }

  void replay_loop(GraphBuilder& body, GraphBuilder& condition, Control& control, const Values& in,
                   std::vector<char>& flows) {
    LoopForm& form = control.loop;
    const bool traced = control.has_condition();
    const size_t first = size_t(form.first_slice(traced)), slices = size_t(form.slices);
    if (slices > 0 && !form.counted && !form.conditional) form.limit = in[first].shape()[0];
    const Value index(Array::make(Type{DType::kInt64, {}, {}}));
    Values inputs{index}, tested{index};
    for (size_t k = first; k < in.size(); ++k) {
      inputs.push_back(k < first + slices ? row_of(in[k]) : in[k]);
      if (k >= first + slices) tested.push_back(in[k]);
    }
    const Values out = replay_body(body, *control.bodies[0], inputs);
    if (traced) replay_body(condition, *control.bodies[1], tested);
    flows.push_back(false);
    for (size_t k = form.conditional && !traced; k < out.size(); ++k) flows.push_back(requires_grad(out[k]));
  }

  Backward backward_of(const std::shared_ptr<const Graph>&) override { return {}; }  // custom() needs none

  GraphBuilder& builder_;
  const Graph& graph_;
  std::span<const Ref<Generator>> generators_;
  std::vector<RandomKey> states_;
};

}  // namespace

Values replay(Context& ctx, const Graph& graph, std::span<const Value> inputs,
              std::span<const Ref<Generator>> generators) {
  if (inputs.size() != graph.inputs.size())
    throw Error(fmt::format("graph: takes {} inputs, got {}", graph.inputs.size(), inputs.size()));
  if (GraphBuilder* builder = dynamic_cast<GraphBuilder*>(ctx.interpreter->tracer()))
    return TracedReplay(ctx, *builder, graph, generators).run(inputs);
  return EagerReplay(ctx, graph, generators).run(inputs);
}

}  // namespace pg
