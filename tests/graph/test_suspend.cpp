// Runs of plans that stop between two steps.
#include "graph/exec/exec.h"
#include "tests/graph/loop_graphs.h"
#include "tests/tensor/arrays.h"
#include "tests/tensor/files.h"

namespace pg::test {
namespace {

// Products, views, a random op, a loop and a branch.
std::shared_ptr<const Plan> mixed_plan() {
  GraphMaker m;
  const Operand x = m.input({4, 3}), w = m.input({3, 3}), h = m.input({3});
  Operand y = m.op("tanh", {m.op("matmul", {x, w})});
  BodySketch body({{3}, {3}, {3, 3}});
  const Operand next = body.op("tanh", {body.op("add", {body.op("matmul", {body.in[3], body.in[1]}), body.in[2]})});
  Control loop = Control::loop_of("foreach", loop_form(1, 1, 4));
  loop.bodies = {body.done({next, next})};
  const Operand operands[] = {y, h, w};
  m.graph.nodes.push_back(control_node(m.graph, loop, operands));
  const int32_t at = int32_t(m.graph.nodes.size()) - 1;
  y = m.op("rand_like", {Operand{at, 2}}, {{"generator", RandomKey{0, 0}}});
  y = m.op("add", {y, m.op("exp", {Operand{at, 2}})});
  m.output(m.op("t", {y}));
  m.output(m.op("sum", {y}));
  m.output(Operand{at, 1});
  m.graph.ticks = {1};
  return make_plan(m.graph, {.fuse = false});
}

Values inputs_of(double start) { return {range({4, 3}, start, 0.1), range({3, 3}, 0.2, -0.1), range({3}, start)}; }

const std::vector<RandomKey> kKeys = {{7, 3}};

Values whole_run(const Plan& plan, double start) {
  Context ctx;
  Values in = inputs_of(start);
  return run(plan, ctx, in, kKeys);
}

const auto at_once = [](size_t) { return true; };

void check_same_values(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  for (size_t k = 0; k < a.size(); ++k) CHECK(numbers(a[k]) == numbers(b[k]));
}

}  // namespace

TEST_CASE("two runs of one plan, one step at a time in turn, give what whole runs give") {
  const auto plan = mixed_plan();
  REQUIRE(plan->steps.size() > 4);
  Context ctx;
  SuspendableRun a(plan, ctx, inputs_of(0), kKeys), b(plan, ctx, inputs_of(1), kKeys);
  CHECK(error_of([&] { a.take(); }) == fmt::format("plan: 0 of {} steps have run", plan->steps.size()));
  size_t stops = 0;
  for (bool a_done = false, b_done = false; !a_done || !b_done; ++stops) {
    CHECK(a.next() == b.next());
    a_done = a.run(at_once);
    whole_run(*plan, 2);  // a third one, with a frame of its own
    b_done = b.run(at_once);
  }
  CHECK(stops == plan->steps.size());
  check_same_values(a.take(), whole_run(*plan, 0));
  check_same_values(b.take(), whole_run(*plan, 1));
  CHECK(error_of([&] { a.take(); }) == "plan: this run has failed, or its outputs were taken");
}

TEST_CASE("a run stops where the predicate says, moves, and goes on") {
  const auto plan = mixed_plan();
  Context ctx;
  SuspendableRun first(plan, ctx, inputs_of(0), kKeys);
  CHECK(!first.run([](size_t next) { return next == 3; }));
  CHECK(first.next() == 3);
  SuspendableRun moved = std::move(first);
  CHECK(moved.run([](size_t) { return false; }));
  CHECK(moved.run(at_once));  // nothing is left
  check_same_values(moved.take(), whole_run(*plan, 0));
}

TEST_CASE("a suspended run that is dropped leaks nothing, and keeps its plan while it lives") {
  const int64_t before = Runtime::current().memory().stats().live;
  {
    auto plan = mixed_plan();
    Context ctx;
    for (size_t stop = 1; stop <= plan->steps.size(); ++stop) {
      SuspendableRun run(plan, ctx, inputs_of(0), kKeys);
      run.run([&](size_t next) { return next == stop; });
    }
    SuspendableRun last(plan, ctx, inputs_of(0), kKeys);
    last.run(at_once);
    const std::weak_ptr<const Plan> watch = plan;
    plan.reset();
    CHECK(!watch.expired());
    CHECK(last.run([](size_t) { return false; }));
    CHECK(last.take().size() == 3);
    CHECK(watch.expired());
  }
  CHECK(Runtime::current().memory().stats().live == before);
}

TEST_CASE("an error in a step ends the run, with the line, and leaves the plan usable") {
  GraphMaker m;
  const Operand x = m.input({3});
  const Operand y = m.op("mul", {x, Operand::immediate(2)});
  m.at("net.lua:4");
  m.op("assert", {m.op("lt", {y, Operand::immediate(3)})}, {{"message", std::string("too large")}});
  m.at("net.lua:5");
  m.output(m.op("exp", {y}));
  const auto plan = make_plan(m.graph, {.fuse = false});
  Context ctx;
  const Value given = range({3}, 1);
  SuspendableRun bad(plan, ctx, {given}), good(plan, ctx, {range({3}, -5)});
  CHECK(!bad.run(at_once));
  CHECK_THROWS_AS(bad.run([](size_t) { return false; }), PositionedError);
  CHECK(error_of([&] { bad.run(at_once); }) == "plan: this run has failed, or its outputs were taken");
  CHECK(error_of([&] { bad.take(); }) == "plan: this run has failed, or its outputs were taken");
  CHECK(numbers(given) == Numbers{1, 2, 3});
  CHECK(good.run([](size_t) { return false; }));
  CHECK(numbers(good.take()[0])[0] == doctest::Approx(std::exp(-10)));
  // A cancelled run has failed too.
  SuspendableRun cancelled(plan, ctx, {range({3}, -5)});
  CHECK_THROWS_AS(cancelled.run([](size_t) -> bool { throw Cancelled(); }), Cancelled);
  CHECK(error_of([&] { cancelled.take(); }) == "plan: this run has failed, or its outputs were taken");
}

TEST_CASE("the commit section is one step: a run never stops between its writes") {
  GraphMaker m;
  const Operand w = m.input({3}), v = m.input({3}), g = m.input({3});
  const Operand scaled = m.op("mul", {g, Operand::immediate(0.5)});
  m.output(m.op("sub", {w, scaled}));
  m.output(m.op("add", {v, scaled}));
  const auto plan = make_plan(m.graph, {.fuse = false});
  Context ctx;
  Values in = {range({3}, 1), range({3}, 2), range({3}, 4)};
  SuspendableRun run(plan, ctx, std::move(in));
  std::vector<size_t> stops;
  while (!run.run([&](size_t next) { return stops.push_back(next), true; }))
    ;
  for (size_t stop : stops) CHECK(stop <= size_t(plan->commit));
  const Values out = run.take();
  CHECK(numbers(out[0]) == Numbers{-1, -0.5, 0});
  CHECK(numbers(out[1]) == Numbers{4, 5.5, 7});
}

}  // namespace pg::test
