// Random kernels: reference vectors of Philox, distributions, independence of how the work is split.
#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "tensor/runtime.h"
#include "tensor/context.h"
#include "tensor/kernels/philox.h"
#include "tensor/op.h"
#include "tensor/parallel.h"

using namespace pg;

namespace {

Value call_op(Context& ctx, const char* name, std::vector<Value> in, AttrList attrs) {
  const OpDef& op = registry().require(name);
  return apply(ctx, op, in, make_attrs(op, attrs))[0];
}

template <class T>
std::vector<T> elements(const Value& v) {
  const T* data = static_cast<const T*>(v.array().data());
  return {data, data + v.numel()};
}

}  // namespace

TEST_CASE("random: Philox returns its authors' test vectors") {
  uint32_t words[philox::kGroup];
  philox::group_words(0, 0, 0, 0, words);
  const uint32_t zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; ++i) CHECK(words[i * philox::kLanes] == zeros[i]);
}

TEST_CASE("random: the same key draws the same numbers with any number of threads") {
  const int before = num_threads();
  for (const char* name : {"rand", "randn"}) {
    std::vector<std::vector<float>> runs;
    for (int threads : {1, 2, 3}) {
      Runtime::current().threads().resize(threads);
      Context ctx;
      runs.push_back(elements<float>(call_op(ctx, name, {}, {{"shape", Ints{50001}}})));
    }
    CHECK(runs[0] == runs[1]);
    CHECK(runs[0] == runs[2]);
  }
  Runtime::current().threads().resize(before);
}

TEST_CASE("random: samples have the moments of their distribution") {
  Context ctx;
  for (DType t : {DType::kFloat32, DType::kFloat64}) {
    for (const bool normal : {false, true}) {
      const Value v = call_op(ctx, normal ? "randn" : "rand", {}, {{"shape", Ints{200000}}, {"dtype", t}});
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < v.numel(); ++i) {
        const double x = load_number(t, static_cast<char*>(v.array().data()) + i * size_of(t));
        sum += x, squares += x * x;
        if (!normal) REQUIRE((x >= 0 && x < 1));
      }
      const double mean = sum / 200000, variance = squares / 200000 - mean * mean;
      CHECK(mean == doctest::Approx(normal ? 0 : 0.5).epsilon(0.01));
      CHECK(variance == doctest::Approx(normal ? 1 : 1.0 / 12).epsilon(0.02));
    }
  }
}

TEST_CASE("random: whole numbers are uniform and permutations complete") {
  Context ctx;
  const std::vector<int64_t> dice = elements<int64_t>(
      call_op(ctx, "randint", {}, {{"low", int64_t(1)}, {"high", int64_t(6)}, {"shape", Ints{6000}}}));
  int count[7] = {};
  for (int64_t v : dice) {
    REQUIRE((v >= 1 && v <= 6));
    ++count[v];
  }
  for (int v = 1; v <= 6; ++v) CHECK(std::abs(count[v] - 1000) < 150);
  const std::vector<int64_t> order = elements<int64_t>(call_op(ctx, "randperm", {}, {{"n", int64_t(1000)}}));
  CHECK(std::set<int64_t>(order.begin(), order.end()).size() == 1000);
  CHECK(std::accumulate(order.begin(), order.end(), int64_t(0)) == 500500);
}

TEST_CASE("random: multinomial respects weights and refuses bad ones") {
  Context ctx;
  Value p = make_array(Type{DType::kFloat64, {}, {4}});
  double* w = static_cast<double*>(p.array().data());
  w[0] = 0, w[1] = 1, w[2] = 3, w[3] = 0;
  int threes = 0;
  for (int64_t v : elements<int64_t>(call_op(ctx, "multinomial", {p}, {{"n", int64_t(4000)}, {"replacement", true}}))) {
    REQUIRE((v == 2 || v == 3));
    threes += v == 3;
  }
  CHECK(std::abs(threes - 3000) < 150);
  const std::vector<int64_t> both = elements<int64_t>(call_op(ctx, "multinomial", {p}, {{"n", int64_t(2)}}));
  CHECK(both[0] + both[1] == 5);
  CHECK_THROWS_AS(call_op(ctx, "multinomial", {p}, {{"n", int64_t(3)}}), Error);
  w[0] = -1;
  CHECK_THROWS_AS(call_op(ctx, "multinomial", {p}, {{"n", int64_t(1)}}), Error);
}

TEST_CASE("random: dropout keeps the mean and follows the mode") {
  Context ctx;
  const Value x = make_filled(Type{DType::kFloat32, {}, {40000}}, 1);
  CHECK(call_op(ctx, "dropout", {x}, {}).array().buffer->data == x.array().buffer->data);
  ctx.training = true;
  const std::vector<float> y = elements<float>(call_op(ctx, "dropout", {x}, {{"p", 0.25}}));
  double sum = 0;
  for (float v : y) {
    REQUIRE((v == 0 || v == doctest::Approx(4.0 / 3)));
    sum += v;
  }
  CHECK(sum / 40000 == doctest::Approx(1).epsilon(0.02));
  for (float v : elements<float>(call_op(ctx, "dropout", {x}, {{"p", 1.0}}))) REQUIRE(v == 0);
}
