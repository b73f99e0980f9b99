#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <thread>

#include "tensor/runtime.h"
#include "tensor/parallel.h"
#include "tensor/processor.h"
#include "tests/tensor/arrays.h"
#include "tests/tensor/regions.h"

namespace pg::test {
namespace {

size_t threads_of_process() {
  namespace fs = std::filesystem;
  return size_t(std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator()));
}

// The number of threads that have run run_on_all and have not ended. /proc lists a joined thread for a moment longer.
std::atomic<int> alive{0};
struct Presence {
  Presence() { ++alive; }
  ~Presence() { --alive; }
};

// Runs a region of n tasks that wait for each other, so that each has its own thread.
void run_on_all(int n) {
  std::barrier all(n);
  parallel_parts(n, [&](int64_t begin, int64_t end) {
    thread_local const Presence presence;
    REQUIRE(end - begin == 1);
    all.arrive_and_wait();
  });
}

}  // namespace

TEST_CASE("parallel_for: tasks cover the range once, have the minimum size and do not depend on timing") {
  for (int threads : {1, 2, 3, 7}) {
    Threads scope(threads);
    for (int64_t n : {1, 2, 10, 99, 100, 101, 1000}) {
      for (int64_t grain : {-1, 0, 1, 3, 50, 100, 1000000}) {
        const Pieces pieces = partition(n, grain);
        CHECK(int(pieces.size()) <= threads);
        int64_t at = 0;
        for (const auto& [begin, end] : pieces) {
          CHECK(begin == at);
          CHECK(end > begin);
          if (pieces.size() > 1) CHECK(end - begin >= (grain + 3) / 4);
          at = end;
        }
        CHECK(at == n);
        CHECK(partition(n, grain) == pieces);
      }
    }
  }
  CHECK(partition(0, 1).empty());
  CHECK(partition(-5, 1).empty());
}

TEST_CASE("parallel_for: huge ranges do not overflow") {
  Threads scope(7);
  const int64_t n = (int64_t(1) << 62) + 5;
  const Pieces pieces = partition(n, int64_t(1) << 40);
  CHECK(pieces.size() == 7);
  CHECK(pieces.front().first == 0);
  CHECK(pieces.back().second == n);
}

TEST_CASE("parallel_for: throws the first exception, and the pool keeps working") {
  Threads scope(4);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> done{0};
    CHECK(error_text([&] {
            parallel_for(400, 1, [&](int64_t begin, int64_t) {
              ++done;
              if (begin >= 100) throw Error("piece failed");
            });
          }) == "piece failed");
    CHECK(done >= 1);
    CHECK(partition(400, 1).size() == 4);
  }
}

TEST_CASE("parallel_for: a nested region runs on the calling thread as one task") {
  Threads scope(4);
  std::atomic<int> inner{0}, pieces{0};
  parallel_for(4, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto self = std::this_thread::get_id();
      parallel_for(1000, 1, [&](int64_t b, int64_t e) {
        ++pieces;
        inner += int(e - b);
        CHECK(std::this_thread::get_id() == self);
      });
    }
  });
  CHECK(inner == 4000);
  CHECK(pieces == 4);
  CHECK(partition(100, 1).size() == 4);  // the nested region has ended
}

TEST_CASE("parallel_for: an exception in a nested region does not leave the pool locked") {
  Threads scope(3);
  CHECK_THROWS_AS(
      parallel_for(3, 1, [](int64_t, int64_t) { parallel_for(9, 1, [](int64_t, int64_t) { throw Error("x"); }); }),
      Error);
  CHECK(partition(9, 1).size() == 3);
}

TEST_CASE("parallel_for: several threads can call it at once") {
  Threads scope(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int t = 0; t < 4; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 200; ++i) parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    });
  for (std::thread& t : callers) t.join();
  CHECK(sum == 4 * 200 * 100);
}

TEST_CASE("threads: start with the first region, are joined on request and start again") {
  Threads scope(3);
  Runtime::current().threads().stop();
  const size_t before = threads_of_process();  // or more than exist
  Runtime::current().threads().resize(5);
  CHECK(threads_of_process() <= before);
  run_on_all(5);
  CHECK(alive == 5);
  run_on_all(5);
  CHECK(alive == 5);
  Runtime::current().threads().resize(2);
  CHECK(num_threads() == 2);
  CHECK(alive == 1);
  run_on_all(2);
  CHECK(alive == 2);
  Runtime::current().threads().stop();
  Runtime::current().threads().stop();
  CHECK(alive == 1);
  run_on_all(2);
  CHECK(alive == 2);
}

TEST_CASE("fork: a child runs its regions on workers of its own") {
  Threads scope(3);
  run_on_all(3);
  const pid_t child = ::fork();
  if (child == 0) {
    alive = 1;  // the parent's workers do not exist here
    run_on_all(3);
    const bool started = alive == 3;
    Runtime::current().threads().stop();
    run_on_all(3);
    ::_exit(started ? 7 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
  run_on_all(3);
}

TEST_CASE("fork: a child can drop a runtime whose workers it does not have") {
  RuntimeOptions options;
  options.threads = 3;
  Ref<Runtime> runtime = Runtime::create(options);
  {
    const ScopedRuntime scope(*runtime);
    run_on_all(3);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    runtime = {};
    ::_exit(7);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 7);
}

TEST_CASE("parallel_for: sleeping, spinning and busy workers") {
  for (const int spin : {0, 20, 1000}) {
    RuntimeOptions options;
    options.threads = 4;
    options.spin_us = spin;
    const Ref<Runtime> runtime = Runtime::create(options);
    const ScopedRuntime current(*runtime);
    std::atomic<int64_t> sum{0};
    int64_t expected = 0;
    for (int round = 0; round < 3000; ++round) {
      const int64_t n = round % 17 + 1;
      expected += n;
      parallel_for(n, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          for (int k = 0; k < round % 7 * 50; ++k) spin_pause();
          ++sum;
        }
      });
      if (round % 500 == 0) std::this_thread::yield();
    }
    CHECK(sum == expected);
  }
  RuntimeOptions options;
  options.spin_us = 1001;
  CHECK(error_text([&] { Runtime::create(options); }) ==
        "runtime: bad argument 'spin_us' (expected a whole number from 0 to 1000, got 1001)");
}

TEST_CASE("set_num_threads: refuses invalid numbers of threads") {
  const int before = num_threads();
  CHECK(error_text([] { Runtime::current().threads().resize(0); }) ==
        "set_num_threads: bad argument 'n' (expected a whole number from 1 to 1024, got 0)");
  CHECK_THROWS_AS(Runtime::current().threads().resize(-3), Error);
  CHECK_THROWS_AS(Runtime::current().threads().resize(100000), Error);
  CHECK(num_threads() == before);
}

TEST_CASE("parallel: a region ends early once the watched flag is set") {
  for (const int threads : {1, 4}) {
    for (const int64_t grain : {1, 10}) {
      CAPTURE(threads);
      CAPTURE(grain);
      const Threads scope(threads);
      constexpr int64_t kItems = 1000000;
      std::atomic<bool> flag{false};
      std::atomic<int64_t> done{0};
      const auto body = [&](int64_t begin, int64_t end) {
        done += end - begin;
        if (done > 10000) flag = true;
      };
      {
        const PollScope watch(&flag);
        CHECK_THROWS_AS(parallel_for(kItems, grain, body), Cancelled);
        CHECK(done < kItems);
        CHECK(inside_poll_scope());
        done = 0;
        const PollScope no_watch(nullptr);
        parallel_for(kItems, grain, body);
        CHECK(done == kItems);
      }
      CHECK(!inside_poll_scope());
      done = 0;
      parallel_for(kItems, grain, body);  // no flag is watched
      CHECK(done == kItems);
      poll_kernel();
    }
  }
}

TEST_CASE("parallel: a region with a watched flag covers all items once") {
  const std::atomic<bool> flag{false};
  const PollScope watch(&flag);
  for (const int threads : {1, 3}) {
    const Threads scope(threads);
    for (const int64_t n : {1, 7, 8, 9, 100, 12345}) {
      for (const int64_t grain : {int64_t(1), int64_t(3), INT64_MAX}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++seen[size_t(i)];
        });
        CHECK(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
      }
    }
  }
}

TEST_CASE("a cancel request ends one kernel, or all kernels while cancels_all is set") {
  Context ctx;
  const auto kernel = [&] {
    ctx.cancel = true;
    poll_kernel();
  };
  CHECK_THROWS_AS(ctx.cancellable(kernel), Cancelled);
  CHECK(!ctx.cancel);
  CHECK(numbers(run(ctx, "neg", {array({1})})) == Numbers{-1});
  ctx.cancels_all = true;
  CHECK_THROWS_AS(ctx.cancellable(kernel), Cancelled);
  for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(run(ctx, "neg", {array({1})}), Cancelled);
  ctx.cancels_all = false;
  CHECK_THROWS_AS(run(ctx, "neg", {array({1})}), Cancelled);
  CHECK(numbers(run(ctx, "neg", {array({1})})) == Numbers{-1});
}

TEST_CASE("a cancel request never leaves an array half rewritten in place") {
  // The array is moved in, so that the kernel takes its buffer. The request then has to wait until the kernel is done.
  Context ctx;
  constexpr int64_t kSize = 1 << 20;
  Value in[1] = {make_filled(Type{DType::kFloat32, {}, {kSize}}, 1)};
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) ctx.cancel = true;
  });
  int cancelled = 0;
  for (int i = 0; i < 200; ++i) {
    try {
      in[0] = apply(ctx, registry().require("neg"), in, {})[0];
    } catch (const Cancelled&) {
      ++cancelled;
    }
  }
  stop = true;
  other.join();
  CHECK(cancelled > 0);
  const Numbers all = numbers(in[0]);
  CHECK(std::all_of(all.begin(), all.end(), [&](double v) { return v == all[0]; }));
}

}  // namespace pg::test
