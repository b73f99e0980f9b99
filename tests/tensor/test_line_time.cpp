#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "tensor/cpu/both_ways.h"
#include "tensor/cpu/shared_grain.h"
#include "tensor/line_time.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

// The time of an exchange with another thread, or 0 if one of them had to wait for long.
int64_t exchange_with_thread() {
  LineExchange lines;
  std::atomic<bool> started{false};
  std::thread other([&] {
    started = true;
    lines.run(1);
  });
  while (!started) std::this_thread::yield();
  lines.run(0);
  other.join();
  return lines.result();
}

TEST_CASE("an exchange of lines ends without the other thread") {
  LineExchange lines;
  lines.run(0);
  CHECK(lines.result() == 0);
}

TEST_CASE("two threads time a line of a cache") {
  if (std::thread::hardware_concurrency() < 2) {
    MESSAGE("skipped: one processor");
    return;
  }
  int64_t picoseconds = 0;
  for (int i = 0; i < 10000 && picoseconds == 0; ++i) picoseconds = exchange_with_thread();
  CHECK(picoseconds > 0);
}

TEST_CASE("the time is due in ever fewer calls until it is set") {
  LineTime time;
  int due = 0;
  for (int i = 0; i < 1000; ++i) due += time.is_due();
  CHECK(due == 10);
  time.set(2000);
  CHECK(time.picoseconds() == 2000);
  for (int i = 0; i < 1000; ++i) CHECK(!time.is_due());
}

TEST_CASE("parts of large arrays are done once, from both ends in turns") {
  for (const int64_t n : {int64_t(10), int64_t(1) << 16, (int64_t(1) << 17) + 3, int64_t(1) << 20})
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<int> calls(size_t(n), 0);
      int64_t first_place = -1;
      cpu::both_ways(7, 7 + n, 4, [&](int64_t begin, int64_t end) {
        if (first_place < 0) first_place = begin;
        for (int64_t i = begin; i < end; ++i) ++calls[size_t(i - 7)];
      });
      CHECK(size_t(std::count(calls.begin(), calls.end(), 1)) == calls.size());
      const bool turns = n * 4 >= 256 << 10 && n * 4 <= 2 << 20;
      CHECK((first_place == 7) == (!turns || !cpu::left_at_start));
    }
}

TEST_CASE("smaller arrays are shared where lines are fast") {
  const int64_t before = line_time.picoseconds();
  line_time.set(25'000);
  CHECK(cpu::grain_bytes() == 400'000);
  CHECK(!cpu::is_shared(32 << 10, 4, 100));
  CHECK(cpu::is_shared(64 << 10, 4, 100));
  line_time.set(1500);
  CHECK(cpu::grain_bytes() == 64 << 10);
  CHECK(cpu::is_shared(8 << 10, 4, 100));
  CHECK(!cpu::is_shared(4 << 10, 4, 100));
  CHECK(cpu::is_shared(8 << 10, 4, 1000));
  CHECK(!cpu::is_shared(1, 4, 1000));
  line_time.set(before);
}

TEST_CASE("no sum depends on the time of a line") {
  const int64_t before = line_time.picoseconds();
  Context ctx;
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const int64_t columns : {9, 190, 1000}) {
      const Value x = make_array(Type{dtype, {}, {36'000 / columns, columns}});
      for (int64_t i = 0; i < x.numel(); ++i)
        store_number(dtype, static_cast<char*>(x.array().data()) + i * size_of(dtype), std::sin(double(i)));
      for (const int64_t dim : {1, 2}) {
        line_time.set(25'000);
        const auto slow = numbers(ctx, run(ctx, "sum", {x}, {{"dim", Ints{dim}}}));
        line_time.set(1500);
        CHECK(numbers(ctx, run(ctx, "sum", {x}, {{"dim", Ints{dim}}})) == slow);
      }
    }
  }
  line_time.set(before);
}

}  // namespace
}  // namespace pg::test
