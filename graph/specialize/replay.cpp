// replay: a traced graph applied again, eagerly or as part of the trace under way.
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

  // As a program of its own.
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

// What is open while a script is traced stays open: random keys, modes, gradients.
class TracedReplay : public TraceInterpreter {
 public:
  TracedReplay(Context& ctx, GraphBuilder& builder, const Graph& graph, std::span<const Ref<Generator>> generators)
      : TraceInterpreter(ctx), builder_(builder), graph_(graph), generators_(generators) {
    for (size_t g = 0; g < generators.size(); ++g)
      states_.push_back(builder.take_ticks(generators[g], g < graph.ticks.size() ? graph.ticks[g] : 0));
  }

  Values run(std::span<const Value> inputs) { return interpret(graph_, inputs); }

 private:
  // The builder takes the modes and the name that the graph has fixed around the node.
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

  // What this graph needs of types, the one that it becomes part of needs too.
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
    return builder_.gradient(ctx_, heads, cotangents, wanted, node.create_graph, first);
  }
  Values custom(const Node& node, const Values& inputs, Values outputs, const Values& saved) override {
    return builder_.custom(ctx_, node.name, inputs, outputs, saved, node.bodies[0]);
  }

  // A body for inputs of these types and histories, its outputs as symbols in it.
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

  // The ticks that name the node's streams are among those of this graph, taken at its start.
  std::vector<BodyStream> streams_of(const Node& node) const {
    std::vector<BodyStream> out;
    for (const BodyStream& s : node.streams)
      out.push_back({states_[s.generator].seed, states_[s.generator].tick + s.tick});
    return out;
  }

  static Value row_of(const Value& v) {
    Value row(Array::make(row_type(v.type())));
    row.link(v.node(), v.node_output());
    return row;
  }

  Values control(const Node& node, const Values& in) override {
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
      GraphBuilder a(GraphBuilder::Stage::kTrace, &builder_), b(GraphBuilder::Stage::kTrace, &builder_);
      Values captures;
      for (size_t k = 1; k < in.size(); ++k) captures.push_back(in[k]);
      const Values x = replay_body(a, *node.bodies[0], captures), y = replay_body(b, *node.bodies[1], captures);
      for (size_t k = 0; k < x.size(); ++k) add_output(requires_grad(x[k]) ? x[k] : y[k], x[k].type());
      copy.streams = streams_of(node);
      for (GraphBuilder* body : {&a, &b}) copy.bodies.push_back(std::make_shared<const Graph>(std::move(body->graph)));
      return builder_.control(ctx_, std::move(copy), in, flows);
    }
    LoopForm& form = copy.loop;
    const bool condition = node.bodies.size() == 2;
    const size_t first = size_t(form.first_slice(condition)), slices = size_t(form.slices),
                 carries = size_t(form.carries);
    if (slices > 0 && !form.counted && !form.conditional) form.limit = in[first].shape()[0];
    GraphBuilder body(GraphBuilder::Stage::kTrace, &builder_), test(GraphBuilder::Stage::kTrace, &builder_);
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
      add_output(out[k],
                 k < flag + carries ? out[k].type() : stack_type(out[k].type(), std::max<int64_t>(form.limit, 0)));
    copy.streams = streams_of(node);
    copy.bodies.push_back(std::make_shared<const Graph>(std::move(body.graph)));
    if (condition) copy.bodies.push_back(std::make_shared<const Graph>(std::move(test.graph)));
    return builder_.control(ctx_, std::move(copy), in, flows);
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
