// The pass `layout`, and the ops on images (N, spatial..., C) that it creates.
#include <random>

#include "graph/passes/passes.h"
#include "tensor/cpu/isa.h"
#include "tensor/ops/conv_rules.h"
#include "tensor/runtime.h"
#include "tests/graph/loop_graphs.h"
#include "tests/graph/pass_graphs.h"

namespace pg::test {
namespace {

bool library_has_kernels() { return cpu::isa() >= cpu::Isa::kAvx512; }

Value random_array(const Dims& shape, std::mt19937& random, DType dtype = DType::kFloat32) {
  Value v = make_array(Type{dtype, {}, shape});
  for (int64_t i = 0; i < v.numel(); ++i)
    store_number(dtype, static_cast<char*>(v.array().data()) + i * size_of(dtype), double(random() % 2001) / 1000 - 1);
  return v;
}

int count_op(const Graph& graph, const char* name) {
  return int(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                           [&](const Node& n) { return n.op == &registry().require(name); }));
}

std::vector<Value> inputs_of(const Graph& graph, std::mt19937& random) {
  std::vector<Value> in;
  for (int32_t i : graph.inputs) in.push_back(random_array(graph.nodes[size_t(i)].types[0].shape, random));
  return in;
}

// Convolutions with 2 or 3 spatial dims, and what belongs to a chain or ends it, in a random order.
class RandomChain {
 public:
  RandomChain(uint32_t seed, int dims) : random_(seed), dims_(dims) {}

  Graph build() {
    Dims shape{pick(1, 3), 16};
    for (int d = 0; d < dims_; ++d) shape.push_back(dims_ == 2 ? pick(22, 30) : pick(9, 12));
    values_.push_back(sketch_.input("x", shape));
    for (int i = 0; i < 12; ++i) step();
    sketch_.graph.outputs = {values_.back(), values_[size_t(pick(0, int64_t(values_.size()) - 1))]};
    verify(sketch_.graph);
    return sketch_.graph;
  }

 private:
  int64_t pick(int64_t low, int64_t high) { return low + int64_t(random_() % uint32_t(high - low + 1)); }
  const Dims& shape(const Operand& x) const { return sketch_.graph.type(x).shape; }
  Operand weights(const Dims& dims) {
    return sketch_.input(fmt::format("w{}", sketch_.graph.nodes.size()).c_str(), dims);
  }

  Operand convolution(const Operand& x) {
    const int64_t channels = shape(x)[1], groups = pick(0, 3) ? 1 : channels % 32 == 0 && pick(0, 1) ? 2 : channels;
    Dims w{groups == 1 ? 16 * pick(1, 3) : channels, channels / groups};
    Ints stride, padding, dilation;
    for (int d = 0; d < dims_; ++d) {
      w.push_back(pick(1, 3));
      stride.push_back(pick(1, 4) == 1 ? 2 : 1), padding.push_back(pick(0, 2)),
          dilation.push_back(pick(1, 5) == 1 ? 2 : 1);
    }
    const Operand bias = pick(0, 1) ? weights({w[0]}) : Operand();
    return sketch_.op(dims_ == 2 ? "conv2d" : "conv3d", {x, weights(w), bias},
                      {{"stride", stride}, {"padding", padding}, {"dilation", dilation}, {"groups", groups}});
  }

  Operand next(const Operand& x) {
    const Ints window(size_t(dims_), 2), step(size_t(dims_), pick(1, 2));
    Dims column(dims_ + 1, 1);
    column[0] = shape(x)[1];
    Ints positions;
    for (int d = 3; d <= dims_ + 2; ++d) positions.push_back(d);
    switch (pick(0, 10)) {
      case 0:
        return sketch_.op("relu", {x});
      case 1:
        return sketch_.op("silu", {x});
      case 2:
        return sketch_.op("mul", {x, weights(column)});
      case 3:
        return sketch_.op("add", {x, 0.5});
      case 4:
        return sketch_.op("max_pool", {x}, {{"kernel_size", window}, {"stride", step}});
      case 5:
        return sketch_.op(dims_ == 2 ? "avg_pool2d" : "avg_pool3d", {x},
                          {{"kernel_size", window},
                           {"stride", step},
                           {"padding", Ints(size_t(dims_), 1)},
                           {"count_include_pad", false}});
      case 6:
        return sketch_.op("mul", {x, sketch_.op("mean", {x}, {{"dim", positions}, {"keepdim", true}})});
      case 7:
        return sketch_.op("flip", {x}, {{"dims", Ints{3}}});
      default:
        return convolution(x);
    }
  }

  void step() {
    const Operand x = values_[values_.size() - 1 - size_t(pick(0, std::min<int64_t>(1, int64_t(values_.size()) - 1)))];
    try {
      values_.push_back(next(x));
    } catch (const Error&) {  // no room for a window
    }
    const Operand y = values_.back();
    if (!(x == y) && shape(x) == shape(y) && pick(0, 1)) values_.push_back(sketch_.op("add", {x, y}));
    if (!(x == y) && shape(x)[1] != shape(y)[1] && pick(0, 1)) join(x, y);
  }
  void join(const Operand& x, const Operand& y) {
    try {
      values_.push_back(sketch_.op("cat", {x, y}, {{"dim", int64_t(2)}}));
    } catch (const Error&) {  // other sizes
    }
  }

  std::mt19937 random_;
  int dims_;
  GraphSketch sketch_;
  std::vector<Operand> values_;
};

}  // namespace

TEST_CASE("layout: a chain reorders its image once and keeps its outputs row-major") {
  if (!library_has_kernels()) return;
  GraphSketch g;
  const Operand x = g.input("x", {1, 16, 40, 40}), w = g.input("w", {32, 16, 3, 3}), b = g.input("b", {32}),
                v = g.input("v", {32, 32, 3, 3}), c = g.input("c", {32, 1, 1});
  const Operand first = g.op("relu", {g.op("conv2d", {x, w, b}, {{"padding", Ints{1}}})});
  const Operand pooled = g.op("max_pool", {first}, {{"kernel_size", Ints{2, 2}}});
  const Operand second = g.op("mul", {g.op("conv2d", {pooled, v, Operand()}, {{"padding", Ints{1}}}), c});
  const Graph graph = g.done({g.op("add", {second, pooled})});
  CHECK(to_string(optimize(graph, pass_options(true, {"fuse"}))) ==
        "%0 = input \"x\" : float32 1x16x40x40\n"
        "%1 = input \"w\" : float32 32x16x3x3\n"
        "%2 = input \"b\" : float32 32\n"
        "%3 = input \"v\" : float32 32x32x3x3\n"
        "%4 = input \"c\" : float32 32x1x1\n"
        "%5 = permute(%0) {dims = {1, 3, 4, 2}} : float32 1x40x40x16\n"
        "%6 = contiguous(%5) : float32 1x40x40x16\n"
        "%7 = conv_act_last(%6, %1, %2) {padding = {1}} : float32 1x40x40x32\n"
        "%8 = max_pool_last(%7) {kernel_size = {2, 2}} : float32 1x20x20x32, int32 1x20x20x32\n"
        "%9 = conv_last(%8:1, %3, nil) {padding = {1}} : float32 1x20x20x32\n"
        "%10 = reshape_to(%4) {shape = {32}} : float32 32\n"
        "%11 = mul(%9, %10) : float32 1x20x20x32\n"
        "%12 = add(%11, %8:1) : float32 1x20x20x32\n"
        "%13 = permute(%12) {dims = {1, 4, 2, 3}} : float32 1x32x20x20\n"
        "%14 = contiguous(%13) : float32 1x32x20x20\n"
        "return %14\n");
}

TEST_CASE("layout: small convolutions, other dtypes and single images keep their form") {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
    GraphSketch g;
    const int64_t size = dtype == DType::kFloat32 ? 6 : 40;
    const Operand x = g.input("x", {1, 16, size, size}, dtype), w = g.input("w", {32, 16, 3, 3}, dtype);
    const Operand single = g.input("single", {16, 60, 60});
    const Graph graph =
        g.done({g.op("conv2d", {x, w, Operand()}), g.op("conv2d", {single, g.input("v", {32, 16, 3, 3}), Operand()})});
    CHECK(same_graph(choose_layouts(graph), graph));
  }
}

TEST_CASE("layout: programs with gradients of weights keep their form") {
  GraphSketch g;
  const Operand x = g.input("x", {1, 16, 40, 40}), w = g.input("w", {32, 16, 3, 3});
  const Operand y = g.op("conv2d", {x, w, Operand()});
  const Operand dw = g.op("conv_by_weight", {x, g.op("mul", {y, 2.0})}, {{"size", Ints{3, 3}}});
  const Graph graph = g.done({y, dw});
  CHECK(same_graph(choose_layouts(graph), graph));
}

TEST_CASE("layout: images whose outer dims collapse, NaN, and images without a batch") {
  struct Row {
    Dims x, w;
  };
  std::mt19937 random(5);
  for (const Row& row : {Row{{1, 32, 3, 2000}, {32, 32, 3, 3}}, Row{{3, 32, 3, 700}, {32, 32, 3, 3}},
                         Row{{1, 32, 3, 20, 20}, {32, 32, 3, 3, 3}}, Row{{1, 64, 3, 1600}, {64, 64, 1, 3}},
                         Row{{1, 64, 3, 40, 40}, {64, 64, 1, 3, 3}}, Row{{1, 64, 2000}, {64, 64, 3}}}) {
    GraphSketch g;
    const char* op = row.x.size() == 3 ? "conv1d" : row.x.size() == 4 ? "conv2d" : "conv3d";
    const Graph graph = g.done({g.op("relu", {g.op(op, {g.input("x", row.x), g.input("w", row.w), Operand()})})});
    const Graph better = optimize(graph, pass_options(true));
    std::vector<Value> in = inputs_of(graph, random);
    store_number(DType::kFloat32, static_cast<char*>(in[0].array().data()) + 4 * (in[0].numel() / 2), NAN);
    const Value expected = evaluate_graph(graph, in)[0];
    CAPTURE(to_string(row.x));
    for (const int threads : {1, 2, 5}) {
      const int before = Runtime::current().threads().size();
      Runtime::current().threads().resize(threads);
      CHECK(difference(expected, run_plan(better, in)[0], 1e-3) == "");
      Runtime::current().threads().resize(before);
    }
    if (!library_has_kernels()) continue;
    const auto plan = make_plan(better);
    CHECK(std::count_if(plan->steps.begin(), plan->steps.end(), [](const Step& s) { return s.prepared; }) == 1);
  }
  const auto check_strips = [&](const char* op, const Dims& x, const Dims& w, const AttrList& attrs) {
    CAPTURE(op);
    GraphSketch g;
    const Graph graph = g.done({g.op(op, {g.input("x", x), g.input("w", w), Operand()}, attrs)});
    const Graph better = optimize(graph, pass_options(true));
    const std::vector<Value> in = inputs_of(graph, random);
    CHECK(difference(evaluate_graph(graph, in)[0], run_plan(better, in)[0], 1e-4) == "");
    const auto plan = make_plan(better);
    if (library_has_kernels())
      CHECK(std::count_if(plan->steps.begin(), plan->steps.end(), [](const Step& s) { return s.prepared; }) == 1);
  };
  // Strips of two sizes, whose weights the library packs differently; strips at the border that would read only
  // padding.
  check_strips("conv3d", {3, 48, 4, 12, 13}, {48, 48, 3, 3, 3},
               {{"stride", Ints{2, 1, 2}}, {"padding", Ints{2, 1, 0}}});
  check_strips("conv2d", {1, 64, 4, 400}, {64, 64, 1, 1}, {{"padding", Ints{3, 0}}});
  GraphSketch g;  // the result of a conv1d, read as an image without a batch
  const Operand y = g.op("conv1d", {g.input("x", {2, 64, 500}), g.input("w", {64, 64, 3}), Operand()});
  const Graph graph = g.done(
      {g.op("avg_pool2d", {y}, {{"kernel_size", Ints{2}}}), g.op("max_pool", {y}, {{"kernel_size", Ints{2, 2}}})});
  const std::vector<Value> in = inputs_of(graph, random);
  CHECK(difference(evaluate_graph(graph, in)[0], run_plan(optimize(graph, pass_options(true)), in)[0], 1e-4) == "");
}

TEST_CASE("layout: random chains return the same up to rounding, on any number of threads") {
  const uint32_t base = std::random_device()();
  MESSAGE("seed " << base);
  int converted = 0;
  for (uint32_t seed = base; seed < base + 60; ++seed) {
    CAPTURE(seed);
    const Graph graph = RandomChain(seed, seed % 4 == 0 ? 3 : 2).build();
    const Graph better = optimize(graph, pass_options(true));
    converted += count_op(better, "conv_last") + count_op(better, "conv_act_last");
    const auto plan = make_plan(better);
    for (const Step& step : plan->steps)
      if (library_has_kernels() && step.op && std::string_view(step.op->name).ends_with("_last") &&
          std::string_view(step.op->name).starts_with("conv"))
        CHECK(step.prepared);
    std::mt19937 random(seed);
    const std::vector<Value> in = inputs_of(graph, random);
    const std::vector<Value> expected = evaluate_graph(graph, in);
    std::vector<Value> first;
    for (const int threads : {1, 2, 3, 7}) {
      const int before = Runtime::current().threads().size();
      Runtime::current().threads().resize(threads);
      const std::vector<Value> got = run_plan(better, in);
      Runtime::current().threads().resize(before);
      REQUIRE(got.size() == expected.size());
      if (first.empty()) first = got;
      for (size_t k = 0; k < got.size(); ++k) CHECK(difference(first[k], got[k]) == "");
      for (size_t k = 0; k < got.size(); ++k) {
        double largest = 1;
        for (double v : numbers(expected[k])) largest = std::max(largest, std::fabs(v));
        CHECK(difference(expected[k], got[k], 1e-5 * largest) == "");
      }
    }
  }
  if (library_has_kernels()) CHECK(converted > 0);
}

TEST_CASE("ops with the channels last compute what their plain forms compute") {
  Context ctx;
  std::mt19937 random(3);
  const auto plain_of = [&](const char* op, const Value& x, std::vector<Value> rest, const Attrs& attrs) {
    const Ints first = x.rank() == 4 ? Ints{1, 4, 2, 3} : Ints{1, 5, 2, 3, 4},
               last = x.rank() == 4 ? Ints{1, 3, 4, 2} : Ints{1, 3, 4, 5, 2};
    rest.insert(rest.begin(), to_contiguous(ctx, run(ctx, "permute", {x}, {{"dims", first}})));
    const Value y = apply(ctx, registry().require(op), rest, attrs)[0].detached();
    return to_contiguous(ctx, run(ctx, "permute", {y}, {{"dims", last}}));
  };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    const Value image = random_array({2, 9, 7, 6}, random, dtype),
                volume = random_array({1, 4, 5, 3, 2}, random, dtype);
    const auto check = [&](const char* op, const char* plain, const Value& x, std::vector<Value> rest, AttrList given) {
      CAPTURE(op);
      const Attrs attrs = make_attrs(registry().require(op), given);
      const Value expected = plain_of(plain, x, rest, attrs);
      rest.insert(rest.begin(), x);
      CHECK(difference(apply(ctx, registry().require(op), rest, attrs)[0].detached(), expected, 1e-6) == "");
    };
    const Value w = random_array({4, 3, 3, 2}, random, dtype), b = random_array({4}, random, dtype);
    check("conv_last", "conv2d", image, {w, b}, {{"stride", Ints{2, 1}}, {"padding", Ints{1}}, {"groups", int64_t(2)}});
    check("conv_act_last", "conv_act", image, {w, Value()},
          {{"groups", int64_t(2)}, {"activation", std::string("silu")}});
    check("conv_last", "conv3d", volume, {random_array({3, 2, 2, 2, 1}, random, dtype), Value()},
          {{"dilation", Ints{2, 1, 1}}});
    check("max_pool_last", "max_pool", image, {},
          {{"kernel_size", Ints{3, 2}}, {"stride", Ints{2}}, {"padding", Ints{1, 0}}});
    check("max_pool_last", "max_pool", volume, {}, {{"kernel_size", Ints{2, 2, 2}}, {"ceil_mode", true}});
    const auto reordered = [&](const Value& x, Ints order) {
      return to_contiguous(ctx, run(ctx, "permute", {x}, {{"dims", order}}));
    };
    const auto pooled = [&](const char* op, const Value& x) {
      const OpDef& pool = registry().require(op);
      std::vector<Value> inputs = {x};
      return apply(ctx, pool, inputs,
                   make_attrs(pool, {{"kernel_size", Ints{3, 3}}, {"stride", Ints{2}}, {"padding", Ints{1}}}));
    };
    const Values plain = pooled("max_pool", reordered(image, {1, 4, 2, 3})), last = pooled("max_pool_last", image);
    CHECK(difference(reordered(last[1], {1, 4, 2, 3}), plain[1].detached()) == "");
    const Value dx = run(ctx, "max_pool_backward", {plain[0], plain[1]}, {{"size", Ints{9, 7}}}),
                last_dx = run(ctx, "max_pool_backward_last", {last[0], last[1]}, {{"size", Ints{9, 7}}});
    CHECK(difference(reordered(last_dx, {1, 4, 2, 3}), dx, 1e-6) == "");
    check("avg_pool_last", "avg_pool2d", image, {},
          {{"kernel_size", Ints{3}}, {"padding", Ints{1}}, {"count_include_pad", false}});
    check("avg_pool_last", "avg_pool3d", volume, {}, {{"kernel_size", Ints{2}}, {"divisor_override", int64_t(3)}});
  }
  Value nan = random_array({1, 4, 4, 19}, random);
  store_number(DType::kFloat32, static_cast<char*>(nan.array().data()) + 4 * 40, NAN);
  CHECK(difference(run(ctx, "max_pool_last", {nan}, {{"kernel_size", Ints{2, 2}}}),
                   plain_of("max_pool", nan, {},
                            make_attrs(registry().require("max_pool"), {{"kernel_size", Ints{2, 2}}}))) == "");
}

}  // namespace pg::test
