// The pass that finds the number of steps: loops whose number of steps is known, and rows picked by a counter.
#include "graph/passes/passes.h"
#include "loop_graphs.h"

using namespace pg;
using namespace pg::test;

namespace {

Graph counted(Graph graph) {
  graph = without_dead_nodes(count_steps(std::move(graph)));
  verify(graph);
  return graph;
}

Operand whole(GraphSketch& g, double value, Dims shape = {}, DType dtype = DType::kInt64) {
  return g.constant(make_filled(Type{dtype, {}, shape}, value));
}

// Compares the outputs of the graph before the pass, after it, and optimized with and without it.
void check_results(const Graph& graph, std::span<const Value> inputs, double tolerance = 0) {
  const auto plain = run_plan(graph, inputs);
  const Graph once = optimize(graph, pass_options(false));
  CHECK(to_string(optimize(once, pass_options(false))) == to_string(once));
  for (const Graph& better :
       {counted(graph), optimize(graph, pass_options(true)), optimize(graph, pass_options(true, {"steps"}))}) {
    const auto found = run_plan(better, inputs);
    REQUIRE(found.size() == plain.size());
    for (size_t k = 0; k < plain.size(); ++k) {
      const std::string text = difference(plain[k], found[k], tolerance);
      CHECK_MESSAGE(text.empty(), "output ", k + 1, ": ", text, "\n", to_string(better));
    }
  }
}

LoopForm while_form(int32_t carries, int64_t limit) {
  LoopForm form = loop_form(0, carries, limit);
  form.conditional = true;
  return form;
}

// A loop of `s = s + xs[i]; i = i + by` from i = first, while i `compare` last. It returns s and i.
struct Counting {
  double first = 1, last = 3;
  int64_t limit = 5, rows = 5;
  const char* compare = "le";
  bool swapped = false;
  Dims shape{};  // shape of the counter
  DType dtype = DType::kInt64;
  bool flag = true, stacks = true;
  double by = 1;
  Graph graph() const {
    GraphSketch g;
    const Operand xs = g.input("xs", {rows, 2}), s = g.input("s", {2});
    const Operand go = whole(g, flag, {}, DType::kBool), start = whole(g, first, shape, dtype);
    GraphSketch body;
    body.input("", {}, DType::kInt64);
    const Operand i = body.input("", shape, dtype), sum = body.input("", {2}), table = body.input("", {rows, 2});
    const Operand index = shape.size() == 1 ? i : body.op("reshape_to", {i}, {{"shape", Ints{1}}});
    const Operand row =
        body.op("reshape_to", {body.op("index_select", {table, index}, {{"dim", int64_t(1)}})}, {{"shape", Ints{2}}});
    const Operand next = body.op("add", {sum, row}), more = by < 0 ? body.op("sub", {i, -by}) : body.op("add", {by, i});
    Operand test =
        swapped ? body.op(compare, {body.op("full", {}, {{"shape", Ints{}}, {"value", last}, {"dtype", dtype}}), more})
                : body.op(compare, {more, last});
    if (shape.size() == 1) test = body.op("reshape_to", {test}, {{"shape", Ints{}}});
    const auto done =
        std::make_shared<const Graph>(stacks ? body.done({test, more, next, next, i}) : body.done({test, more, next}));
    const size_t loop = add_loop(g, while_form(2, limit), {go, start, s, xs}, {done});
    if (!stacks) return g.done({Operand::of(loop, 0), Operand::of(loop, 1), Operand::of(loop, 2)});
    return g.done(
        {Operand::of(loop, 0), Operand::of(loop, 1), Operand::of(loop, 2), Operand::of(loop, 3), Operand::of(loop, 4)});
  }
};

std::vector<Value> counting_inputs(int64_t rows) { return {range({rows, 2}, 0.5, 0.25), range({2}, -1)}; }

bool has(const Graph& graph, const char* text) { return to_string(graph).find(text) != std::string::npos; }

}  // namespace

TEST_CASE("steps: a loop that selects all its rows in order becomes a loop over slices") {
  const Graph graph = Counting{.last = 5}.graph();
  CHECK(to_string(counted(graph)) ==
        "%0 = input \"xs\" : float32 5x2\n"
        "%1 = input \"s\" : float32 2\n"
        "%2 = reshape_to(%0) {shape = {5, 1, 2}} : float32 5x1x2\n"
        "%3 = range() {start = 1, stop = 5, dtype = int64} : int64 5\n"
        "%4 = full() {shape = {}, value = 6, dtype = int64} : int64 scalar\n"
        "%5 = full() {shape = {}, value = 5, dtype = int64} : int64 scalar\n"
        "%6 = loop(%2, %1, %0) {slices = 1, carries = 1, limit = 5} : int64 scalar, float32 2, float32 5x2\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2\n"
        "  | %2 = input : float32 5x2\n"
        "  | %3 = input : float32 1x2\n"
        "  | %4 = reshape_to(%3) {shape = {2}} : float32 2\n"
        "  | %5 = add(%1, %4) : float32 2\n"
        "  | return %5, %5\n"
        "return %5, %4, %6:2, %6:3, %3\n");
  check_results(graph, counting_inputs(5));
}

TEST_CASE("steps: a loop that ends early gets zero rows, and rows are selected from its start") {
  const Graph graph = Counting{.first = 2, .last = 4, .rows = 6}.graph();
  CHECK(to_string(counted(graph)) ==
        "%0 = input \"xs\" : float32 6x2\n"
        "%1 = input \"s\" : float32 2\n"
        "%2 = narrow(%0) {dim = 1, start = 2, length = 3} : float32 3x2\n"
        "%3 = reshape_to(%2) {shape = {3, 1, 2}} : float32 3x1x2\n"
        "%4 = full() {shape = {}, value = 5, dtype = int64} : int64 scalar\n"
        "%5 = full() {shape = {}, value = 3, dtype = int64} : int64 scalar\n"
        "%6 = loop(%3, %1, %0) {slices = 1, carries = 1, limit = 3} : int64 scalar, float32 2, float32 3x2, int64 3\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = add(%0, 1) : int64 scalar\n"
        "  | %2 = input : float32 2\n"
        "  | %3 = input : float32 6x2\n"
        "  | %4 = input : float32 1x2\n"
        "  | %5 = reshape_to(%4) {shape = {2}} : float32 2\n"
        "  | %6 = add(%2, %5) : float32 2\n"
        "  | return %6, %6, %1\n"
        "%7 = full() {shape = {2, 2}, value = 0} : float32 2x2\n"
        "%8 = cat(%6:3, %7) : float32 5x2\n"
        "%9 = full() {shape = {2}, value = 0, dtype = int64} : int64 2\n"
        "%10 = cat(%6:4, %9) : int64 5\n"
        "return %5, %4, %6:2, %8, %10\n");
  check_results(graph, counting_inputs(6));
}

TEST_CASE("steps: counts loops with either order of the comparison, counters of one element, and no limit") {
  struct Row {
    Counting loop;
    int64_t steps;
  };
  const Row rows[] = {
      {{.last = 3, .compare = "lt"}, 2},
      {{.last = 3.5, .compare = "lt"}, 3},
      {{.last = 3.5, .compare = "le"}, 3},
      {{.last = -7, .compare = "le"}, 1},
      {{.last = 3, .compare = "ge"}, 1},
      {{.last = 2, .compare = "ge"}, 5},
      {{.last = 2, .compare = "gt"}, 1},
      {{.last = 1, .compare = "gt"}, 5},
      {{.last = 4, .compare = "ne"}, 3},
      {{.last = 1, .compare = "ne"}, 5},
      {{.last = 2, .compare = "eq"}, 2},
      {{.last = 4, .compare = "eq"}, 1},
      {{.last = 4, .compare = "gt", .swapped = true}, 3},
      {{.last = 4, .compare = "ge", .swapped = true}, 4},
      {{.last = 4, .compare = "lt", .swapped = true}, 1},
      {{.last = 4, .compare = "ne", .swapped = true}, 3},
      {{.last = 3, .shape = {1}}, 3},
      {{.last = 3, .dtype = DType::kInt32}, 3},
      {{.first = 2, .last = 3, .shape = {1}, .dtype = DType::kInt32}, 2},
      {{.last = 4, .limit = -1, .stacks = false}, 4},
      {{.flag = false}, 0},
      {{.last = 5, .by = 2}, 3},
      {{.first = 2, .last = 4, .by = 2}, 2},
      {{.last = 3, .compare = "ge", .swapped = true, .by = 2}, 2},
      {{.first = 5, .last = 2, .compare = "gt", .by = -1}, 3},
      {{.first = 4, .last = 0, .limit = 9, .compare = "ne", .by = -1}, 4},
      {{.first = 3, .last = 9, .limit = 3, .compare = "le", .by = -1}, 3},
  };
  for (const Row& row : rows) {
    const Graph graph = row.loop.graph();
    const std::string text = to_string(counted(graph));
    CAPTURE(text);
    CHECK(text.find("conditional") == std::string::npos);
    CHECK((text.find("index_select") == std::string::npos) == (row.loop.by == 1 || row.steps == 0));
    CHECK((row.steps == 0 || text.find(fmt::format("limit = {}", row.steps)) != std::string::npos));
    check_results(graph, counting_inputs(5));
    CHECK(item(run_plan(counted(graph), counting_inputs(5))[0]) == double(row.steps));
  }
}

TEST_CASE("steps: loops with unknown counts are kept, and a missing row still fails") {
  for (const Graph& graph : {Counting{.last = 4, .limit = -1, .rows = 3, .stacks = false}.graph(),
                             Counting{.first = 0}.graph(), Counting{.first = 3, .last = 7, .rows = 6}.graph()}) {
    CHECK(has(counted(graph), "index_select"));
    CHECK(!has(counted(graph), "conditional"));
    const auto inputs = counting_inputs(graph.nodes[0].types[0].shape[0]);
    CHECK_THROWS_WITH_AS(run_plan(optimize(graph, pass_options(true)), inputs), doctest::Contains("index"), Error);
  }
  const Graph endless = Counting{.last = 2, .limit = -1, .compare = "ge", .stacks = false}.graph();
  CHECK(has(counted(endless), "conditional"));
  GraphSketch g;  // one counter starts from an input, the other does not count in ones
  const Operand i = g.input("i", {}, DType::kInt64), go = whole(g, 1, {}, DType::kBool), one = whole(g, 1);
  GraphSketch body;
  body.input("", {}, DType::kInt64);
  const Operand a = body.input("", {}, DType::kInt64), b = body.input("", {}, DType::kInt64);
  const Operand next = body.op("add", {a, 1.0}), twice = body.op("add", {b, b});
  const auto done = std::make_shared<const Graph>(
      body.done({body.op("logical_and", {body.op("le", {next, 4.0}), body.op("lt", {twice, 9.0})}), next, twice}));
  const size_t loop = add_loop(g, while_form(2, 9), {go, i, one}, {done});
  const Graph graph = g.done({Operand::of(loop, 0), Operand::of(loop, 1), Operand::of(loop, 2)});
  CHECK(same_graph(count_steps(graph), graph));
}

// A reverse loop over three of five steps. It picks rows by the number of the step, by counters among the slices, and
// by `index - before`.
static Graph counted_backwards(double before) {
  GraphSketch g;
  const Operand xs = g.input("xs", {5, 2}), s = g.input("s", {2}), table = g.input("table", {6, 2}),
                count = whole(g, 3);
  Value rows = make_array(Type{DType::kInt64, {}, {5}});
  for (int64_t k = 0; k < 5; ++k) static_cast<int64_t*>(rows.array().data())[k] = 2 + k;
  const Operand places = g.constant(rows);
  GraphSketch body;
  const Operand index = body.input("", {}, DType::kInt64), x = body.input("", {2}),
                at = body.input("", {}, DType::kInt64);
  const Operand sum = body.input("", {2}), from = body.input("", {6, 2});
  const auto pick = [&](const Operand& k) {
    return body.op(
        "reshape_to",
        {body.op("index_select", {from, body.op("reshape_to", {k}, {{"shape", Ints{1}}})}, {{"dim", int64_t(1)}})},
        {{"shape", Ints{2}}});
  };
  const Operand product = body.op("mul", {sum, x}), row = pick(at), next = body.op("add", {product, row});
  const Operand other = body.op("add", {pick(body.op("sub", {index, before})), pick(body.op("add", {2.0, index}))});
  LoopForm form = loop_form(2, 1, 5);
  form.counted = form.reverse = true;
  const size_t loop =
      add_loop(g, form, {count, xs, places, s, table}, {std::make_shared<const Graph>(body.done({next, other}))});
  return g.done({Operand::of(loop, 0), Operand::of(loop, 1), Operand::of(loop, 2)});
}

TEST_CASE(
    "steps: a loop that ends by what it computes has its counter from the step, and picks slices where all rows are "
    "there") {
  for (const int64_t limit : {3, 4}) {
    GraphSketch g;
    const Operand xs = g.input("xs", {4, 2}), s = g.input("s", {2}), go = whole(g, 1, {}, DType::kBool),
                  two = whole(g, 2);
    GraphSketch body;
    body.input("", {}, DType::kInt64);
    const Operand i = body.input("", {}, DType::kInt64), sum = body.input("", {2}), table = body.input("", {4, 2});
    const Operand row =
        body.op("index_select", {table, body.op("reshape_to", {i}, {{"shape", Ints{1}}})}, {{"dim", int64_t(1)}});
    const Operand next = body.op("add", {sum, body.op("reshape_to", {row}, {{"shape", Ints{2}}})});
    const auto done = std::make_shared<const Graph>(
        body.done({body.op("lt", {body.op("sum", {next}), 5.0}), body.op("add", {i, 1.0}), next, i}));
    const size_t loop = add_loop(g, while_form(2, limit), {go, two, s, xs}, {done});
    const Graph graph =
        g.done({Operand::of(loop, 0), Operand::of(loop, 1), Operand::of(loop, 2), Operand::of(loop, 3)});
    CHECK(has(counted(graph), "conditional"));
    CHECK(has(counted(graph), "index_select") == (limit == 4));
    CHECK(has(counted(graph), "carries = 1"));
    for (const double start : {0.0, 9.0})
      check_results(graph, std::vector<Value>{range({4, 2}, 0.5, 0.1), range({2}, start, 0)});
    const std::vector<Value> far{range({4, 2}, 0.5, 0.1), range({2}, -1, 0)};
    if (limit == 3)
      check_results(graph, far);
    else
      CHECK_THROWS_WITH_AS(run_plan(optimize(graph, pass_options(true)), far), doctest::Contains("index"), Error);
  }
}

TEST_CASE("steps: a known count may run backwards, over fewer rows, with counters among the slices") {
  const Graph graph = counted_backwards(0);
  CHECK(to_string(counted(graph)) ==
        "%0 = input \"xs\" : float32 5x2\n"
        "%1 = input \"s\" : float32 2\n"
        "%2 = input \"table\" : float32 6x2\n"
        "%3 = narrow(%0) {dim = 1, start = 1, length = 3} : float32 3x2\n"
        "%4 = narrow(%2) {dim = 1, start = 2, length = 3} : float32 3x2\n"
        "%5 = reshape_to(%4) {shape = {3, 1, 2}} : float32 3x1x2\n"
        "%6 = narrow(%2) {dim = 1, start = 1, length = 3} : float32 3x2\n"
        "%7 = reshape_to(%6) {shape = {3, 1, 2}} : float32 3x1x2\n"
        "%8 = narrow(%2) {dim = 1, start = 3, length = 3} : float32 3x2\n"
        "%9 = reshape_to(%8) {shape = {3, 1, 2}} : float32 3x1x2\n"
        "%10 = full() {shape = {}, value = 3, dtype = int64} : int64 scalar\n"
        "%11 = loop(%3, %5, %7, %9, %1, %2) {slices = 4, carries = 1, reverse = true, limit = 3} : int64 scalar, "
        "float32 2, "
        "float32 3x2\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2\n"
        "  | %2 = input : float32 2\n"
        "  | %3 = input : float32 6x2\n"
        "  | %4 = mul(%2, %1) : float32 2\n"
        "  | %5 = input : float32 1x2\n"
        "  | %6 = reshape_to(%5) {shape = {2}} : float32 2\n"
        "  | %7 = add(%4, %6) : float32 2\n"
        "  | %8 = input : float32 1x2\n"
        "  | %9 = reshape_to(%8) {shape = {2}} : float32 2\n"
        "  | %10 = input : float32 1x2\n"
        "  | %11 = reshape_to(%10) {shape = {2}} : float32 2\n"
        "  | %12 = add(%9, %11) : float32 2\n"
        "  | return %7, %12\n"
        "%12 = full() {shape = {2, 2}, value = 0} : float32 2x2\n"
        "%13 = cat(%11:3, %12) : float32 5x2\n"
        "return %10, %11:2, %13\n");
  const std::vector<Value> inputs{range({5, 2}, 0.5, 0.25), range({2}), range({6, 2}, -1, 0.5)};
  check_results(graph, inputs);
  const Graph fails = counted_backwards(1);
  CHECK(has(optimize(fails, pass_options(true)), "index_select"));
  CHECK_THROWS_WITH_AS(run_plan(optimize(fails, pass_options(true)), inputs), doctest::Contains("index"), Error);
}

TEST_CASE("steps: the rows of a loop without a limit get a size when its steps are known") {
  GraphSketch g;
  const Operand s = g.input("s", {2}), go = whole(g, 1, {}, DType::kBool), one = whole(g, 1);
  GraphSketch body;
  body.input("", {}, DType::kInt64);
  const Operand i = body.input("", {}, DType::kInt64), x = body.input("", {2});
  const Operand more = body.op("add", {i, 1.0});
  const auto forward =
      std::make_shared<const Graph>(body.done({body.op("lt", {more, 4.0}), more, body.op("sin", {x}), x}));
  const size_t first = add_loop(g, while_form(2, -1), {go, one, s}, {forward});
  BodySketch back({{2}, {2}});
  LoopForm form = loop_form(1, 1, -1);
  form.counted = form.reverse = true;
  const auto backward = back.done({back.op("mul", {back.in[2], back.op("cos", {back.in[1]})})});
  const size_t second = add_loop(g, form, {Operand::of(first, 0), Operand::of(first, 3), s}, {backward});
  const Graph graph = g.done({Operand::of(first, 2), Operand::of(second, 1)});
  CHECK(to_string(counted(graph)) ==
        "%0 = input \"s\" : float32 2\n"
        "%1 = loop(%0) {carries = 1, limit = 3} : int64 scalar, float32 2, float32 3x2\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2\n"
        "  | %2 = sin(%1) : float32 2\n"
        "  | return %2, %1\n"
        "%2 = loop(%1:3, %0) {slices = 1, carries = 1, reverse = true, limit = 3} : int64 scalar, float32 2\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2\n"
        "  | %2 = input : float32 2\n"
        "  | %3 = cos(%1) : float32 2\n"
        "  | %4 = mul(%2, %3) : float32 2\n"
        "  | return %4\n"
        "return %1:2, %2:2\n");
  check_results(graph, std::vector<Value>{range({2}, 0.3, 0.4)});
}

TEST_CASE("steps: rows that are scattered in order are concatenated with zeros") {
  GraphSketch g;
  const Operand dy = g.input("dy", {3, 1, 2});
  Value places = make_array(Type{DType::kInt64, {}, {3, 1}});
  for (int64_t k = 0; k < 3; ++k) static_cast<int64_t*>(places.array().data())[k] = 2 + k;
  const Graph graph =
      g.done({g.op("index_select_backward", {dy, g.constant(places)}, {{"dim", int64_t(1)}, {"size", int64_t(5)}})});
  CHECK(to_string(counted(graph)) ==
        "%0 = input \"dy\" : float32 3x1x2\n"
        "%1 = full() {shape = {1, 2}, value = 0} : float32 1x2\n"
        "%2 = reshape_to(%0) {shape = {3, 2}} : float32 3x2\n"
        "%3 = full() {shape = {1, 2}, value = 0} : float32 1x2\n"
        "%4 = cat(%1, %2, %3) : float32 5x2\n"
        "return %4\n");
  check_results(graph, std::vector<Value>{range({3, 1, 2}, -1, 0.5)});
}
