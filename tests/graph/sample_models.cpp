#include "tests/graph/sample_models.h"

#include <limits>

namespace pg::test {
namespace {

Type floats(Dims shape) { return Type{DType::kFloat32, {}, shape}; }

const Type kIndex{DType::kInt64, {}, {}};

std::shared_ptr<const Graph> body_of(GraphMaker& m, std::initializer_list<Operand> outputs) {
  for (const Operand& o : outputs) m.output(o);
  m.graph.ticks = {0};
  return std::make_shared<const Graph>(std::move(m.graph));
}

// The body of a foreach, with a constant and dropout.
std::shared_ptr<const Graph> step_body() {
  GraphMaker m;
  m.input(kIndex, "");
  const Operand row = m.input(floats({3}), ""), h = m.input(floats({3}), ""), w = m.input(floats({3, 3}), "");
  const Operand sum = m.op("add", {m.op("matmul", {w, row}), m.op("mul", {h, m.constant(range({3}, 1))})});
  m.at("net.lua:7");
  const Operand y = m.op("dropout", {sum}, {{"p", 0.5}, {"generator", RandomKey{0, 0}}});
  return body_of(m, {sum, y});
}

std::shared_ptr<const Graph> scaled_body(double by) {
  GraphMaker m;
  return body_of(m, {m.op("mul", {m.input(floats({3}), ""), Operand::immediate(by)})});
}

// The body of a while_loop, which doubles its carry.
std::shared_ptr<const Graph> double_body() {
  GraphMaker m;
  m.input(kIndex, "");
  const Operand next = m.op("mul", {m.input(floats({3}), ""), Operand::immediate(2)});
  m.input(floats({}), "");
  return body_of(m, {next, next});
}

std::shared_ptr<const Graph> below_body() {
  GraphMaker m;
  m.input(kIndex, "");
  const Operand x = m.input(floats({3}), ""), bound = m.input(floats({}), "");
  return body_of(m, {m.op("lt", {m.op("sum", {x}), bound})});
}

Operand add_control(GraphMaker& m, Control control, std::vector<std::shared_ptr<const Graph>> bodies,
                    std::initializer_list<Operand> inputs) {
  control.bodies = std::move(bodies);
  m.graph.nodes.push_back(control_node(m.graph, control, {inputs.begin(), inputs.size()}));
  return Operand::of(m.graph.nodes.size() - 1);
}

Model control_flow_model() {
  GraphMaker m;
  const Operand x = m.input(floats({2, 3}), "data"), h = m.input(floats({3}), "h"),
                w = m.input(floats({3, 3}), "weight");
  LoopForm each;
  each.slices = each.carries = 1, each.limit = 2, each.reverse = true, each.checkpoint = 5;
  Control foreach = Control::loop_of("foreach", each);
  foreach
    .streams = {{0, 1}};
  const Operand loop = add_control(m, foreach, {step_body()}, {x, h, w});
  m.at("net.lua:9");
  const Operand bound = m.op("sum", {h});
  LoopForm when;
  when.carries = 1, when.conditional = true, when.limit = 4;
  const Operand doubled =
      add_control(m, Control::loop_of("while_loop", when), {double_body(), below_body()}, {{loop.node, 1}, bound});
  const Operand predicate = m.op("gt", {bound, Operand::immediate(0)});
  m.output(add_control(m, Control::cond("cond"), {scaled_body(2), scaled_body(3)}, {predicate, {doubled.node, 1}}));
  m.output({loop.node, 2});
  m.output({doubled.node, 2});
  m.graph.ticks = {2};
  Model model;
  model.graph = m.graph;
  model.inputs.resize(3);
  model.inputs[0].name = "data";
  model.inputs[1].name = "h";
  model.inputs[2] = {ModelInput::Role::kParameter, "weight"};
  model.generators.push_back({});
  model.arguments = {Tree::input(0), Tree::input(1)};
  model.results = {Tree::output(0), Tree::output(1), Tree::output(2)};
  return model;
}

}  // namespace

Model sample_model() {
  GraphMaker m;
  const Operand x = m.input(floats({2, 3}), "data"), w = m.input(floats({4, 3}), "body.weight"),
                state = m.input(floats({4}), "state1");
  const Operand c = m.constant(range({4}, 0.5));
  const Operand ops[] = {x, w, c};
  const Operand y = m.op_list("linear", ops);
  m.at("net.lua:3");
  const Operand z = m.op("mul", {y, Operand::immediate(std::numeric_limits<double>::infinity())});
  const Operand d = m.op("dropout", {z}, {{"p", 0.25}, {"generator", RandomKey{0, 1}}});
  m.graph.nodes.back().training = Mode::kOff;
  const Operand s = m.op("add", {state, Operand::immediate(1)});
  const Operand r = m.op("reshape", {d}, {{"shape", Ints{-1}}});
  m.output(r);
  m.output(s);
  m.graph.ticks = {2};
  m.graph.guards.push_back({x, TypeGuard::kDim, 1, 3, 0});
  m.graph.guards.push_back({x, TypeGuard::kDType, 0, int64_t(DType::kFloat32), -1});
  Model model;
  model.name = "sample";
  model.graph = m.graph;
  model.inputs.resize(3);
  model.inputs[0].name = "data";
  model.inputs[1] = {ModelInput::Role::kParameter, "body.weight", GradReq::kAdd, true, false, 0.5, 1};
  model.inputs[2] = {ModelInput::Role::kState, "state1"};
  model.writes.push_back({2, 1});
  model.generators.push_back({});
  Tree table, key, number;
  table.kind = Tree::Kind::kTable;
  key.kind = Tree::Kind::kString;
  key.text = "täglich \"\\\n";
  number.kind = Tree::Kind::kNumber;
  number.number = std::numeric_limits<double>::quiet_NaN();
  Tree one = number;
  one.number = 1;
  table.keys = {one, key};
  table.values = {Tree::output(0), number};
  model.arguments = {Tree::input(0), Tree()};
  model.results = {table, Tree::input(1)};
  return model;
}

Values sample_values() { return {Value(), range({4, 3}), range({4})}; }

std::string old_control_flow() { return get(PERIGEE_SOURCE_DIR "/tests/golden/control-v2.json"); }

Sample control_flow_sample() { return Sample(control_flow_model(), {Value(), Value(), range({3, 3})}); }

LoadedModel parse(const std::string& json, const NamedTensors& tensors) {
  return parse_model(json, {"m.json", &tensors, "m.safetensors", false});
}

std::string refused(const std::string& json, const NamedTensors& tensors) {
  const std::string text = error_of([&] { parse(json, tensors); });
  if (!text.empty()) CHECK_MESSAGE(text.starts_with("load: m."), text);
  return text;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE_MESSAGE(at != text.npos, from);
  return text.replace(at, from.size(), to);
}

}  // namespace pg::test
