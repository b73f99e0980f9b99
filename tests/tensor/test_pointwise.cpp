// The pointwise driver against a naive reference: strides, broadcasting, dtypes, run boundaries.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "tensor/cpu/pointwise.h"
#include "tensor/op.h"
#include "tensor/rule.h"
#include "tensor/tape.h"

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

// Element of `v` at the multi-index of position `pos` in `shape`.
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

TEST_CASE("pointwise: strides and broadcasting agree with a naive walk") {
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

TEST_CASE("pointwise: a value gives the same bits at any place of a span") {
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

TEST_CASE("pointwise: integer division by zero leaves the output alone") {
  std::mt19937 rng(4);
  Data x = make(DType::kInt32, Dims{4}, Dims{1}, rng), y = x;
  store_number(DType::kInt32, y.bytes.data() + 8, 0);
  const std::vector<char> before = x.bytes;
  CHECK_THROWS_WITH(run("floor_divide", {x.view(), y.view()}, x.view()),
                    "floor_divide: bad argument 'y' (expected an integer divisor other than zero, got 0 at element 3)");
  CHECK(x.bytes == before);
}

namespace {

Value leaf(const Value& v) {
  Value out = v.detached();
  out.link(make_leaf(v.type(), GradReq::kWrite).get(), 0);
  return out;
}

Value uniform(Dims shape, double low, double high, std::mt19937& rng) {
  Value out = make_array(Type{DType::kFloat64, {}, shape});
  std::uniform_real_distribution<double> draw(low, high);
  for (int64_t i = 0; i < out.numel(); ++i) static_cast<double*>(out.array().data())[i] = draw(rng);
  return out;
}

double dot(const Value& a, const Value& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    sum += static_cast<double*>(a.array().data())[i] * static_cast<double*>(b.array().data())[i];
  return sum;
}

// Gradients of sum(w f(x)) with respect to x.
using Function = std::function<Value(Context&, std::span<Value>)>;
Values gradient_of(Context& ctx, const Function& f, std::span<const Value> x, const Value& w, bool create_graph) {
  ScopedFlag on(ctx.recording, true);
  std::vector<Value> in(x.begin(), x.end());
  Value out = f(ctx, in);
  Values grads;
  if (!out.node()) {
    for (const Value& v : x) grads.push_back(make_filled(v.type(), 0));
    return grads;
  }
  const Value heads[1] = {out}, cotangents[1] = {w};
  grads = gradients(ctx, heads, cotangents, x, {.retain_graph = true, .create_graph = create_graph});
  for (size_t i = 0; i < x.size(); ++i)
    if (!grads[i].defined()) grads[i] = make_filled(x[i].type(), 0);
  return grads;
}

// Compares with central differences along a random direction.
void check_gradient(Context& ctx, const Function& f, std::span<const Value> x, std::mt19937& rng) {
  std::vector<Value> direction, plus, minus;
  constexpr double h = 1e-5;
  for (const Value& v : x) {
    direction.push_back(uniform(v.shape(), -1, 1, rng));
    Value p = make_array(v.type()), m = make_array(v.type());
    for (int64_t i = 0; i < v.numel(); ++i) {
      const double at = static_cast<double*>(v.array().data())[i],
                   d = static_cast<double*>(direction.back().array().data())[i];
      static_cast<double*>(p.array().data())[i] = at + h * d;
      static_cast<double*>(m.array().data())[i] = at - h * d;
    }
    plus.push_back(p), minus.push_back(m);
  }
  const Value up = f(ctx, plus), down = f(ctx, minus);
  const Value w = uniform(up.shape(), -1, 1, rng);
  const double numeric = (dot(w, up) - dot(w, down)) / (2 * h);
  const Values grads = gradient_of(ctx, f, x, w, false);
  double analytic = 0;
  for (size_t i = 0; i < x.size(); ++i) analytic += dot(to_contiguous(ctx, grads[i]), direction[i]);
  CHECK(analytic == doctest::Approx(numeric).epsilon(1e-5));
}

}  // namespace

TEST_CASE("pointwise: derivatives of order 1 and 2 agree with finite differences") {
  std::mt19937 rng(5);
  Context ctx;
  for (const OpDef* op : registry().ops()) {
    if (!op->has(kPointwise) || !op->differentiable()) continue;
    INFO(op->name);
    std::vector<Value> x;
    for (size_t i = 0; i < op->inputs.size(); ++i)
      if (op->inputs[i].dtypes != kBoolOnly) {
        const Dims shape = i == 0 ? Dims{2, 3} : Dims{3};
        x.push_back(leaf(uniform(shape, op->inputs[i].low, op->inputs[i].high, rng)));
      }
    const Attrs attrs = make_attrs(*op);
    Value condition = make_filled(Type{DType::kBool, {}, {2, 3}}, 1);
    static_cast<bool*>(condition.array().data())[2] = false;
    const Function f = [&](Context& c, std::span<Value> in) {
      std::vector<Value> all;
      for (size_t i = 0, k = 0; i < op->inputs.size(); ++i)
        all.push_back(op->inputs[i].dtypes == kBoolOnly ? condition : in[k++]);
      return apply(c, *op, all, attrs)[0];
    };
    check_gradient(ctx, f, x, rng);
    const Value w = uniform({2, 3}, -1, 1, rng);
    for (size_t which = 0; which < x.size(); ++which) {
      const Function first = [&](Context& c, std::span<Value> in) {
        std::vector<Value> leaves;
        for (const Value& v : in) leaves.push_back(v.node() ? v : leaf(v));
        return gradient_of(c, f, leaves, w, true)[which];
      };
      INFO("order 2, input ", which + 1);
      check_gradient(ctx, first, x, rng);
    }
  }
}
