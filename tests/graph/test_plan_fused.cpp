// Plans of optimized graphs, with fused kernels, in-place steps and prepared kernels, compared with the graph op by op.
#include <cmath>

#include "graph/exec/exec.h"
#include "graph/passes/passes.h"
#include "random_graph.h"
#include "tensor/parallel.h"
#include "tensor/runtime.h"

using namespace pg;
using namespace pg::test;

namespace {

std::string text_of(Context& ctx, const Value& v) {
  const Value host = to_contiguous(ctx, v.detached());
  std::string out = to_string(host.type()) + ":";
  for (int64_t i = 0; i < host.numel(); ++i) {
    const double x = load_number(host.dtype(), static_cast<char*>(host.array().data()) + i * size_of(host.dtype()));
    out += std::isnan(x) ? " nan" : fmt::format(" {}", x);  // the sign of a NaN is not part of a result
  }
  return out;
}

std::string results(const Graph& graph, std::span<const Value> inputs, const PlanOptions& options) {
  Context ctx;
  const auto plan = make_plan(graph, options);
  std::string out;
  for (int repeat = 0; repeat < 2; ++repeat) {
    out.clear();
    SmallVector<Value, 4> in{inputs};
    try {
      for (const Value& v : pg::run(*plan, ctx, in)) out += text_of(ctx, v) + "\n";
    } catch (const Error& e) {
      out = e.what();
    }
  }
  return out;
}

}  // namespace

TEST_CASE("optimized random graphs return the same bits with every option of the plan") {
  verify_plans(true);
  int fused = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    RandomGraph random(seed);
    const std::vector<Value> inputs = random.inputs();
    const Graph optimized = optimize(random.graph());
    for (const Node& node : optimized.nodes) fused += node.kind == NodeKind::kFused;
    INFO("seed " << seed);
    // If nothing needs the outputs of an op that rejects its values, the op is removed, and with it its error.
    const std::string expected =
        results(without_dead_nodes(random.graph()), inputs, {.fuse = false, .in_place = false, .prepare = false});
    CHECK(results(optimized, inputs, {}) == expected);
    CHECK(results(optimized, inputs, {.in_place = false}) == expected);
    CHECK(results(optimized, inputs, {.fuse = false}) == expected);
  }
  CHECK(fused > 100);
}

namespace {

// Updates of weights of these sizes: w / 2 + g replaces w, and w g is another result.
struct Updates {
  Graph graph;
  PlanOptions options;
};
Updates updates(std::initializer_list<int64_t> sizes) {
  GraphMaker m;
  Updates out;
  for (const int64_t n : sizes) {
    const Operand w = m.input({n}), g = m.input({n});
    out.options.replacements.push_back({int32_t(m.graph.outputs.size()), int32_t(m.graph.inputs.size()) - 2});
    m.output(m.op("add", {m.op("mul", {w, Operand::immediate(0.5)}), g}));
    m.output(m.op("mul", {w, g}));
  }
  out.graph = optimize(m.graph);
  return out;
}

SmallVector<Value, 4> operands(std::initializer_list<int64_t> sizes) {
  SmallVector<Value, 4> in;
  for (const int64_t n : sizes) in.push_back(range({n}, -2, 0.25)), in.push_back(range({n}, 1, 0.125));
  return in;
}

}  // namespace

TEST_CASE("fused steps that share no memory run at once, each element by one thread") {
  const std::initializer_list<int64_t> kSizes = {3, 200'001, 1, 70'000, 1000, 4096};
  const Updates given = updates(kSizes);
  const auto plan = make_plan(given.graph, given.options);
  REQUIRE(plan->steps.size() == kSizes.size());
  CHECK(plan->steps[0].at_once == int32_t(kSizes.size()));
  CHECK(plan->steps[4].at_once == 2);
  const int before = num_threads();
  std::string expected;
  for (const int threads : {1, 2, 3, 7}) {
    INFO("threads " << threads);
    Runtime::current().threads().resize(threads);
    Context ctx;
    SmallVector<Value, 4> in = operands(kSizes);
    const void* const memory = in[2].array().data();
    const Values out = pg::run(*plan, ctx, in);
    CHECK(out[2].array().data() == memory);
    std::string text;
    for (const Value& v : out) text += text_of(ctx, v);
    if (expected.empty()) expected = text;
    CHECK((text == expected));
  }
  Runtime::current().threads().resize(before);
}

TEST_CASE("fused steps that depend on each other run one after the other") {
  GraphMaker m;
  const Operand x = m.input({64}), y = m.input({32});
  const Operand a = m.op("add", {m.op("mul", {x, Operand::immediate(2)}), Operand::immediate(1)});
  const Operand part = m.op("narrow", {a}, {{"dim", int64_t(1)}, {"start", int64_t(1)}, {"length", int64_t(32)}});
  m.output(m.op("sub", {m.op("mul", {part, y}), y}));
  m.output(a);
  const auto plan = make_plan(optimize(m.graph));
  REQUIRE(plan->steps.size() == 2);
  for (const Step& step : plan->steps) CHECK((step.fused && step.at_once == 1));
}
