// Packed weights of eager calls.
#include "tensor/packed.h"

#include <thread>

#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

Value filled(Context& ctx, const Dims& shape) {
  return run(ctx, "rand", {}, {{"shape", Ints(shape.begin(), shape.end())}});
}

TEST_CASE("the second eager call packs a weight, and its buffer is not rewritten from then on") {
  Context ctx;
  const Value x = filled(ctx, {32, 256});
  const size_t before = held_packed_bytes();
  {
    const Value w = filled(ctx, {128, 256});
    const Numbers first = numbers(run(ctx, "linear", {x, w, Value()}));
    CHECK(held_packed_bytes() == before);
    CHECK(w.array().writable());
    CHECK(numbers(run(ctx, "linear", {x, w, Value()})) == first);
    CHECK(held_packed_bytes() == before + w.array().buffer->bytes);
    CHECK_FALSE(w.array().writable());
    for (int i = 0; i < 3; ++i) CHECK(numbers(run(ctx, "linear", {x, w, Value()})) == first);
    CHECK(held_packed_bytes() == before + w.array().buffer->bytes);
  }
  CHECK(held_packed_bytes() == before);
}

TEST_CASE("calls that are recorded pack nothing, nor do those with small weights") {
  Context ctx;
  const size_t before = held_packed_bytes();
  const Value x = filled(ctx, {32, 256}), w = filled(ctx, {128, 256}), small = filled(ctx, {8, 256});
  for (int i = 0; i < 4; ++i) {
    run(ctx, "linear", {x, small, Value()});
    const ScopedFlag recording(ctx.recording, true);
    run(ctx, "linear", {x, w, Value()});
  }
  CHECK(held_packed_bytes() == before);
}

TEST_CASE("a weight that finds no memory for its packed form is used as it is") {
  Context ctx;
  const Value x = filled(ctx, {32, 256}), w = filled(ctx, {128, 256});
  const size_t before = held_packed_bytes();
  const Numbers first = numbers(run(ctx, "linear", {x, w, Value()}));
  limit_allocation(w.array().buffer->bytes - 1);  // the result is smaller
  const Value again = run(ctx, "linear", {x, w, Value()});
  limit_allocation(0);
  CHECK(numbers(again) == first);
  CHECK(held_packed_bytes() == before);
}

TEST_CASE("threads that share a weight share its packed form") {
  Context main;
  const Value x = filled(main, {32, 256}), w = filled(main, {128, 256});
  const Numbers expected = numbers(run(main, "linear", {x, w, Value()}));
  const size_t before = held_packed_bytes();
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Context ctx;
      for (int k = 0; k < 50; ++k) wrong += numbers(run(ctx, "linear", {x, w, Value()})) != expected;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(held_packed_bytes() == before + w.array().buffer->bytes);
}

}  // namespace
}  // namespace pg::test
