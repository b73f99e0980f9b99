// Solvers, products of unusual operands, and which gradients are computed. tests/lua/test_registry_gradients.lua tests
// the derivatives.
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

Value spd(int64_t n) {
  Context ctx;
  const Value a = pattern({n, n}, 3);
  Value s = run(ctx, "matmul", {a, run(ctx, "t", {a})});
  for (int64_t i = 0; i < n; ++i) static_cast<double*>(s.array().data())[i * n + i] += 2;
  return s;
}

}  // namespace

TEST_CASE("solvers solve, and refuse singular matrices") {
  Context ctx;
  const Value l = run(ctx, "linalg_cholesky", {spd(4)});
  const auto product = numbers(run(ctx, "matmul", {l, run(ctx, "t", {l})})), want = numbers(spd(4));
  for (size_t i = 0; i < want.size(); ++i) CHECK(product[i] == doctest::Approx(want[i]));
  CHECK(error_text([&] {
          run(ctx, "linalg_inv", {make_filled(Type{DType::kFloat64, {}, {2, 2}}, 1)});
        }) == "linalg.inv: bad argument 'a' (expected invertible matrices, got a singular one)");
  CHECK(!error_text([&] {
           run(ctx, "linalg_cholesky", {make_filled(Type{DType::kFloat64, {}, {2, 2}}, -1)});
         }).empty());
}

TEST_CASE("only the requested gradients are computed") {
  Context ctx;
  ctx.recording = true;
  const Value x = pattern({2, 3, 5, 5}, 1);
  const Leaf w(pattern({4, 3, 3, 3}, 2));
  const Value y = run(ctx, "conv2d", {x, w.value, Value()});
  backward_from(ctx, y);
  CHECK(w.grad().shape() == w.value.shape());
}

TEST_CASE("products accept strided, broadcast and empty operands") {
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
  CHECK(error_text([&] {
          run(ctx, "matmul", {a, b});
        }) ==
        "matmul: bad argument 'y' (expected 4 rows to go with the 4 columns of x 3x4; y:transpose(-1, -2) has them, "
        "got float64 5x4 cpu)");
}

}  // namespace pg::test
