// Compares fused kernels with the same ops one by one: every op, dtype and kind of broadcast; aliasing, reductions,
// checks.
#include "fused_bodies.h"

using namespace pg;
using namespace pg::test;

namespace {

// Ops without a kernel are decomposed before fusion.
bool testable(const OpDef& op) { return op.has(kPointwise) && !op.infer && op.cpu_kernel.fn; }

// Applies `op` to inputs of `shapes` in dtype t. Returns false if the op rejects the dtype.
bool single_op_body(GraphMaker& g, const OpDef& op, DType t, std::span<const Dims> shapes, bool last_is_number) {
  SmallVector<Operand, 3> in;
  for (size_t k = 0; k < op.inputs.size(); ++k) {
    const uint16_t mask = op.inputs[k].dtypes;
    if (last_is_number && k > 0 && k + 1 == op.inputs.size()) {
      in.push_back(Operand::immediate(2));
      continue;
    }
    const DType own = mask == kBoolOnly ? DType::kBool : t;
    if (!accepts(mask, own)) return false;
    in.push_back(g.input(shapes[k % shapes.size()], own));
  }
  try {
    g.output(g.op_list(op.name, in));
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::vector<Value> inputs_of(std::mt19937& rng, const Graph& g, bool special) {
  std::vector<Value> out;
  for (int32_t i : g.inputs) out.push_back(random_value(rng, g.nodes[size_t(i)].types[0], special));
  return out;
}

constexpr DType kAll[] = {DType::kBool,    DType::kUInt8,    DType::kInt8,    DType::kInt32,  DType::kInt64,
                          DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64};

}  // namespace

TEST_CASE("fused: every pointwise op in every dtype returns the bits of the separate op") {
  std::mt19937 rng(7);
  int bodies = 0;
  for (const OpDef* op : registry().ops()) {
    if (!testable(*op)) continue;
    for (const DType t : kAll)
      for (const bool number : {false, true}) {
        if (number && op->inputs.size() < 2) continue;
        const std::vector<std::vector<Dims>> kinds = {
            {{}}, {{5}}, {{700}}, {{3, 5}, {5}, {3, 1}}, {{2, 300}, {2, 1}, {300}}};
        for (const auto& shapes : kinds) {
          if (t != DType::kFloat32 && shapes.size() == 1 && numel(shapes[0]) > 5 && op->name[0] != 'm') continue;
          GraphMaker g;
          if (!single_op_body(g, *op, t, shapes, number)) continue;
          const bool special = std::string_view(op->name) != "polygamma" && is_float(t);
          CAPTURE(op->name);
          REQUIRE(fusable(g.graph.nodes.back()));
          const auto inputs = inputs_of(rng, g.graph, special);
          Context ctx;
          try {
            run_eagerly(ctx, g.graph, inputs);
          } catch (const Error&) {  // a negative integer exponent
            continue;
          }
          check_body(g.graph, inputs);
          ++bodies;
        }
      }
  }
  CHECK(bodies > 1500);
}

TEST_CASE("fused: attributes reach the kernels") {
  std::mt19937 rng(8);
  GraphMaker g;
  const Operand x = g.input({1000});
  const Operand a = g.op("leaky_relu", {x}, {{"negative_slope", 0.3}});
  const Operand b = g.op("gelu", {a}, {{"approximate", std::string("tanh")}});
  const Operand c = g.op("softplus", {b}, {{"beta", 2.0}, {"threshold", 1.0}});
  const Operand d = g.op("elu", {c}, {{"alpha", 0.7}});
  g.output(g.op("hardtanh", {g.op("sub", {d, a})}, {{"min_val", -0.3}, {"max_val", 0.4}}));
  g.output(b);
  check_body(g.graph, inputs_of(rng, g.graph, true));
}

TEST_CASE("fused: a power may have one exponent for all elements") {
  std::mt19937 rng(9);
  for (const Dims& shape : {Dims{}, Dims{1}, Dims{600}})
    for (const double exponent : {2.0, 3.0, 0.5, -1.0, 1.5, 0.0}) {
      GraphMaker g;
      const Operand x = g.input(shape);
      g.output(g.op("add", {g.op("pow", {x, Operand::immediate(exponent)}), x}));
      check_body(g.graph, inputs_of(rng, g.graph, true));
    }
}

TEST_CASE("fused: pairs of arithmetic ops agree in every combination") {
  std::mt19937 rng(20);
  const char* ops[] = {"add", "sub", "mul"};
  for (const DType t : {DType::kFloat32, DType::kBFloat16})
    for (const char* first : ops)
      for (const char* second : ops)
        for (int kind = 0; kind < 16; ++kind) {
          GraphMaker g;
          const Operand x = g.input({203}, t), y = g.input({203}, t), z = g.input({kind & 1 ? 1 : 203}, t);
          const Operand half = Operand::immediate(0.3), e = g.op("exp", {x});
          const Operand one = g.op(first, {kind & 2 ? y : e, kind & 4 ? half : z});
          const Operand other = g.op(second, {z, y});
          g.output(kind & 8 ? g.op(second, {one, other}) : g.op(second, {other, one}));
          g.output(g.op(second, {e, one}));
          check_body(g.graph, inputs_of(rng, g.graph, true));
          g.graph.outputs.pop_back();
          check_body(g.graph, inputs_of(rng, g.graph, false));
        }
}

TEST_CASE("fused: conversions between all dtypes agree") {
  std::mt19937 rng(10);
  for (const DType from : kAll)
    for (const DType to : kAll) {
      GraphMaker g;
      const Operand x = g.input({3, 200}, from);
      const Operand y = g.op("to", {x}, {{"dtype", to}});
      g.output(y);
      g.output(g.op("eq", {y, g.op("to", {g.op("to", {y}, {{"dtype", DType::kFloat16}})}, {{"dtype", to}})}));
      check_body(g.graph, inputs_of(rng, g.graph, false));
    }
}

TEST_CASE("fused: clamp agrees with any bounds") {
  std::mt19937 rng(11);
  for (const DType t : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kFloat64})
    for (int kind = 0; kind < 9; ++kind) {
      GraphMaker g;
      const Operand x = g.input({40}, t), bound = g.input({40}, t);
      const Operand kinds[] = {Operand(), Operand::immediate(1), bound};
      g.output(g.op("clamp", {x, kinds[kind % 3], kinds[kind / 3]}));
      check_body(g.graph, inputs_of(rng, g.graph, true));
    }
}

TEST_CASE("fused: constants, scalars and columns are computed once") {
  std::mt19937 rng(12);
  for (const Dims& shape : {Dims{6, 300}, Dims{6, 7}, Dims{2, 3, 1, 270}, Dims{64, 64}}) {
    GraphMaker g;
    Dims column = shape;
    column[shape.size() - 1] = 1;
    const Operand x = g.input(shape), scale = g.input(column), shift = g.input({shape.back()}),
                  one = g.input({}, DType::kFloat16);
    const Operand table = g.constant(random_value(rng, Type{DType::kFloat32, {}, {shape.back()}}));
    const Operand k = g.constant(make_scalar(0.25, DType::kFloat32));
    const Operand root = g.op("rsqrt", {g.op("add", {g.op("square", {scale}), Operand::immediate(1e-3)})});
    const Operand factor = g.op("mul", {g.op("exp", {one}), k});
    const Operand y = g.op("add", {g.op("mul", {g.op("sub", {x, scale}), root}), g.op("mul", {shift, table})});
    g.output(g.op("mul", {g.op("tanh", {y}), factor}));
    g.output(factor);
    g.output(g.op("expand", {g.op("mul", {root, factor})}, {{"shape", Ints(shape.begin(), shape.end())}}));
    check_body(g.graph, inputs_of(rng, g.graph, false));
  }
}

TEST_CASE("fused: bodies may have no elements or one") {
  std::mt19937 rng(13);
  for (const Dims& shape : {Dims{0}, Dims{3, 0, 2}, Dims{}, Dims{1, 1}}) {
    GraphMaker g;
    const Operand x = g.input(shape), s = g.input(Dims{});
    const Operand y = g.op("mul", {g.op("add", {x, s}), Operand::immediate(3)});
    g.output(y);
    g.output(g.op("exp", {s}));
    g.output(x);
    check_body(g.graph, inputs_of(rng, g.graph, false));
    g.graph.outputs = {g.op("sum", {y}), Operand{2, 0, 0}};
    check_body(g.graph, inputs_of(rng, g.graph, false));
  }
}

TEST_CASE("fused: every step of a long chain of scalars may be an output") {
  std::mt19937 rng(14);
  GraphMaker g;
  const Operand x = g.input(Dims{}), w = g.input(Dims{});
  Operand y = x;
  for (int i = 0; i < 300; ++i) {
    y = g.op(i % 3 ? "mul" : "add", {y, i % 2 ? w : Operand::immediate(0.99)});
    if (i % 4 == 0) g.output(y);
  }
  g.output(y);
  check_body(g.graph, inputs_of(rng, g.graph, false));
}

TEST_CASE("fused: outputs may overwrite inputs") {
  std::mt19937 rng(15);
  for (const Dims& shape : {Dims{}, Dims{1000}, Dims{5, 300}}) {
    GraphMaker g;
    const Operand a = g.input(shape), b = g.input(shape), s = g.input(Dims{});
    const Operand sum = g.op("add", {a, b}), difference = g.op("sub", {a, b});
    g.output(sum);
    g.output(g.op("mul", {difference, s}));
    g.output(g.op("add", {s, Operand::immediate(1)}));
    const auto inputs = inputs_of(rng, g.graph, false);
    Context ctx;
    const Values expected = run_eagerly(ctx, g.graph, inputs);
    const auto kernel = FusedKernel::compile(g.graph);
    for (const bool crossed : {false, true}) {
      std::vector<Value> own;
      SmallVector<View, 4> in;
      for (const Value& v : inputs) own.push_back(run(ctx, "clone", {v}));
      for (const Value& v : own) in.push_back(view_of(v));
      const View out[] = {in[crossed ? 1 : 0], in[crossed ? 0 : 1], in[2]};
      kernel->run(in, out);
      require_same(g.graph, {own[crossed ? 1 : 0], own[crossed ? 0 : 1], own[2]}, expected, "in place");
    }
  }
}

TEST_CASE("fused: large outputs are stored past the caches") {
  std::mt19937 rng(16);
  GraphMaker g;
  const Dims shape{1031, 1024};
  const Operand x = g.input(shape), y = g.input(shape), row = g.input({1024});
  const Operand s = g.op("add", {g.op("mul", {x, y}), row});
  g.output(s);
  g.output(g.op("sub", {g.op("maximum", {s, y}), g.op("relu", {s})}));
  g.output(g.op("gt", {s, x}));
  check_body(g.graph, inputs_of(rng, g.graph, false));
}

TEST_CASE("fused: a body may end with a reduction") {
  std::mt19937 rng(17);
  struct Case {
    Dims shape;
    Ints dims;
  };
  const Case cases[] = {{{700}, {}},
                        {{3, 5}, {2}},
                        {{40, 300}, {2}},
                        {{5, 5000}, {2}},
                        {{2, 3, 4, 70}, {3, 4}},
                        {{300, 7}, {}},
                        {{2, 9000}, {}},
                        {{3, 400000}, {2}},
                        {{600000}, {1}},
                        {{4, 1, 5, 1}, {3}},
                        {{2, 1, 64, 64}, {3, 4}},
                        {{17, 300000}, {2}},
                        {{5, 1}, {2}},
                        {{1}, {}},
                        {{20, 2049}, {2}}};
  const char* ops[] = {"sum", "mean", "amax", "amin", "prod", "sum_squares", "count_nonzero", "any", "all"};
  for (const Case& c : cases)
    for (const char* op : ops)
      for (const DType t : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kBool}) {
        if (t != DType::kFloat32 && (numel(c.shape) > 20000 || std::string_view(op) == "sum_squares")) continue;
        if (numel(c.shape) > 100000 && std::string_view(op) != "sum" && std::string_view(op) != "amax") continue;
        GraphMaker g;
        const Operand x = g.input(c.shape, t), row = g.input({c.shape.back()}, t);
        try {
          const Operand y = t == DType::kBool ? g.op("logical_xor", {x, row})
                                              : g.op("mul", {g.op("add", {x, row}), Operand::immediate(0)});
          const Operand z = t == DType::kBool ? y : g.op("add", {y, x});
          const Operand total = g.op(op, {z}, {{"dim", c.dims}, {"keepdim", true}});
          REQUIRE(fusable_reduction(g.graph.nodes.back(), g.graph.type(z)));
          g.output(total);
          if (numel(c.shape) < 1000) g.output(z);
        } catch (const Error&) {  // the op does not support the dtype
          continue;
        }
        check_body(g.graph, inputs_of(rng, g.graph, true));
      }
}

TEST_CASE("fused: a body may end with several reductions of one length") {
  std::mt19937 rng(19);
  struct Case {
    Dims shape;
    Ints dims;
  };
  const Case cases[] = {{{3, 5}, {2}},   {{40, 300}, {2}},         {{5, 5000}, {2}},   {{2, 3, 4, 70}, {3, 4}},
                        {{300, 7}, {2}}, {{2, 9000}, {}},          {{3, 400000}, {2}}, {{600000}, {1}},
                        {{0, 4}, {2}},   {{2, 1, 64, 64}, {3, 4}}, {{20, 2049}, {2}},  {{17, 300000}, {2}}};
  for (const Case& c : cases) {
    GraphMaker g;
    const Operand x = g.input(c.shape), row = g.input({c.shape.back()});
    const Operand y = g.op("mul", {g.op("add", {x, row}), x});
    const auto reduce = [&](const char* op, const Operand& of) {
      g.output(g.op(op, {of}, {{"dim", c.dims}, {"keepdim", true}}));
    };
    reduce("sum", y);
    reduce("sum_squares", x);  // of an input
    g.output(g.op("exp", {y}));
    reduce("amax", y);
    reduce("any", g.op("gt", {x, row}));
    check_body(g.graph, inputs_of(rng, g.graph, true));
  }
}

TEST_CASE("fused: sums of long rows are added up as their elements are computed") {
  std::mt19937 rng(20);
  // The rests of 4096 elements: a few, vectors of the machine and a few, one less than a block.
  const Dims shapes[] = {{3, 2049}, {2, 4101}, {3, 4115}, {5, 4519}, {2, 8191}, {1, 600017}};
  for (const Dims& shape : shapes)
    for (const DType t : {DType::kFloat32, DType::kBFloat16, DType::kInt32})
      for (const bool special : {false, true}) {
        GraphMaker g;
        const Operand x = g.input(shape, t), y = g.input(shape, t);
        const Operand sum = g.op("add", {x, y}), product = g.op("mul", {sum, x});
        const auto reduce = [&](const char* op, const Operand& of) { g.output(g.op(op, {of}, {{"dim", Ints{2}}})); };
        reduce("sum", product);
        g.output(product);
        if (t == DType::kFloat32) reduce("sum_squares", sum);
        if (t != DType::kInt32) reduce("mean", x);
        reduce("sum", sum);
        check_body(g.graph, inputs_of(rng, g.graph, special));
      }
}

TEST_CASE("fused: sum_to is a reduction when it takes trailing dims") {
  std::mt19937 rng(18);
  GraphMaker g;
  const Operand x = g.input({6, 70});
  const Operand y = g.op("exp", {x});
  g.output(g.op("sum_to", {y}, {{"shape", Ints{6, 1}}}));
  REQUIRE(fusable_reduction(g.graph.nodes.back(), g.graph.type(y)));
  check_body(g.graph, inputs_of(rng, g.graph, false));
  GraphMaker h;
  const Operand z = h.input({6, 70});
  h.op("sum_to", {z}, {{"shape", Ints{70}}});
  CHECK_FALSE(fusable_reduction(h.graph.nodes.back(), h.graph.type(z)));
}

TEST_CASE("fused: integer division is checked before anything is written") {
  GraphMaker g;
  const Operand x = g.input({4}, DType::kInt32), y = g.input({4}, DType::kInt32);
  const Operand z = g.op("sub", {y, Operand::immediate(1)});
  g.output(g.op("add", {x, y}));
  g.output(g.op("floor_divide", {x, z}));
  g.output(g.op("remainder", {x, y}));
  const auto kernel = FusedKernel::compile(g.graph);
  const Value a = array({7, -7, 5, 9}, DType::kInt32), good = array({3, 4, 2, -5}, DType::kInt32);
  const Value inputs[] = {a, good};
  Context ctx;
  require_same(g.graph, run_fused(*kernel, g.graph, inputs), run_eagerly(ctx, g.graph, inputs), "good");
  const auto text = [&](const Value& divisor) {
    const Value out = array({-9, -9, -9, -9}, DType::kInt32);
    const View in[] = {view_of(a), view_of(divisor)}, to[] = {view_of(out), view_of(out), view_of(out)};
    const std::string error = error_text([&] { kernel->run(in, to); });
    CHECK(numbers(out) == Numbers{-9, -9, -9, -9});
    return error;
  };
  CHECK(text(array({3, 4, 1, 2}, DType::kInt32)) ==
        "floor_divide: bad argument 'y' (expected an integer divisor other than zero, got 0 at element 3)");
  CHECK(text(array({3, 0, 5, 2}, DType::kInt32)) ==
        "remainder: bad argument 'y' (expected an integer divisor other than zero, got 0 at element 2)");
}

TEST_CASE("fused: bodies that break the rules are refused") {
  const auto refusal = [](auto make) {
    GraphMaker g;
    make(g);
    return error_text([&] { FusedKernel::compile(g.graph); });
  };
  CHECK(refusal([](GraphMaker& g) {
          g.output(g.op("matmul", {g.input({2, 2}), g.input({2, 2})}));
        }) == "fused: node 2 (matmul): neither pointwise nor a reduction of trailing dims");
  CHECK(refusal([](GraphMaker& g) {
          g.output(g.op("exp", {g.op("sum", {g.input({2, 2})})}));
        }) == "fused: node 2 (exp): operand 1 is not the result of an earlier pointwise node");
  CHECK(refusal([](GraphMaker& g) {
          const Operand x = g.input({4, 3}), y = g.op("exp", {g.input({3})});
          g.output(g.op("add", {x, y}));
          g.output(y);
        }) == "fused: node 2 (exp): an output of less than the whole space");
  CHECK(refusal([](GraphMaker& g) {
          const Operand x = g.input({4, 3});
          g.output(g.op("sum", {x}));
          g.output(g.op("amax", {x}, {{"dim", Ints{2}}}));
        }) == "fused: node 2 (amax): reduces rows of another length than the reduction before it");
  CHECK(refusal([](GraphMaker& g) {
          const Operand x = g.input({4, 3});
          for (const char* op : {"sum", "amax", "amin", "mean", "prod"}) g.output(g.op(op, {x}));
        }) == "fused: more than 4 reductions");
}
