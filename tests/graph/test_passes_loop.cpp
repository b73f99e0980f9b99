// Passes over branches and loops: golden texts, and results that agree with and without the passes.
#include <cmath>

#include "graph/passes/passes.h"
#include "graph/specialize/specialize.h"
#include "loop_graphs.h"

using namespace pg;
using namespace pg::test;

namespace {

Graph checked(Graph graph) {
  verify(graph);
  return graph;
}

// Compares the outputs of the graph with those of the optimized graph, with each of the passes off.
void check_results(const Graph& graph, std::span<const Value> inputs, double tolerance) {
  const auto plain = run_plan(graph, inputs);
  for (const char* off : {"", "steps", "prune", "hoist", "sink", "gather_gradients", "simplify", "fuse", "cse"}) {
    const Graph better =
        optimize(graph, pass_options(true, *off ? std::vector<std::string>{off} : std::vector<std::string>{}));
    const auto found = run_plan(better, inputs);
    REQUIRE(found.size() == plain.size());
    for (size_t k = 0; k < plain.size(); ++k) {
      const std::string text = difference(plain[k], found[k], tolerance);
      CHECK_MESSAGE(text.empty(), "without '", off, "', output ", k + 1, ": ", text, "\n", to_string(better));
    }
  }
}

// Returns the joint forward and backward of a graph, with gradients of all its inputs.
Graph joint_of(const Graph& graph) {
  Signature signature;
  for (int32_t k : graph.inputs) {
    signature.types.push_back(graph.nodes[size_t(k)].types[0]);
    signature.flows.push_back(Flow::kWrite);
  }
  signature.recording = true;
  return specialize(graph, signature).graph;
}

// h' = tanh(x wᵀ + h uᵀ + b), with a stack of h'. Inputs: xs, h, w, u, b.
std::shared_ptr<const Graph> rnn_body(int64_t batch, int64_t in, int64_t hidden) {
  BodySketch b({{batch, in}, {batch, hidden}, {hidden, in}, {hidden, hidden}, {hidden}});
  const Operand none;
  const Operand gates =
      b.op("add", {b.op("linear", {b.in[1], b.in[3], none}), b.op("linear", {b.in[2], b.in[4], b.in[5]})});
  const Operand h = b.op("tanh", {gates});
  return b.done({h, h});
}

std::vector<Value> rnn_inputs(int64_t steps, int64_t batch, int64_t in, int64_t hidden) {
  return {range({steps, batch, in}, -1, 0.03), range({batch, hidden}, 0.1, 0.05), range({hidden, in}, -0.3, 0.07),
          range({hidden, hidden}, 0.2, -0.04), range({hidden}, -0.2, 0.1)};
}

}  // namespace

TEST_CASE("prune: unused parts of a loop are removed, and unchanged carries become captures") {
  GraphSketch g;
  const Operand x = g.input("x", {3, 2}), y = g.input("y", {3, 2}), a = g.input("a", {2}), b = g.input("b", {2}),
                w = g.input("w", {2});
  BodySketch body({{2}, {2}, {2}, {2}, {2}, {2}, {2}});  // x, y | a, b, b | w, w
  const auto& in = body.in;
  const Operand next = body.op("add", {in[3], in[1]});
  const Operand dead = body.op("mul", {in[4], in[2]});  // feeds only itself
  const Operand out = body.op("mul", {next, body.op("add", {in[5], in[6]})});
  const Operand twice = body.op("mul", {in[7], out});
  const size_t loop =
      add_loop(g, loop_form(2, 3, 3), {x, y, a, b, b, w, w}, {body.done({next, dead, in[5], out, dead, twice, in[1]})});
  // steps, finals of a b b, stacks of out dead twice x
  const Graph graph = g.done(
      {Operand::of(loop, 0), Operand::of(loop, 1), Operand::of(loop, 3), Operand::of(loop, 6), Operand::of(loop, 7)});
  CHECK(to_string(checked(prune(graph))) ==
        "%0 = input \"x\" : float32 3x2\n"
        "%1 = input \"y\" : float32 3x2\n"
        "%2 = input \"a\" : float32 2\n"
        "%3 = input \"b\" : float32 2\n"
        "%4 = input \"w\" : float32 2\n"
        "%5 = full() {shape = {}, value = 3, dtype = int64} : int64 scalar\n"
        "%6 = loop(%0, %2, %4, %3) {slices = 1, carries = 1, limit = 3} : int64 scalar, float32 2, float32 3x2\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2\n"
        "  | %2 = input : float32 2\n"
        "  | %3 = input : float32 2\n"
        "  | %4 = input : float32 2\n"
        "  | %5 = add(%2, %1) : float32 2\n"
        "  | %6 = add(%3, %4) : float32 2\n"
        "  | %7 = mul(%5, %6) : float32 2\n"
        "  | %8 = mul(%4, %7) : float32 2\n"
        "  | return %5, %8\n"
        "return %5, %6:2, %3, %6:3, %0\n");
  const std::vector<Value> inputs{range({3, 2}), range({3, 2}, 5), range({2}, 1), range({2}, 2), range({2}, 3)};
  check_results(graph, inputs, 0);
}

TEST_CASE("prune: unused results and captures of a branch are removed, and fills move inside") {
  GraphSketch g;
  const Operand p = g.input("p", {}), x = g.input("x", {2}), y = g.input("y", {2}), z = g.input("z", {2});
  const Operand ones = g.op("full", {}, {{"shape", Ints{2}}, {"value", 1.0}});
  BodySketch a({{2}, {2}, {2}, {2}, {2}}, false), b({{2}, {2}, {2}, {2}, {2}}, false);
  const auto then = a.done({a.op("add", {a.in[0], a.in[3]}), a.op("exp", {a.in[1]}), a.in[2], a.op("neg", {a.in[4]})});
  const auto other = b.done({b.op("sub", {b.in[0], b.in[4]}), b.in[1], b.in[2], b.in[0]});
  const size_t cond = add_cond(g, {p, x, y, z, ones, x}, {then, other});
  const Graph graph = g.done({Operand::of(cond, 0), Operand::of(cond, 2), Operand::of(cond, 3)});
  CHECK(to_string(checked(prune(graph))) ==
        "%0 = input \"p\" : float32 scalar\n"
        "%1 = input \"x\" : float32 2\n"
        "%2 = input \"y\" : float32 2\n"
        "%3 = input \"z\" : float32 2\n"
        "%4 = full() {shape = {2}, value = 1} : float32 2\n"
        "%5 = cond(%0, %1) : float32 2, float32 2\n"
        "  | %0 = input : float32 2\n"
        "  | %1 = full() {shape = {2}, value = 1} : float32 2\n"
        "  | %2 = add(%0, %1) : float32 2\n"
        "  | %3 = neg(%0) : float32 2\n"
        "  | return %2, %3\n"
        "  | %0 = input : float32 2\n"
        "  | %1 = sub(%0, %0) : float32 2\n"
        "  | return %1, %0\n"
        "return %5:1, %3, %5:2\n");
  for (double v : {0.0, 1.0})
    check_results(graph, std::vector<Value>{make_scalar(v, DType::kFloat32), range({2}), range({2}, 5), range({2}, 9)},
                  0);
}

TEST_CASE("hoist: the input projection of a recurrent loop is one product before it") {
  GraphSketch g;
  const Operand xs = g.input("xs", {4, 2, 3}), h = g.input("h", {2, 5}), w = g.input("w", {5, 3}),
                u = g.input("u", {5, 5}), b = g.input("b", {5});
  const size_t loop = add_loop(g, loop_form(1, 1, 4), {xs, h, w, u, b}, {rnn_body(2, 3, 5)});
  const Graph graph = g.done({Operand::of(loop, 1), Operand::of(loop, 2)});
  CHECK(to_string(optimize(graph, pass_options(true))) ==
        "%0 = input \"xs\" : float32 4x2x3\n"
        "%1 = input \"h\" : float32 2x5\n"
        "%2 = input \"w\" : float32 5x3\n"
        "%3 = input \"u\" : float32 5x5\n"
        "%4 = input \"b\" : float32 5\n"
        "%5 = reshape_to(%0) {shape = {8, 3}} : float32 8x3\n"
        "%6 = linear(%5, %2, nil) : float32 8x5\n"
        "%7 = reshape_to(%6) {shape = {4, 2, 5}} : float32 4x2x5\n"
        "%8 = loop(%7, %1, %3, %4) {slices = 1, carries = 1, limit = 4} : int64 scalar, float32 2x5, float32 4x2x5\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2x5\n"
        "  | %2 = input : float32 5x5\n"
        "  | %3 = input : float32 5\n"
        "  | %4 = input : float32 2x5\n"
        "  | %5 = linear(%1, %2, %3) : float32 2x5\n"
        "  | %6 = fused(%4, %5) : float32 2x5\n"
        "  |   | %0 = input : float32 2x5\n"
        "  |   | %1 = input : float32 2x5\n"
        "  |   | %2 = add(%0, %1) : float32 2x5\n"
        "  |   | %3 = tanh(%2) : float32 2x5\n"
        "  |   | return %3\n"
        "  | return %6, %6\n"
        "return %8:2, %8:3\n");
  check_results(graph, rnn_inputs(4, 2, 3, 5), 1e-6);
}

TEST_CASE("gather_gradients: a recurrent loop has one product after it per weight and for the data") {
  GraphSketch g;
  const Operand xs = g.input("xs", {4, 2, 3}), h = g.input("h", {2, 5}), w = g.input("w", {5, 3}),
                u = g.input("u", {5, 5}), b = g.input("b", {5});
  const size_t loop = add_loop(g, loop_form(1, 1, 4), {xs, h, w, u, b}, {rnn_body(2, 3, 5)});
  const Graph graph = g.done({Operand::of(loop, 1), Operand::of(loop, 2)});
  const Graph joint = joint_of(graph);
  const Graph better = optimize(joint, pass_options(false));
  const std::string text = to_string(better);
  CHECK(to_string(optimize(better, pass_options(false))) == text);
  CHECK(
      text.substr(text.find("%11 =")) ==
      "%11 = loop(%8:3, %10, %9, %3) {slices = 2, carries = 1, reverse = true, limit = 4} : int64 scalar, float32 2x5, "
      "float32 4x2x5\n"
      "  | %0 = input : int64 scalar\n"
      "  | %1 = input : float32 2x5\n"
      "  | %2 = input : float32 2x5\n"
      "  | %3 = input : float32 2x5\n"
      "  | %4 = input : float32 5x5\n"
      "  | %5 = add(%3, %2) : float32 2x5\n"
      "  | %6 = tanh_grad(%5, %1) : float32 2x5\n"
      "  | %7 = matmul(%6, %4) : float32 2x5\n"
      "  | return %7, %6\n"
      "%12 = reshape_to(%11:3) {shape = {8, 5}} : float32 8x5\n"
      "%13 = permute(%12) {dims = {2, 1}} : float32 5x8\n"
      "%14 = matmul(%13, %5) : float32 5x3\n"
      "%15 = reshape_to(%8:4) {shape = {8, 5}} : float32 8x5\n"
      "%16 = matmul(%13, %15) : float32 5x5\n"
      "%17 = sum(%11:3) {dim = {1, 2}} : float32 5\n"
      "%18 = matmul(%12, %2) : float32 8x3\n"
      "%19 = reshape_to(%18) {shape = {4, 2, 3}} : float32 4x2x3\n"
      "return %8:2, %8:3, %19, %11:2, %14, %16, %17\n");
  std::vector<Value> in = rnn_inputs(4, 2, 3, 5);
  in.push_back(range({2, 5}, 1));
  in.push_back(range({4, 2, 5}, -1));
  check_results(joint, in, 1e-5);
}

TEST_CASE("gather_gradients: also for a batch of one and for vectors") {
  for (const bool vectors : {false, true}) {
    GraphSketch g;
    const Dims row = vectors ? Dims{3} : Dims{1, 3}, state = vectors ? Dims{5} : Dims{1, 5};
    const Operand xs = g.input("xs", vectors ? Dims{4, 3} : Dims{4, 1, 3}), h = g.input("h", state),
                  w = g.input("w", {5, 3}), u = g.input("u", {5, 5});
    BodySketch b({row, state, {5, 3}, {5, 5}});
    const Operand at = vectors ? b.op("matmul", {b.in[3], b.in[1]}) : b.op("linear", {b.in[1], b.in[3], Operand()});
    const Operand next = b.op("tanh", {b.op("add", {at, b.op("linear", {b.in[2], b.in[4], Operand()})})});
    const size_t loop = add_loop(g, loop_form(1, 1, 4), {xs, h, w, u}, {b.done({next, next})});
    const Graph joint = joint_of(g.done({Operand::of(loop, 1), Operand::of(loop, 2)}));
    const std::string text = to_string(optimize(joint, pass_options(false)));
    CHECK_MESSAGE(text.find("add(%3, %2)") != text.npos, text);
    CHECK_MESSAGE(text.find("slices = 2, carries = 1, reverse = true, limit = 4} : int64 scalar, float32 " +
                            to_string(state)) != text.npos,
                  text);
    std::vector<Value> in = rnn_inputs(4, 1, 3, 5);
    in.pop_back();
    for (size_t k : {0u, 1u}) in[k] = range(g.graph.nodes[k].types[0].shape, -0.5, 0.1);
    in.push_back(range(state, 1));
    in.push_back(range(vectors ? Dims{4, 5} : Dims{4, 1, 5}, -1));
    check_results(joint, in, 1e-5);
  }
}

TEST_CASE(
    "hoist: only ops that cannot fail leave a loop that may have no steps, and rows leave only loops over all rows") {
  GraphSketch g;
  const Operand n = g.input("n", {}, DType::kInt64), x = g.input("x", {2, 2}), w = g.input("w", {2, 2}),
                k = g.input("k", {2}, DType::kInt32);
  GraphSketch body;
  body.input("", {}, DType::kInt64);
  const Operand carry = body.input("", {2, 2}), m = body.input("", {2, 2}), i = body.input("", {2}, DType::kInt32);
  const Operand scaled = body.op("exp", {m}), quotient = body.op("floor_divide", {i, i});
  const Operand next = body.op("add", {body.op("matmul", {carry, body.op("t", {scaled})}), quotient});
  LoopForm form = loop_form(0, 1, 8);
  form.counted = true;
  const size_t loop = add_loop(g, form, {n, x, w, k}, {std::make_shared<const Graph>(body.done({next, carry}))});
  const Graph graph = g.done({Operand::of(loop, 1), Operand::of(loop, 2)});
  CHECK(to_string(checked(hoist(graph))) ==
        "%0 = input \"n\" : int64 scalar\n"
        "%1 = input \"x\" : float32 2x2\n"
        "%2 = input \"w\" : float32 2x2\n"
        "%3 = input \"k\" : int32 2\n"
        "%4 = exp(%2) : float32 2x2\n"
        "%5 = loop(%0, %1, %2, %3, %4) {carries = 1, counted = true, limit = 8} : int64 scalar, float32 2x2, "
        "float32 8x2x2\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2x2\n"
        "  | %2 = input : float32 2x2\n"
        "  | %3 = input : int32 2\n"
        "  | %4 = input : float32 2x2\n"
        "  | %5 = floor_divide(%3, %3) : int32 2\n"
        "  | %6 = t(%4) : float32 2x2\n"
        "  | %7 = matmul(%1, %6) : float32 2x2\n"
        "  | %8 = add(%7, %5) : float32 2x2\n"
        "  | return %8, %1\n"
        "return %5:2, %5:3\n");
  Value three = make_scalar(3, DType::kInt64), none = make_scalar(0, DType::kInt64);
  check_results(graph, std::vector<Value>{three, range({2, 2}), range({2, 2}, 0.1, 0.1), array({3, 4}, DType::kInt32)},
                1e-6);
  check_results(graph, std::vector<Value>{none, range({2, 2}), range({2, 2}, 0.1, 0.1), array({0, 4}, DType::kInt32)},
                1e-6);
}

TEST_CASE("hoist: a loop without carries is computed at once, with its embedding and projection") {
  GraphSketch g;
  const Operand ids = g.input("ids", {3, 2}, DType::kInt64), table = g.input("table", {4, 3}), w = g.input("w", {2, 3}),
                s = g.input("s", {2});
  GraphSketch body;
  body.input("", {}, DType::kInt64);
  const Operand id = body.input("", {2}, DType::kInt64), t = body.input("", {4, 3}), v = body.input("", {2, 3}),
                by = body.input("", {2});
  const Operand y = body.op("mul", {body.op("matmul", {body.op("embedding", {id, t}), body.op("t", {v})}),
                                    body.op("unsqueeze", {by}, {{"dim", int64_t(2)}})});
  const size_t loop =
      add_loop(g, loop_form(1, 0, 3), {ids, table, w, s}, {std::make_shared<const Graph>(body.done({y}))});
  const Graph graph = g.done({Operand::of(loop, 1), Operand::of(loop, 0)});
  CHECK(to_string(optimize(graph, pass_options(false))) ==
        "%0 = input \"ids\" : int64 3x2\n"
        "%1 = input \"table\" : float32 4x3\n"
        "%2 = input \"w\" : float32 2x3\n"
        "%3 = input \"s\" : float32 2\n"
        "%4 = full() {shape = {}, value = 3, dtype = int64} : int64 scalar\n"
        "%5 = embedding(%0, %1) : float32 3x2x3\n"
        "%6 = permute(%2) {dims = {2, 1}} : float32 3x2\n"
        "%7 = reshape_to(%5) {shape = {6, 3}} : float32 6x3\n"
        "%8 = matmul(%7, %6) : float32 6x2\n"
        "%9 = reshape_to(%8) {shape = {3, 2, 2}} : float32 3x2x2\n"
        "%10 = reshape_to(%3) {shape = {2, 1}} : float32 2x1\n"
        "%11 = mul(%9, %10) : float32 3x2x2\n"
        "return %11, %4\n");
  Value picks = make_array(Type{DType::kInt64, {}, {3, 2}});
  for (int64_t k = 0; k < 6; ++k) static_cast<int64_t*>(picks.array().data())[k] = 1 + k % 4;
  check_results(graph, std::vector<Value>{picks, range({4, 3}), range({2, 3}, 1), range({2}, 2)}, 1e-6);
}

TEST_CASE("sink: the projection of a recurrent loop's outputs is one product after it") {
  GraphSketch g;
  const Operand xs = g.input("xs", {3, 2, 2}), h = g.input("h", {2, 2}), v = g.input("v", {4, 2}),
                c = g.input("c", {4});
  BodySketch b({{2, 2}, {2, 2}, {4, 2}, {4}});
  const Operand next = b.op("tanh", {b.op("add", {b.in[1], b.in[2]})});
  const Operand y = b.op("exp", {b.op("linear", {next, b.in[3], b.in[4]})});
  const size_t loop = add_loop(g, loop_form(1, 1, 3), {xs, h, v, c}, {b.done({next, y})});
  const Graph graph = g.done({Operand::of(loop, 2)});
  CHECK(to_string(checked(sink(prune(graph)))) ==
        "%0 = input \"xs\" : float32 3x2x2\n"
        "%1 = input \"h\" : float32 2x2\n"
        "%2 = input \"v\" : float32 4x2\n"
        "%3 = input \"c\" : float32 4\n"
        "%4 = loop(%0, %1, %2, %3) {slices = 1, carries = 1, limit = 3} : int64 scalar, float32 2x2, float32 3x2x2\n"
        "  | %0 = input : int64 scalar\n"
        "  | %1 = input : float32 2x2\n"
        "  | %2 = input : float32 2x2\n"
        "  | %3 = input : float32 4x2\n"
        "  | %4 = input : float32 4\n"
        "  | %5 = add(%1, %2) : float32 2x2\n"
        "  | %6 = tanh(%5) : float32 2x2\n"
        "  | return %6, %6\n"
        "%5 = reshape_to(%4:3) {shape = {6, 2}} : float32 6x2\n"
        "%6 = linear(%5, %2, %3) : float32 6x4\n"
        "%7 = reshape_to(%6) {shape = {3, 2, 4}} : float32 3x2x4\n"
        "%8 = exp(%7) : float32 3x2x4\n"
        "return %8\n");
  check_results(graph, std::vector<Value>{range({3, 2, 2}, -1, 0.2), range({2, 2}), range({4, 2}, -1, 0.3), range({4})},
                1e-6);
}

TEST_CASE("steps: a counter that is compared with a number makes a while loop one over rows") {
  for (const int64_t last : {3, 5}) {
    GraphSketch g;
    const Operand xs = g.input("xs", {6, 2}), h = g.input("h", {2});
    const Operand one = g.constant(make_scalar(1, DType::kInt64)), yes = g.constant(make_scalar(1, DType::kBool));
    GraphSketch body;
    body.input("", {}, DType::kInt64);
    const Operand i = body.input("", {}, DType::kInt64), s = body.input("", {2}), x = body.input("", {6, 2});
    const Operand at = body.op("reshape", {body.op("add", {i, 1.0})}, {{"shape", Ints{1}}});
    const Operand row =
        body.op("reshape", {body.op("index_select", {x, at}, {{"dim", int64_t(1)}})}, {{"shape", Ints{2}}});
    const Operand next = body.op("add", {i, 1.0});
    const Operand sum = body.op("tanh", {body.op("add", {s, row})});
    LoopForm form = loop_form(0, 2, 5);
    form.conditional = true;
    const auto done = std::make_shared<const Graph>(body.done({body.op("le", {next, double(last)}), next, sum, s, i}));
    const size_t loop = add_loop(g, form, {yes, one, h, xs}, {done});
    const Graph graph = g.done(
        {Operand::of(loop, 0), Operand::of(loop, 1), Operand::of(loop, 2), Operand::of(loop, 3), Operand::of(loop, 4)});
    const Graph better = optimize(graph, pass_options(false));
    const std::string text = to_string(better);
    CHECK(to_string(optimize(better, pass_options(false))) == text);
    CHECK_MESSAGE(text.find("while") == text.npos, text);
    if (last == 5)
      CHECK(text.substr(text.find("%2 =")) ==
            "%2 = narrow(%0) {dim = 1, start = 2, length = 5} : float32 5x2\n"
            "%3 = reshape_to(%2) {shape = {5, 1, 2}} : float32 5x1x2\n"
            "%4 = constant … : int64 5\n"
            "%5 = full() {shape = {}, value = 6, dtype = int64} : int64 scalar\n"
            "%6 = full() {shape = {}, value = 5, dtype = int64} : int64 scalar\n"
            "%7 = loop(%3, %1) {slices = 1, carries = 1, limit = 5} : int64 scalar, float32 2, float32 5x2\n"
            "  | %0 = input : int64 scalar\n"
            "  | %1 = input : float32 2\n"
            "  | %2 = input : float32 1x2\n"
            "  | %3 = reshape_to(%2) {shape = {2}} : float32 2\n"
            "  | %4 = add(%1, %3) : float32 2\n"
            "  | %5 = tanh(%4) : float32 2\n"
            "  | return %5, %1\n"
            "return %6, %5, %7:2, %7:3, %4\n");
    check_results(graph, std::vector<Value>{range({6, 2}, -1, 0.3), range({2})}, 0);
  }
}

TEST_CASE("a step copies neither the carry before it nor the one after it to rows that it returns") {
  for (const bool reverse : {false, true})
    for (const bool conditional : {false, true}) {
      if (reverse && conditional) continue;
      GraphSketch g;
      const Operand x = g.input("x", {5, 2}), h = g.input("h", {2}), yes = g.input("yes", {}, DType::kBool);
      BodySketch b({{2}, {2}});
      const Operand next = b.op("tanh", {b.op("add", {b.in[1], b.in[2]})});
      LoopForm form = loop_form(1, 1, 5);
      form.reverse = reverse;
      form.conditional = conditional;
      std::vector<Operand> operands{yes, x, h};
      if (!conditional) operands.erase(operands.begin());
      const auto body =
          conditional ? b.done({b.op("lt", {b.in[0], 3.0}), next, next, b.in[2]}) : b.done({next, next, b.in[2]});
      const size_t loop = add_loop(g, form, operands, {body});
      const Graph graph = g.done({Operand::of(loop, 1), Operand::of(loop, 2), Operand::of(loop, 3)});
      const Graph better = optimize(graph, pass_options(true));
      const auto plan = make_plan(better);
      CHECK_MESSAGE(plan->steps.back().control->bodies[0]->steps.size() == (conditional ? 2 : 1), to_string(*plan));
      std::vector<Value> inputs{range({5, 2}, -1, 0.3), range({2}, 0.5, 0.1), make_scalar(1, DType::kBool)};
      const auto found = run_plan(better, inputs);
      const auto number = [](const Value& v, int64_t at) { return static_cast<const float*>(v.array().data())[at]; };
      const int64_t ran = conditional ? 3 : 5;
      for (int64_t column : {0, 1}) {
        float state = number(inputs[1], column);
        for (int64_t n = 0; n < 5; ++n) {
          const int64_t at = 2 * (reverse ? 4 - n : n) + column;
          CHECK(number(found[2], at) == (n < ran ? state : 0));
          if (n < ran) state = std::tanh(number(inputs[0], at) + state);
          CHECK(number(found[1], at) == doctest::Approx(n < ran ? state : 0));
          if (n < ran) state = number(found[1], at);
        }
        CHECK(number(found[0], column) == state);
      }
    }
}
