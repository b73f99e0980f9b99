// All passes together: their switches, and random graphs that must compute the same with any pass on or off.
#include <algorithm>
#include <cstdlib>

#include "graph/exec/exec.h"
#include "graph/passes/passes.h"
#include "graph/plan/plan.h"
#include "random_graph.h"

using namespace pg;
using namespace pg::test;

TEST_CASE("passes: an unknown name is refused with a suggestion") {
  GraphSketch g;
  const Graph graph = g.done({g.input("x", {2})});
  CHECK(error_text([&] { optimize(graph, pass_options(true, {"simplfy"})); }) ==
        "optimize: no pass 'simplfy'; did you mean 'simplify'?");
}

TEST_CASE("passes: the environment disables them by name") {
  GraphSketch g;
  const Graph graph = g.done({g.op("neg", {g.op("exp", {g.op("mul", {g.input("x", {2}), 1.0})})})});
  ::setenv("PERIGEE_DISABLE_PASSES", "fuse, simplify", 1);
  const Graph plain = optimize(graph, pass_options(true));
  ::setenv("PERIGEE_DISABLE_PASSES", "fused", 1);
  const std::string wrong = error_text([&] { optimize(graph); });
  ::unsetenv("PERIGEE_DISABLE_PASSES");
  CHECK(same_graph(plain, graph));
  CHECK(wrong == "PERIGEE_DISABLE_PASSES: no pass 'fused'; did you mean 'fuse'?");
  CHECK(optimize(graph, pass_options(true)).nodes.size() == 2);
}

TEST_CASE("passes: a node without outputs is not moved") {
  GraphSketch g;
  const Operand x = g.input("x", {2});
  const Operand y = g.op("exp", {x});
  g.op("print_value", {g.op("neg", {y})}, {{"label", std::string("y")}});
  g.op("print_value", {y}, {{"label", std::string("again")}});
  const Graph better = optimize(g.done({g.op("mul", {y, 2.0})}), pass_options(true));
  CHECK(std::count_if(better.nodes.begin(), better.nodes.end(), [](const Node& n) { return n.is<"print_value">(); }) ==
        2);
  CHECK(std::get<std::string>(std::find_if(better.nodes.begin(), better.nodes.end(), [](const Node& n) {
                                return n.is<"print_value">();
                              })->attrs[0]) == "y");
}

namespace {

// Optimizes, plans and runs the graph, and compares every bit with the original.
bool check_planned(const Graph& graph, const std::vector<Value>& inputs) {
  const auto plan = make_plan(optimize(graph, pass_options(true)));
  verify(*plan);
  Context ctx;
  std::vector<Value> in = inputs;
  const Values out = run(*plan, ctx, in);
  const auto expected = evaluate_graph(graph, inputs);
  for (size_t k = 0; k < expected.size(); ++k) {
    const std::string text = difference(expected[k], to_contiguous(ctx, out[k]));
    if (text.empty()) continue;
    MESSAGE(to_string(graph), "became\n", to_string(optimize(graph)), to_string(*plan));
    CHECK_MESSAGE(text.empty(), "planned: output ", k + 1, ": ", text);
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("passes: random graphs keep every bit with all passes, without each one, and with each one only") {
  std::vector<std::vector<std::string>> choices = {{}, {"all"}};
  for (const Pass& pass : passes()) choices.push_back({pass.name});
  const char* wanted = std::getenv("PERIGEE_TEST_SEEDS");
  const uint32_t seeds = wanted ? uint32_t(std::atoi(wanted)) : std::getenv("PERIGEE_SANITIZED") ? 80 : 200;
  uint32_t compared = 0;
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    RandomGraphOptions options;
    if (seed % 10 == 0) options.steps = 200, options.inputs = 8, options.outputs = 8;
    RandomGraph random(seed, options);
    const auto inputs = random.inputs();
    // An op may reject the values (a negative integer exponent). Then there is nothing to compare.
    if (error_text([&] { evaluate_graph(random.graph(), inputs); }) != "") continue;
    ++compared;
    const auto check = [&](const Graph& better, const std::string& how) {
      const std::string text = difference(random.graph(), better, inputs);
      if (text.empty()) return true;
      MESSAGE("seed ", seed, "\n", to_string(random.graph()), "became\n", to_string(better));
      CHECK_MESSAGE(text.empty(), how, ": ", text);
      return false;
    };
    bool good = true;
    for (const auto& disabled : choices)
      good &= check(optimize(random.graph(), pass_options(true, disabled)),
                    disabled.empty() ? "all passes" : "without " + disabled[0]);
    for (const Pass& pass : passes()) {
      const Graph better = pass.run(random.graph());
      verify(better);
      good &= check(better, pass.name);
    }
    good &= check_planned(random.graph(), inputs);
    if (!good) break;
  }
  CHECK(compared > seeds / 2);
}
