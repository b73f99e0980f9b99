// Packed weights of eager calls.
#include "tensor/packed.h"

#include <atomic>
#include <thread>

#include "tensor/memory_account.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

Value filled(Context& ctx, const Dims& shape) {
  return run(ctx, "rand", {}, {{"shape", Ints(shape.begin(), shape.end())}});
}

TEST_CASE("eager calls pack a weight at its second use since it was written") {
  Context ctx;
  const Value x = filled(ctx, {32, 256});
  const size_t before = held_packed_bytes();
  {
    const Value w = filled(ctx, {128, 256});
    const size_t bytes = w.array().buffer->bytes;
    const Numbers first = numbers(run(ctx, "linear", {x, w, Value()}));
    for (int round = 0; round < 2; ++round) {
      CHECK(held_packed_bytes() == before + (round ? bytes : 0));
      for (int i = 0; i < 3; ++i) CHECK(numbers(run(ctx, "linear", {x, w, Value()})) == first);
      CHECK(held_packed_bytes() == before + bytes);
    }
    CHECK(w.array().writable());  // what it was packed into goes before a write
    CHECK(held_packed_bytes() == before);
    for (int i = 0; i < 4; ++i) {
      CHECK(w.array().writable());
      CHECK(numbers(run(ctx, "linear", {x, w, Value()})) == first);
      CHECK(held_packed_bytes() == before);
    }
    run(ctx, "linear", {x, w, Value()});
    CHECK(held_packed_bytes() == before + bytes);
  }
  CHECK(held_packed_bytes() == before);
}

TEST_CASE("an owner's memory limit is not used up by packed weights, and refuses nothing for them") {
  int refusals = 0;
  const auto refused = [](void* user) { ++*static_cast<int*>(user); };
  const Ref<MemoryAccount> account(new MemoryAccount(int64_t(1) << 20, refused, &refusals));
  const ScopedAccount scope(account.get());
  Context ctx;
  const auto packed_by = [&](const Value& x, const Value& w) {
    const size_t held = held_packed_bytes();
    for (int i = 0; i < 4; ++i) run(ctx, "linear", {x, w, Value()});
    return held_packed_bytes() - held;
  };
  const Value x = filled(ctx, {32, 512}), small = filled(ctx, {64, 512});
  CHECK(packed_by(x, small) == small.array().buffer->bytes);
  const Value large = filled(ctx, {192, 512});  // 384 KB: with its packed form it is more than half of the limit
  CHECK(packed_by(x, large) == 0);
  CHECK(refusals == 0);
}

TEST_CASE("parts of a buffer are not packed") {
  Context ctx;
  const size_t before = held_packed_bytes();
  const Value x = filled(ctx, {32, 256}), all = filled(ctx, {256, 256});
  const Value rows = run(ctx, "narrow", {all}, {{"dim", int64_t(1)}, {"start", int64_t(1)}, {"length", int64_t(128)}});
  for (int i = 0; i < 4; ++i) run(ctx, "linear", {x, rows, Value()});
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
