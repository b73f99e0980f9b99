// The C API under stress: every allocation fails once, many frames and many states, and threads that share a model.
// With PERIGEE_FULL_STRESS set, memory is measured over 10^5 frames and 10^4 states.
#include <dlpack/dlpack.h>
#include <malloc.h>

#include <cstring>
#include <lua.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/vm/allocations.h"
#include "tests/vm/host_model.h"

using namespace pg::test;

namespace {

// A failing call of perigee.h. A case of the sweep ends at it.
struct Failed {
  perigee_status status;
};
void must(perigee_status status) {
  if (status != PERIGEE_OK) throw Failed{status};
}

const ModelFiles& small_model() {
  static const ModelFiles files("nn.HybridSequential{nn.Dense(8, {activation = 'relu'}), nn.BatchNorm(), nn.Dense(4)}",
                                "net(pg.ones(2, 4))");
  return files;
}

constexpr int64_t kShape[] = {2, 4}, kTurned[] = {1, 2};

void use_tensors(const perigee::Runtime& runtime) {
  float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  perigee::Tensor zeros, turned, back;
  must(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, 2, kShape, zeros.out()));
  must(perigee_tensor_wrap(runtime.get(), data, PERIGEE_FLOAT32, 2, kShape, kTurned, nullptr, nullptr, turned.out()));
  if (!perigee_tensor_data(turned.get())) must(perigee_last_error()->status);
  DLManagedTensor* managed = nullptr;
  must(perigee_tensor_to_dlpack(zeros.get(), &managed));
  const perigee_status status = perigee_tensor_from_dlpack(runtime.get(), managed, back.out());
  if (status != PERIGEE_OK) managed->deleter(managed);
  must(status);
}

void use_model(const perigee::Runtime& runtime) {
  const ModelFiles& files = small_model();
  perigee::Model model;
  must(perigee_model_load_memory(runtime.get(), files.graph.data(), files.graph.size(), files.weights.data(),
                                 files.weights.size(), model.out()));
  perigee::Tensor x, y, z;
  must(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, 2, kShape, x.out()));
  must(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, 2, kShape, z.out()));
  perigee_tensor *const in = x.get(), *const into = z.get();
  must(perigee_model_run(model.get(), &in, 1, y.out(), 1));
  must(perigee_model_run_into(model.get(), &in, 1, &into, 1));
  static const std::string path = "/tmp/perigee_stress_" + std::to_string(getpid());
  const perigee_status status = perigee_model_save(model.get(), path.c_str());
  std::remove(path.c_str());
  must(status);
}

void use_state(const perigee::Runtime& runtime, const perigee::State& state) {
  static const char text[] =
      "local pg = require 'perigee' function f(x) local y = pg.record(function() return (x * x):sum() end) "
      "return y, x:t(), 'text', 1 end";
  must(perigee_run(state.get(), text, sizeof text - 1, "stress"));
  perigee::Tensor x;
  must(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, 2, kShape, x.out()));
  const perigee_value arg = perigee::value(x);
  perigee_value results[4], value;
  must(perigee_set(state.get(), "x", &arg));
  must(perigee_get(state.get(), "x", &value));
  perigee_tensor_release(value.as.tensor);
  must(perigee_call(state.get(), "f", &arg, 1, results, 4, nullptr));
  for (int i = 0; i < 2; ++i) perigee_tensor_release(results[i].as.tensor);
  auto info = PERIGEE_INIT(perigee_memory_info);
  must(perigee_memory(state.get(), &info));
  must(perigee_gc_step(state.get(), 10));
}

void open_and_use(const perigee::Runtime& runtime) {
  auto config = PERIGEE_INIT(perigee_state_config);
  perigee::State state;
  must(perigee_state_open(runtime.get(), &config, state.out()));
  use_state(runtime, state);
}

// Calls use() with the k-th request failing, for k = 1, 2 … until none fails; k grows by k / sparse too. arm(k) makes
// the k-th request fail, disarm() ends this and returns whether it has happened.
template <class Use, class Arm, class Disarm>
void sweep(long sparse, Use use, Arm arm, Disarm disarm) {
  std::set<std::string> seen;
  for (long k = 1;; k += 1 + k / sparse) {
    CAPTURE(k);
    perigee_status status = PERIGEE_OK;
    arm(k);
    try {
      use();
    } catch (const Failed& failed) {
      status = failed.status;
    }
    const bool happened = disarm();
    const std::string message = status == PERIGEE_OK ? "" : perigee_last_error()->message;
    // LuaJIT does not say why an error handler failed.
    const bool in_handler = status == PERIGEE_SCRIPT_ERROR && message == "an error in error handling";
    if (status != PERIGEE_OK && seen.insert(message).second)
      CHECK_MESSAGE((status == PERIGEE_OUT_OF_MEMORY || in_handler), message);
    if (!happened) break;
    REQUIRE(k < 1000000);
  }
  use();  // the runtime is as good as before
}

// Both kinds of requests: operator new, and the tensor memory that the host gives.
template <class Use>
void sweep_all(long sparse, HostMemory& memory, Use use) {
  for (bool persistent : {false, true}) {
    CAPTURE(persistent);
#ifndef PERIGEE_SANITIZED
    sweep(
        sparse, use,
        [&](long k) {
          cpp_allocations = {k, persistent, false};
        },
        [&] {
          const bool happened = cpp_allocations.happened;
          cpp_allocations = {};
          return happened;
        });
#endif
    memory.persistent = persistent;
    sweep(
        sparse, use, [&](long k) { memory.fail(k); }, [&] { return memory.stop(); });
  }
}

bool full() { return std::getenv("PERIGEE_FULL_STRESS") != nullptr; }

// Bytes that the process has from malloc and mmap, except what it keeps for reuse.
int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return int64_t(info.uordblks + info.hblkhd);
}

}  // namespace

TEST_CASE("host: a runtime is usable after any of its allocations has failed") {
  small_model();
  HostMemory memory;
  {
    const perigee::Runtime runtime = memory.runtime();
    const perigee::State state = open_state(runtime);
    sweep_all(1000000, memory, [&] { use_state(runtime, state); });
  }
  CHECK(memory.live.load() == 0);
  // A runtime of its own for each failure, so that no memory is left over for reuse.
  sweep_all(1000000, memory, [&] {
    perigee::Runtime runtime;
    must(memory.create(runtime));
    use_tensors(runtime);
    use_model(runtime);
  });
  CHECK(memory.live.load() == 0);
  sweep_all(full() ? 1000 : 4, memory, [&] {
    perigee::Runtime runtime;
    must(memory.create(runtime));
    open_and_use(runtime);
  });
  CHECK(memory.live.load() == 0);
}

TEST_CASE("host: a state of the host is usable after any allocation of Lua has failed") {
  static thread_local Countdown lua;
  const auto allocate = [](void*, void* block, size_t, size_t size) -> void* {
    if (size == 0) return std::free(block), nullptr;
    return lua.fails() ? nullptr : std::realloc(block, size);
  };
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  lua_State* L = lua_newstate(allocate, nullptr);
  if (!L) {
    MESSAGE("skipped: this LuaJIT takes no allocator");
    return;
  }
  luaL_openlibs(L);
  REQUIRE(luaL_dostring(L, "jit.off()") == 0);  // LuaJIT's compiler crashes without memory, in plain Lua too
  perigee::State state;
  for (bool persistent : {false, true})
    sweep(
        20,
        [&] {
          if (!state) must(perigee_state_attach(runtime.get(), L, state.out()));
          use_state(runtime, state);
        },
        [&](long k) {
          lua = {k, persistent, false};
        },
        [&] {
          const bool happened = lua.happened;
          lua = {};
          return happened;
        });
  state = perigee::State();
  lua_close(L);
}

TEST_CASE("host: frames leave memory where it was") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const perigee::State state = open_state(runtime);
  const perigee::Model model = small_model().load(runtime);
  must_run(state, "local pg = require 'perigee' function step(x) return (x * 0.5 + 1):tanh(), 'frame' end");
  const perigee::Tensor x = zeros(runtime, {2, 4});
  const auto frame = [&] {
    const perigee_value arg = perigee::value(x);
    perigee_value results[2];
    REQUIRE(perigee_call(state.get(), "step", &arg, 1, results, 2, nullptr) == PERIGEE_OK);
    perigee::Tensor y;
    REQUIRE(perigee_model_run(model.get(), &results[0].as.tensor, 1, y.out(), 1) == PERIGEE_OK);
    perigee_tensor_release(results[0].as.tensor);
  };
  const auto collected = [&] {
    must_run(state, "jit.flush() for i = 1, 4 do collectgarbage() end");
    auto info = PERIGEE_INIT(perigee_memory_info);
    REQUIRE(perigee_memory(state.get(), &info) == PERIGEE_OK);
    return info;
  };
  const int count = full() ? 100000 : 2000;
  // The cache keeps what was in use between two collections. Fill it with more than frames ever use, so that what grows
  // afterwards is no cache.
  must_run(state, "collectgarbage('stop')");
  for (int i = 0; i < 2000; ++i) frame();
  must_run(state, "collectgarbage('restart')");
  collected();
  for (int i = 0; i < count; ++i) frame();
  const perigee_memory_info before = collected();
  [[maybe_unused]] const int64_t heap = heap_bytes();
  const long blocks = memory.live;
  for (int i = 0; i < count; ++i) frame();
  const perigee_memory_info after = collected();
  CHECK(after.tensors == before.tensors);
  CHECK(after.tensor_bytes == before.tensor_bytes);
  CHECK(after.lua_bytes <= before.lua_bytes + 4096);
  CHECK(memory.live.load() <= blocks + 16);
#ifndef PERIGEE_SANITIZED
  CHECK(heap_bytes() <= heap + (256 << 10));
#endif
}

TEST_CASE("host: states that are opened and closed leave memory where it was") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const int count = full() ? 10000 : 20;
  for (int i = 0; i < 10; ++i) open_and_use(runtime);
  [[maybe_unused]] const int64_t heap = heap_bytes();
  const long blocks = memory.live;
  for (int i = 0; i < count; ++i) open_and_use(runtime);
  CHECK(memory.live.load() == blocks);
#ifndef PERIGEE_SANITIZED
  CHECK(heap_bytes() <= heap + (256 << 10));
#endif
}

TEST_CASE("host: 16 states in 16 threads share one model, and 16 threads run it without a state") {
  perigee::Runtime runtime;
  REQUIRE(perigee_runtime_create(nullptr, runtime.out()) == PERIGEE_OK);
  const perigee::Model model = small_model().load(runtime);
  std::vector<std::string> errors(32);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < errors.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        const auto work = [&] {
          float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
          perigee::Tensor x, y, z;
          must(
              perigee_tensor_wrap(runtime.get(), data, PERIGEE_FLOAT32, 2, kShape, nullptr, nullptr, nullptr, x.out()));
          must(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, 2, kShape, z.out()));
          perigee_tensor *const in = x.get(), *const into = z.get();
          for (int k = 0; k < 50; ++k) {
            must(perigee_model_run(model.get(), &in, 1, y.out(), 1));
            must(perigee_model_run_into(model.get(), &in, 1, &into, 1));
            if (std::memcmp(floats(y), floats(z), 32)) errors[i] = "another result";
          }
        };
        if (i % 2) return work();
        perigee::State state;
        must(perigee_state_open(runtime.get(), nullptr, state.out()));
        const perigee_value shared = perigee::value(model);
        must(perigee_set(state.get(), "model", &shared));
        must(perigee::run(state,
                          "local pg = require 'perigee' local x = pg.range(1, 8):reshape(2, 4) "
                          "local double = pg.jit(function(v) return v * 2 end) local y = model(x) "
                          "for i = 1, 30 do assert(double(model(x)):equal(y * 2)) end"));
      } catch (const Failed&) {
        errors[i] = perigee_last_error()->message;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) CHECK(error == "");
}
