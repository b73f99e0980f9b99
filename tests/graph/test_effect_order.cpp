// Effects that programs must run once each and in order, as the collective operations of several processes need: a row
// whose kernel writes down its number.
#include "graph/exec/program.h"
#include "graph/ir/builder.h"
#include "graph/passes/passes.h"
#include "tensor/rule.h"
#include "tests/graph/loop_graphs.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

std::vector<int64_t>& events() {
  static std::vector<int64_t> list;
  return list;
}

std::vector<OpDef> rows() {
  return {{.name = "test_reduce",
           .doc = "x, and a number in the list of events",
           .inputs = {{"x", kFloating}},
           .attrs = {{.name = "event", .kind = AttrKind::kInt, .fallback = int64_t(0), .doc = "the number"}},
           .infer = [](Infer& c) { c.outputs.push_back(c.type(0)); },
           .vjp = {[](Vjp& c) {
             return call<"test_reduce">(c.dy(), {{"event", -c.attr<int64_t>("event")}});
           }},
           .vjp_uses = "",
           .traits = kEffect | kHidden}};
}

void reduce(const KernelArgs& k) {
  events().push_back(k.attr<int64_t>("event"));
  std::memcpy(k.out[0].data, k.in[0].data, bytes_of(*k.in[0].type).count());
}

const MoreRows kRows(rows, [] { return std::vector<KernelRow>{{"test_reduce", reduce}}; });

std::vector<int64_t> events_of(const Graph& graph, const std::vector<Value>& inputs) {
  events().clear();
  run_plan(graph, inputs);
  return events();
}

using Events = std::vector<int64_t>;

// A program with effects that nothing reads, that are equal, that do not depend on the step of their loop, and between
// ops that passes move.
Graph busy_graph() {
  GraphSketch g;
  const Operand x = g.input("x", {3, 4}), w = g.input("w", {4, 4}), h = g.input("h", {4});
  const Operand first = g.op("test_reduce", {g.op("add", {x, Operand::immediate(1)})}, {{"event", int64_t(1)}});
  g.op("test_reduce", {x}, {{"event", int64_t(2)}});
  BodySketch body({{4}, {4}, {4, 4}, {4}});
  const Operand same = body.op("test_reduce", {body.in[4]}, {{"event", int64_t(10)}});
  const Operand row = body.op("test_reduce", {body.in[1]}, {{"event", int64_t(11)}});
  body.op("test_reduce", {body.in[4]}, {{"event", int64_t(12)}});
  const Operand product = body.op("matmul", {body.in[3], row});
  const Operand next = body.op("add", {body.op("add", {body.in[2], same}), product});
  const size_t loop = add_loop(g, loop_form(1, 1, 3), {x, h, w, h}, {body.done({next, product})});
  BodySketch yes({{4}}, false), no({{4}}, false);
  const auto then = yes.done({yes.op("test_reduce", {yes.in[0]}, {{"event", int64_t(20)}})});
  const auto other = no.done({no.op("test_reduce", {no.in[0]}, {{"event", int64_t(30)}})});
  const Operand positive = g.op("gt", {g.op("sum", {x}), Operand::immediate(0)});
  add_cond(g, {positive, h}, {then, other});  // nothing reads its output
  BodySketch silent({{4}});
  silent.op("test_reduce", {silent.in[1]}, {{"event", int64_t(40)}});
  add_loop(g, loop_form(0, 1, 2), {h}, {silent.done({silent.in[1]})});  // nothing reads its output either
  g.op("test_reduce", {g.constant(range({2}))}, {{"event", int64_t(4)}});
  const Operand a = g.op("test_reduce", {first}, {{"event", int64_t(3)}});
  const Operand b = g.op("test_reduce", {first}, {{"event", int64_t(3)}});
  return g.done({g.op("mul", {a, b}), Operand::of(loop, 1), Operand::of(loop, 2)});
}

}  // namespace

TEST_CASE("effects run once each and in order, whatever the passes do") {
  const Graph graph = busy_graph();
  const std::vector<Value> inputs = {range({3, 4}), range({4, 4}, 1), range({4}, 2)};
  const Events expected = {1, 2, 10, 11, 12, 10, 11, 12, 10, 11, 12, 20, 40, 40, 4, 3, 3};
  CHECK(events_of(graph, inputs) == expected);
  CHECK(events_of(optimize(graph), inputs) == expected);
  for (const Pass& pass : passes()) {
    PassOptions all_but_one;
    all_but_one.disabled = {pass.name};
    CHECK_MESSAGE(events_of(optimize(graph, all_but_one), inputs) == expected, pass.name);
    CHECK_MESSAGE(events_of(pass.run(graph), inputs) == expected, pass.name);
  }
}

TEST_CASE("effects in a gradient run in the half of the program that can run them") {
  GraphMaker m;
  const Operand x = m.input({3, 4}), w = m.input({4, 4}), h = m.input({4});
  const Operand sum = m.op("test_reduce", {m.op("tanh", {x})}, {{"event", int64_t(1)}});
  m.op("test_reduce", {x}, {{"event", int64_t(2)}});
  BodySketch body({{4}, {4}, {4, 4}});
  const Operand shared = body.op("test_reduce", {body.op("matmul", {body.in[3], body.in[1]})}, {{"event", int64_t(5)}});
  const Operand next = body.op("tanh", {body.op("add", {body.in[2], shared})});
  Control control = Control::loop_of("foreach", loop_form(1, 1, 3));
  control.bodies = {body.done({next, shared})};
  const Operand operands[] = {sum, h, w};
  m.graph.nodes.push_back(control_node(m.graph, control, operands));
  const int32_t loop = int32_t(m.graph.nodes.size()) - 1;
  const Operand square = m.op("mul", {Operand{loop, 2}, Operand{loop, 2}});
  m.output(m.op("test_reduce", {m.op("sum", {square})}, {{"event", int64_t(7)}}));
  for (bool recompute : {false, true}) {
    Graph trace = m.graph;
    control.loop.recompute = recompute;
    trace.nodes[size_t(loop)] = control_node(trace, control, operands);
    Ref<Program> program(new Program(trace, {}, {}));
    Context ctx;
    ctx.recording = true;
    Leaf leaf_x(range({3, 4}, 0.1, 0.01)), leaf_w(range({4, 4}, 0.1, 0.02));
    Value inputs[] = {leaf_x.value, leaf_w.value, range({4})};
    events().clear();
    const Value out = program->run(ctx, inputs)[0];
    CHECK(events() == Events{1, 2, 5, 5, 5, 7});
    events().clear();
    backward_from(ctx, out);
    CHECK(events() == Events{-7, -5, -5, -5, -1});
    CHECK(numbers(leaf_w.grad())[0] != 0);
  }
}

namespace {

// A trace in which gradients are recorded.
class RecordingTrace : public GraphBuilder {
 public:
  RecordingTrace() : GraphBuilder(Stage::kTrace) {}
  Mode recording_mode(Context&) override { return Mode::kOn; }
};

// The gradients of a chain of three layers, each reduced as soon as it is final.
Values reduced_gradients(Context& ctx, const Value& x, std::span<const Leaf> weights) {
  ScopedFlag recording(ctx.recording, true);
  Value y = x;
  for (const Leaf& w : weights) y = run(ctx, "tanh", {run(ctx, "mul", {y, w.value})});
  backward_from(ctx, y, {.on_final = [&](Context& c, TapeNode& leaf, Value gradient) {
                  const auto at = std::find_if(weights.begin(), weights.end(),
                                               [&](const Leaf& w) { return w.node.get() == &leaf; });
                  return run(c, "test_reduce", {gradient}, {{"event", int64_t(at - weights.begin())}});
                }});
  Values out;
  for (const Leaf& w : weights) out.push_back(w.grad());
  return out;
}

}  // namespace

TEST_CASE("the hook of final gradients runs in the same order in a traced backward") {
  Context eager;
  const Value x = range({2}, 0.5, 0.25);
  std::vector<Leaf> weights;
  for (int i = 0; i < 3; ++i) weights.emplace_back(range({2}, i + 1));
  events().clear();
  const Values expected = reduced_gradients(eager, x, weights);
  CHECK(events() == Events{2, 1, 0});

  RecordingTrace trace;
  Context tracing;
  tracing.interpreter = &trace;
  const Value input = trace.add_input(x.type());
  std::vector<Leaf> symbols;
  for (const Leaf& w : weights) {
    symbols.emplace_back(trace.add_input(w.value.type()));
    trace.graph.nodes.back().req = GradReq::kWrite;
    trace.link_leaf(symbols.back().value, symbols.back().node.get());
  }
  events().clear();
  for (const Value& gradient : reduced_gradients(tracing, input, symbols))
    trace.graph.outputs.push_back(trace.operand_of(gradient));
  CHECK(events().empty());

  Ref<Program> program(new Program(trace.graph, {}, {}));
  Value inputs[] = {x, weights[0].value, weights[1].value, weights[2].value};
  const Values got = program->run(eager, inputs);
  CHECK(events() == Events{2, 1, 0});
  for (size_t k = 0; k < 3; ++k) CHECK(numbers(got[k]) == numbers(expected[k]));
}

namespace {

// The events of a loop of three steps whose result is differentiated in the same program.
Events events_of_loop(const LoopForm& form, int gradients, bool create_graph) {
  RecordingTrace trace;
  Context tracing;
  tracing.interpreter = &trace;
  const ScopedFlag recording(tracing.recording, true);
  const Leaf leaf(range({4}, 0.1, 0.1));
  Leaf w(trace.add_input(leaf.value.type()));
  trace.link_leaf(w.value, w.node.get());
  const Value rows = trace.add_input(Type{DType::kFloat32, {}, {form.limit, 4}});
  BodySketch body({{4}, {4}, {4}});
  const Operand shared = body.op("test_reduce", {body.op("mul", {body.in[1], body.in[3]})}, {{"event", int64_t(5)}});
  Control control = Control::loop_of("foreach", form);
  control.bodies = {body.done({body.op("tanh", {body.op("mul", {body.in[2], shared})})})};
  const Value operands[] = {rows, trace.add_constant(range({4}, 1)), w.value};
  const char flows[] = {0, 1};
  const Value last = trace.control(tracing, control, operands, flows)[1];
  for (int k = 0; k < gradients; ++k) {
    const Value scaled = run(tracing, "mul", {last, Value(k + 1.0)});
    const Value gradient = pg::gradients(tracing, {&scaled, 1}, {}, {&w.value, 1}, {true, create_graph, 0})[0];
    trace.graph.outputs.push_back(trace.operand_of(gradient));
  }
  Ref<Program> program(new Program(trace.graph, {}, {}));
  Context ctx;
  Value inputs[] = {leaf.value, range({form.limit, 4}, 0.2, 0.1)};
  events().clear();
  program->run(ctx, inputs);
  return events();
}

}  // namespace

TEST_CASE("only a gradient that computes forward again runs effects again") {
  const LoopForm form = loop_form(1, 1, 3);
  CHECK(events_of_loop(form, 0, false) == Events{5, 5, 5});
  CHECK(events_of_loop(form, 1, false) == Events{5, 5, 5, -5, -5, -5});
  CHECK(events_of_loop(form, 2, false) == Events{5, 5, 5, 5, 5, 5, -5, -5, -5, -5, -5, -5});
  CHECK(events_of_loop(form, 1, true) == Events{5, 5, 5, 5, -5, 5, -5, 5, -5});
  LoopForm parts = loop_form(1, 1, 4);
  parts.checkpoint = 2;
  CHECK(events_of_loop(parts, 1, false) == Events{5, 5, 5, 5, -5, -5, -5, -5});
}

TEST_CASE("backward through a loop of unknown length runs no effect again") {
  GraphMaker m;
  const Operand w = m.input({4});
  BodySketch body({{4}, {4}}), condition({{4}, {4}});
  const Operand shared = body.op("test_reduce", {body.op("mul", {body.in[1], body.in[2]})}, {{"event", int64_t(5)}});
  LoopForm form = loop_form(0, 1, LoopForm::kNoLimit);
  form.conditional = true;
  Control control = Control::loop_of("while_loop", form);
  control.bodies = {body.done({body.op("tanh", {shared})}),
                    condition.done({condition.op("lt", {condition.in[0], Operand::immediate(3)})})};
  const Operand operands[] = {m.constant(range({4}, 1)), w};
  m.graph.nodes.push_back(control_node(m.graph, control, operands));
  m.output(m.op("sum", {Operand{int32_t(m.graph.nodes.size()) - 1, 1}}));
  Ref<Program> program(new Program(m.graph, {}, {}));
  Context ctx;
  ctx.recording = true;
  Leaf leaf(range({4}, 0.5, 0.1));
  Value input = leaf.value;
  events().clear();
  const Value out = program->run(ctx, {&input, 1})[0];
  CHECK(events() == Events{5, 5, 5});
  events().clear();
  backward_from(ctx, out);
  CHECK(events() == Events{-5, -5, -5});
  double h = 1, slope = 0;
  for (int step = 0; step < 3; ++step) {
    const double next = std::tanh(h * 0.5);
    slope = (1 - next * next) * (h + 0.5 * slope);
    h = next;
  }
  CHECK(numbers(leaf.grad())[0] == doctest::Approx(slope).epsilon(1e-5));
}

}  // namespace pg::test
