// Runs every op that has a trait or row function that graph passes rely on (tensor/op.h), and checks its contract.
#include <cstdlib>
#include <cstring>
#include <set>

#include "tensor/tile.h"
#include "tests/tensor/rows.h"

namespace pg::test {

TEST_CASE("traits: ops that cannot fail accept every element") {
  const auto wanted = [](const OpDef& op) {
    return !op.has(kRandom) && (cannot_fail(op, DType::kFloat32) || cannot_fail(op, DType::kInt32));
  };
  const size_t step = std::getenv("PERIGEE_SANITIZED") ? 12 : 4;
  each_op(wanted, [&](const OpDef* op) {
    size_t ran = 0;
    const auto run = [&](std::vector<Value> inputs) {
      Context ctx;
      SmallVector<Type, 2> types;
      const Attrs attrs = some_attrs(*op, {2});
      try {
        infer_types(*op, inputs, attrs, types);
      } catch (const Error&) {
        return;
      }
      if (types.empty() || !cannot_fail(*op, types[0].dtype)) return;
      ++ran;
      const std::string error = error_text([&] { apply(ctx, *op, inputs, attrs); });
      EXPECT(error.empty(), "refuses elements: ", error);
    };
    for (int t = 0; t < kDTypeCount; ++t) {
      const auto dtype = [&](const InputDef& input) {
        return accepts(input.dtypes, DType(t)) ? DType(t) : dtypes_of(input)[0];
      };
      if (op->has(kPointwise) && op->inputs.size() == 2)
        run({pairs(dtype(op->inputs[0]), false), pairs(dtype(op->inputs[1]), true)});
      const auto run_shapes = [&](const std::vector<Dims>& shapes) {
        for (size_t phase = 0; phase < 20; phase += step) {
          std::vector<Value> inputs;
          for (size_t k = 0; k < shapes.size(); ++k)
            inputs.push_back(edge_tensor(dtype(op->inputs[k]), shapes[k], phase * (k + 1)));
          const size_t before = ran;
          run(inputs);
          if (ran == before) return;  // refused for its types
        }
      };
      each_shapes(op->inputs.size(), run_shapes);
      if (ran == 0) each_shapes(op->inputs.size(), run_shapes, true);
    }
    EXPECT((ran > 0 || op->view), "no call that its types allow");
  });
}

TEST_CASE("traits: fused kernels check the operands of exactly the ops that refuse integers") {
  for (const OpDef* op : registry().ops()) EXPECT(op->has(kRefuses) == tile_checks(*op), "kRefuses");
}

TEST_CASE("traits: commutative ops return the same bits in either order") {
  each_op([](const OpDef& op) { return op.has(kCommutative); },
          [](const OpDef* op) {
            size_t ran = 0;
            for (DType t : dtypes_of(op->inputs[0])) {
              const auto a = result(*op, {pairs(t, false), pairs(t, true)}),
                         b = result(*op, {pairs(t, true), pairs(t, false)});
              if (!a) continue;
              ++ran;
              EXPECT(bits(*a) == bits(*b), name_of(t));
            }
            EXPECT(ran > 0, "no dtype is taken");
          });
}

TEST_CASE("traits: idempotent ops and involutions hold when applied twice") {
  const auto wanted = [](const OpDef& op) { return op.has(kIdempotent) || op.has(kInvolution); };
  each_op(wanted, [](const OpDef* op) {
    size_t ran = 0;
    for (DType t : dtypes_of(op->inputs[0])) {
      const Value x = pairs(t, false);
      const auto y = result(*op, {x});
      if (!y || y->dtype() != t) continue;
      const auto z = result(*op, {*y});
      ++ran;
      EXPECT(bits(*z) == bits(op->has(kIdempotent) ? *y : x), name_of(t));
    }
    EXPECT(ran > 0, "no dtype is taken");
  });
}

TEST_CASE("rows: pointwise ops return the same bits for a number as for a tensor of it") {
  const auto wanted = [](const OpDef& op) { return op.has(kPointwise) && op.inputs.size() == 2; };
  each_op(wanted, [](const OpDef* op) {
    for (DType t : dtypes_of(op->inputs[1])) {
      if (!accepts(op->inputs[0].dtypes, t)) continue;
      for (double e : edges(t)) {
        const Value x = pairs(t, false), one = make_scalar(e, t);
        const Value all = tensor(t, x.shape(), [&](int64_t) { return e; });
        if (!cannot_fail(*op, t) && is_integer(t) && e <= 0) continue;
        const auto a = result(*op, {x, one}), b = result(*op, {x, all});
        if (a) EXPECT(bits(*a) == bits(*b), name_of(t), " and ", e);
      }
    }
  });
}

TEST_CASE("traits: row-wise ops commute with stacking") {
  each_op([](const OpDef& op) { return op.has(kRowwise); },
          [](const OpDef* op) {
            EXPECT(op->inputs.size() == 1, "more than one input");
            EXPECT(!op->has(kPointwise), "pointwise ops need no trait");
            size_t ran = 0;
            constexpr int64_t kRows = 3;
            for (DType t : dtypes_of(op->inputs[0]))
              for (const Dims& row :
                   {Dims{1}, Dims{7}, Dims{1030}, Dims{5, 3}, Dims{130, 7}, Dims{7, 130}, Dims{2, 3, 40}}) {
                Dims whole{kRows};
                for (int64_t size : row) whole.push_back(size);
                for (const Value& x : {mixed(t, whole), edge_tensor(t, whole, 0)})
                  for (int d = -1; d < row.size(); ++d) {  // the dims that attributes name; first without any
                    Attrs attrs = some_attrs(*op, {});
                    for (size_t i = 0; i < op->attrs.size(); ++i) {
                      if (op->attrs[i].kind == AttrKind::kDim) attrs[i] = int64_t(std::max(d, 0) + 1);
                      if (op->attrs[i].kind == AttrKind::kDims && d >= 0) attrs[i] = Ints{d - row.size()};
                    }
                    Attrs over = attrs;
                    if (!over_rows(*op, row.size(), over)) continue;
                    const auto all = result(*op, {x}, over);
                    Context ctx;
                    std::string rows;
                    for (int64_t r = 1; r <= kRows; ++r) {
                      const Value one = run(ctx, "select", {x}, {{"dim", int64_t(1)}, {"index", r}});
                      if (const auto y = result(*op, {one}, attrs)) rows += bits(*y);
                    }
                    EXPECT((all ? bits(*all) : "") == rows, name_of(t), " ", to_string(row), ", dim ", d + 1);
                    ran += bool(all);
                  }
              }
            EXPECT(ran > 0, "no call that its types allow");
          });
}

TEST_CASE("traits: reshapes keep the order of the elements") {
  each_op([](const OpDef& op) { return op.has(kReshape); },
          [](const OpDef* op) {
            const Value x = mixed(DType::kFloat32, {2, 1, 3});
            std::vector<Value> inputs{x};
            if (op->inputs.size() == 2) inputs.push_back(mixed(DType::kFloat32, {6}));
            const auto y = result(*op, inputs, some_attrs(*op, {6}));
            REQUIRE(y);
            EXPECT(bits(*y) == bits(x), "elements moved");
            EXPECT(!(y->shape() == x.shape()), "the same shape");
          });
}

TEST_CASE("traits: expansions are the broadcast input") {
  each_op([](const OpDef& op) { return op.has(kExpand); },
          [](const OpDef* op) {
            const Value x = mixed(DType::kFloat32, {2, 1, 3});
            std::vector<Value> inputs{x};
            if (op->inputs.size() == 2) inputs.push_back(mixed(DType::kFloat32, {5, 2, 4, 3}));
            const auto y = result(*op, inputs, some_attrs(*op, {5, 2, 4, 3}));
            REQUIRE(y);
            EXPECT(y->array().data() == x.array().data(), "no view");
            const Dims strides = broadcast_strides(x.shape(), x.array().strides, y->shape());
            for (int d = 0; d < y->rank(); ++d)
              EXPECT((y->shape()[d] == 1 || y->array().strides[d] == strides[d]), "other elements along dim ", d + 1);
          });
}

TEST_CASE("traits: permutations only reorder the dims of the input") {
  each_op([](const OpDef& op) { return op.has(kPermute); },
          [](const OpDef* op) {
            std::optional<Value> y;
            const Value matrix = mixed(DType::kFloat32, {2, 3}), cube = mixed(DType::kFloat32, {2, 3, 4});
            for (const Value& x : {matrix, cube}) {
              Attrs attrs = some_attrs(*op, x.rank() == 2 ? Ints{2, 1} : Ints{3, 1, 2});
              if (op->attr_index("dim1") >= 0) attrs[size_t(op->attr_index("dim1"))] = int64_t(2);
              if (op->attr_index("destination") >= 0) {
                attrs[size_t(op->attr_index("source"))] = Ints{1};
                attrs[size_t(op->attr_index("destination"))] = Ints{2};
              }
              const auto z = result(*op, {x}, attrs);
              if (!z) continue;
              y = z;
              std::multiset<std::pair<int64_t, int64_t>> before, after;
              for (int d = 0; d < x.rank(); ++d) {
                before.emplace(x.shape()[d], x.array().strides[d]);
                after.emplace(z->shape()[d], z->array().strides[d]);
              }
              EXPECT(z->array().data() == x.array().data(), "no view");
              EXPECT(before == after, "other dims");
            }
            EXPECT((y && !y->array().contiguous), "nothing moved");
          });
}

TEST_CASE("rows: fills return the number that their row gives") {
  each_op([](const OpDef& op) { return op.fill != nullptr; },
          [](const OpDef* op) {
            for (int t = 0; t < kDTypeCount; ++t) {
              Attrs attrs = some_attrs(*op, {2, 3});
              attrs[size_t(op->attr_index("dtype"))] = DType(t);
              std::vector<Value> inputs;
              if (!op->inputs.empty()) inputs.push_back(mixed(DType::kFloat32, {2, 3}));
              const auto y = result(*op, inputs, attrs);
              REQUIRE(y);
              const double number = op->fill(AttrReader(*op, attrs));
              EXPECT(bits(*y) == bits(tensor(DType(t), {2, 3}, [&](int64_t) { return number; })), name_of(DType(t)));
            }
            EXPECT(!op->has(kUnset), "a fill that is not set");
          });
}

TEST_CASE("traits: picks read each position independently") {
  each_op([](const OpDef& op) { return op.has(kPick); },
          [](const OpDef* op) {
            const size_t index = op->inputs[0].dtypes == kIntegral ? 0 : 1;
            EXPECT(op->inputs[index].dtypes == kIntegral, "no index");
            EXPECT(op->inputs[1 - index].dtypes != kIntegral, "no table");
            const Value table = mixed(DType::kFloat32, {5, 3});
            const auto read = [&](const Dims& shape, int64_t from) {
              std::vector<Value> inputs(2);
              inputs[1 - index] = table;
              inputs[index] = tensor(DType::kInt64, shape, [&](int64_t i) { return double((i + from) * 7 % 5 + 1); });
              return *result(*op, inputs);
            };
            const Value all = read({2, 2}, 0);
            std::string rows, single;
            for (int64_t i = 0; i < 4; ++i) rows += bits(read({1}, i)), single += bits(read({}, i));
            EXPECT(bits(all) == rows, "positions in a list");
            EXPECT(bits(all) == single, "single positions");
            EXPECT((all.shape()[0] == 2 && all.shape()[1] == 2), "the shape of the index is not in front");
          });
}

TEST_CASE("traits: products agree with matmul") {
  each_op([](const OpDef& op) { return op.has(kProduct); },
          [](const OpDef* op) {
            size_t ran = 0;
            each_shapes(2, [&](const std::vector<Dims>& shapes) {
              const Value x = mixed(DType::kFloat32, shapes[0]), y = mixed(DType::kFloat32, shapes[1]);
              const auto z = result(*op, {x, y});
              if (!z) return;
              const auto product = result(registry().require("matmul"), {x, y});
              REQUIRE(product);
              EXPECT(z->shape() == product->shape(), "another shape");
              EXPECT(bits(*z) == bits(*product), "other bits");
              ++ran;
            });
            EXPECT(ran > 0, "no call that its types allow");
          });
}

TEST_CASE("traits: factors of channels can be moved into weight and bias") {
  const double factors[] = {2, 0.25, -1, 8};  // exact
  each_op([](const OpDef& op) { return op.has(kChannels); },
          [&](const OpDef* op) {
            size_t ran = 0;
            for (int rank = 2; rank <= 5; ++rank) {
              Dims x(rank, 4), w(rank, 2);
              x[0] = 2, x[1] = w[1] = 3, w[0] = 4;
              const Value in = mixed(DType::kFloat32, x), weight = mixed(DType::kFloat32, w),
                          bias = mixed(DType::kFloat32, {4});
              const auto plain = result(*op, {in, weight, bias});
              if (!plain || plain->rank() != rank) continue;
              ++ran;
              const auto scaled = [&](const Value& v, int64_t inner, int64_t channels) {
                const std::vector<double> old = numbers(v);
                return tensor(v.dtype(), v.shape(),
                              [&](int64_t i) { return old[size_t(i)] * factors[i / inner % channels]; });
              };
              const auto other = result(*op, {in, scaled(weight, numel(w) / 4, 4), scaled(bias, 1, 4)});
              const int64_t inner = plain->numel() / plain->shape()[0] / plain->shape()[1];
              EXPECT(plain->shape()[1] == 4, "channels are not dim 2");
              EXPECT(bits(*other) == bits(scaled(*plain, inner, 4)), "rank ", rank);
            }
            EXPECT(ran > 0, "no call that its types allow");
          });
}

TEST_CASE("rows: products support every activation with an epilogue") {
  std::set<std::string> named, known;
  each_op([](const OpDef& op) { return op.epilogue != nullptr; },
          [&](const OpDef* op) {
            std::vector<Attrs> variants;
            Attrs attrs = make_attrs(*op);
            if (attrs.size() == 0 || op->attrs[0].choices.empty()) variants.push_back(attrs);
            if (attrs.size() && op->attrs[0].kind == AttrKind::kFloat) attrs[0] = 0.3, variants.push_back(attrs);
            if (attrs.size())
              for (const char* choice : op->attrs[0].choices) attrs[0] = std::string(choice), variants.push_back(attrs);
            for (const Attrs& given : variants) {
              const Epilogue end = op->epilogue(AttrReader(*op, given));
              named.insert(end.activation);
              const Value x = mixed(DType::kFloat32, {5, 3}), w = mixed(DType::kFloat32, {4, 3}),
                          b = mixed(DType::kFloat32, {4});
              const OpDef& product = registry().require("linear");
              const auto y = result(*op, {*result(product, {x, w, b})}, given);
              const auto both = result(product.with_epilogue(), {x, w, b},
                                       make_attrs(product.with_epilogue(),
                                                  {{"activation", std::string(end.activation)}, {"slope", end.slope}}));
              EXPECT(bits(*y) == bits(*both), end.activation);
            }
          });
  each_op([](const OpDef& op) { return op.with_epilogue != nullptr; },
          [&](const OpDef* op) {
            const OpDef& both = op->with_epilogue();
            EXPECT(both.inputs.size() == op->inputs.size(), "other inputs");
            for (size_t i = 0; i < op->attrs.size(); ++i)
              EXPECT(!std::strcmp(op->attrs[i].name, both.attrs[i].name), "attribute ", both.attrs[i].name);
            for (const char* choice : both.attrs[size_t(both.attr_index("activation"))].choices) known.insert(choice);
          });
  CHECK(named == known);
}

}  // namespace pg::test
