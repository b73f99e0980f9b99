// perigee_model_run_into: where the results are written, and that a steady state allocates nothing.
#include <array>
#include <cstring>
#include <vector>

#include "tests/vm/allocations.h"
#include "tests/vm/host_model.h"

using namespace pg::test;

namespace {

constexpr const char* kProduct =
    "(function() local B = nn.HybridBlock:extend('Product') "
    "function B:forward(x, w) return pg.linear(x, w) end return B() end)()";

}  // namespace

TEST_CASE("host: a model sees the host's memory as it is at each run") {
  const ModelFiles files(kProduct, "net(pg.ones(256, 256), pg.ones(256, 256))");
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const perigee::Model model = files.load(runtime);
  std::vector<float> x(256 * 256, 1), w(256 * 256, 1);
  const perigee::Tensor in = wrap(runtime, x.data(), {256, 256}), out = zeros(runtime, {256, 256});
  perigee::Tensor weights = wrap(runtime, w.data(), {256, 256});
  for (int i = 1; i <= 40; ++i) {  // weights of a model are packed after some runs
    w.assign(w.size(), float(i));
    REQUIRE(run_into(model, {in.get(), weights.get()}, {out.get()}) == PERIGEE_OK);
    CHECK(floats(out)[63] == 256.0f * float(i));
  }
  // A result becomes the weights of the next run.
  const perigee::Tensor square = zeros(runtime, {256, 256}), result = zeros(runtime, {256, 256});
  float* diagonal = const_cast<float*>(floats(square));
  for (int i = 0; i < 256; ++i) diagonal[257 * i] = 1;
  for (int i = 1; i <= 20; ++i) {
    diagonal[0] = float(i);
    REQUIRE(run_into(model, {square.get(), square.get()}, {result.get()}) == PERIGEE_OK);
    perigee_tensor* const in[] = {square.get(), result.get()};
    perigee::Tensor next;
    REQUIRE(perigee_model_run(model.get(), in, 2, next.out(), 1) == PERIGEE_OK);
    CHECK(floats(next)[0] == float(i * i * i));
  }
}

TEST_CASE("host: results are written where the host says, also over inputs and at any address") {
  const ModelFiles files("nn.HybridSequential{nn.Dense(4, {activation = 'tanh'}), nn.Dense(4)}", "net(pg.ones(2, 4))");
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const perigee::Model model = files.load(runtime);
  alignas(64) float data[40] = {};
  for (int i = 0; i < 8; ++i) data[i + 1] = float(i);
  const perigee::Tensor x = wrap(runtime, data + 1, {2, 4}), y = wrap(runtime, data + 17, {2, 4});
  perigee::Tensor plain;
  perigee_tensor* const in = x.get();
  REQUIRE(perigee_model_run(model.get(), &in, 1, plain.out(), 1) == PERIGEE_OK);
  REQUIRE(run_into(model, {x.get()}, {y.get()}) == PERIGEE_OK);
  CHECK(!std::memcmp(floats(plain), data + 17, 32));
  CHECK(data[16] == 0);
  CHECK(data[25] == 0);
  REQUIRE(run_into(model, {x.get()}, {x.get()}) == PERIGEE_OK);
  CHECK(!std::memcmp(floats(plain), data + 1, 32));
  // A tensor that shares half of its memory with the input.
  for (int i = 0; i < 8; ++i) data[i + 1] = float(i);
  const perigee::Tensor half = wrap(runtime, data + 5, {2, 4});
  REQUIRE(run_into(model, {x.get()}, {half.get()}) == PERIGEE_OK);
  CHECK(!std::memcmp(floats(plain), data + 5, 32));
}

TEST_CASE("host: nothing is written if one of the tensors has the wrong type") {
  const ModelFiles files(
      "(function() local B = nn.HybridBlock:extend('Two') "
      "function B:forward(x) return x + 1, x:sum(1) end return B() end)()",
      "net(pg.ones(2, 4))");
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const perigee::Model model = files.load(runtime);
  float data[8] = {};
  const perigee::Tensor x = wrap(runtime, data, {2, 4});
  const perigee::Tensor first = zeros(runtime, {2, 4}), second = zeros(runtime, {4}), wrong = zeros(runtime, {5});
  CHECK(run_into(model, {x.get()}, {first.get(), wrong.get()}) == PERIGEE_BAD_ARGUMENT);
  CHECK(floats(first)[0] == 0);
  CHECK(run_into(model, {x.get()}, {first.get()}) == PERIGEE_BAD_ARGUMENT);
  CHECK(run_into(model, {nullptr}, {first.get(), second.get()}) == PERIGEE_BAD_ARGUMENT);
  CHECK(run_into(model, {x.get()}, {first.get(), nullptr}) == PERIGEE_BAD_ARGUMENT);
  REQUIRE(run_into(model, {x.get()}, {first.get(), second.get()}) == PERIGEE_OK);
  CHECK(floats(first)[7] == 1);
}

TEST_CASE("host: a steady state of run_into allocates nothing") {
  struct Case {
    const char *name, *make, *call;
    std::vector<int64_t> in, out;
  };
  const Case cases[] = {
      {"dense",
       "nn.HybridSequential{nn.Dense(32, {activation = 'relu'}), nn.Dense(32), nn.LayerNorm(), nn.Dense(8)}",
       "net(pg.ones(4, 16))",
       {4, 16},
       {4, 8}},
      {"conv",
       "nn.HybridSequential{nn.Conv2D(4, 3, {padding = 1, activation = 'relu'}), nn.MaxPool2D(2), nn.Flatten(), "
       "nn.Dense(3)}",
       "net(pg.ones(2, 1, 8, 8))",
       {2, 1, 8, 8},
       {2, 3}},
      {"view",
       "(function() local B = nn.HybridBlock:extend('View') function B:forward(x) return (x * 2):t() end "
       "return B() end)()",
       "net(pg.ones(3, 5))",
       {3, 5},
       {5, 3}},
      {"loop", "nn.HybridSequential{nn.rnn.LSTM(6)}", "net(pg.ones(4, 2, 3))", {4, 2, 3}, {4, 2, 6}},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    const ModelFiles files(c.make, c.call);
    HostMemory memory;
    const perigee::Runtime runtime = memory.runtime();
    const perigee::Model model = files.load(runtime);
    perigee::Tensor x, y, plain;
    REQUIRE(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, int(c.in.size()), c.in.data(), x.out()) ==
            PERIGEE_OK);
    REQUIRE(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, int(c.out.size()), c.out.data(), y.out()) ==
            PERIGEE_OK);
    perigee_tensor *const in = x.get(), *const out = y.get();
    REQUIRE(perigee_model_run(model.get(), &in, 1, plain.out(), 1) == PERIGEE_OK);
    for (int i = 0; i < 50; ++i) REQUIRE(perigee_model_run_into(model.get(), &in, 1, &out, 1) == PERIGEE_OK);
    CHECK(!std::memcmp(floats(plain), floats(y), perigee_tensor_bytes(y.get())));
    const long tensor_memory = memory.asked, cpp = cpp_allocations.asked;
    for (int i = 0; i < 100; ++i) perigee_model_run_into(model.get(), &in, 1, &out, 1);
    CHECK(memory.asked == tensor_memory);
    CHECK(cpp_allocations.asked == cpp);
  }
}
