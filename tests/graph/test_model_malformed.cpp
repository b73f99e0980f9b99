// Malformed model files.
#include <random>
#include <span>

#include "graph/exec/frozen.h"
#include "tests/graph/sample_models.h"

namespace pg::test {
namespace {

// A text that is not allowed in place of another, and the reason.
struct Change {
  const char *from, *to, *error;
};
void check_refused(const std::string& json, const NamedTensors& tensors, std::span<const Change> changes) {
  for (const Change& c : changes) {
    const std::string text = refused(replaced(json, c.from, c.to), tensors);
    CHECK_MESSAGE(contains(text, c.error), c.to, ": ", text);
  }
}

}  // namespace

TEST_CASE("malformed branches and loops are refused with the reason") {
  const Sample s = control_flow_sample();
  const char *loop = R"("slices":1,"carries":1,"reverse":true,"limit":2,"checkpoint":5)",
             *streams = R"("streams":[0,1,0,0,0])",
             *condition = R"("body":1,"condition":2,"carries":1,"conditional":true,"limit":4)",
             *branches = R"("then_body":3,"else_body":4)";
  const Change changes[] = {
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
      {loop, R"("slices":1)", "has neither a count, a condition nor a limit"},
      {loop, R"("slices":-1,"carries":1)", "a negative count"},
      {loop, R"("slices":2000000000,"carries":1)", "lacks operands"},
      {loop, R"("slices":4294967297,"carries":1,"limit":2)", "from 0 to 268435456, got 4294967297"},
      {loop, R"("slices":1,"carries":3,"limit":2)", "lacks operands"},
      {loop, R"("slices":0,"carries":3,"limit":2)", "its body returns 2 outputs, expected 3"},
      {loop, R"("slices":0,"carries":2)", "has neither a count, a condition nor a limit"},
      {loop, R"("slices":1,"carries":2,"limit":2)", "carried output 2 of a body is float32 3 cpu"},
      {loop, R"("slices":1,"carries":1,"limit":3)", "slice 1 does not have 3 rows"},
      {loop, R"("slices":1,"carries":1)", "has neither a count, a condition nor a limit"},
      {loop, R"("slices":1,"carries":1,"limit":-2)", "a negative count"},
      {loop, R"("slices":1,"carries":1,"limit":2,"checkpoint":-1)", "a negative count"},
      {loop, R"("slices":1,"carries":1,"limit":2,"rows":0)", "unknown attribute 'rows'"},
      {loop, R"("slices":1,"carries":1,"limit":2,"conditional":true)", "its body takes 4 inputs, got 3"},
      {loop, R"("slices":1,"carries":1,"limit":2,"counted":true)", "its body takes 4 inputs, got 3"},
      {loop, R"("slices":"1","carries":1,"limit":2)", "expected"},
      {R"("in":[0,1,2])", R"("in":[0,0,1,2])", "its body takes 4 inputs, got 5"},
      {streams, R"("streams":[])", "the body has no stream of generator 0"},
      {streams, R"("streams":[1,1,0,0,0])", "generator 1 does not exist"},
      {streams, R"("streams":[0,2,0,0,0])", "tick 2 of generator 0 is beyond those of a run"},
      {streams, R"("streams":[0,1,0,0,0,0,0,0,0,0])", "two streams of generator 0"},
      {streams, R"("streams":[0,1])", "five numbers for each stream"},
      {streams, R"("streams":[0,1,3,0,0])", "a stream of a part of a loop"},
      {streams, R"("streams":[-1,1,0,0,0])", "generator -1 does not exist"},
      {condition, R"("body":2,"condition":1,"carries":1,"conditional":true,"limit":4)",
       "its condition returns more than one output"},
      {condition, R"("body":1,"carries":1,"conditional":true,"limit":4)", "graph 2 is the body of no node"},
      {condition, R"("condition":1,"body":2,"carries":1,"limit":4)", "needs one body"},
      {condition, R"("body":1,"condition":2,"carries":1,"conditional":true,"limit":5)",
       "stacked output 1 does not have 5 rows"},
      {condition, R"("body":1,"condition":2,"carries":1,"conditional":true)", "stacked output 1 does not have 0 rows"},
      {R"("in":[0,1,2])", R"("in":[0,1,null])", "takes arrays only"},
      {R"("in":[0,1,2])", R"("in":[0,2,1])", "carry 1 of a body is float32 3 cpu, expected float32 3x3"},
      {R"("in":[6,[5,1]])", R"("in":[0,[5,1]])", "needs a predicate of one element"},
      {R"("in":[6,[5,1]])", R"("in":[6])", "takes 1 inputs, got 0"},
      {R"([["int64",[]],["float32",[3]],["float32",[2,3]]])", R"([["int64",[1]],["float32",[3]],["float32",[2,3]]])",
       "its number of steps is"},
      {R"([["int64",[]],["float32",[3]],["float32",[2,3]]])", R"([["int64",[]],["float32",[3]],["float32",[2,4]]])",
       "output 2 is float32 2x4 cpu, its op returns float32 2x3 cpu"},
      {R"([["int64",[]],["float32",[3]],["float32",[2,3]]])", R"([["int64",[]],["float32",[3]],["float32",[]]])",
       "stacked output 1 does not have 2 rows"},
      {R"("tensor":"constant/1")", R"("tensor":"weight")", "the constant 'weight' is float32 3x3"},
  };
  check_refused(s.json, s.tensors, changes);
}

TEST_CASE("malformed branches and loops of format version 2 are refused with the reason") {
  const Sample s = control_flow_sample();
  const char *loop = R"("loop":{"slices":1,"carries":1,"reverse":true,"limit":2,"checkpoint":5})",
             *streams = R"("streams":[[0,1]])",
             *condition = R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"conditional":true,"limit":4})";
  const Change changes[] = {
      {R"("version":2,"producer")", R"("version":1,"producer")", "a node of kind 'loop' in a file of format version 1"},
      {R"("kind":"loop")", R"("kind":"fused")", "unknown kind of node 'fused'"},
      {R"("kind":"loop")", R"("kind":"cond")", "loops, and only loops, have a field 'loop'"},
      {R"("kind":"loop")", R"("kind":"custom")", "loops, and only loops, have a field 'loop'"},
      {R"("kind":"cond")", R"("kind":"loop")", "loops, and only loops, have a field 'loop'"},
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
      {loop, R"("loop":{"slices":0,"carries":3,"limit":2})", "its body returns 2 outputs, expected 3"},
      {loop, R"("loop":{"slices":0,"carries":2})", "has neither a count, a condition nor a limit"},
      {loop, R"("loop":{"slices":1,"carries":2,"limit":2})", "carried output 2 of a body is float32 3 cpu"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":3})", "slice 1 does not have 3 rows"},
      {loop, R"("loop":{"slices":1,"carries":1})", "has neither a count, a condition nor a limit"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":-1})", "expected a whole number from 0"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"checkpoint":0})", "expected a whole number from 1"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"rows":0})", "unknown field 'rows'"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"conditional":true})", "its body takes 4 inputs, got 3"},
      {loop, R"("loop":{"slices":1,"carries":1,"limit":2,"counted":true})", "its body takes 4 inputs, got 3"},
      {R"("in":[0,1,2])", R"("in":[0,0,1,2])", "its body takes 4 inputs, got 5"},
      {loop, R"("loop":[1,1])", "expected"},
      {streams, R"("streams":[])", "the body has no stream of generator 0"},
      {streams, R"("streams":[[1,1]])", "generator 1 does not exist"},
      {streams, R"("streams":[[0,2]])", "tick 2 of generator 0 is beyond those of a run"},
      {streams, R"("streams":[[0,1],[0,0]])", "two streams of generator 0"},
      {streams, R"("streams":[[0]])", "expected a generator and a tick"},
      {streams, R"("streams":[[0,1,2]])", "expected a generator and a tick"},
      {streams, R"("streams":[0])", "expected an array, got 0"},
      {condition, R"("bodies":[2,1],"loop":{"slices":0,"carries":1,"conditional":true,"limit":4})",
       "its condition returns more than one output"},
      {condition, R"("bodies":[1],"loop":{"slices":0,"carries":1,"conditional":true,"limit":4})",
       "graph 2 is the body of no node"},
      {condition, R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"limit":4})", "needs one body"},
      {condition, R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"conditional":true,"limit":5})",
       "stacked output 1 does not have 5 rows"},
      {condition, R"("bodies":[1,2],"loop":{"slices":0,"carries":1,"conditional":true})",
       "stacked output 1 does not have 0 rows"},
      {R"("in":[0,1,2])", R"("in":[0,1,null])", "takes arrays only"},
  };
  check_refused(old_control_flow(), s.tensors, changes);
}

TEST_CASE("malformed models are refused with the reason") {
  const Sample s;
  const Change changes[] = {
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
      {R"("op":"linear","version":1)", R"("op":"linear","version":9)",
       "version 9 of the op; this program reads up to version 1"},
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
      {R"("generator":0,"tick":1)", R"("generator":1,"tick":1)", "generator 1 does not exist"},
      {R"("generator":0,"tick":1)", R"("generator":0,"tick":2)", "tick 2 of generator 0 is beyond"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float31",[2,3]]])", "unknown dtype 'float31'"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[2,-3]]])", "expected a whole number from 0"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[72057594037927936,72057594037927936]]])",
       "too many elements"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[1,1,1,1,1,1,1,1,1,1,1,1,1]]])", "more than 12 dims"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[2,4]]])", "linear"},
      {R"("types":[["float32",[2,3]]])", R"("types":[["float32",[2,3],"moon:1"]])", "device 'moon:1'"},
      {R"("types":[["float32",[2,3]]])", R"("types":[])", "node %0 has no output 0"},
      {R"("types":[["float32",[2,4]]])", R"("types":[["float32",[2,5]]])", "its op returns"},
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
      {R"("name":"state1","role":"state")", R"("name":"state2","role":"state")", "does not have the tensor 'state2'"},
      {R"("name":"state1","role":"state")", R"("name":"state1","role":"ghost")", "expected \"argument\""},
      {R"("name":"state1","role":"state")", R"("name":"state1","role":"argument")", "is not among the arguments"},
      {R"("writes":[[2,1]])", R"("writes":[[2,1],[2,0]])", "two writes to input 2"},
      {R"("writes":[[2,1]])", R"("writes":[[3,1]])", "do not exist"},
      {R"("writes":[[2,1]])", R"("writes":[[2]])", "expected an input and an output"},
      {R"("arguments":[{"input":0},null])", R"("arguments":[{"input":1},null])", "'body.weight' is no argument"},
      {R"("arguments":[{"input":0},null])", R"("arguments":[{"input":0},{"input":0}])", "occurs twice"},
      {R"("arguments":[{"input":0},null])", R"("arguments":[{"output":0},null])", "no output 0"},
      {R"("generators":[{"default":true}])", R"("generators":[{"seed":1}])", "no field 'tick'"},
      {R"("generators":[{"default":true}])", R"("generators":[])", "generators and their ticks differ"},
      {R"("generators":[{"default":true}]})", R"("generators":[{"default":true}]}})", "expected end of input"},
  };
  check_refused(s.json, s.tensors, changes);
  NamedTensors more = s.tensors;
  more.tensors.emplace_back("extra", range({1}));
  CHECK(contains(refused(s.json, more), "has the tensor 'extra', which m.json does not have"));
}

TEST_CASE("models with deep nests, cycles or wrong sizes are refused") {
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

TEST_CASE("a model cut or changed at any byte never crashes the reader") {
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

TEST_CASE("a model with swapped values never crashes the reader") {
  swap_values(Sample(), {{2, 3}});
  swap_values(control_flow_sample(), {{2, 3}, {3}});
}

}  // namespace pg::test
