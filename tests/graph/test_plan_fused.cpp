// Plans of optimized graphs, with fused kernels, in-place steps and prepared kernels, compared with the graph op by op.
#include <cmath>

#include "graph/exec/exec.h"
#include "graph/passes/passes.h"
#include "random_graph.h"

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
