// Derivatives of products, solvers, convolutions, pooling and resampling against central differences, of order 1 and 2.
#include <cmath>
#include <functional>

#include "tensor/rule.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

Value pattern(Dims shape, unsigned seed, double low = -1, double high = 1) {
  Value v = make_array(Type{DType::kFloat64, {}, shape});
  for (int64_t i = 0; i < v.numel(); ++i) {
    seed = seed * 1664525u + 1013904223u;
    static_cast<double*>(v.array().data())[i] = low + (high - low) * double(seed >> 8) / double(1 << 24);
  }
  return v;
}

using Function = std::function<Value(Context&, std::span<const Value>)>;

double weighted_sum(Context& ctx, const Function& f, std::span<const Value> inputs, unsigned seed) {
  const Value y = f(ctx, inputs);
  const auto out = numbers(y), weights = numbers(pattern(y.shape(), seed));
  double sum = 0;
  for (size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
  return sum;
}

// d weighted_sum / d inputs by the tape; zeros where nothing flows, as from a gradient that is constant.
Values tape_gradients(Context& ctx, const Function& f, std::span<const Value> inputs, unsigned seed, bool create_graph) {
  ScopedFlag recording(ctx.recording, true);
  const Value y = f(ctx, inputs);
  const Value heads[] = {y}, cotangents[] = {pattern(y.shape(), seed)};
  Values out(inputs.size());
  if (requires_grad(y))
    out = gradients(ctx, heads, cotangents, inputs, {.retain_graph = create_graph, .create_graph = create_graph});
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!out[i].defined()) out[i] = make_filled(inputs[i].type(), 0);
  return out;
}

double difference(Context& ctx, const Function& f, std::span<const Value> inputs, size_t i, int64_t at, unsigned seed) {
  const double step = 1e-5;
  double side[2];
  for (int sign : {0, 1}) {
    std::vector<Value> moved;
    for (const Value& v : inputs) moved.push_back(v.detached());
    Value copy = make_array(inputs[i].type());
    std::copy_n(static_cast<double*>(inputs[i].array().data()), inputs[i].numel(), static_cast<double*>(copy.array().data()));
    static_cast<double*>(copy.array().data())[at] += sign ? step : -step;
    moved[i] = copy;
    side[sign] = weighted_sum(ctx, f, moved, seed);
  }
  return (side[1] - side[0]) / (2 * step);
}

void check_order(Context& ctx, const char* what, const Function& f, std::span<const Value> plain, unsigned seed, int orders) {
  std::vector<Leaf> leaves;
  std::vector<Value> inputs;
  for (const Value& v : plain) inputs.push_back(leaves.emplace_back(v.detached()).value);
  const Values grads = tape_gradients(ctx, f, inputs, seed, false);
  for (size_t i = 0; i < inputs.size(); ++i) {
    CAPTURE(std::string(what));
    CAPTURE(orders);
    CAPTURE(i);
    REQUIRE(grads[i].shape() == plain[i].shape());
    const auto got = numbers(grads[i]);
    const int64_t stride = std::max<int64_t>(1, plain[i].numel() / 7);
    for (int64_t at = 0; at < plain[i].numel(); at += stride)
      CHECK(got[size_t(at)] == doctest::Approx(difference(ctx, f, plain, i, at, seed)).epsilon(1e-5).scale(1));
  }
  if (orders < 2) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Function gradient = [&, i](Context& c, std::span<const Value> in) {
      if (c.recording) return tape_gradients(c, f, in, seed, true)[i];
      std::vector<Leaf> own;
      std::vector<Value> linked;
      for (const Value& v : in) linked.push_back(own.emplace_back(v.detached()).value);
      return tape_gradients(c, f, linked, seed, false)[i].detached();
    };
    check_order(ctx, what, gradient, plain, seed + 1, orders - 1);
  }
}

void check(const char* op, std::vector<Value> inputs, AttrList attrs = {}, int orders = 2, size_t optional = 0) {
  Context ctx;
  const OpDef& def = registry().require(op);
  const Attrs all = make_attrs(def, attrs);
  check_order(
      ctx, op,
      [&](Context& c, std::span<const Value> in) {
        std::vector<Value> args(in.begin(), in.end());
        args.resize(args.size() + optional);
        return apply(c, def, args, all)[0];
      },
      inputs, 5, orders);
}

Value spd(int64_t n) {
  Context ctx;
  const Value a = pattern({n, n}, 3);
  Value s = run(ctx, "matmul", {a, run(ctx, "t", {a})});
  for (int64_t i = 0; i < n; ++i) static_cast<double*>(s.array().data())[i * n + i] += 2;
  return s;
}

}  // namespace

TEST_CASE("derivatives of products") {
  const Value v = pattern({4}, 1), m = pattern({3, 4}, 2), b = pattern({2, 3, 4}, 3), bt = pattern({2, 4, 2}, 4);
  check("matmul", {v, pattern({4}, 9)});
  check("matmul", {m, v});
  check("matmul", {v, pattern({4, 2}, 5)});
  check("matmul", {b, v});
  check("matmul", {b, pattern({4, 5}, 5)});
  check("matmul", {b, bt});
  check("matmul", {m, bt});
  check("matmul", {v, bt});
  check("matmul", {pattern({2, 1, 3, 4}, 6), pattern({3, 4, 2}, 7)});
  check("mm", {m, pattern({4, 2}, 5)});
  check("bmm", {b, bt});
  check("mv", {m, v});
  check("dot", {pattern({4, 3}, 8), pattern({2, 4}, 9)}, {{"transpose_a", true}, {"transpose_b", true}});
  check("outer", {v, pattern({3}, 9)});
  check("addmm", {pattern({2}, 1), pattern({3, 4}, 2), pattern({4, 2}, 3)}, {{"beta", 2.0}, {"alpha", 0.5}});
  check("baddbmm", {pattern({2, 3, 2}, 1), b, bt});
  check("linear", {b, pattern({5, 4}, 6), pattern({5}, 7)});
  check("linear", {v, pattern({5, 4}, 6)}, {}, 2, 1);
}

TEST_CASE("derivatives of einsum") {
  const Value m = pattern({3, 3}, 1), x = pattern({2, 3, 4}, 2), y = pattern({2, 4, 3}, 3);
  for (const char* equation : {"ij->ji", "ii->i", "ii", "ij->", "ij->j"}) check("einsum", {m}, {{"equation", std::string(equation)}});
  for (const char* equation : {"bij,bjk->bik", "bij,bjk->ki", "bij,bji->b", "bij,...k->ijk...", "abc,acd"})
    check("einsum", {x, y}, {{"equation", std::string(equation)}}, 1);
  check("einsum", {pattern({2, 3, 4}, 1), pattern({4, 5}, 2), pattern({3, 6}, 3)}, {{"equation", std::string("ijk,kl,jm->ilm")}});
  check("einsum", {pattern({1, 3}, 1), pattern({4, 3}, 2)}, {{"equation", std::string("ij,ij->j")}});
}

TEST_CASE("derivatives of attention") {
  const Value q = pattern({2, 3, 4}, 1), k = pattern({2, 5, 4}, 2), v = pattern({2, 5, 3}, 3);
  check("scaled_dot_product_attention", {q, k, v}, {}, 2, 1);
  check("scaled_dot_product_attention", {q, k, v, pattern({3, 5}, 4)}, {{"scale", 0.5}}, 1);
  check("scaled_dot_product_attention", {q, k, v}, {{"is_causal", true}}, 1, 1);
}

TEST_CASE("derivatives of solvers") {
  check("linalg_solve", {spd(3), pattern({3, 2}, 1)});
  check("linalg_solve", {spd(3), pattern({3}, 1)});
  check("linalg_inv", {spd(3)});
  Context ctx;
  const Value l = run(ctx, "linalg_cholesky", {spd(4)});
  const auto product = numbers(run(ctx, "matmul", {l, run(ctx, "t", {l})})), want = numbers(spd(4));
  for (size_t i = 0; i < want.size(); ++i) CHECK(product[i] == doctest::Approx(want[i]));
  CHECK(error_text([&] { run(ctx, "linalg_inv", {make_filled(Type{DType::kFloat64, {}, {2, 2}}, 1)}); }) ==
        "linalg_inv: bad argument 'a' (expected invertible matrices, got a singular one)");
  CHECK(!error_text([&] { run(ctx, "linalg_cholesky", {make_filled(Type{DType::kFloat64, {}, {2, 2}}, -1)}); }).empty());
}

TEST_CASE("derivatives of convolutions") {
  const Ints one{1}, two{2};
  check("conv1d", {pattern({2, 4, 9}, 1), pattern({6, 2, 3}, 2), pattern({6}, 3)}, {{"stride", two}, {"padding", two}, {"groups", int64_t(2)}});
  check("conv2d", {pattern({2, 2, 5, 6}, 1), pattern({3, 2, 3, 2}, 2), pattern({3}, 3)}, {{"stride", Ints{2, 1}}, {"dilation", Ints{1, 2}}});
  check("conv2d", {pattern({2, 5, 6}, 1), pattern({3, 2, 3, 2}, 2)}, {{"padding", one}}, 2, 1);
  check("conv3d", {pattern({1, 2, 3, 4, 3}, 1), pattern({2, 2, 2, 3, 2}, 2), pattern({2}, 3)}, {{"padding", Ints{0, 1, 1}}});
  check("conv_transpose1d", {pattern({2, 4, 5}, 1), pattern({4, 3, 3}, 2), pattern({6}, 3)},
        {{"stride", two}, {"padding", one}, {"output_padding", one}, {"groups", int64_t(2)}});
  check("conv_transpose2d", {pattern({2, 2, 3, 4}, 1), pattern({2, 3, 2, 3}, 2)}, {{"dilation", two}}, 2, 1);
  check("conv_transpose3d", {pattern({1, 2, 2, 2, 3}, 1), pattern({2, 2, 2, 2, 2}, 2), pattern({2}, 3)}, {{"stride", two}});
}

TEST_CASE("derivatives of pooling and resampling") {
  const Ints two{2}, three{3};
  const Value x = pattern({2, 2, 7, 6}, 4), positive = pattern({2, 2, 7, 6}, 4, 0.5, 2);
  check("max_pool2d", {x}, {{"kernel_size", three}, {"stride", two}, {"padding", Ints{1}}, {"ceil_mode", true}});
  check("max_pool1d", {pattern({3, 8}, 1)}, {{"kernel_size", two}});
  check("max_pool3d", {pattern({1, 2, 4, 4, 4}, 1)}, {{"kernel_size", Ints{2, 3, 2}}, {"stride", Ints{1, 2, 2}}});
  check("avg_pool2d", {x}, {{"kernel_size", three}, {"stride", two}, {"padding", Ints{1}}, {"count_include_pad", false}});
  check("avg_pool2d", {x}, {{"kernel_size", two}, {"divisor_override", int64_t(3)}});
  check("avg_pool1d", {pattern({2, 2, 8}, 1)}, {{"kernel_size", three}});
  check("avg_pool3d", {pattern({1, 2, 4, 4, 4}, 1)}, {{"kernel_size", two}});
  check("adaptive_avg_pool", {x}, {{"size", Ints{3, 2}}});
  check("adaptive_avg_pool", {x}, {{"size", Ints{1, 4}}});
  check("adaptive_max_pool", {x}, {{"size", Ints{3, 2}}});
  check("lp_pool", {positive}, {{"norm_type", 3.0}, {"kernel_size", two}});
  check("interpolate", {x}, {{"size", Ints{5, 9}}, {"mode", std::string("bilinear")}});
  check("interpolate", {x}, {{"scale_factor", Floats{2}}, {"mode", std::string("bilinear")}, {"align_corners", true}});
  check("interpolate", {x}, {{"scale_factor", Floats{1.5}}});
  check("pixel_shuffle", {pattern({2, 8, 2, 3}, 1)}, {{"upscale_factor", int64_t(2)}});
  check("pixel_unshuffle", {pattern({2, 2, 4, 6}, 1)}, {{"downscale_factor", int64_t(2)}});
}

TEST_CASE("no gradient is computed that nobody asked for") {
  Context ctx;
  ctx.recording = true;
  const Value x = pattern({2, 3, 5, 5}, 1);
  const Leaf w(pattern({4, 3, 3, 3}, 2));
  const Value y = run(ctx, "conv2d", {x, w.value, Value()});
  backward_from(ctx, y);
  CHECK(w.grad().shape() == w.value.shape());
}

TEST_CASE("products of strided, broadcast and empty operands") {
  Context ctx;
  const Value a = pattern({3, 4}, 1), b = pattern({5, 4}, 2);
  const auto direct = numbers(run(ctx, "matmul", {a, run(ctx, "t", {b})}));
  const auto copied = numbers(run(ctx, "matmul", {a, to_contiguous(ctx, run(ctx, "t", {b}))}));
  CHECK(direct == copied);
  const Value wide = run(ctx, "expand", {pattern({1, 4}, 3)}, {{"shape", Ints{3, 4}}});
  CHECK(numbers(run(ctx, "matmul", {wide, run(ctx, "t", {b})})) ==
        numbers(run(ctx, "matmul", {to_contiguous(ctx, wide), run(ctx, "t", {b})})));
  const Value empty = make_array(Type{DType::kFloat64, {}, {3, 0}});
  CHECK(numbers(run(ctx, "matmul", {empty, make_array(Type{DType::kFloat64, {}, {0, 2}})})) == Numbers(6, 0.0));
  CHECK(numbers(run(ctx, "matmul", {array({1, 2}, DType::kInt32), array({3, 4}, DType::kInt64)})) == Numbers{11});
  CHECK(error_text([&] { run(ctx, "matmul", {a, b}); }) ==
        "matmul: bad argument 'y' (expected 4 rows to go with 3x4, got float64 5x4 cpu)");
}

}  // namespace pg::test
