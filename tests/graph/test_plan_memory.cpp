// The memory of plans: arenas, frames and packed weights.
#include <atomic>
#include <random>
#include <thread>

#include "graph/exec/exec.h"
#include "graph/exec/frame.h"
#include "graph/plan/arena.h"
#include "tensor/cpu/isa.h"
#include "graphs.h"

using namespace pg;
using namespace pg::test;

TEST_CASE("a steady state allocates only its outputs") {
  const Graph graph = mlp(4, {32, 16, 8, 2});
  const auto plan = make_plan(graph);
  Context ctx;
  SmallVector<Value, 4> in;
  for (const Type& t : plan->input_types) in.push_back(range(t.shape, -0.5, 0.01));
  pg::run(*plan, ctx, in);
  const int64_t before = Runtime::current().memory().stats().allocations;
  for (int i = 0; i < 10; ++i) pg::run(*plan, ctx, in);
  CHECK(Runtime::current().memory().stats().allocations - before == 10);
  CHECK(plan->held_bytes() == plan->arena_bytes().count());
}

TEST_CASE("arenas of impossibly large blocks have saturated sizes") {
  const Bytes most(uint64_t(1) << 62);
  std::vector<ArenaBlock> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back({most, 0, 10});
  for (int i = 0; i < 100; ++i) blocks.push_back({Bytes(uint64_t(1) << 59), i % 7, 10 + i});
  CHECK(place_blocks(blocks) == most);
  CHECK(arena_lower_bound(blocks) == most);
  CHECK_THROWS_AS(Buffer::allocate({}, place_blocks(blocks)), OutOfMemory);
}

TEST_CASE("arenas of typical nets stay within 5 % of the lower bound") {
  const auto check = [](const Graph& graph) {
    for (bool in_place : {true, false}) {
      const auto plan = make_plan(graph, {.in_place = in_place});
      for (const Arena& arena : plan->arenas)
        CHECK(double(arena.bytes.count()) <= 1.05 * double(arena.lower_bound.count()));
    }
  };
  check(mlp(64, {784, 256, 128, 10}));
  check(mlp(1, {512, 256, 128, 2}));
  GraphMaker m;  // residual blocks: a chain and the sum after it read each value
  Operand x = m.op("conv2d", {m.input({2, 3, 32, 32}), m.input({8, 3, 3, 3}), Operand()}, {{"padding", Ints{1}}});
  for (int block = 0; block < 6; ++block) {
    const int64_t channels = 8 << block / 2;
    const Operand weight = m.input({channels, m.graph.type(x).shape[1], 3, 3});
    const Operand first = m.op("relu", {m.op("conv2d", {x, weight, m.input({channels})}, {{"padding", Ints{1}}})});
    const Operand second =
        m.op("conv2d", {first, m.input({channels, channels, 3, 3}), m.input({channels})}, {{"padding", Ints{1}}});
    const Operand side = m.graph.type(x).shape[1] == channels
                             ? x
                             : m.op("conv2d", {x, m.input({channels, channels / 2, 1, 1}), Operand()});
    x = m.op("relu", {m.op("add", {second, side})});
    if (block % 2) x = m.op("max_pool", {x}, {{"kernel_size", Ints{2, 2}}});
  }
  m.output(m.op("mean", {x}));
  check(m.graph);
}

TEST_CASE("concurrent runs use separate frames") {
  const auto plan = make_plan(mlp(32, {72, 64, 48, 10}));
  Context ctx;
  std::vector<Value> parameters;
  for (const Type& t : plan->input_types) parameters.push_back(test::run(ctx, "sin", {range(t.shape, 0.3, 0.01)}));
  std::vector<Value> data;
  std::vector<Numbers> expected;
  for (int k = 0; k < 4; ++k) {
    data.push_back(test::run(ctx, "sin", {range({32, 72}, k, 0.1)}));
    std::vector<Value> in = parameters;
    in[0] = data.back();
    expected.push_back(numbers(run_eagerly(ctx, mlp(32, {72, 64, 48, 10}), in)[0]));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      Context own;
      for (int i = 0; i < 200; ++i) {
        SmallVector<Value, 4> in{std::span<const Value>(parameters)};
        in[0] = data[k];
        wrong += numbers(pg::run(*plan, own, in)[0]) != expected[k];
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}

TEST_CASE("arenas are freed on request or when idle ones are too large") {
  GraphMaker m;
  const Operand x = m.input({256});
  m.output(m.op("sum", {m.op("exp", {x})}));
  Context ctx;
  SmallVector<Value, 4> in{range({256}, 0, 0.001)};
  const auto loose = make_plan(m.graph, {.static_alloc = false});
  pg::run(*loose, ctx, in);
  CHECK(loose->held_bytes() == 0);
  const auto plan = make_plan(m.graph);
  pg::run(*plan, ctx, in);
  CHECK(plan->held_bytes() == 1024);
  const Values out = pg::run(*plan, ctx, in);
  limit_held_arenas(1024);
  const auto later = make_plan(m.graph);
  pg::run(*later, ctx, in);
  CHECK(plan->held_bytes() == 0);
  CHECK(later->held_bytes() == 1024);
  limit_held_arenas(size_t(256) << 20);
  CHECK(numbers(pg::run(*plan, ctx, in)[0]) == numbers(out[0]));
}

TEST_CASE("arenas of random programs stay near the lower bound") {
  std::mt19937 random(1);
  const auto pick = [&](int n) { return int(random() % unsigned(n)); };
  double worst = 1;
  for (int round = 0; round < 200; ++round) {
    std::vector<ArenaBlock> blocks;
    const int steps = 5 + pick(200);
    for (int s = 0; s < steps; ++s)
      blocks.push_back({Bytes(size_t(1 + pick(round % 2 ? 64 : 100000)) * 4), s,
                        std::min(steps, s + 1 + (pick(4) ? pick(4) : pick(steps)))});
    const Bytes bytes = place_blocks(blocks), bound = arena_lower_bound(blocks);
    CHECK(bytes >= bound);
    worst = std::max(worst, double(bytes.count()) / double(bound.count()));
    for (size_t i = 0; i < blocks.size(); ++i)
      for (size_t k = 0; k < i; ++k) {
        const ArenaBlock &a = blocks[i], &b = blocks[k];
        const bool together = a.first <= b.last && b.first <= a.last;
        if (together && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes) FAIL("blocks overlap");
      }
  }
  CHECK(worst < 1.25);
}

TEST_CASE("blocks that fit between others stay apart from them") {
  std::mt19937 random(2);
  const auto pick = [&](int n) { return int(random() % unsigned(n)); };
  const auto apart = [](const ArenaBlock& a, const ArenaBlock& b) {
    return b.last < a.first || a.last < b.first || a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
  };
  int fitting = 0, all = 0;
  for (int round = 0; round < 100; ++round) {
    const int steps = 5 + pick(100);
    std::vector<ArenaBlock> fixed, blocks;
    Bytes limit;
    for (int i = 0; i < steps; ++i) {
      fixed.push_back({Bytes(size_t(1 + pick(1000)) * 64), 0, steps - i, limit});
      limit += fixed.back().bytes;
    }
    for (int s = 0; s < steps; ++s)
      blocks.push_back({Bytes(size_t(1 + pick(1000)) * 64), s, std::min(steps, s + pick(4))});
    const std::vector<bool> fits = place_between(fixed, limit, blocks);
    all += steps;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (!fits[i]) continue;
      ++fitting;
      CHECK(blocks[i].offset + blocks[i].bytes <= limit);
      for (const ArenaBlock& b : fixed) CHECK(apart(blocks[i], b));
      for (size_t k = 0; k < i; ++k)
        if (fits[k]) CHECK(apart(blocks[i], blocks[k]));
    }
  }
  CHECK(fitting * 2 > all);  // all but the first ones, when everything lives
}

namespace {

void check_packing(const Graph& graph, size_t weight) {
  Context ctx;
  const auto plan = make_plan(graph);
  std::vector<Value> values;
  for (const Type& t : plan->input_types) values.push_back(test::run(ctx, "sin", {range(t.shape, 0.1, 0.37)}));
  const auto run_once = [&](const Plan& p) {
    SmallVector<Value, 4> in{std::span<const Value>(values)};
    return numbers(pg::run(p, ctx, in)[0]);
  };
  const Numbers expected = numbers(run_eagerly(ctx, graph, values)[0]);
  REQUIRE(plan->packs.size() == 1);
  for (int i = 0; i < 4; ++i) CHECK(run_once(*plan) == expected);
  const size_t packed = held_packed_bytes();
  CHECK(packed > 0);
  CHECK_FALSE(values[weight].array().writable());  // nothing can change a packed array while the plan uses it
  values[weight] = test::run(ctx, "mul", {values[weight], Value(-0.5)});
  const Numbers changed = numbers(run_eagerly(ctx, graph, values)[0]);
  CHECK(changed != expected);
  CHECK(run_once(*plan) == changed);
  CHECK(held_packed_bytes() < packed);
  const auto other = make_plan(graph);
  for (int i = 0; i < 10; ++i) CHECK(run_once(*plan) == changed);
  for (int i = 0; i < 3; ++i) CHECK(run_once(*other) == changed);
  CHECK(held_packed_bytes() == packed);  // both plans share one packed array
  const auto plain = make_plan(graph, {.pack = false});
  CHECK(plain->packs.empty());
  CHECK(run_once(*plain) == changed);
  CHECK(run_once(*make_plan(graph, {.prepare = false})) == changed);
}

}  // namespace

TEST_CASE("packed weights return the same bits and follow changes of the array") {
  for (const char* activation : {"", "relu", "tanh"}) {
    GraphMaker m;
    const Operand x = m.input({32, 72}), w = m.input({64, 72}), b = m.input({64});
    m.output(*activation ? m.op("linear_act", {x, w, b}, {{"activation", std::string(activation)}})
                         : m.op("linear", {x, w, b}));
    check_packing(m.graph, 1);
  }
  GraphMaker m;
  const Operand x = m.input({3, 16, 20, 20}), w = m.input({32, 16, 3, 3}), b = m.input({32});
  m.output(m.op("conv2d", {x, w, b}));
  check_packing(m.graph, 1);
}

TEST_CASE("prepared kernels return the bits of the plain ones") {
  for (int64_t batch : {1, 3}) {
    GraphMaker m;
    const Operand x = m.input({batch, 3, 9, 9}), w = m.input({4, 3, 3, 3}), b = m.input({4}), v = m.input({5, 4 * 49}),
                  c = m.input({2, 5});
    const Operand y = m.op("conv_act", {x, w, b}, {{"activation", std::string("relu")}});
    const Operand flat = m.op("reshape", {y}, {{"shape", Ints{batch, 4 * 49}}});
    const Operand h = m.op("linear_act", {flat, v, Operand()}, {{"activation", std::string("tanh")}});
    m.output(m.op("linear", {h, c, Operand()}));
    m.output(m.op("conv_by_input", {y, w}, {{"size", Ints{9, 9}}}));
    m.output(m.op("conv_by_weight", {x, y}, {{"size", Ints{3, 3}}}));
    Context ctx;
    std::vector<Value> values;
    for (int32_t i : m.graph.inputs)
      values.push_back(test::run(ctx, "sin", {range(m.graph.nodes[size_t(i)].types[0].shape, 0.1, 0.37)}));
    const Values expected = run_eagerly(ctx, m.graph, values);
    for (bool prepare : {true, false}) {
      const auto plan = make_plan(m.graph, {.prepare = prepare});
      CHECK(plan->prepared.size() == (prepare ? 5 : 0));
      SmallVector<Value, 4> in{std::span<const Value>(values)};
      const Values got = pg::run(*plan, ctx, in);
      for (size_t i = 0; i < got.size(); ++i) CHECK(numbers(got[i]) == numbers(expected[i]));
    }
  }
}

TEST_CASE("weights that change in every run are no longer packed") {
  GraphMaker m;
  const Operand x = m.input({32, 72}), w = m.input({64, 72}), b = m.input({64});
  m.output(m.op("linear", {x, w, b}));
  const auto plan = make_plan(m.graph);
  Context ctx;
  const Value a = range({32, 72}), bias = range({64});
  Value weights[2] = {range({64, 72}), range({64, 72}, 1)};
  int packings = 0;
  for (int i = 0; i < 64; ++i) {
    SmallVector<Value, 4> in{a, weights[i / 2 % 2], bias};
    const size_t before = held_packed_bytes();
    pg::run(*plan, ctx, in);
    packings += held_packed_bytes() > before;
  }
  CHECK(packings <= 2);
}

namespace {

// x + exp(w) tanh(v), where w and v last.
struct Invariant {
  Graph graph;
  explicit Invariant(int64_t rows = 8, const char* op = "exp") {
    GraphMaker m;
    const Operand x = m.input({rows, 16}), w = m.input({16}), v = m.input({16});
    for (const Operand& lasting : {w, v}) m.graph.nodes[size_t(lasting.node)].lasts = true;
    m.output(m.op("add", {x, m.op("mul", {m.op(op, {w}), m.op("tanh", {v})})}));
    graph = m.graph;
  }
};

}  // namespace

TEST_CASE("invariant steps run until their sources stay, and again after a change") {
  const Graph graph = Invariant().graph;
  const auto plan = make_plan(graph);
  verify(*plan);
  CHECK(plan->invariant == 3);
  CHECK(plan->kept.size() == 1);
  CHECK(plan->sources == std::vector<int32_t>{1, 2});
  Context ctx;
  SmallVector<Value, 4> in{range({8, 16}), range({16}, 0.1, 0.1), range({16}, 0.3, 0.1)};
  const auto check = [&] { CHECK(numbers(pg::run(*plan, ctx, in)[0]) == numbers(run_eagerly(ctx, graph, in)[0])); };
  check();
  CHECK(in[1].array().writable());  // one run keeps nothing
  for (int i = 0; i < 4; ++i) check();
  CHECK_FALSE(in[1].array().writable());  // nothing can change a source while its results are kept
  in[1] = range({16}, -0.5, 0.2);
  for (int i = 0; i < 4; ++i) check();
  for (int i = 0; i < 40; ++i) {
    in[size_t(1 + i % 2)] = range({16}, 0.01 * i, 0.1);
    check();
  }
  CHECK(in[1].array().writable());  // keeping did not pay
  CHECK(make_plan(graph, {.pack = false})->invariant == 0);
}

TEST_CASE("plans with the same invariant steps share their results") {
  const auto shelf = std::make_shared<KeptShelf>();
  PlanOptions options;
  options.shelf = shelf;
  const auto first = make_plan(Invariant(8).graph, options), second = make_plan(Invariant(5).graph, options);
  const auto other = make_plan(Invariant(8, "cosh").graph, options);
  CHECK(&first->frames->kept_results() == &second->frames->kept_results());
  CHECK(&first->frames->kept_results() != &other->frames->kept_results());
  Context ctx;
  SmallVector<Value, 4> in{range({8, 16}), range({16}, 0.1, 0.1), range({16}, 0.3, 0.1)};
  for (int i = 0; i < 2; ++i) pg::run(*first, ctx, in);
  const auto kept = first->frames->kept_results().newest();
  REQUIRE(kept);
  in[0] = range({5, 16});
  CHECK(numbers(pg::run(*second, ctx, in)[0]) == numbers(run_eagerly(ctx, Invariant(5).graph, in)[0]));
  CHECK(kept->runs == 1);
}

TEST_CASE("plans with invariant steps that nothing reads share no results of other inputs") {
  const auto shelf = std::make_shared<KeptShelf>();
  PlanOptions options;
  options.shelf = shelf;
  const auto of = [&](bool both) {
    GraphMaker m;
    const Operand x = m.input({3}), w = m.input({4}), v = m.input({5});
    for (const Operand& lasting : {w, v}) m.graph.nodes[size_t(lasting.node)].lasts = true;
    m.op("exp", {w});
    if (both) m.op("tanh", {v});
    m.output(m.op("neg", {x}));
    return make_plan(m.graph, options);
  };
  const auto one = of(false), two = of(true);
  REQUIRE(one->sources.size() == 1);
  REQUIRE(two->sources.size() == 2);
  CHECK(&one->frames->kept_results() != &two->frames->kept_results());
}

TEST_CASE("a frame that rests holds no results") {
  const Graph graph = Invariant().graph;
  const auto shelf = std::make_shared<KeptShelf>();
  PlanOptions options;
  options.shelf = shelf;
  const auto plan = make_plan(graph, options), other = make_plan(Invariant(5).graph, options);
  Context ctx;
  SmallVector<Value, 4> in{range({8, 16}), range({16}, 0.1, 0.1), range({16}, 0.3, 0.1)};
  for (int i = 0; i < 20; ++i) pg::run(*plan, ctx, in);
  const Value before = in[1];
  CHECK_FALSE(before.array().buffer->unique());
  in[0] = range({5, 16});
  in[1] = range({16}, 0.5, 0.1);
  for (int i = 0; i < 2; ++i) pg::run(*other, ctx, in);
  CHECK(before.array().buffer->unique());
}

TEST_CASE("a failed run keeps no results, and threads share them") {
  const Graph graph = Invariant().graph;
  const auto plan = make_plan(graph);
  Context ctx;
  const Value x = range({8, 16});
  const Value weights[2] = {range({16}, 0.1, 0.1), range({16}, 0.7, -0.1)};
  SmallVector<Value, 4> in{x, weights[0], weights[1]};
  ctx.cancel = true;
  CHECK_THROWS_AS(pg::run(*plan, ctx, in), Cancelled);
  std::vector<Numbers> expected;
  for (const Value& w : weights) {
    SmallVector<Value, 4> of{x, w, weights[1]};
    expected.push_back(numbers(run_eagerly(ctx, graph, of)[0]));
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&, k] {
      Context own;
      for (int i = 0; i < 200; ++i) {
        const size_t which = size_t(i / 25 + (k == 3)) % 2;
        SmallVector<Value, 4> of{x, weights[which], weights[1]};
        wrong += numbers(pg::run(*plan, own, of)[0]) != expected[which];
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
