// Model files: round trips, the golden file of each version, and malformed files.
#include <cmath>
#include <limits>
#include <random>

#include "graph/exec/frozen.h"
#include "graph/io/model_file.h"
#include "tensor/io/json.h"
#include "tests/graph/graphs.h"
#include "tests/tensor/files.h"

namespace pg::test {
namespace {

Type floats(Dims shape) { return Type{DType::kFloat32, {}, shape}; }

// A model with linear, a constant, a random op with a mode, a written state, a guard, nested arguments and results.
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

struct Sample {
  Model model;
  NamedTensors tensors;
  std::string json;
  explicit Sample(Model of = sample_model(), const Values& values = sample_values())
      : model(std::move(of)), tensors(model_tensors(model, values)), json(model_json(model)) {}
};

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

// The same model as written by perigee 0.1.0.
std::string old_control_flow() { return get(PERIGEE_SOURCE_DIR "/tests/golden/control-v2.json"); }

Sample control_flow_sample() { return Sample(control_flow_model(), {Value(), Value(), range({3, 3})}); }

LoadedModel parse(const std::string& json, const NamedTensors& tensors) {
  return parse_model(json, {"m.json", &tensors, "m.safetensors", false});
}

// Returns the error for a malformed text, or "" if there is none. Checks that the error names the file.
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

}  // namespace

TEST_CASE("a model comes back as it was") {
  const Sample s;
  verify(s.model);
  const LoadedModel back = parse(s.json, s.tensors);
  CHECK(model_json(back.model) == s.json);
  CHECK(to_string(back.model.graph) == to_string(s.model.graph));
  CHECK(back.model.arguments == s.model.arguments);
  CHECK(back.model.results == s.model.results);
  CHECK(same(back.values[1], range({4, 3})));
  CHECK(!back.values[0].defined());
  CHECK(parse_model(replaced(s.json, R"("tensor":"constant/1")", R"("tensor":"constant/1")"),
                    {"m", &s.tensors, "t", false})
            .model.writes.size() == 1);
  CHECK(contains(error_of([&] { parse_model(s.json, {"m", nullptr, "", false}); }), "needs the file with the tensors"));
}

TEST_CASE("branches and loops come back as they were, as format version 4") {
  const Sample s = control_flow_sample();
  verify(s.model);
  CHECK(contains(s.json, R"("version":4,"producer")"));
  CHECK(contains(s.json, R"("attrs":{"name":"foreach","streams":[0,1,0,0,0],"body":0,"slices":1,"carries":1,)"
                         R"("reverse":true,"limit":2,"checkpoint":5})"));
  CHECK(contains(s.json, R"("attrs":{"name":"while_loop","body":1,"condition":2,"carries":1,"conditional":true,)"
                         R"("limit":4})"));
  CHECK(contains(s.json, R"("op":"cond","version":1,"in":[6,[5,1]],"attrs":{"then_body":3,"else_body":4})"));
  const LoadedModel back = parse(s.json, s.tensors);
  CHECK(model_json(back.model) == s.json);
  CHECK(to_string(back.model.graph) == to_string(s.model.graph));
  CHECK(control_of(back.model.graph.nodes[3]).streams == control_of(s.model.graph.nodes[3]).streams);
  CHECK(contains(Sample().json, R"("version":1,"producer")"));
}

TEST_CASE("branches and loops of format version 2 load as what they are now") {
  const Sample s = control_flow_sample();
  const LoadedModel old = parse(old_control_flow(), s.tensors);
  CHECK(to_string(old.model.graph) == to_string(s.model.graph));
  CHECK(model_json(old.model) == s.json);
}

TEST_CASE("malformed branches and loops are refused with what is wrong") {
  const Sample s = control_flow_sample();
  const char *loop = R"("slices":1,"carries":1,"reverse":true,"limit":2,"checkpoint":5)",
             *streams = R"("streams":[0,1,0,0,0])",
             *condition = R"("body":1,"condition":2,"carries":1,"conditional":true,"limit":4)",
             *branches = R"("then_body":3,"else_body":4)";
  struct Case {
    const char *from, *to, *error;
  };
  const Case cases[] = {
      {R"("version":4,"producer")", R"("version":3,"producer")", "the op in a file of format version 3"},
      {R"("op":"loop","version":1)", R"("kind":"loop")", "unknown kind of node 'loop'"},
      {R"("op":"loop")", R"("op":"cond")", "unknown attribute 'body'"},
      {R"("op":"cond")", R"("op":"loop")", "unknown attribute 'then_body'"},
      {R"("op":"cond","version":1)", R"("op":"cond","version":2)", "version 2 of the op"},
      {branches, R"("then_body":3)", "graph 4 is the body of no node"},
      {branches, R"("then_body":3,"else_body":null)", "graph 4 is the body of no node"},
      {branches, R"("then_body":3,"else_body":3)", "graph 3 is the body of two nodes"},
      {branches, R"("then_body":3,"else_body":5)", "the body 5 is not an earlier graph"},
      {branches, R"("then_body":3,"else_body":1)", "graph 1 is the body of two nodes"},
      {branches, R"("then_body":3,"else_body":4.5)", "expected a whole number"},
      {branches, R"("then_body":3,"else_body":[4])", "expected"},
      {branches, R"("then_body":3,"else_body":4,"streams":[],"streams":[])", "duplicate key 'streams'"},
      {R"("types":[["float32",[3]]]}],)"
       "\n\"inputs\":[0,1,2],\n\"outputs\":[7",
       R"("types":[["float32",[3]]],"bodies":[4]}],)"
       "\n\"inputs\":[0,1,2],\n\"outputs\":[7",
       "graph 4 is the body of two nodes"},
      {loop, R"("slices":1)", "nothing says how many steps"},
      {loop, R"("slices":-1,"carries":1)", "a negative count"},
      {loop, R"("slices":2000000000,"carries":1)", "lacks operands"},
      {loop, R"("slices":4294967297,"carries":1,"limit":2)", "from 0 to 268435456, got 4294967297"},
      {loop, R"("slices":1,"carries":3,"limit":2)", "lacks operands"},
      {loop, R"("slices":0,"carries":3,"limit":2)", "its body gives 2 outputs, needs 3"},
      {loop, R"("slices":0,"carries":2)", "nothing says how many steps"},
      {loop, R"("slices":1,"carries":2,"limit":2)", "carried output 2 of a body is float32 3 cpu"},
      {loop, R"("slices":1,"carries":1,"limit":3)", "slice 1 has not 3 rows"},
      {loop, R"("slices":1,"carries":1)", "nothing says how many steps"},
      {loop, R"("slices":1,"carries":1,"limit":-2)", "a negative count"},
      {loop, R"("slices":1,"carries":1,"limit":2,"checkpoint":-1)", "a negative count"},
      {loop, R"("slices":1,"carries":1,"limit":2,"rows":0)", "unknown attribute 'rows'"},
      {loop, R"("slices":1,"carries":1,"limit":2,"conditional":true)", "its body takes 4 inputs, gets 3"},
      {loop, R"("slices":1,"carries":1,"limit":2,"counted":true)", "its body takes 4 inputs, gets 3"},
      {loop, R"("slices":"1","carries":1,"limit":2)", "expected"},
      {R"("in":[0,1,2])", R"("in":[0,0,1,2])", "its body takes 4 inputs, gets 5"},
      {streams, R"("streams":[])", "the body has no stream of generator 0"},
      {streams, R"("streams":[1,1,0,0,0])", "there is no generator 1"},
      {streams, R"("streams":[0,2,0,0,0])", "tick 2 of generator 0 is beyond those of a run"},
      {streams, R"("streams":[0,1,0,0,0,0,0,0,0,0])", "two streams of generator 0"},
      {streams, R"("streams":[0,1])", "five numbers for each stream"},
      {streams, R"("streams":[0,1,3,0,0])", "a stream of a part of a loop"},
      {streams, R"("streams":[-1,1,0,0,0])", "there is no generator"},
      {condition, R"("body":2,"condition":1,"carries":1,"conditional":true,"limit":4)",
       "its condition gives more than one output"},
      {condition, R"("body":1,"carries":1,"conditional":true,"limit":4)", "graph 2 is the body of no node"},
      {condition, R"("condition":1,"body":2,"carries":1,"limit":4)", "has one body"},
      {condition, R"("body":1,"condition":2,"carries":1,"conditional":true,"limit":5)",
       "stacked output 1 has not 5 rows"},
      {condition, R"("body":1,"condition":2,"carries":1,"conditional":true)", "stacked output 1 has not 0 rows"},
      {R"("in":[0,1,2])", R"("in":[0,1,null])", "takes arrays only"},
      {R"("in":[0,1,2])", R"("in":[0,2,1])", "carry 1 of a body is float32 3 cpu, expected float32 3x3"},
      {R"("in":[6,[5,1]])", R"("in":[0,[5,1]])", "needs a predicate of one element"},
      {R"("in":[6,[5,1]])", R"("in":[6])", "takes 1 inputs, gets 0"},
      {R"([["int64",[]],["float32",[3]],["float32",[2,3]]])", R"([["int64",[1]],["float32",[3]],["float32",[2,3]]])",
       "its number of steps is"},
      {R"([["int64",[]],["float32",[3]],["float32",[2,3]]])", R"([["int64",[]],["float32",[3]],["float32",[2,4]]])",
       "output 2 is float32 2x4 cpu, its op gives float32 2x3 cpu"},
      {R"([["int64",[]],["float32",[3]],["float32",[2,3]]])", R"([["int64",[]],["float32",[3]],["float32",[]]])",
       "stacked output 1 has not 2 rows"},
      {R"("tensor":"constant/1")", R"("tensor":"weight")", "the constant 'weight' is float32 3x3"},
  };
  for (const Case& c : cases) {
    const std::string text = refused(replaced(s.json, c.from, c.to), s.tensors);
    CHECK_MESSAGE(contains(text, c.error), c.to, ": ", text);
  }
}

TEST_CASE("malformed branches and loops of format version 2 are refused with what is wrong") {
  const Sample s = control_flow_sample();
  const std::string json = old_control_flow();
  const char *loop = R"("loop":{"slices":1,"carries":1,"reverse":true,"limit":2,"checkpoint":5})",
             *streams = R"("streams":[[0,1]])",
             *condition = R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"conditional":true,"limit":4})";
  struct Case {
    const char *from, *to, *error;
  };
  const Case cases[] = {
      {R"("version":2,"producer")", R"("version":1,"producer")", "a node of kind 'loop' in a file of format version 1"},
      {R"("kind":"loop")", R"("kind":"fused")", "unknown kind of node 'fused'"},
      {R"("kind":"loop")", R"("kind":"cond")", "the form of a loop is what loops have"},
      {R"("kind":"loop")", R"("kind":"custom")", "the form of a loop is what loops have"},
      {R"("kind":"cond")", R"("kind":"loop")", "the form of a loop is what loops have"},
      {R"("kind":"cond")", R"("kind":"detach")", "custom nodes have one body"},
      {R"("bodies":[3,4])", R"("line":0)", "branches have two bodies"},
      {R"("bodies":[3,4])", R"("bodies":[3])", "graph 4 is the body of no node"},
      {R"("bodies":[3,4])", R"("bodies":[3,3])", "graph 3 is the body of two nodes"},
      {R"("bodies":[3,4])", R"("bodies":[3,5])", "the body 5 is not an earlier graph"},
      {R"("bodies":[3,4])", R"("bodies":[3,1])", "graph 1 is the body of two nodes"},
      {R"("bodies":[3,4])", R"("bodies":[3,4],"streams":[[0,0]],"streams":[])", "duplicate key 'streams'"},
      {loop, R"("loop":{"slices":1})", "no field 'carries'"},
      {loop, R"("loop":{"slices":-1,"carries":1})", "expected a whole number from 0"},
      {loop, R"("loop":{"slices":2000000000,"carries":1})", "expected a whole number from 0"},
      {loop, R"("loop":{"slices":500000000,"carries":500000000})", "lacks operands"},
      {loop, R"("loop":{"slices":1,"carries":3,"limit":2})", "lacks operands"},
      {loop, R"("loop":{"slices":0,"carries":3,"limit":2})", "its body gives 2 outputs, needs 3"},
      {loop, R"("loop":{"slices":0,"carries":2})", "nothing says how many steps"},
      {loop, R"("loop":{"slices":1,"carries":2,"limit":2})", "carried output 2 of a body is float32 3 cpu"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":3})", "slice 1 has not 3 rows"},
      {loop, R"("loop":{"slices":1,"carries":1})", "nothing says how many steps"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":-1})", "expected a whole number from 0"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"checkpoint":0})", "expected a whole number from 1"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"rows":0})", "unknown field 'rows'"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"conditional":true})", "its body takes 4 inputs, gets 3"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"counted":true})", "its body takes 4 inputs, gets 3"},
      {R"("in":[0,1,2])", R"("in":[0,0,1,2])", "its body takes 4 inputs, gets 5"},
      {loop, R"("loop":[1,1])", "expected"},
      {streams, R"("streams":[])", "the body has no stream of generator 0"},
      {streams, R"("streams":[[1,1]])", "there is no generator 1"},
      {streams, R"("streams":[[0,2]])", "tick 2 of generator 0 is beyond those of a run"},
      {streams, R"("streams":[[0,1],[0,0]])", "two streams of generator 0"},
      {streams, R"("streams":[[0]])", "expected a generator and a tick"},
      {streams, R"("streams":[[0,1,2]])", "expected a generator and a tick"},
      {streams, R"("streams":[0])", "expected an array, got 0"},
      {condition, R"("bodies":[2,1],"loop":{"slices":0,"carries":1,"conditional":true,"limit":4})",
       "its condition gives more than one output"},
      {condition, R"("bodies":[1],"loop":{"slices":0,"carries":1,"conditional":true,"limit":4})",
       "graph 2 is the body of no node"},
      {condition, R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"limit":4})", "has one body"},
      {condition, R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"conditional":true,"limit":5})",
       "stacked output 1 has not 5 rows"},
      {condition, R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"conditional":true})",
       "stacked output 1 has not 0 rows"},
      {R"("in":[0,1,2])", R"("in":[0,1,null])", "takes arrays only"},
  };
  for (const Case& c : cases) {
    const std::string text = refused(replaced(json, c.from, c.to), s.tensors);
    CHECK_MESSAGE(contains(text, c.error), c.to, ": ", text);
  }
}

TEST_CASE("a model in files, both or none") {
  const Folder folder;
  const Sample s;
  const Values values = sample_values();
  save_model(folder / "m.json", folder / "m.safetensors", s.model, values);
  CHECK(folder.count() == 2);
  CHECK(model_json(load_model(folder / "m.json", folder / "m.safetensors").model) == s.json);
  const std::string before = get(folder / "m.safetensors");
  CHECK_THROWS_AS(save_model(folder / "no/m.json", folder / "m.safetensors", s.model, values), Error);
  CHECK_THROWS_AS(save_model(folder / "m.json", folder / "no/m.safetensors", s.model, values), Error);
  CHECK(get(folder / "m.safetensors") == before);
  CHECK(get(folder / "m.json") == s.json);
  CHECK(folder.count() == 2);
  CHECK(contains(error_of([&] { load_model(folder / "x.json", ""); }), "x.json"));
}

TEST_CASE("keys may stand in any order, with any white space") {
  const Sample s;
  std::string text = replaced(s.json, R"({"format":"perigee graph","version":1,)", "{ ");
  text = replaced(text, R"("generators":[{"default":true}]})",
                  "\"generators\" : [ {\"default\":true} ]\t,\r\n\"version\":1,\"format\":\"perigee graph\" } ");
  CHECK(model_json(parse(text, s.tensors).model) == s.json);
}

TEST_CASE("malformed models are refused with what is wrong") {
  const Sample s;
  struct Case {
    const char *from, *to, *error;
  };
  const Case cases[] = {
      {R"("version":1,"producer")", R"("version":5,"more":1,"producer")",
       "format version 5; this program reads up to 4"},
      {R"("version":1,"producer")", R"("version":-1,"producer")", "expected a whole number from 1"},
      {R"("format":"perigee graph")", R"("format":"onnx")", "the format is 'onnx'"},
      {R"("name":"sample")", R"("name":"sample","name":"b")", "duplicate key 'name'"},
      {R"("name":"sample")", R"("nome":"sample")", "unknown field 'nome'"},
      {R"("op":"linear")", R"("op":"linaer")", "unknown op 'linaer' (did you mean 'linear'?)"},
      {R"("op":"linear")", R"("op":"relu_grad")", "this op is not for programs"},
      {R"("op":"linear")", R"("op":"call_value")", "this op is not for programs"},
      {R"("op":"linear")", R"("op":"add")", "has 3 operands, which its op does not take"},
      {R"("op":"linear","version":1)", R"("op":"linear","version":9)", "version 9 of the op; this program has 1"},
      {R"("op":"linear","version":1)", R"("op":"linear")", "no field 'version'"},
      {R"("in":[0,1,3])", R"("in":[0,1,9])", "the operand %9 is not an earlier node"},
      {R"("in":[0,1,3])", R"("in":[0,1,4])", "the operand %4 is not an earlier node"},
      {R"("in":[0,1,3])", R"("in":[0,1,-1])", "expected a whole number from 0"},
      {R"("in":[0,1,3])", R"("in":[0,1,99999999999])", "expected a whole number from 0"},
      {R"("in":[0,1,3])", R"("in":[0,1,[3,1]])", "node %3 has no output 1"},
      {R"("in":[0,1,3])", R"("in":[0,1,[3]])", ""},
      {R"("in":[0,1,3])", R"("in":[0,null,3])", "linear"},
      {R"("in":[0,1,3])", R"("in":[0,1,3.5])", "expected a whole number"},
      {R"("in":[0,1,3])", R"("in":[0,1,"3"])", "expected an operand"},
      {R"("in":[0,1,3])", R"("in":0)", "expected an array, got 0"},
      {R"("p":0.25)", R"("q":0.25)", "unknown attribute 'q'"},
      {R"("p":0.25)", R"("p":1.5)", "dropout: bad argument 'p' (expected a number from 0 to 1, got 1.5)"},
      {R"("p":0.25)", R"("p":"nan")", "dropout: bad argument 'p' (expected a number from 0 to 1, got nan)"},
      {R"("p":0.25)", R"("p":true)", "expected a number"},
      {R"("p":0.25)", R"("p":0.25,"p":0.5)", "duplicate key 'p'"},
      {R"("generator":0,"tick":1)", R"("generator":1,"tick":1)", "there is no generator 1"},
      {R"("generator":0,"tick":1)", R"("generator":0,"tick":2)", "tick 2 of generator 0 is beyond"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float31",[2,3]]])", "unknown dtype 'float31'"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[2,-3]]])", "expected a whole number from 0"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[72057594037927936,72057594037927936]]])",
       "too many elements"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[1,1,1,1,1,1,1,1,1,1,1,1,1]]])", "more than 12 dims"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[2,4]]])", "linear"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[2,3],"moon:1"]])", "device 'moon:1'"},
      {R"("types":[["float32",[2,3]]])", R"("types":[])", "node %0 has no output 0"},
      {R"("types":[["float32",[2,4]]])", R"("types":[["float32",[2,5]]])", "its op gives"},
      {R"("tensor":"constant/1")", R"("tensor":"constant/2")", "m.safetensors lacks the tensor 'constant/2'"},
      {R"("tensor":"constant/1")", R"("tensor":"body.weight")", "the constant 'body.weight' is float32 4x3"},
      {R"("line":0)", R"("line":1)", "its script line is out of range"},
      {R"("outputs":[8,7])", R"("outputs":[8,9])", "does not exist"},
      {R"("outputs":[8,7])", R"("outputs":[8,null])", "does not exist"},
      {R"("outputs":[8,7])", R"("outputs":[8,{"number":1}])", "does not exist"},
      {R"("inputs":[0,1,2])", R"("inputs":[0,1,1])", "not an input node of its own"},
      {R"("inputs":[0,1,2])", R"("inputs":[0,1])", "does not name every input node"},
      {R"("inputs":[0,1,2])", R"("inputs":[0,1,5])", "not an input node of its own"},
      {R"("ticks":[2])", R"("ticks":[2,1])", "generators and their ticks differ"},
      {R"("of":0,"kind":"dim")", R"("of":0,"kind":"dime")", "unknown kind of guard"},
      {R"("of":0,"kind":"dim")", R"("of":10,"kind":"dim")", "a guard of a node that does not exist"},
      {R"("name":"state1","role":"state")", R"("name":"data","role":"state")", "two inputs have the name 'data'"},
      {R"("name":"state1","role":"state")", R"("name":"state2","role":"state")", "lacks the tensor 'state2'"},
      {R"("name":"state1","role":"state")", R"("name":"state1","role":"ghost")", "expected \"argument\""},
      {R"("name":"state1","role":"state")", R"("name":"state1","role":"argument")", "is not among the arguments"},
      {R"("writes":[[2,1]])", R"("writes":[[2,1],[2,0]])", "two writes to input 2"},
      {R"("writes":[[2,1]])", R"("writes":[[3,1]])", "do not exist"},
      {R"("writes":[[2,1]])", R"("writes":[[2]])", "expected an input and an output"},
      {R"("arguments":[{"input":0},null])", R"("arguments":[{"input":1},null])", "'body.weight' is no argument"},
      {R"("arguments":[{"input":0},null])", R"("arguments":[{"input":0},{"input":0}])", "stands twice"},
      {R"("arguments":[{"input":0},null])", R"("arguments":[{"output":0},null])", "no output 0"},
      {R"("generators":[{"default":true}])", R"("generators":[{"seed":1}])", "no field 'tick'"},
      {R"("generators":[{"default":true}])", R"("generators":[])", "generators and their ticks differ"},
      {R"("generators":[{"default":true}]})", R"("generators":[{"default":true}]}})", "expected end of input"},
  };
  for (const Case& c : cases) {
    const std::string text = refused(replaced(s.json, c.from, c.to), s.tensors);
    CHECK_MESSAGE(contains(text, c.error), c.to, ": ", text);
  }
  NamedTensors more = s.tensors;
  more.tensors.emplace_back("extra", range({1}));
  CHECK(contains(refused(s.json, more), "holds 'extra', which m.json has not"));
}

TEST_CASE("models that nest deeply, hold cycles or lie about sizes") {
  const Sample s;
  auto many = [](const std::string& part, int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += part;
    return text;
  };
  const std::string tree = R"("results":[)";
  CHECK(contains(refused(replaced(s.json, tree, tree + many("[", 100000)), s.tensors), "nested more than 256 deep"));
  CHECK(contains(refused(replaced(s.json, tree, tree + many(R"({"table":[[1,)", 100000)), s.tensors),
                 "nested more than 256 deep"));
  const std::string deep = many(R"({"table":[["a",)", 80) + "null" + many("]]}", 80) + ",";
  CHECK(contains(refused(replaced(s.json, tree, tree + deep), s.tensors), ""));
  CHECK(contains(refused(many("[", 100000), s.tensors), "not a graph of perigee"));
  CHECK(contains(refused(many("{\"a\":", 100000), s.tensors), "nested more than 256 deep"));
  // Bodies that are their own body, come later, belong to two nodes or to none, or are nested.
  const std::string empty = R"({"nodes":[],"inputs":[],"outputs":[],"ticks":[],"guards":[],"lines":[]})";
  auto with_body = [](const std::string& g) {
    return R"({"nodes":[{"kind":"custom","types":[],"bodies":[)" + g +
           R"(]}],"inputs":[],"outputs":[],"ticks":[],"guards":[],"lines":[]})";
  };
  auto document = [](const std::string& graphs) {
    return R"({"format":"perigee graph","version":1,"producer":"","name":"g","graphs":[)" + graphs +
           R"(],"inputs":[],"arguments":[],"results":[],"writes":[],"generators":[]})";
  };
  const NamedTensors none;
  CHECK(refused(document(empty), none) == "");
  CHECK(refused(document(empty + "," + with_body("0")), none) == "");
  CHECK(contains(refused(document(with_body("0")), none), "the body 0 is not an earlier graph"));
  CHECK(contains(refused(document(with_body("1") + "," + empty), none), "the body 1 is not an earlier graph"));
  CHECK(contains(refused(document(empty + "," + with_body("0,0")), none), "graph 0 is the body of two nodes"));
  CHECK(contains(refused(document(empty + "," + empty), none), "graph 0 is the body of no node"));
  CHECK(contains(refused(document(""), none), "no graphs"));
  std::string nested = empty;
  for (int i = 0; i < 3000; ++i) nested += "," + with_body(std::to_string(i));
  CHECK(contains(refused(document(nested), none), "more than 256 graphs within one another"));
  // Each level of branches doubles the size. Shared bodies would grow exponentially, others are as large as the file.
  const std::string leaf =
      R"({"nodes":[{"kind":"input","types":[["bool",[]]]}],"inputs":[0],"outputs":[],"ticks":[],"guards":[],"lines":[]})";
  auto branch = [](int g) {
    return fmt::format(
        R"(,{{"nodes":[{{"kind":"input","types":[["bool",[]]]}},{{"kind":"cond","in":[0,0],"types":[],"bodies":[{},{}]}}],)"
        R"("inputs":[0],"outputs":[],"ticks":[],"guards":[],"lines":[]}})",
        g, g + 1);
  };
  std::string branches = leaf + "," + leaf;
  for (int i = 0; i < 300; ++i) branches += (i ? "," + leaf : "") + branch(2 * i);
  const std::string second = replaced(document(branches), R"("version":1)", R"("version":2)");
  CHECK(contains(refused(second, none), "more than 256 graphs within one another"));
}

TEST_CASE("a model cut at any byte, or with any byte changed") {
  const Sample samples[] = {Sample(), control_flow_sample()};
  for (const Sample& s : samples)
    for (size_t n = 0; n + 1 < s.json.size(); ++n) CHECK(!refused(s.json.substr(0, n), s.tensors).empty());
  std::mt19937 random(1);
  const std::string alphabet = "{}[]\",:0123456789-.eEtfn\\u \x80\xff";
  for (int i = 0; i < 8000; ++i) {
    const Sample& s = samples[i % 2];
    std::string text = s.json;
    for (int k = 0, n = 1 + int(random() % 3); k < n; ++k) {
      const size_t at = random() % text.size();
      if (random() % 4 == 0)
        text.erase(at, 1 + random() % 8);
      else
        text[at] = random() % 2 ? alphabet[random() % alphabet.size()] : char(random());
    }
    refused(text, s.tensors);
  }
}

// Swaps the values of fields: the structure stays valid, the meaning does not.
static void swap_values(const Sample& s, std::initializer_list<Dims> arguments) {
  std::vector<std::pair<size_t, size_t>> tokens;
  for (size_t i = 0; i < s.json.size(); ++i) {
    size_t end = i;
    if (s.json[i] == '"') {
      end = s.json.find('"', i + 1) + 1;
    } else {
      while (end < s.json.size() && (isdigit(s.json[end]) || s.json[end] == '.')) ++end;
    }
    if (end <= i) continue;
    tokens.emplace_back(i, end - i);
    i = end - 1;
  }
  std::mt19937 random(2);
  for (int i = 0; i < 3000; ++i) {
    auto a = tokens[random() % tokens.size()], b = tokens[random() % tokens.size()];
    if (a.first > b.first) std::swap(a, b);
    if (a.first + a.second > b.first) continue;
    std::string text = s.json;
    const std::string first = text.substr(a.first, a.second), second = text.substr(b.first, b.second);
    text.replace(b.first, b.second, first).replace(a.first, a.second, second);
    if (!refused(text, s.tensors).empty()) continue;
    // An accepted model must run, or throw an Error.
    error_of([&] {
      const LoadedModel loaded = parse(text, s.tensors);
      Ref<FrozenGraph> graph(new FrozenGraph(loaded.model, loaded.values, {}));
      Context ctx;
      Values in;
      for (const Dims& shape : arguments) in.push_back(range(shape));
      graph->run(ctx, in);
    });
  }
}

TEST_CASE("a model with values swapped") {
  swap_values(Sample(), {{2, 3}});
  swap_values(control_flow_sample(), {{2, 3}, {3}});
}

TEST_CASE("the golden export of format version 1 loads and computes what it did") {
  const std::string folder = PERIGEE_SOURCE_DIR "/tests/golden/";
  const LoadedModel loaded = load_model(folder + "model-v1.json", folder + "model-v1.safetensors");
  CHECK(loaded.model.name == "Golden");
  Ref<FrozenGraph> graph(new FrozenGraph(loaded.model, loaded.values, {}));
  const NamedTensors expected = load_safetensors(folder + "model-v1-expected.safetensors");
  auto tensor = [&](const char* name) {
    for (const auto& [key, value] : expected.tensors)
      if (key == name) return value;
    FAIL(name);
    return Value();
  };
  Context ctx;
  const Value arguments[] = {tensor("x"), tensor("h")};
  for (const char* suffix : {"1", "2"}) {
    const Values out = graph->run(ctx, arguments);
    REQUIRE(out.size() == 2);
    for (size_t k = 0; k < 2; ++k) {
      const Value want = tensor((std::string(k == 0 ? "y" : "h") + suffix).c_str());
      REQUIRE(out[k].type() == want.type());
      const auto *a = static_cast<const float*>(to_contiguous(ctx, out[k]).array().data()),
                 *b = static_cast<const float*>(want.array().data());
      for (int64_t i = 0; i < want.numel(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("numbers and strings of the JSON reader") {
  auto number = [](const std::string& text) { return JsonReader("t", text).number(); };
  CHECK(number("-0.0") == 0);
  CHECK(std::signbit(number("-0.0")));
  CHECK(number(" 1e3") == 1000);
  CHECK(std::isnan(number("\"nan\"")));
  CHECK(number("\"-inf\"") == -std::numeric_limits<double>::infinity());
  for (const char* bad : {"", "01x", "+1", ".5", "1.", "1e", "--1", "\"infinity\"", "1e999", "NaN"})
    CHECK_MESSAGE(!error_of([&] {
                     JsonReader r("t", bad);
                     r.number();
                   }).empty(),
                  bad);
  CHECK(JsonReader("t", "-9223372036854775808").integer(std::numeric_limits<int64_t>::min(), 0) ==
        std::numeric_limits<int64_t>::min());
  CHECK(JsonReader("t", "18446744073709551615").natural() == std::numeric_limits<uint64_t>::max());
  CHECK(JsonReader("t", R"("a\u00e9\ud83d\ude00\n")").string() == "a\xc3\xa9\xf0\x9f\x98\x80\n");
  for (const char* bad : {"\"", "\"\\", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"", "\"\x80\"",
                          "\"\xed\xa0\x80\"", "\"\n\"", "\"\\x\""})
    CHECK_MESSAGE(contains(error_of([&] { JsonReader("t", bad).string(); }), "load: t: at byte "), bad);
}

}  // namespace pg::test
