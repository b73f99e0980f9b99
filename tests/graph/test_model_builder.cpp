// Models that are built by hand, as importers build them.
#include "graph/exec/frozen.h"
#include "graph/io/model_builder.h"
#include "tests/graph/graphs.h"
#include "tests/tensor/files.h"

namespace pg::test {
namespace {

Type floats(Dims shape) { return Type{DType::kFloat32, {}, shape}; }

// The weights of an MLP 3 → 4 → 2.
struct Weights {
  Value w1 = range({4, 3}, -0.5, 0.1), b1 = range({4}, -1, 0.5), w2 = range({2, 4}, 0.3, -0.1), b2 = range({2});
};

LoadedModel build_mlp(const Weights& w) {
  ModelBuilder b("mlp");
  Value x = b.argument("x", floats({5, 3}));
  x = b.call("linear", {x, b.parameter("1.weight", w.w1), b.parameter("1.bias", w.b1)})[0];
  x = b.call("leaky_relu", {x}, {{"negative_slope", 0.1}})[0];
  x = b.call("linear", {x, b.parameter("2.weight", w.w2), b.parameter("2.bias", w.b2, GradReq::kNull)})[0];
  b.result(b.call("softmax", {x}, {{"dim", int64_t(2)}})[0]);
  b.result(b.call("sum", {b.call("mul", {x, Value(2.0)})[0]}, {{"dim", Ints{1}}})[0]);
  return b.finish();
}

Values eager_mlp(const Weights& w, const Value& in) {
  Context ctx;
  Value x = run(ctx, "linear", {in, w.w1, w.b1});
  x = run(ctx, "leaky_relu", {x}, {{"negative_slope", 0.1}});
  x = run(ctx, "linear", {x, w.w2, w.b2});
  return {run(ctx, "softmax", {x}, {{"dim", int64_t(2)}}),
          run(ctx, "sum", {run(ctx, "mul", {x, Value(2.0)})}, {{"dim", Ints{1}}})};
}

Values run_model(const LoadedModel& model, std::initializer_list<Value> arguments) {
  Context ctx;
  const Ref<FrozenGraph> graph(new FrozenGraph(model.model, model.values, {}));
  return graph->run(ctx, std::span(arguments.begin(), arguments.size()));
}

void check_equal(const Values& got, const Values& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t k = 0; k < got.size(); ++k) {
    CHECK(got[k].type() == expected[k].type());
    const auto a = numbers(got[k]), b = numbers(expected[k]);
    for (size_t i = 0; i < a.size(); ++i) CHECK(a[i] == doctest::Approx(b[i]).epsilon(1e-5));
  }
}

}  // namespace

TEST_CASE("a model built by hand runs as its ops do, with other batch sizes too") {
  const Weights w;
  const LoadedModel mlp = build_mlp(w);
  CHECK(mlp.model.name == "mlp");
  CHECK(mlp.model.inputs[1].name == "1.weight");
  CHECK(mlp.model.graph.nodes[size_t(mlp.model.graph.inputs[1])].req == GradReq::kWrite);
  for (int64_t batch : {5, 1, 17}) {
    const Value x = range({batch, 3}, -1, 0.2);
    check_equal(run_model(mlp, {x}), eager_mlp(w, x));
  }
}

TEST_CASE("a model built by hand is saved and loaded") {
  const Weights w;
  const LoadedModel mlp = build_mlp(w);
  const Folder folder;
  save_model(folder / "mlp.json", folder / "mlp.safetensors", mlp.model, mlp.values);
  const LoadedModel back = load_model(folder / "mlp.json", folder / "mlp.safetensors");
  CHECK(model_json(back.model) == model_json(mlp.model));
  const Value x = range({5, 3}, -1, 0.2);
  const Values a = run_model(back, {x}), b = run_model(mlp, {x});
  for (size_t k = 0; k < b.size(); ++k) CHECK(same(a[k], b[k]));
}

TEST_CASE("constants, states, random ops and sizes in a model built by hand") {
  ModelBuilder b;
  const Value x = b.argument("x", floats({2, 3})), sum = b.state("sum", range({3}));
  Context ctx;
  const Value turned = run(ctx, "t", {range({3, 2})});  // not row-major
  const Value y = b.call("add", {x, turned})[0];
  const Value next = b.call("add", {sum, b.call("sum", {y}, {{"dim", Ints{1}}})[0]})[0];
  b.write(sum, next);
  b.result(next);
  b.result(b.call("reshape", {y}, {{"shape", Ints{b.size(y, 1), b.size(y, 0)}}})[0]);
  b.result(b.call("dropout", {y}, {{"p", 0.5}})[0]);
  const LoadedModel model = b.finish();
  CHECK(model.model.generators.size() == 1);
  CHECK(model.model.generators[0].is_default);
  const Ref<FrozenGraph> graph(new FrozenGraph(model.model, model.values, {}));
  const Value in = range({2, 3});
  // y = {{0, 3, 6}, {4, 7, 10}}
  CHECK(numbers(graph->run(ctx, {&in, 1})[0]) == std::vector<double>{4, 11, 18});
  const Values second = graph->run(ctx, {&in, 1});
  CHECK(numbers(second[0]) == std::vector<double>{8, 21, 34});
  CHECK(second[1].shape() == Dims{3, 2});
  CHECK(same(second[2], run(ctx, "add", {in, turned})));  // not in training
  const Value other = range({4, 3});
  CHECK(contains(error_of([&] { graph->run(ctx, {&other, 1}); }), "add: bad argument"));
}

TEST_CASE("sizes that the importer reads are guards") {
  ModelBuilder b;
  const Value x = b.argument("x", floats({2, 3}));
  b.result(b.call("mul", {x, Value(double(b.size(x, 0)))})[0]);
  const LoadedModel model = b.finish();
  CHECK(numbers(run_model(model, {range({2, 2})})[0]) == std::vector<double>{0, 2, 4, 6});
  CHECK(contains(error_of([&] { run_model(model, {range({3, 2})}); }), "this graph holds for other types only"));
}

TEST_CASE("wrong calls of a builder are the errors of apply, at the place in the imported file") {
  ModelBuilder b;
  const Value x = b.argument("x", floats({2, 3})), w = b.parameter("w", range({4, 5}));
  struct Case {
    const char* op;
    std::vector<Value> inputs;
    NamedAttrs attrs;
    const char* error;
  };
  const Case cases[] = {
      {"linaer", {x, w}, {}, "unknown op 'linaer' (did you mean 'linear'?)"},
      {"relu_grad", {x, x}, {}, "relu_grad: this op is not for programs"},
      {"loop", {x}, {}, "loop: use ModelBuilder::branch or loop"},
      {"nonzero", {x}, {}, "nonzero: its output's shape depends on values"},
      {"linear", {x, w}, {}, "linear: bad argument 'weight' (expected"},
      {"add", {x, w}, {}, "add: bad argument 'y' (expected a shape that broadcasts with 2x3, got 4x5)"},
      {"add", {x}, {}, "add: takes 2 inputs, got 1"},
      {"add", {x, Value()}, {}, "add: bad argument 'y' (expected a tensor, got nil)"},
      {"softmax", {x}, {{"axis", int64_t(1)}}, "softmax: bad argument 'axis' (expected one of the options dim"},
      {"softmax", {x}, {{"dim", 1.5}}, "softmax: bad argument 'dim' (expected a dim, a whole number, got 1.5)"},
      {"softmax", {x}, {{"dim", int64_t(3)}}, "softmax: bad argument 'dim' (expected a dim from 1 to 2 or -2 to -1"},
      {"dropout", {x}, {{"p", int64_t(2)}}, "dropout: bad argument 'p' (expected a number from 0 to 1, got 2)"},
      {"to", {x}, {{"dtype", std::string("float31")}}, "to: bad argument 'dtype' (expected the name of a dtype"},
      {"reshape", {x}, {}, "reshape: bad argument 'shape' (expected a value, got nil)"},
      {"reshape", {x}, {{"shape", Floats{1.5}}}, "reshape: bad argument 'shape' (expected a list of whole numbers"},
  };
  for (const Case& c : cases) {
    const std::string text = error_of([&] { b.call(c.op, c.inputs, c.attrs); });
    CHECK_MESSAGE(text.starts_with(c.error), c.op, ": ", text);
  }
  b.at("net.onnx: node 7");
  CHECK_THROWS_AS(b.call("add", {x, w}), PositionedError);
  CHECK(error_of([&] { b.call("add", {x, w}); }).starts_with("net.onnx: node 7: add: bad argument 'y'"));
  CHECK(error_of([&] { b.write(x, x); }) == "graph: 'x' is float32 2x3 cpu, which cannot take float32 2x3 cpu");
  CHECK(contains(error_of([&] { b.write(w, x); }), "'w' is float32 4x5 cpu, which cannot take float32 2x3"));
  CHECK(contains(error_of([&] { b.write(b.call("neg", {w})[0], w); }), "only a state or parameter"));
  // Values of another builder, two inputs of one name.
  ModelBuilder other;
  CHECK(error_of([&] { other.call("neg", {x}); }) == "a traced tensor is used after its trace");
  b.argument("x", floats({1}));
  CHECK(contains(error_of([&] { b.finish(); }), "two inputs have the name 'x'"));
}

TEST_CASE("branches and loops built by hand") {
  ModelBuilder b("control");
  const Value x = b.argument("x", floats({4, 3})), start = b.argument("start", floats({3}));
  const auto sum = [&](const Value& v) { return b.call("sum", {v})[0]; };

  // Running sums of w * rows, where a step with a negative sum adds nothing. The parameter is made inside of the body.
  const auto step = [&](const Value& index, std::span<const Value> rows, std::span<const Value> carries) {
    const Value w = b.parameter("w", range({3}, 1, 1));
    const Value scaled = b.call("mul", {rows[0], w})[0];
    const Value next = b.branch(
        b.call("gt", {sum(scaled), Value(0.0)})[0],
        [&] {
          return b.call("add", {carries[0], scaled});
        },
        [&] { return Values{carries[0]}; })[0];
    return ModelBuilder::Step{{next},
                              {b.call("mul", {next, b.call("to", {index}, {{"dtype", DType::kFloat32}})[0]})[0]}};
  };
  const Values scan = b.loop({.slices = {x}, .carries = {start}}, step);
  for (const Value& v : scan) b.result(v);

  // Doubles while the sum is below 100, at most 20 times.
  const Values grown = b.loop(
      {.carries = {start}, .limit = 20},
      [&](const Value&, std::span<const Value>, std::span<const Value> carries) {
        return ModelBuilder::Step{b.call("mul", {carries[0], Value(2.0)}), {}};
      },
      [&](const Value&, std::span<const Value> carries) {
        return b.call("lt", {sum(carries[0]), Value(100.0)})[0];
      });
  b.result(grown[0]);
  b.result(grown[1]);
  const LoadedModel model = b.finish();

  const Folder folder;
  save_model(folder / "control.json", folder / "control.safetensors", model.model, model.values);
  const LoadedModel back = load_model(folder / "control.json", folder / "control.safetensors");
  for (const LoadedModel* m : {&model, &back}) {
    const Value rows = range({4, 3}, -7, 1), first = range({3}, 1, 1);  // of the rows, the first two have negative sums
    const Values out = run_model(*m, {rows, first});
    REQUIRE(out.size() == 5);
    CHECK(item(out[0]) == 4);
    CHECK(numbers(out[1]) == std::vector<double>{1 - 1 + 2, 2 + 0 + 6, 3 + 3 + 12});
    CHECK(numbers(out[2]) == std::vector<double>{1, 2, 3, 2, 4, 6, 0, 6, 18, 8, 32, 72});
    CHECK(item(out[3]) == 5);
    CHECK(numbers(out[4]) == std::vector<double>{32, 64, 96});
    const Values empty = run_model(*m, {range({0, 3}), first});
    CHECK(item(empty[0]) == 0);
    CHECK(same(empty[1], first));
  }
}

TEST_CASE("a loop built by hand counts its steps by a tensor") {
  ModelBuilder b;
  const Value count = b.argument("count", Type{DType::kInt32, {}, {}}), start = b.argument("start", floats({}));
  const Values out = b.loop({.carries = {start}, .count = count, .limit = 6},
                            [&](const Value&, std::span<const Value>, std::span<const Value> carries) {
                              const Value next = b.call("mul", {carries[0], Value(2.0)})[0];
                              return ModelBuilder::Step{{next}, {next}};
                            });
  for (const Value& v : out) b.result(v);
  const LoadedModel model = b.finish();
  for (const auto& [n, last] : {std::pair{0, 3.0}, {2, 12.0}, {6, 192.0}, {9, 192.0}}) {
    const Values got = run_model(model, {make_scalar(n, DType::kInt32), make_scalar(3, DType::kFloat32)});
    CHECK(item(got[0]) == std::min(n, 6));
    CHECK(item(got[1]) == last);
    CHECK(got[2].shape() == Dims{6});
  }
}

TEST_CASE("wrong bodies of a builder are errors that leave it usable") {
  ModelBuilder b;
  const Value x = b.argument("x", floats({2, 3}));
  const auto same_value = [&] { return Values{x}; };
  const auto nothing = [](const Value&, std::span<const Value>, std::span<const Value>) {
    return ModelBuilder::Step{};
  };
  Value inner;
  const std::pair<std::function<void()>, const char*> cases[] = {
      {[&] { b.branch(x, same_value, same_value); }, "reshape: "},
      {[&] { b.branch(b.call("sum", {x})[0], same_value, [&] { return Values{}; }); }, "return 1 and 0 results"},
      {[&] { b.branch(b.call("sum", {x})[0], same_value, [&] { return b.call("sum", {x}); }); }, "cond: output 1"},
      {[&] { b.loop({.carries = {x}, .limit = 2}, nothing); }, "loop: the step returns 0 carries, expected 1"},
      {[&] { b.loop({.slices = {x}, .limit = 1}, nothing); }, "loop: takes slices or a limit, got both"},
      {[&] {
         b.branch(
             b.call("sum", {x})[0], [&] { return b.finish(), Values{x}; }, same_value);
       },
       "graph: a body cannot finish the model"},
      {[&] { b.loop({.slices = {b.call("sum", {x})[0]}}, nothing); }, "loop: a slice has no dim to cut"},
      {[&] {
         b.branch(
             b.call("sum", {x})[0], [&] { return b.result(x), Values{x}; }, same_value);
       },
       "graph: a body returns its results"},
      {[&] {
         b.branch(
             b.call("sum", {x})[0], [&] { return Values{inner = b.call("relu", {x})[0]}; }, same_value);
         b.call("relu", {inner});
       },
       "used after its trace"},
  };
  for (const auto& [wrong, error] : cases) {
    b.at("model.onnx: node 7");
    const std::string text = error_of(wrong);
    INFO(text);
    CHECK(contains(text, error));
    if (!contains(text, "graph: ")) CHECK(text.starts_with("model.onnx: node 7: "));
  }
  b.result(b.call("neg", {x})[0]);
  CHECK(numbers(run_model(b.finish(), {range({2, 2})})[0]) == std::vector<double>{0, -1, -2, -3});
}

}  // namespace pg::test
