// Outputs that take the memory of the values that they replace, as gradients do in a jitted training step.
#include "graph/exec/exec.h"
#include "graph/passes/passes.h"
#include "graphs.h"

using namespace pg;
using namespace pg::test;

namespace {

// Runs the plan, with `old` as the value that output 0 replaces.
Values run_with_spare(const Plan& plan, Context& ctx, std::span<const Value> inputs, Value& old) {
  SmallVector<Value, 4> in{inputs};
  const auto place = [&](int32_t output) -> Value* { return output == 0 ? &old : nullptr; };
  const Spare spare(place);
  return pg::run(plan, ctx, in, {}, &spare);
}

// dw = x^T exp(x), and its sum. An op that checks its index comes first, or last.
Graph gradient_graph(bool checks_last) {
  GraphMaker m;
  const Operand x = m.input({4, 3}), index = m.input({2}, DType::kInt64);
  const auto checked = [&](Operand of) { return m.op("index_select", {of, index}, {{"dim", int64_t(1)}}); };
  const Operand first = checks_last ? x : m.op("sum_to", {m.op("sum", {checked(x)})}, {{"shape", Ints{}}});
  const Operand dw = m.op("matmul", {m.op("t", {x}), m.op("exp", {checks_last ? x : m.op("add", {x, first})})});
  m.output(dw);
  m.output(checks_last ? checked(dw) : m.op("sum", {dw}));
  return m.graph;
}

const PlanOptions kLendable{.lendable = {0}};

}  // namespace

TEST_CASE("an output takes the memory of the value that it replaces") {
  const auto plan = make_plan(gradient_graph(false), kLendable);
  Context ctx;
  const Value in[] = {range({4, 3}, -0.5, 0.1), array({1, 3}, DType::kInt64)};
  const Numbers expected = numbers(run_eagerly(ctx, gradient_graph(false), in)[0]);
  Value old = range({3, 3}, 7, 1);
  const void* const memory = old.array().data();
  const Values out = run_with_spare(*plan, ctx, in, old);
  CHECK(out[0].array().data() == memory);
  CHECK_FALSE(old.defined());
  CHECK(numbers(out[0]) == expected);
}

TEST_CASE("memory is not taken from a value that is read elsewhere, or has another type") {
  const auto plan = make_plan(gradient_graph(false), kLendable);
  Context ctx;
  const Value in[] = {range({4, 3}, -0.5, 0.1), array({1, 3}, DType::kInt64)};
  Value old = range({3, 3}, 7, 1);
  const Value other = old;
  const Numbers before = numbers(old);
  const Values out = run_with_spare(*plan, ctx, in, old);
  CHECK(out[0].array().data() != old.array().data());
  CHECK(numbers(other) == before);
  Value wide = range({3, 4}, 7, 1), none;
  CHECK(run_with_spare(*plan, ctx, in, wide)[0].array().data() != wide.array().data());
  CHECK(run_with_spare(*plan, ctx, in, none)[0].defined());
}

TEST_CASE("a run that fails leaves the value that an output would replace") {
  const Value wrong[] = {range({4, 3}, -0.5, 0.1), array({1, 9}, DType::kInt64)};
  for (bool checks_last : {false, true}) {
    const auto plan = make_plan(gradient_graph(checks_last), kLendable);
    Context ctx;
    Value old = range({3, 3}, 7, 1);
    const Numbers before = numbers(old);
    CHECK_THROWS_AS(run_with_spare(*plan, ctx, wrong, old), Error);
    CHECK(numbers(old) == before);
    CHECK((size_t(plan->lend) == plan->steps.size()) == checks_last);
  }
}

TEST_CASE("a run that is interrupted leaves the value that an output would replace") {
  const auto plan = make_plan(gradient_graph(false), kLendable);
  Context ctx;
  const Value in[] = {range({4, 3}, -0.5, 0.1), array({1, 3}, DType::kInt64)};
  Value old = range({3, 3}, 7, 1);
  const Numbers before = numbers(old);
  ctx.cancel = true;
  CHECK_THROWS_AS(run_with_spare(*plan, ctx, in, old), Cancelled);
  CHECK(numbers(old) == before);
}

TEST_CASE("positions of maxima cannot fail where max_pool made them") {
  for (bool made : {true, false}) {
    GraphMaker m;
    const Operand x = m.input({1, 1, 4, 4}), dy = m.input({1, 1, 2, 2});
    Operand index = m.op("max_pool", {x}, {{"kernel_size", Ints{2, 2}}});
    index.output = 1;
    if (!made) index = m.input({1, 1, 2, 2}, DType::kInt32);
    m.output(m.op("max_pool_backward", {dy, index}, {{"size", Ints{4, 4}}}));
    const auto plan = make_plan(m.graph, kLendable);
    CHECK((size_t(plan->lend) < plan->steps.size()) == made);
  }
}

namespace {

// 2 x + y, which replaces x, and rows of y.
Graph update_graph() {
  GraphMaker m;
  const Operand x = m.input({4, 3}), y = m.input({4, 3}), index = m.input({2}, DType::kInt64);
  m.output(m.op("add", {m.op("mul", {x, Operand::immediate(2)}), y}));
  m.output(m.op("index_select", {y, index}, {{"dim", int64_t(1)}}));
  return optimize(m.graph);
}

const PlanOptions kReplacing{.replacements = {{0, 0}}};

}  // namespace

TEST_CASE("a fused step writes over the input that its output replaces, after the last step that can fail") {
  const auto plan = make_plan(update_graph(), kReplacing);
  Context ctx;
  const Value y = range({4, 3}, 1, 1);
  const auto run_on = [&](Value x, std::initializer_list<double> index) {
    SmallVector<Value, 4> in;
    in.push_back(std::move(x));
    in.push_back(y);
    in.push_back(array(index, DType::kInt64));
    return pg::run(*plan, ctx, in);
  };
  const Numbers expected = numbers(run_on(range({4, 3}, -2, 0.5), {1, 3})[0]);
  Value x = range({4, 3}, -2, 0.5);
  const void* const memory = x.array().data();
  CHECK(run_on(std::move(x), {1, 3})[0].array().data() == memory);
  const Value kept = range({4, 3}, -2, 0.5);
  const Values out = run_on(kept, {1, 3});
  CHECK(out[0].array().data() != kept.array().data());
  CHECK(numbers(out[0]) == expected);
  CHECK(numbers(kept) == numbers(range({4, 3}, -2, 0.5)));
  SmallVector<Value, 4> in;
  in.push_back(range({4, 3}, -2, 0.5));
  in.push_back(y);
  in.push_back(array({1, 5}, DType::kInt64));
  CHECK_THROWS_AS(pg::run(*plan, ctx, in), Error);
  CHECK(numbers(in[0]) == numbers(range({4, 3}, -2, 0.5)));
}

namespace {

// A layer-wise update: m2 = m / 2 + g replaces m, and w - m2 * sum(m2 ^ 2) replaces w. `checks`: w is read through an
// index that is checked, which depends on nothing, on m2, or on the new w.
enum class Checks { kNothing, kMean, kWeight };
Graph layer_wise_graph(Checks checks) {
  GraphMaker m;
  const Operand w = m.input({4, 3}), mean = m.input({4, 3}), g = m.input({4, 3}), index = m.input({2}, DType::kInt64);
  const Operand m2 = m.op("add", {m.op("mul", {mean, Operand::immediate(0.5)}), g});
  const Operand norm = m.op("sum", {m.op("square", {m2})});
  const Operand w2 = m.op("sub", {w, m.op("mul", {m2, norm})});
  const Operand read = checks == Checks::kNothing ? w : checks == Checks::kMean ? m2 : w2;
  m.output(w2);
  m.output(m2);
  m.output(m.op("index_select", {read, index}, {{"dim", int64_t(1)}}));
  return m.graph;
}

}  // namespace

TEST_CASE("steps that depend on each other write over inputs if none of them can fail") {
  for (const Checks checks : {Checks::kNothing, Checks::kMean, Checks::kWeight}) {
    CAPTURE(int(checks));
    const Graph graph = layer_wise_graph(checks);
    const auto plan = make_plan(optimize(graph), {.replacements = {{0, 0}, {1, 1}}});
    Context ctx;
    const auto inputs = [](std::initializer_list<double> index) {
      SmallVector<Value, 4> in;
      for (const double from : {-2.0, 0.5, 1.0}) in.push_back(range({4, 3}, from, 0.25));
      in.push_back(array(index, DType::kInt64));
      return in;
    };
    const SmallVector<Value, 4> given = inputs({1, 3});
    const Values expected = run_eagerly(ctx, graph, std::span<const Value>(given));
    SmallVector<Value, 4> in = inputs({1, 3});
    const void *const w = in[0].array().data(), *const mean = in[1].array().data();
    const Values out = pg::run(*plan, ctx, in);
    for (size_t i = 0; i < 3; ++i) CHECK(numbers(out[i]) == numbers(expected[i]));
    CHECK((out[0].array().data() == w) == (checks != Checks::kWeight));
    CHECK((out[1].array().data() == mean) == (checks == Checks::kNothing));
    in = inputs({1, 9});
    CHECK_THROWS_AS(pg::run(*plan, ctx, in), Error);
    CHECK(numbers(in[0]) == numbers(given[0]));
    CHECK(numbers(in[1]) == numbers(given[1]));
  }
}
