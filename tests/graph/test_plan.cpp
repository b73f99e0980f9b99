// Plans of graphs that are built by hand, and their runs.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "graph/exec/exec.h"
#include "graph/exec/frame.h"
#include "graph/plan/arena.h"
#include "graphs.h"

using namespace pg;
using namespace pg::test;

namespace {

struct VerifyAll {
  VerifyAll() { verify_plans(true); }
} verify_all;

Values run_plan(const Graph& graph, std::initializer_list<Value> inputs, PlanOptions options = {}) {
  Context ctx;
  SmallVector<Value, 4> in(inputs);
  return pg::run(*make_plan(graph, options), ctx, in);
}

void check_same(const Graph& graph, std::initializer_list<Value> inputs) {
  Context ctx;
  SmallVector<Value, 4> in(inputs);
  const Values expected = run_eagerly(ctx, graph, in);
  for (bool in_place : {true, false}) {
    const Values got = run_plan(graph, inputs, {.in_place = in_place});
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].type() == expected[i].type());
      CHECK(numbers(got[i]) == numbers(expected[i]));
    }
  }
}

}  // namespace

TEST_CASE("a plan computes the results of its graph") {
  GraphMaker m;
  const Operand x = m.input({2, 3}), y = m.input({3});
  const Operand sum = m.op("add", {x, y});
  const Operand scaled = m.op("mul", {sum, Operand::immediate(2)});
  m.output(m.op("exp", {scaled}));
  m.output(m.op("sum", {scaled}));
  check_same(m.graph, {range({2, 3}, 0, 0.1), range({3}, -1)});
}

TEST_CASE("views alias and are copied only where they leave the program") {
  GraphMaker m;
  const Operand x = m.input({2, 3});
  const Operand h = m.op("add", {x, Operand::immediate(1)});
  const Operand turned = m.op("t", {h});
  const Operand part = m.op("narrow", {turned}, {{"dim", int64_t(1)}, {"start", int64_t(2)}, {"length", int64_t(2)}});
  m.output(m.op("mul", {part, part}));
  m.output(turned);
  m.output(m.op("t", {x}));
  m.output(m.op("reshape", {h}, {{"shape", Ints{6}}}));
  check_same(m.graph, {range({2, 3})});
  const Value in = range({2, 3});
  const Values out = run_plan(m.graph, {in});
  CHECK(out[1].array().contiguous);
  CHECK(out[2].array().buffer == in.array().buffer);
  CHECK_FALSE(out[2].array().contiguous);
}

TEST_CASE("inputs may have any layout") {
  Context ctx;
  GraphMaker m;
  const Operand x = m.input({3, 2});
  m.output(m.op("exp", {x}));
  m.output(m.op("cumsum", {x}, {{"dim", int64_t(1)}}));
  m.output(x);
  const Value turned = test::run(ctx, "t", {range({2, 3})});
  check_same(m.graph, {turned});
}

TEST_CASE("outputs may be inputs, constants or repeated") {
  GraphMaker m;
  const Operand x = m.input({2}), c = m.constant(array({5, 6}));
  const Operand y = m.op("neg", {x});
  m.output(x);
  m.output(c);
  m.output(y);
  m.output(y);
  check_same(m.graph, {array({1, 2})});
  const Values out = run_plan(m.graph, {array({1, 2})});
  CHECK(out[2].array_ref() == out[3].array_ref());
  CHECK_FALSE(out[1].array().writable());
}

TEST_CASE("ops may have lists, optional inputs and several outputs") {
  GraphMaker m;
  const Operand x = m.input({4, 3}), w = m.input({2, 3});
  const Operand y = m.op("linear", {x, w, Operand()});
  const Operand split = m.op("split", {m.op("exp", {y})}, {{"split_size", Ints{2}}, {"dim", int64_t(1)}});
  m.output(m.op("cat", {{split.node, 1}, {split.node, 0}}, {{"dim", int64_t(2)}}));
  const Operand top = m.op("topk", {y}, {{"k", int64_t(1)}});
  m.output({top.node, 0});
  m.output({top.node, 1});
  check_same(m.graph, {range({4, 3}, -1, 0.3), range({2, 3}, 1, -0.4)});
}

TEST_CASE("plans run creation ops and zero sizes") {
  GraphMaker m;
  const Operand x = m.input({0, 3});
  m.output(m.op("add", {m.op("exp", {x}), m.op("ones", {}, {{"shape", Ints{1, 3}}})}));
  m.output(m.op("sum", {x}, {{"dim", Ints{1}}}));
  check_same(m.graph, {range({0, 3})});
}

TEST_CASE("steps reuse the memory of values without later readers, and outputs are computed in place") {
  GraphMaker m;
  const Operand x = m.input({1024});
  Operand h = m.op("exp", {x});
  for (int i = 0; i < 10; ++i) h = m.op("tanh", {h});
  m.output(h);
  CHECK(make_plan(m.graph)->arena_bytes() == Bytes(0));
  CHECK(make_plan(m.graph, {.in_place = false})->arena_bytes() == Bytes(2 * 4096));
  check_same(m.graph, {range({1024}, 0, 0.001)});
}

TEST_CASE("an operand that is read later is not overwritten") {
  GraphMaker m;
  const Operand x = m.input({8});
  const Operand a = m.op("exp", {x}), b = m.op("mul", {a, Operand::immediate(3)});
  m.output(m.op("add", {b, a}));
  const Operand c = m.op("neg", {x}), turned = m.op("reshape", {c}, {{"shape", Ints{4, 2}}}), d = m.op("mul", {c, c});
  m.output(m.op("sum", {m.op("mul", {m.op("t", {turned}), m.op("t", {turned})})}));
  m.output(d);
  check_same(m.graph, {range({8}, 1)});
}

TEST_CASE("every pointwise op may run in place with every operand") {
  Context ctx;
  for (const OpDef* op : registry().ops()) {
    if (!op->has(kPointwise) || op->has(kRandom) || op->inputs.size() < 2) continue;
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt32, DType::kBool}) {
      GraphMaker m;
      std::vector<Operand> in;
      std::vector<Value> values;
      try {
        for (const InputDef& def : op->inputs) {
          const DType t = accepts(def.dtypes, dtype) ? dtype : DType::kBool;
          Value v = range({9}, def.low > 0 ? 1 : 0, 0.25);
          values.push_back(test::run(ctx, "to", {v}, {{"dtype", t}}));
          const Operand x = m.input({9}, t);
          in.push_back(m.op("clone", {x}));
        }
        m.output(m.op_list(op->name, in));
      } catch (const Error&) {
        continue;
      }
      const auto apply_plan = [&](bool in_place) {
        Context run_ctx;
        SmallVector<Value, 4> given{std::span<const Value>(values)};
        return test::error_text([&] { pg::run(*make_plan(m.graph, {.in_place = in_place}), run_ctx, given); });
      };
      CHECK(apply_plan(true) == apply_plan(false));
      if (!apply_plan(true).empty()) continue;
      SmallVector<Value, 4> given{std::span<const Value>(values)};
      const Values a = pg::run(*make_plan(m.graph, {.in_place = true}), ctx, given);
      const Values b = pg::run(*make_plan(m.graph, {.in_place = false}), ctx, given);
      INFO(op->name);
      CHECK(fmt::format("{}", fmt::join(numbers(a[0]), " ")) == fmt::format("{}", fmt::join(numbers(b[0]), " ")));
    }
  }
}

TEST_CASE("updates of donated inputs use the input's own buffer") {
  GraphMaker m;
  const Operand w = m.input({4}), g = m.input({4});
  m.output(m.op("sgd_update", {w, g, Operand()}, {{"lr", Floats{0.5}}}));
  m.output(m.op("sum", {w}));
  const auto plan = make_plan(m.graph);
  CHECK(plan->commit == int32_t(plan->steps.size()) - 1);
  Context ctx;
  SUBCASE("given") {
    SmallVector<Value, 4> in{range({4}), range({4})};
    const Buffer* buffer = in[0].array().buffer.get();
    const Values out = pg::run(*plan, ctx, in);
    CHECK(out[0].array().buffer.get() == buffer);
    CHECK_FALSE(in[0].defined());
    CHECK(numbers(out[0]) == Numbers{0, 0.5, 1, 1.5});
    CHECK(numbers(out[1]) == Numbers{6});
  }
  SUBCASE("kept") {
    const Value w0 = range({4});
    SmallVector<Value, 4> in{w0, range({4})};
    const Values out = pg::run(*plan, ctx, in);
    CHECK(numbers(out[0]) == Numbers{0, 0.5, 1, 1.5});
    CHECK(numbers(w0) == Numbers{0, 1, 2, 3});
    CHECK(in[0].defined());
  }
}

TEST_CASE("a failing run does not change its inputs") {
  GraphMaker m;
  const Operand w = m.input({4}), g = m.input({4}), flag = m.input({1});
  m.output(m.op("sgd_update", {w, g, Operand()}, {{"lr", Floats{0.5}}}));
  m.output(m.op("assert", {flag}));
  m.at("net.lua:7");
  const auto plan = make_plan(m.graph);
  Context ctx;
  SmallVector<Value, 4> in{range({4}), range({4}), array({0})};
  try {
    pg::run(*plan, ctx, in);
    FAIL("no error");
  } catch (const PositionedError& error) {
    CHECK(std::string(error.what()) == "net.lua:7: assert: assertion failed");
  }
  CHECK(numbers(in[0]) == Numbers{0, 1, 2, 3});
  for (int nth = 1; nth < 4; ++nth) {
    in[2] = array({1});
    fail_allocation(nth);
    const std::string text = error_text([&] { pg::run(*make_plan(m.graph), ctx, in); });
    const bool failed = allocation_failed();
    fail_allocation(0);
    if (!failed) break;
    CHECK(text.find("out of memory") == 0);
    CHECK(numbers(in[0]) == Numbers{0, 1, 2, 3});
  }
  ctx.cancel = true;
  in[0] = range({4});
  CHECK_THROWS_AS(pg::run(*plan, ctx, in), Cancelled);
  CHECK(numbers(in[0]) == Numbers{0, 1, 2, 3});
}

TEST_CASE("no stop request ends a run after inputs are overwritten") {
  GraphMaker m;
  std::vector<Operand> inputs;
  for (int i = 0; i < 80; ++i) inputs.push_back(m.input({1 << 14}));
  for (size_t i = 0; i < inputs.size(); i += 2)
    m.output(m.op("sgd_update", {inputs[i], inputs[i + 1], Operand()}, {{"lr", Floats{0.5}}}));
  const auto plan = make_plan(m.graph);
  REQUIRE(plan->steps.size() > 32);
  for (size_t s = 0; s < plan->steps.size(); ++s) CHECK(plan->steps[s].poll == (s == 0));
}

TEST_CASE("an input that is also returned is not donated") {
  GraphMaker m;
  const Operand w = m.input({4}), g = m.input({4});
  m.output(m.op("sgd_update", {w, g, Operand()}, {{"lr", Floats{1}}}));
  m.output(m.op("reshape", {w}, {{"shape", Ints{2, 2}}}));
  Context ctx;
  SmallVector<Value, 4> in{range({4}), range({4})};
  const Values out = pg::run(*make_plan(m.graph), ctx, in);
  CHECK(numbers(out[0]) == Numbers{0, 0, 0, 0});
  CHECK(numbers(out[1]) == Numbers{0, 1, 2, 3});
}

TEST_CASE("random steps draw from the generators' states") {
  GraphMaker m;
  const Operand a = m.op("rand", {}, {{"shape", Ints{5}}});
  m.graph.nodes.back().attrs[size_t(m.graph.nodes.back().op->random_attr)] = RandomKey{0, 3};
  m.output(a);
  const auto plan = make_plan(m.graph);
  Context ctx;
  const auto draw = [&](RandomKey state) {
    const RandomKey keys[] = {state};
    return numbers(pg::run(*plan, ctx, {}, keys)[0]);
  };
  const Value expected = test::run(ctx, "rand", {}, {{"shape", Ints{5}}, {"generator", RandomKey{7, 10}}});
  CHECK(draw({7, 7}) == numbers(expected));
  CHECK(draw({7, 8}) != numbers(expected));
  CHECK_THROWS_AS(pg::run(*plan, ctx, {}), Error);
}

TEST_CASE("anomaly mode names the op that returned a NaN") {
  GraphMaker m;
  const Operand x = m.input({2});
  const Operand y = m.op("log", {x});
  m.at("net.lua:3");
  m.output(m.op("neg", {y}));
  Context ctx;
  ctx.detect_anomaly = true;
  SmallVector<Value, 4> in{array({1, -1})};
  CHECK(error_text([&] { pg::run(*make_plan(m.graph), ctx, in); }) ==
        "net.lua:3: log: made a NaN: x = float32 2 in -1..1; out = float32 2 in 0..0, 1 NaN");
}

TEST_CASE("a fused node runs as one kernel or node by node") {
  GraphMaker body;
  const Operand p = body.input({4}), q = body.input({4});
  const Operand sum = body.op("add", {p, q});
  body.at("net.lua:5");
  body.output(body.op("mul", {body.op("sqrt", {sum}), Operand::immediate(2)}));
  body.graph.nodes[3].line = 0;
  GraphMaker m;
  const Operand x = m.input({4}), y = m.input({4});
  Node node;
  node.kind = NodeKind::kFused;
  node.inputs = {x, y};
  node.types = {m.graph.type(x)};
  node.body = std::make_shared<const Graph>(body.graph);
  m.graph.nodes.push_back(node);
  m.output(m.op("exp", {Operand::of(2)}));
  for (bool fuse : {true, false})
    CHECK(numbers(run_plan(m.graph, {array({0, 0, 0, 0}), array({0, 0, 0, 0})}, {.fuse = fuse})[0]) ==
          Numbers{1, 1, 1, 1});
  CHECK(make_plan(m.graph)->steps.size() == 2);
  CHECK(make_plan(m.graph, {.fuse = false})->steps.size() == 4);
  Context ctx;
  ctx.detect_anomaly = true;
  SmallVector<Value, 4> in{array({0, 0, -1, 0}), array({0, 0, 0, 0})};
  CHECK(error_text([&] { pg::run(*make_plan(m.graph), ctx, in); }) ==
        "net.lua:5: sqrt: made a NaN: x = float32 4 in -1..0; out = float32 4 in 0..0, 1 NaN");
}

TEST_CASE("random graphs return the eager results, and their arenas are small") {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return size_t(random()) % n; };
  const Dims shapes[] = {{4, 6}, {6, 4}, {24}, {4, 1}, {1, 6}};
  for (int round = 0; round < 60; ++round) {
    GraphMaker m;
    std::vector<Operand> made;
    std::vector<Value> values;
    for (size_t i = 0; i < 3; ++i) {
      made.push_back(m.input(shapes[pick(5)]));
      values.push_back(range(m.graph.type(made.back()).shape, -1, 0.07));
    }
    for (int n = 0; n < 40; ++n) {
      const Operand a = made[made.size() - 1 - pick(std::min<size_t>(made.size(), 6))], b = made[pick(made.size())];
      const char* unary[] = {"tanh", "sigmoid", "neg", "abs", "contiguous", "clone"};
      const char* binary[] = {"add", "sub", "mul", "maximum"};
      try {
        switch (pick(6)) {
          case 0:
            made.push_back(m.op(unary[pick(6)], {a}));
            break;
          case 1:
            made.push_back(m.op(binary[pick(4)], {a, Operand::immediate(0.5)}));
            break;
          case 2:
            made.push_back(m.op("t", {a}));
            break;
          case 3:
            made.push_back(m.op("reshape", {a}, {{"shape", Ints{6, -1}}}));
            break;
          case 4:
            made.push_back(m.op("softmax", {a}, {{"dim", int64_t(1)}}));
            break;
          default:
            made.push_back(m.op(binary[pick(4)], {a, b}));
        }
      } catch (const Error&) {
        continue;
      }
    }
    for (int i = 0; i < 3; ++i) m.output(made[made.size() - 1 - pick(8)]);
    Context ctx;
    const Values expected = run_eagerly(ctx, m.graph, values);
    const auto plan = make_plan(m.graph);
    for (const Arena& arena : plan->arenas)
      CHECK(double(arena.bytes.count()) <= 1.25 * double(arena.lower_bound.count()));
    for (int repeat = 0; repeat < 2; ++repeat) {
      SmallVector<Value, 4> in{std::span<const Value>(values)};
      const Values got = pg::run(*plan, ctx, in);
      for (size_t i = 0; i < got.size(); ++i) CHECK(numbers(got[i]) == numbers(expected[i]));
    }
  }
}

TEST_CASE("the verifier finds broken plans") {
  const auto plan = make_plan(mlp(4, {32, 16, 16, 2}), {.in_place = false});
  Plan& broken = const_cast<Plan&>(*plan);
  const auto text = [&] { return error_text([&] { verify(broken); }); };
  CHECK(text() == "");
  SUBCASE("overlap") {
    for (Storage& s : broken.storages) s.offset = 0;
    CHECK(text().find("overlap while both live") != std::string::npos);
  }
  SUBCASE("alignment") {
    for (Storage& s : broken.storages)
      if (s.kind == Storage::kArena) s.offset += 4;
    CHECK(text().find("aligned") != std::string::npos);
  }
  SUBCASE("order") {
    std::swap(broken.steps[0], broken.steps[1]);
    CHECK(text().find("before it is written") != std::string::npos);
  }
  SUBCASE("bounds") {
    broken.slots[size_t(broken.steps[0].in)].offset = 4;
    CHECK(text().find("leaves its storage") != std::string::npos);
  }
  SUBCASE("overwritten") {
    broken.slots[size_t(broken.steps[1].out)].storage = broken.slots[size_t(broken.steps[0].out)].storage;
    CHECK(text() != "");
  }
}
