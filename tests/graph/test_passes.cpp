// Golden texts of the result of each pass.
#include <algorithm>
#include <set>

#include "graph/passes/passes.h"
#include "pass_graphs.h"

using namespace pg;
using namespace pg::test;

TEST_CASE("fold: ops on constants become constants") {
  GraphSketch g;
  const Operand x = g.input("x", {2});
  const Operand c = g.constant(array({1, 2}));
  const Operand product = g.op("mul", {c, g.op("range", {}, {{"start", 3.0}, {"stop", 4.0}})});
  const Graph folded = eliminate_dead(fold(g.done({g.op("add", {x, g.op("sum", {product})})})));
  CHECK(to_string(folded) ==
        "%0 = input \"x\" : float32 2\n"
        "%1 = constant 11 : float32 scalar\n"
        "%2 = add(%0, %1) : float32 2\n"
        "return %2\n");
}

TEST_CASE("fold: large, random and failing ops are not folded") {
  GraphSketch g;
  const Operand c = g.constant(array({0, 2}, DType::kInt32));
  const Operand bad = g.op("floor_divide", {c, c});
  const Operand large = g.op("range", {}, {{"start", 1.0}, {"stop", 1e6}});
  const Operand drawn = g.op("rand", {}, {{"shape", Ints{2}}, {"generator", RandomKey{0, 0}}});
  const Graph graph = g.done({bad, large, drawn});
  CHECK(same_graph(fold(graph), graph));
}

TEST_CASE("fold: a large constant weight is not transposed, and its product becomes linear") {
  GraphSketch g;
  const Operand x = g.input("x", {2, 32});
  const Operand w = g.constant(range({16, 32})), b = g.constant(range({16}));
  const Operand y = g.op("add", {g.op("matmul", {x, g.op("t", {g.op("reshape", {w}, {{"shape", Ints{16, 32}}})})}), b});
  CHECK(to_string(optimize(g.done({y}), pass_options(true))) ==
        "%0 = input \"x\" : float32 2x32\n"
        "%1 = constant … : float32 16x32\n"
        "%2 = constant … : float32 16\n"
        "%3 = linear(%0, %1, %2) : float32 2x16\n"
        "return %3\n");
}

TEST_CASE("cse: equal nodes are merged, with swapped operands if the op commutes") {
  GraphSketch g;
  const Operand x = g.input("x", {2}), y = g.input("y", {2});
  const Operand a = g.op("add", {x, y}), b = g.op("add", {y, x});
  const Operand c = g.op("maximum", {x, y}), d = g.op("maximum", {y, x});
  const Operand z = g.op("mul", {x, 0.0}), m = g.op("mul", {x, -0.0});
  const Operand sums = g.op("sum", {g.op("add", {g.op("mul", {a, b}), g.op("add", {z, m})})});
  CHECK(to_string(eliminate_dead(eliminate_common(g.done({sums, g.op("sub", {c, d})})))) ==
        "%0 = input \"x\" : float32 2\n"
        "%1 = input \"y\" : float32 2\n"
        "%2 = add(%0, %1) : float32 2\n"
        "%3 = maximum(%0, %1) : float32 2\n"
        "%4 = maximum(%1, %0) : float32 2\n"
        "%5 = mul(%0, 0) : float32 2\n"
        "%6 = mul(%0, -0) : float32 2\n"
        "%7 = mul(%2, %2) : float32 2\n"
        "%8 = add(%5, %6) : float32 2\n"
        "%9 = add(%7, %8) : float32 2\n"
        "%10 = sum(%9) : float32 scalar\n"
        "%11 = sub(%3, %4) : float32 2\n"
        "return %10, %11\n");
}

TEST_CASE("cse: nodes that differ in an attribute have different hashes, so that many of them take linear time") {
  GraphSketch g;
  const Operand x = g.input("x", {64, 2});
  std::set<size_t> hashes;
  for (int64_t k = 1; k <= 64; ++k) {
    const Operand row = g.op("select", {x}, {{"dim", int64_t(1)}, {"index", k}});
    const Operand scaled = g.op("leaky_relu", {row}, {{"negative_slope", double(k)}});
    for (const Operand& o : {row, scaled}) hashes.insert(hash_of(g.graph.node(o).attrs));
  }
  CHECK(hashes.size() == 128);
}

TEST_CASE("simplify: removes neutral elements only where every bit is preserved") {
  GraphSketch g;
  const Operand x = g.input("x", {2}), n = g.input("n", {2}, DType::kInt32);
  const Operand same = g.op("sub", {g.op("div", {g.op("mul", {1.0, g.op("pow", {x, 1.0})}), 1.0}), 0.0});
  const Operand moved = g.op("add", {x, 0.0}), zero = g.op("mul", {x, 0.0});
  const Operand whole = g.op("add", {n, 0.0}), quotient = g.op("div", {n, 1.0});
  CHECK(to_string(eliminate_dead(simplify(g.done({same, moved, zero, whole, quotient})))) ==
        "%0 = input \"x\" : float32 2\n"
        "%1 = input \"n\" : int32 2\n"
        "%2 = add(%0, 0) : float32 2\n"
        "%3 = mul(%0, 0) : float32 2\n"
        "%4 = div(%1, 1) : float32 2\n"
        "return %0, %2, %3, %1, %4\n");
}

TEST_CASE("simplify: simplifies signs, conversions and selections") {
  GraphSketch g;
  const Operand x = g.input("x", {2}), y = g.input("y", {2}), h = g.input("h", {2}, DType::kFloat16);
  const Operand a = g.op("add", {g.op("neg", {x}), y});
  const Operand b = g.op("to", {g.op("to", {h}, {{"dtype", DType::kFloat32}})}, {{"dtype", DType::kFloat16}});
  const Operand c = g.op("to", {g.op("to", {x}, {{"dtype", DType::kFloat16}})}, {{"dtype", DType::kFloat32}});
  const Operand less = g.op("lt", {x, y});
  const Operand d = g.op("where", {g.op("logical_not", {less}), x, y});
  CHECK(to_string(eliminate_dead(simplify(g.done({a, b, c, d})))) ==
        "%0 = input \"x\" : float32 2\n"
        "%1 = input \"y\" : float32 2\n"
        "%2 = input \"h\" : float16 2\n"
        "%3 = sub(%1, %0) : float32 2\n"
        "%4 = to(%0) {dtype = float16} : float16 2\n"
        "%5 = to(%4) {dtype = float32} : float32 2\n"
        "%6 = lt(%0, %1) : bool 2\n"
        "%7 = where(%6, %1, %0) : float32 2\n"
        "return %3, %2, %5, %7\n");
}

TEST_CASE("simplify: views take one form and merge") {
  GraphSketch g;
  const Operand x = g.input("x", {2, 3, 4});
  const Operand back = g.op("transpose", {g.op("permute", {x}, {{"dims", Ints{3, 2, 1}}})},
                            {{"dim0", int64_t(1)}, {"dim1", int64_t(3)}});
  const Operand turned = g.op("moveaxis", {g.op("transpose", {x}, {{"dim0", int64_t(1)}, {"dim1", int64_t(2)}})},
                              {{"source", Ints{1}}, {"destination", Ints{3}}});
  const Operand flat =
      g.op("unsqueeze", {g.op("flatten", {g.op("reshape", {x}, {{"shape", Ints{6, -1}}})})}, {{"dim", int64_t(1)}});
  const Operand wide = g.op("expand", {g.op("unsqueeze", {x}, {{"dim", int64_t(1)}})}, {{"shape", Ints{5, 2, 3, 4}}});
  CHECK(to_string(eliminate_dead(simplify(g.done({back, turned, flat, wide})))) ==
        "%0 = input \"x\" : float32 2x3x4\n"
        "%1 = permute(%0) {dims = {1, 3, 2}} : float32 2x4x3\n"
        "%2 = reshape_to(%0) {shape = {1, 24}} : float32 1x24\n"
        "%3 = broadcast_to(%0) {shape = {5, 2, 3, 4}} : float32 5x2x3x4\n"
        "return %0, %1, %2, %3\n");
}

TEST_CASE("simplify: the gradient of a mean reads numbers, not expanded tensors") {
  GraphSketch g;
  const Operand x = g.input("x", {4, 3}), y = g.input("y", {4, 3});
  const Operand ones = g.op("ones", {}, {{"shape", Ints{}}});
  const Operand dy = g.op("expand", {g.op("reshape_to", {g.op("div", {ones, 12.0})}, {{"shape", Ints{1, 1}}})},
                          {{"shape", Ints{4, 3}}});
  const Operand dx = g.op("mul", {dy, y});
  const Operand row = g.op(
      "mul", {x, g.op("expand", {g.op("sum", {x}, {{"dim", Ints{1}}, {"keepdim", true}})}, {{"shape", Ints{4, 3}}})});
  CHECK(to_string(optimize(g.done({dx, row}), pass_options(false))) ==
        "%0 = input \"x\" : float32 4x3\n"
        "%1 = input \"y\" : float32 4x3\n"
        "%2 = mul(0.0833333358168602, %1) : float32 4x3\n"
        "%3 = sum(%0) {dim = {1}, keepdim = true} : float32 1x3\n"
        "%4 = mul(%0, %3) : float32 4x3\n"
        "return %2, %4\n");
}

TEST_CASE("dce: keeps inputs and effects") {
  GraphSketch g;
  const Operand x = g.input("x", {2}), y = g.input("y", {2});
  g.op("assert", {g.op("gt", {y, 0.0})});
  g.op("exp", {y});
  CHECK(to_string(eliminate_dead(g.done({g.op("neg", {x})}))) ==
        "%0 = input \"x\" : float32 2\n"
        "%1 = input \"y\" : float32 2\n"
        "%2 = gt(%1, 0) : bool 2\n"
        "%3 = assert(%2) : bool 2\n"
        "%4 = neg(%0) : float32 2\n"
        "return %4\n");
}

TEST_CASE("fuse: fuses a chain with its reduction and an output from its middle") {
  GraphSketch g;
  const Operand x = g.input("x", {4, 3}), b = g.input("b", {3});
  const Operand y = g.op("tanh", {g.op("add", {g.op("mul", {x, 2.0}), b})});
  const Operand s = g.op("sum", {g.op("exp", {y})}, {{"dim", Ints{2}}});
  CHECK(to_string(fuse(g.done({y, s}))) ==
        "%0 = input \"x\" : float32 4x3\n"
        "%1 = input \"b\" : float32 3\n"
        "%2 = fused(%0, %1) : float32 4x3, float32 4\n"
        "  | %0 = input : float32 4x3\n"
        "  | %1 = mul(%0, 2) : float32 4x3\n"
        "  | %2 = input : float32 3\n"
        "  | %3 = add(%1, %2) : float32 4x3\n"
        "  | %4 = tanh(%3) : float32 4x3\n"
        "  | %5 = exp(%4) : float32 4x3\n"
        "  | %6 = sum(%5) {dim = {2}} : float32 4\n"
        "  | return %4, %6\n"
        "return %2:1, %2:2\n");
}

TEST_CASE("fuse: long sums of one length join the ops that read the same tensor") {
  GraphSketch g;
  const Operand x = g.input("x", {4, 3000});
  const Operand squares = g.op("sum_squares", {x}, {{"dim", Ints{2}}}), all = g.op("sum", {x});
  const Operand y = g.op("exp", {x});
  const Operand sums = g.op("sum", {y}, {{"dim", Ints{2}}}), largest = g.op("amax", {x}, {{"dim", Ints{2}}});
  CHECK(to_string(fuse(g.done({squares, all, sums, y, largest}))) ==
        "%0 = input \"x\" : float32 4x3000\n"
        "%1 = fused(%0) : float32 4, float32 4x3000, float32 4\n"
        "  | %0 = input : float32 4x3000\n"
        "  | %1 = sum_squares(%0) {dim = {2}} : float32 4\n"
        "  | %2 = exp(%0) : float32 4x3000\n"
        "  | %3 = sum(%2) {dim = {2}} : float32 4\n"
        "  | return %1, %2, %3\n"
        "%2 = sum(%0) : float32 scalar\n"
        "%3 = amax(%0) {dim = {2}} : float32 4\n"
        "return %1:1, %2, %1:3, %1:2, %3\n");
}

TEST_CASE("fuse: short reductions without other ops stay apart") {
  GraphSketch g;
  const Operand x = g.input("x", {4, 3});
  const Operand a = g.op("sum", {x}, {{"dim", Ints{2}}}), b = g.op("amax", {x}, {{"dim", Ints{2}}});
  CHECK(to_string(fuse(g.done({a, b}))) ==
        "%0 = input \"x\" : float32 4x3\n"
        "%1 = sum(%0) {dim = {2}} : float32 4\n"
        "%2 = amax(%0) {dim = {2}} : float32 4\n"
        "return %1, %2\n");
}

TEST_CASE("fuse: a diamond through another op is not closed") {
  GraphSketch g;
  const Operand x = g.input("x", {3, 3});
  const Operand a = g.op("exp", {g.op("neg", {x})});
  const Operand around = g.op("matmul", {a, x});
  const Operand b = g.op("relu", {g.op("mul", {a, 2.0})});
  const Operand c = g.op("add", {b, around});
  // The product reads a and b, so c must not join them.
  CHECK(to_string(fuse(g.done({c}))) ==
        "%0 = input \"x\" : float32 3x3\n"
        "%1 = fused(%0) : float32 3x3, float32 3x3\n"
        "  | %0 = input : float32 3x3\n"
        "  | %1 = neg(%0) : float32 3x3\n"
        "  | %2 = exp(%1) : float32 3x3\n"
        "  | %3 = mul(%2, 2) : float32 3x3\n"
        "  | %4 = relu(%3) : float32 3x3\n"
        "  | return %2, %4\n"
        "%2 = matmul(%1:1, %0) : float32 3x3\n"
        "%3 = add(%1:2, %2) : float32 3x3\n"
        "return %3\n");
}

TEST_CASE("fuse: two groups may not read each other") {
  GraphSketch g;
  const Operand x = g.input("x", {3, 3}), y = g.input("y", {3, 3});
  const Operand a = g.op("exp", {x}), b = g.op("tanh", {y});
  const Operand c = g.op("mul", {b, g.op("matmul", {a, x})});  // the group of b comes after that of a
  const Operand d = g.op("mul", {a, g.op("matmul", {b, y})});  // so the group of a must not come after that of b
  const Graph fused = fuse(g.done({c, d}));
  verify(fused);
  CHECK(std::count_if(fused.nodes.begin(), fused.nodes.end(),
                      [](const Node& n) { return n.kind == NodeKind::kFused; }) == 1);
}

TEST_CASE("fuse: independent readers of one tensor are fused") {
  GraphSketch g;
  const Operand x = g.input("x", {3, 3}), y = g.input("y", {3, 3});
  const Operand dy = g.op("matmul", {x, y});
  const Graph apart = fuse(g.done({g.op("mul", {dy, x}), g.op("tanh_grad", {dy, y})}));
  verify(apart);
  CHECK(to_string(apart) ==
        "%0 = input \"x\" : float32 3x3\n"
        "%1 = input \"y\" : float32 3x3\n"
        "%2 = matmul(%0, %1) : float32 3x3\n"
        "%3 = fused(%2, %0, %1) : float32 3x3, float32 3x3\n"
        "  | %0 = input : float32 3x3\n"
        "  | %1 = input : float32 3x3\n"
        "  | %2 = mul(%0, %1) : float32 3x3\n"
        "  | %3 = input : float32 3x3\n"
        "  | %4 = tanh_grad(%0, %3) : float32 3x3\n"
        "  | return %2, %4\n"
        "return %3:1, %3:2\n");
  GraphSketch h;
  const Operand a = h.input("a", {3, 3});
  const Operand b = h.op("exp", {a});
  const Operand c = h.op("mul", {h.op("matmul", {b, b}), a});  // like b it reads a, but later
  CHECK(fuse(h.done({c})).nodes.size() == 4);
}

TEST_CASE("fuse: an update of a parameter, its moments and its bias correction are one node") {
  GraphSketch g;
  const Operand w = g.input("w", {8}), grad = g.input("g", {8}), m = g.input("m", {8}), v = g.input("v", {8}),
                lr = g.input("lr", {});
  const Operand m2 = g.op("add", {g.op("mul", {m, 0.9}), g.op("mul", {grad, 0.1})});
  const Operand v2 = g.op("add", {g.op("mul", {v, 0.999}), g.op("mul", {g.op("square", {grad}), 0.001})});
  const Operand step = g.op("div", {m2, g.op("add", {g.op("sqrt", {v2}), 1e-8})});
  const Operand rate = g.op("neg", {g.op("mul", {lr, 0.5})});
  const Graph fused = fuse(g.done({g.op("add", {w, g.op("mul", {rate, step})}), m2, v2}));
  verify(fused);
  CHECK(fused.nodes.size() == 6);
  CHECK(fused.nodes.back().kind == NodeKind::kFused);
}

TEST_CASE("fuse: forward and backward of an activation are not fused across other ops") {
  GraphSketch g;
  const Operand x = g.input("x", {2, 3}), w = g.input("w", {3, 3});
  const Operand y = g.op("tanh", {g.op("add", {x, 1.0})});
  const Operand z = g.op("linear", {y, w, Operand()});
  const Operand dy = g.op("matmul", {g.op("mul", {z, 2.0}), w});
  const Operand dx = g.op("mul", {g.op("tanh_grad", {dy, y}), 0.5});
  const Graph graph = g.done({dx});
  const Graph fused = fuse(graph);
  verify(fused);
  const std::vector<Value> in = {range({2, 3}, -0.5, 0.2), range({3, 3}, -1, 0.25)};
  CHECK(difference(graph, fused, in) == "");
  CHECK(std::count_if(fused.nodes.begin(), fused.nodes.end(),
                      [](const Node& n) { return n.kind == NodeKind::kFused; }) == 2);
}

namespace {

// Two residual units of a training step without their products: relu(norm(a)), relu(norm(b) + first), and the nodes of
// backward that read them.
Graph kept_activations(int64_t positions, bool keep_source, DType dtype = DType::kFloat32, bool rows = false) {
  GraphSketch g;
  const Operand a = g.input("a", rows ? Dims{2 * positions, 8} : Dims{2, 8, positions}, dtype),
                gamma = g.input("gamma", {8}, dtype), beta = g.input("beta", {8}, dtype);
  const Operand x = g.op("neg", {a});
  const Operand normal = g.op("batch_norm_train", {x, Operand(), Operand(), gamma, beta});
  const Operand first = g.op("relu", {normal}), second = g.op("relu", {g.op("add", {normal, a})});
  Operand far = g.op("mul", {first, second});
  for (int i = 0; i < 20; ++i) far = g.op("sin", {far});
  const Operand dfirst = g.op("relu_grad", {far, first}), dsecond = g.op("relu_grad", {far, second});
  const Operand dx = keep_source ? g.op("sub", {dsecond, x}) : dsecond;
  return g.done({g.op("mul", {first, dfirst}), dx});
}

}  // namespace

TEST_CASE(
    "recompute: large activations are rematerialized far from their first use, from values that are kept anyway") {
  const Graph graph = kept_activations(5000, true);
  const std::string text = to_string(recompute(graph));
  CHECK(text.substr(text.find("%29 = ")) ==
        "%29 = batch_norm_apply(%3, %4:2, %4:3, %1, %2) : float32 2x8x5000\n"
        "%30 = relu(%29) : float32 2x8x5000\n"
        "%31 = relu_grad(%28, %30) : float32 2x8x5000\n"
        "%32 = batch_norm_apply(%3, %4:2, %4:3, %1, %2) : float32 2x8x5000\n"
        "%33 = add(%32, %0) : float32 2x8x5000\n"
        "%34 = relu(%33) : float32 2x8x5000\n"
        "%35 = relu_grad(%28, %34) : float32 2x8x5000\n"
        "%36 = sub(%35, %3) : float32 2x8x5000\n"
        "%37 = mul(%30, %31) : float32 2x8x5000\n"
        "return %37, %36\n");
  CHECK(same_graph(recompute(kept_activations(5000, false)), kept_activations(5000, false)));
  CHECK(same_graph(recompute(kept_activations(500, true)), kept_activations(500, true)));
}

TEST_CASE("recompute: returns the same bits") {
  for (const int64_t positions : {4000, 4099, 20000}) {
    const Graph graph = kept_activations(positions, true);
    const std::vector<Value> in = {range({2, 8, positions}, -3, 0.7e-4), range({8}, -0.6, 0.3), range({8}, 0.1, -0.2)};
    CHECK(has_op(recompute(graph), "batch_norm_apply") == (positions > 4096));
    CHECK(difference(graph, recompute(graph), in) == "");
    CHECK(difference(graph, optimize(graph, pass_options(true)), in) == "");
  }
}

TEST_CASE("recompute: returns the same bits in 16 bits, of images and rows") {
  Context ctx;
  for (DType dtype : {DType::kBFloat16, DType::kFloat16})
    for (bool rows : {false, true}) {
      const Graph graph = kept_activations(20003, true, dtype, rows);
      const auto input = [&](Dims shape, double start, double step) {
        Value in[1] = {range(shape, start, step)};
        return apply(ctx, op_named<"to">(), in, make_attrs(op_named<"to">(), {{"dtype", dtype}}))[0];
      };
      const std::vector<Value> in = {input(rows ? Dims{40006, 8} : Dims{2, 8, 20003}, -3, 1.9e-5),
                                     input({8}, -0.6, 0.3), input({8}, 0.1, -0.2)};
      CHECK(has_op(recompute(graph), "batch_norm_apply"));
      CHECK(difference(graph, recompute(graph), in) == "");
      CHECK(difference(graph, optimize(graph, pass_options(true)), in) == "");
    }
}

TEST_CASE("recompute: a chain of sums is rematerialized from its start") {
  GraphSketch g;
  const Operand a = g.input("a", {2, 8, 5000});
  std::vector<Operand> sources, kept = {a};
  for (int i = 0; i < 3; ++i) {
    sources.push_back(g.op("sin", {kept.back()}));
    const Operand normal = g.op("batch_norm_train", {sources.back(), Operand(), Operand(), Operand(), Operand()});
    kept.push_back(g.op("relu", {g.op("add", {normal, kept.back()})}));
  }
  Operand out = kept.back();
  for (int i = 0; i < 20; ++i) out = g.op("sin", {out});
  for (int i = 3; i > 0; --i) out = g.op("sub", {g.op("relu_grad", {out, kept[size_t(i)]}), sources[size_t(i) - 1]});
  const Graph graph = g.done({out}), better = recompute(graph);
  size_t again = 0;
  for (const Node& node : better.nodes) again += node.is<"batch_norm_apply">();
  CHECK(again == 3);
  verify(better);
  const std::vector<Value> in = {range({2, 8, 5000}, -3, 0.7e-4)};
  CHECK(difference(graph, better, in) == "");
  CHECK(difference(graph, optimize(graph, pass_options(true)), in) == "");
}

TEST_CASE("materialize: a fill becomes a constant for products and a number for arithmetic") {
  GraphSketch g;
  const Operand x = g.input("x", {2, 3});
  const Operand ones = g.op("ones", {}, {{"shape", Ints{3, 2}}});
  const Operand half = g.op("full", {}, {{"shape", Ints{2, 3}}, {"value", 0.5}});
  CHECK(to_string(optimize(g.done({g.op("matmul", {g.op("mul", {x, half}), ones})}), pass_options(true))) ==
        "%0 = input \"x\" : float32 2x3\n"
        "%1 = constant … : float32 3x2\n"
        "%2 = mul(%0, 0.5) : float32 2x3\n"
        "%3 = matmul(%2, %1) : float32 2x2\n"
        "return %3\n");
}
