// Compares pointwise kernels with a naive reference: strides, broadcasting, dtypes, boundaries of runs.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tensor/cpu/pointwise/pointwise.h"
#include "tensor/op.h"

using namespace pg;

namespace {

struct Data {
  std::vector<char> bytes;
  Type type;
  Dims strides;
  View view() { return {&type, &strides, bytes.data()}; }
  double at(int64_t offset) const { return load_number(type.dtype, bytes.data() + offset * size_of(type.dtype)); }
};

Data make(DType t, Dims shape, Dims strides, std::mt19937& rng) {
  int64_t last = 0;
  for (int d = 0; d < shape.size(); ++d) last += (shape[d] - 1) * strides[d];
  Data out{std::vector<char>(size_t(last + 1) * 8), Type{t, {}, shape}, strides};
  for (int64_t i = 0; i <= last; ++i) store_number(t, out.bytes.data() + i * size_of(t), double(rng() % 7) + 1);
  return out;
}

// Returns the element of `v` at the multi-index of position `pos` in `shape`.
double element(const Data& v, const Dims& shape, int64_t pos) {
  const Dims s = broadcast_strides(v.type.shape, v.strides, shape);
  int64_t offset = 0;
  for (int d = shape.size() - 1; d >= 0; --d) {
    offset += pos % shape[d] * s[d];
    pos /= shape[d];
  }
  return v.at(offset);
}

void run(const char* name, std::vector<View> in, View out) {
  const OpDef& op = registry().require(name);
  const View outs[1] = {out};
  const Attrs attrs = make_attrs(op);
  auto none = [](int, const Dims&) { return View(); };
  registry().kernel(op, Device{}).fn(KernelArgs{op, in, outs, attrs, none});
}

void check_sub(Data& x, Data& y, const Dims& shape, DType t) {
  Data out{std::vector<char>(size_t(numel(shape)) * 8 + 8), Type{t, {}, shape}, contiguous_strides(shape)};
  run("sub", {x.view(), y.view()}, out.view());
  for (int64_t i = 0; i < numel(shape); ++i) REQUIRE(out.at(i) == element(x, shape, i) - element(y, shape, i));
}

}  // namespace

TEST_CASE("pointwise: strides and broadcasting agree with a naive loop") {
  std::mt19937 rng(1);
  const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kInt32,
                          DType::kInt64,   DType::kFloat16, DType::kBFloat16};
  for (DType t : dtypes)
    for (int64_t inner : {1, 3, 65, 130, 700}) {
      const Dims shape{3, 2, inner};
      Data dense = make(t, shape, contiguous_strides(shape), rng);
      Data turned = make(t, shape, Dims{1, 3, 6}, rng);
      Data gaps = make(t, shape, Dims{4 * inner, 2 * inner, 2}, rng);
      Data row = make(t, Dims{inner}, Dims{1}, rng);
      Data column = make(t, Dims{3, 1, 1}, Dims{1, 1, 1}, rng);
      Data scalar = make(t, Dims{}, Dims{}, rng);
      Data* all[] = {&dense, &turned, &gaps, &row, &column, &scalar};
      for (Data* a : all)
        check_sub(dense, *a, shape, t), check_sub(*a, dense, shape, t), check_sub(turned, *a, shape, t);
      check_sub(row, column, Dims{3, 1, inner}, t);
    }
}

TEST_CASE("pointwise: mixed dtypes are promoted") {
  std::mt19937 rng(2);
  const Dims shape{5, 200};
  Data f = make(DType::kFloat32, shape, contiguous_strides(shape), rng);
  Data i = make(DType::kInt64, Dims{200}, Dims{1}, rng);
  check_sub(f, i, shape, DType::kFloat32);
  check_sub(i, f, shape, DType::kFloat32);
}

TEST_CASE("pointwise: the result for a value has the same bits at any position of a span") {
  std::mt19937 rng(3);
  std::uniform_real_distribution<float> uniform(-3, 3);
  std::vector<float> x(300), whole(300), part(300);
  for (float& v : x) v = uniform(rng);
  for (const auto table : {cpu::basic_spans(), cpu::math_spans()})
    for (const cpu::SpanRow& row : table) {
      const OpDef& op = registry().require(row.op);
      const cpu::SpanFn fn = row.fn[int(DType::kFloat32)];
      if (!fn || op.inputs.size() != 1 || op.result == Result::kBool) continue;
      const double params[4] = {1, 20, 0, 0};
      const void* in[1] = {x.data()};
      fn(300, whole.data(), in, 0, params);
      for (int64_t at = 0, n = 1; at < 300; at += n, n = n % 23 + 1) {
        n = std::min<int64_t>(n, 300 - at);
        const void* piece[1] = {x.data() + at};
        fn(n, part.data() + at, piece, 0, params);
      }
      INFO(row.op);
      REQUIRE(std::memcmp(whole.data(), part.data(), 300 * sizeof(float)) == 0);
    }
}

TEST_CASE("pointwise: vector functions stay within a few ulp of double precision") {
  for (const cpu::SpanRow& row : cpu::math_spans()) {
    const OpDef& op = registry().require(row.op);
    if (op.inputs.size() != 1 || op.attrs.size()) continue;
    std::vector<float> x(4000), y(4000);
    std::vector<double> wide(4000), expected(4000);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = float(op.inputs[0].low + (op.inputs[0].high - op.inputs[0].low) * double(i) / 4000), wide[i] = x[i];
    const void* in[1] = {x.data()};
    const void* in64[1] = {wide.data()};
    row.fn[int(DType::kFloat32)](4000, y.data(), in, 0, nullptr);
    row.fn[int(DType::kFloat64)](4000, expected.data(), in64, 0, nullptr);
    for (size_t i = 0; i < x.size(); ++i) {
      INFO(row.op, " at ", x[i], ": ", y[i], " against ", expected[i]);
      REQUIRE(std::fabs(y[i] - expected[i]) <= 1e-6 * std::fabs(expected[i]) + 2e-7);
    }
  }
}

TEST_CASE("pointwise: integer division by zero does not write the output") {
  std::mt19937 rng(4);
  Data x = make(DType::kInt32, Dims{4}, Dims{1}, rng), y = x;
  store_number(DType::kInt32, y.bytes.data() + 8, 0);
  const std::vector<char> before = x.bytes;
  CHECK_THROWS_WITH(run("floor_divide", {x.view(), y.view()}, x.view()),
                    "floor_divide: bad argument 'y' (expected an integer divisor other than zero, got 0 at element 3)");
  CHECK(x.bytes == before);
}
