// Several runtimes in one process: each has memory, threads, caches and a log of its own.
#include "tensor/runtime.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tensor/parallel.h"
#include "tests/tensor/arrays.h"

namespace pg::test {
namespace {

// A host's allocator that tracks its live blocks.
struct Heap {
  std::mutex lock;
  std::map<void*, size_t> out;
  size_t requests = 0;
  bool empty = false;  // no memory from now on

  MemorySource source() {
    return {[](void* user, size_t bytes, size_t alignment) -> void* {
              Heap& heap = *static_cast<Heap*>(user);
              const std::lock_guard hold(heap.lock);
              ++heap.requests;
              void* block = nullptr;
              if (heap.empty || posix_memalign(&block, alignment, bytes)) return nullptr;
              heap.out[block] = bytes;
              return block;
            },
            [](void* user, void* data, size_t bytes) {
              Heap& heap = *static_cast<Heap*>(user);
              const std::lock_guard hold(heap.lock);
              const auto found = heap.out.find(data);
              REQUIRE(found != heap.out.end());
              CHECK(found->second == bytes);
              heap.out.erase(found);
              std::free(data);
            },
            this};
  }
};

Ref<Runtime> runtime_on(Heap& heap) {
  RuntimeOptions options;
  options.memory = heap.source();
  return Runtime::create(options);
}

// A host's job system: a thread per task, started last to first.
struct Jobs {
  std::atomic<int> calls{0}, tasks{0};

  JobSystem system() {
    return {[](void* user, size_t count, void (*task)(void*, size_t), void* arg) {
              Jobs& jobs = *static_cast<Jobs*>(user);
              ++jobs.calls;
              std::vector<std::thread> threads;
              for (size_t i = count; i-- > 0;) {
                ++jobs.tasks;
                threads.emplace_back(task, arg, i);
              }
              for (std::thread& thread : threads) thread.join();
            },
            this};
  }
};

std::vector<double> squares(int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  parallel_for(n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) values[size_t(i)] = double(i) * double(i);
  });
  return values;
}

}  // namespace

TEST_CASE("a thread without a scope uses the runtime of the process") {
  CHECK(&Runtime::current() == &Runtime::process());
  const Ref<Runtime> a = Runtime::create({}), b = Runtime::create({});
  {
    const ScopedRuntime outer(*a);
    {
      const ScopedRuntime inner(*b);
      CHECK(&Runtime::current() == b.get());
      std::thread([] { CHECK(&Runtime::current() == &Runtime::process()); }).join();
    }
    CHECK(&Runtime::current() == a.get());
  }
  CHECK(&Runtime::current() == &Runtime::process());
}

TEST_CASE("tensors come from the memory of their runtime, go back to it, and keep it alive") {
  Heap heap;
  Value kept;
  const MemoryStats before = Runtime::process().memory().stats();
  {
    const Ref<Runtime> runtime = runtime_on(heap);
    const ScopedRuntime scope(*runtime);
    for (const int64_t size : {1, 100, 100000, 1000000}) {
      const Value value = make_filled(Type{DType::kFloat32, {}, {size}}, 1);
      CHECK(runtime->memory().stats().live == size * 4);
    }
    CHECK(runtime->memory().stats().live == 0);
    CHECK(runtime->memory().stats().cached > 0);
    kept = make_filled(Type{DType::kFloat32, {}, {7}}, 3);
  }
  CHECK(Runtime::process().memory().stats().live == before.live);
  CHECK(Runtime::process().memory().stats().allocations == before.allocations);
  CHECK(heap.requests > 0);
  CHECK(!heap.out.empty());
  CHECK(kept.numel() == 7);
  std::thread([&] { kept = {}; }).join();  // the last reference may be dropped on any thread
  CHECK(heap.out.empty());
}

TEST_CASE("a host without memory is an OutOfMemory that leaves the runtime usable") {
  Heap heap;
  const Ref<Runtime> runtime = runtime_on(heap);
  const ScopedRuntime scope(*runtime);
  heap.empty = true;
  CHECK_THROWS_AS(make_filled(Type{DType::kFloat64, {}, {5000}}, 1), OutOfMemory);
  heap.empty = false;
  CHECK(make_filled(Type{DType::kFloat64, {}, {5000}}, 1).numel() == 5000);
  CHECK(runtime->memory().stats().live == 0);
}

TEST_CASE("the job system of a host runs the pieces of a region") {
  Jobs jobs;
  RuntimeOptions options;
  options.threads = 4;
  options.jobs = jobs.system();
  const Ref<Runtime> runtime = Runtime::create(options);
  std::vector<double> expected(1000);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = double(i * i);
  const ScopedRuntime scope(*runtime);
  CHECK(squares(1000) == expected);
  CHECK(jobs.calls == 1);
  CHECK(jobs.tasks == 4);

  std::atomic<int> foreign{0}, nested{0};
  parallel_for(4, 1, [&](int64_t, int64_t) {
    if (&Runtime::current() != runtime.get()) ++foreign;
    parallel_for(100, 1, [&](int64_t begin, int64_t end) { nested += int(end - begin); });
  });
  CHECK(foreign == 0);
  CHECK(nested == 400);
  CHECK(jobs.calls == 2);  // a nested region runs on its calling thread

  CHECK_THROWS_WITH(parallel_for(4, 1,
                                 [](int64_t begin, int64_t) {
                                   if (begin == 2) throw Error("piece 2");
                                 }),
                    "piece 2");
  CHECK(squares(1000) == expected);
}

TEST_CASE("threads of two runtimes work at the same time") {
  RuntimeOptions options;
  options.threads = 3;
  std::vector<std::thread> hosts;
  std::atomic<int> wrong{0};
  for (int host = 0; host < 2; ++host)
    hosts.emplace_back([&] {
      const Ref<Runtime> runtime = Runtime::create(options);
      const ScopedRuntime scope(*runtime);
      for (int round = 0; round < 50; ++round) {
        const std::vector<double> found = squares(300);
        for (size_t i = 0; i < found.size(); ++i) wrong += found[i] != double(i * i);
        parallel_for(30, 1, [&](int64_t, int64_t) { wrong += &Runtime::current() != runtime.get(); });
      }
    });
  for (std::thread& host : hosts) host.join();
  CHECK(wrong == 0);
}

TEST_CASE("a runtime logs to its host, or not at all") {
  std::string text;
  RuntimeOptions options;
  options.log = [](void* user, int level, const char* line) {
    *static_cast<std::string*>(user) += std::to_string(int(level)) + " " + line + "\n";
  };
  options.log_user = &text;
  Runtime::create(options)->log(LogLevel::kWarning, "slow");
  Runtime::create({})->log(LogLevel::kError, "unseen");
  CHECK(text == "2 slow\n");
}

TEST_CASE("options that cannot be are refused") {
  RuntimeOptions options;
  for (const int threads : {-1, 1025}) {
    options.threads = threads;
    CHECK_THROWS_AS(Runtime::create(options), Error);
  }
  options = {};
  options.memory.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
  CHECK_THROWS_AS(Runtime::create(options), Error);
}

TEST_CASE("each runtime has its own part of an upper layer") {
  struct Counter {
    int value = 0;
  };
  static const PerRuntime<Counter> counters;
  const Ref<Runtime> a = Runtime::create({}), b = Runtime::create({});
  ++counters.of(*a).value;
  CHECK(counters.of(*a).value == 1);
  CHECK(counters.of(*b).value == 0);
}

}  // namespace pg::test
