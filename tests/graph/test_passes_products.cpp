// Golden texts of the passes that change products and convolutions.
#include <algorithm>

#include "graph/passes/passes.h"
#include "pass_graphs.h"

using namespace pg;
using namespace pg::test;

TEST_CASE("epilogue: bias and activation become part of the product") {
  GraphSketch g;
  const Operand x = g.input("x", {2, 3}), w = g.input("w", {4, 3}), b = g.input("b", {4}), v = g.input("v", {5, 4});
  const Operand product = g.op("matmul", {x, g.op("permute", {w}, {{"dims", Ints{2, 1}}})});
  const Operand hidden = g.op("leaky_relu", {g.op("add", {b, product})}, {{"negative_slope", 0.2}});
  const Operand out = g.op("gelu", {g.op("linear", {hidden, v, Operand()})}, {{"approximate", std::string("tanh")}});
  CHECK(to_string(attach_epilogues(g.done({out}))) ==
        "%0 = input \"x\" : float32 2x3\n"
        "%1 = input \"w\" : float32 4x3\n"
        "%2 = input \"b\" : float32 4\n"
        "%3 = input \"v\" : float32 5x4\n"
        "%4 = linear_act(%0, %1, %2) {activation = \"leaky_relu\", slope = 0.2} : float32 2x4\n"
        "%5 = linear_act(%4, %3, nil) {activation = \"gelu_tanh\"} : float32 2x5\n"
        "return %5\n");
}

TEST_CASE("epilogue: not attached when the value in between has another reader") {
  GraphSketch g;
  const Operand x = g.input("x", {2, 3}), w = g.input("w", {4, 3});
  const Operand product = g.op("linear", {x, w, Operand()});
  const Graph graph = g.done({g.op("silu", {product}), g.op("sum", {product})});
  CHECK(same_graph(attach_epilogues(graph), graph));
}

TEST_CASE("epilogue: returns the same bits for every activation, dtype and number of rows") {
  const char* names[] = {"relu", "leaky_relu", "sigmoid", "tanh", "silu", "gelu", "relu6"};
  for (const char* name : names)
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16})
      for (const int64_t rows : {1, 4, 5, 33}) {
        GraphSketch g;
        const Operand x = g.input("x", {rows, 19}, dtype), w = g.input("w", {21, 19}, dtype),
                      b = g.input("b", {21}, dtype);
        const Operand image = g.input("image", {2, 3, rows, 9}, dtype), kernel = g.input("kernel", {5, 3, 1, 3}, dtype);
        const Operand product = g.op(name, {g.op("add", {g.op("linear", {x, w, Operand()}), b})});
        const Operand plain = g.op(name, {g.op("linear", {x, w, b})});
        const Operand map = g.op(name, {g.op("conv2d", {image, kernel, Operand()}, {{"padding", Ints{0, 1}}})});
        const Graph graph = g.done({product, plain, map});
        const Graph better = attach_epilogues(graph);
        verify(better);
        std::vector<Value> in;
        uint32_t state = 1;
        for (int32_t i : graph.inputs) {
          Value v = make_array(graph.nodes[size_t(i)].types[0]);
          for (int64_t k = 0; k < v.numel(); ++k) {
            state = state * 1664525u + 1013904223u;
            store_number(dtype, static_cast<char*>(v.array().data()) + k * size_of(dtype),
                         double(state >> 8) / (1 << 23) - 1);
          }
          in.push_back(v);
        }
        store_number(dtype, in[0].array().data(), NAN);
        store_number(dtype, in[3].array().data(), NAN);
        CAPTURE(name);
        CAPTURE(name_of(dtype));
        CAPTURE(rows);
        CHECK(std::count_if(better.nodes.begin(), better.nodes.end(), [](const Node& n) {
                return n.is<"linear_act">() || n.is<"conv_act">();
              }) == (size_of(dtype) == 2 ? 2 : 3));
        CHECK(difference(graph, better, in) == "");
      }
}

TEST_CASE("epilogue: large convolutions keep NaN after relu") {
  GraphSketch g;
  const Operand x = g.input("x", {2, 16, 40, 40}), w = g.input("w", {32, 16, 3, 3});
  const Graph graph = g.done({g.op("relu", {g.op("conv2d", {x, w, Operand()})})});
  const Graph better = attach_epilogues(graph);
  std::vector<Value> in = {range({2, 16, 40, 40}, -1, 1e-4), range({32, 16, 3, 3}, -0.5, 2e-4)};
  store_number(DType::kFloat32, in[0].array().data(), NAN);
  CHECK(better.nodes.size() == 3);
  CHECK(difference(graph, better, in) == "");
}

namespace {

// A convolution, a batch normalization as specialization writes it, and an activation.
Graph normalised(int64_t size, bool with_bias, bool reads_product) {
  GraphSketch g;
  const Operand x = g.input("x", {2, 3, size, size}), w = g.input("w", {4, 3, 3, 3});
  const Operand b = with_bias ? g.input("b", {4}) : Operand();
  const Operand mean = g.input("mean", {4}), var = g.input("var", {4}), gamma = g.input("gamma", {4}),
                beta = g.input("beta", {4});
  const Operand scale = g.op("mul", {g.op("rsqrt", {g.op("add", {var, 1e-5})}), gamma});
  const Operand shift = g.op("sub", {beta, g.op("mul", {mean, scale})});
  const Operand product = g.op("conv2d", {x, w, b});
  const Operand y = g.op("relu", {g.op("scale_shift", {product, scale, shift, Operand()})});
  return reads_product ? g.done({y, product}) : g.done({y});
}

}  // namespace

TEST_CASE("bn_fold: scales the weights when that is less work") {
  const Graph graph = normalised(12, true, false);
  CHECK(to_string(optimize(graph, pass_options(true, {"fuse"}))) ==
        "%0 = input \"x\" : float32 2x3x12x12\n"
        "%1 = input \"w\" : float32 4x3x3x3\n"
        "%2 = input \"b\" : float32 4\n"
        "%3 = input \"mean\" : float32 4\n"
        "%4 = input \"var\" : float32 4\n"
        "%5 = input \"gamma\" : float32 4\n"
        "%6 = input \"beta\" : float32 4\n"
        "%7 = add(%4, 1e-05) : float32 4\n"
        "%8 = rsqrt(%7) : float32 4\n"
        "%9 = mul(%8, %5) : float32 4\n"
        "%10 = mul(%3, %9) : float32 4\n"
        "%11 = sub(%6, %10) : float32 4\n"
        "%12 = reshape_to(%9) {shape = {4, 1, 1, 1}} : float32 4x1x1x1\n"
        "%13 = mul(%1, %12) : float32 4x3x3x3\n"
        "%14 = mul(%2, %9) : float32 4\n"
        "%15 = add(%14, %11) : float32 4\n"
        "%16 = conv_act(%0, %13, %15) : float32 2x4x10x10\n"
        "return %16\n");
}

TEST_CASE("bn_fold: otherwise becomes arithmetic that fuses and is close to the original") {
  for (const bool bias : {false, true})
    for (const bool reads_product : {false, true})
      for (const int64_t size : {3, 12}) {
        const Graph graph = normalised(size, bias, reads_product);
        const Graph better = optimize(graph, pass_options(true));
        std::vector<Value> in = {range({2, 3, size, size}, -1, 0.01), range({4, 3, 3, 3}, -0.6, 0.01)};
        if (bias) in.push_back(range({4}, 0.1, 0.3));
        for (const double start : {0.5, 1.0, -0.4, 0.2}) in.push_back(range({4}, start, 0.25));
        CHECK(!has_op(better, "scale_shift"));
        CHECK(has_op(better, "conv_act") == (size == 12 && !reads_product));
        CHECK(difference(graph, better, in, 1e-5) == "");
      }
}

// The statistics of bfloat16 are float32.
TEST_CASE("bn_fold: weights of bfloat16 are scaled in float32 and rounded, and without a product nothing changes") {
  GraphSketch g;
  const auto narrow = [](Dims shape, double start) {
    Value v = make_array(Type{DType::kBFloat16, {}, shape});
    for (int64_t i = 0; i < v.numel(); ++i)
      store_number(DType::kBFloat16, static_cast<char*>(v.array().data()) + 2 * i, start + 0.01 * double(i));
    return v;
  };
  const Operand x = g.input("x", {2, 3, 12, 12}, DType::kBFloat16), w = g.input("w", {4, 3, 3, 3}, DType::kBFloat16);
  const Operand scale = g.input("scale", {4}), shift = g.input("shift", {4});
  const Operand product = g.op("conv2d", {x, w, Operand()});
  const Graph graph =
      g.done({g.op("relu", {g.op("scale_shift", {product, scale, shift, Operand()})}),
              g.op("scale_shift", {g.op("relu", {x}), g.input("s", {3}), g.input("t", {3}), Operand()})});
  const Graph better = optimize(graph, pass_options(true));
  CHECK(has_op(better, "conv_act"));
  CHECK(has_op(better, "scale_shift"));
  const std::vector<Value> in = {narrow({2, 3, 12, 12}, -1), narrow({4, 3, 3, 3}, -0.6), range({4}, 0.5, 0.25),
                                 range({4}, -0.4, 0.25),     range({3}, 1, 0.5),         range({3}, -1)};
  CHECK(difference(graph, better, in, 1.0 / 64) == "");
}

TEST_CASE("bn_fold: constant weights of any size are scaled before the run") {
  GraphSketch g;
  const Operand x = g.input("x", {1, 3, 3, 3});
  const Operand w = g.constant(range({4, 3, 3, 3}, -0.5, 0.01)), scale = g.constant(range({4}, 0.5)),
                shift = g.constant(range({4}, 1));
  const Graph graph = g.done({g.op("scale_shift", {g.op("conv2d", {x, w, Operand()}), scale, shift, Operand()})});
  const Graph better = optimize(graph, pass_options(true));
  CHECK(to_string(better) ==
        "%0 = input \"x\" : float32 1x3x3x3\n"
        "%1 = constant … : float32 4\n"
        "%2 = constant … : float32 4x3x3x3\n"
        "%3 = conv2d(%0, %2, %1) : float32 1x4x1x1\n"
        "return %3\n");
  const std::vector<Value> in = {range({1, 3, 3, 3}, -1, 0.1)};
  CHECK(difference(graph, better, in, 1e-5) == "");
}
