// Several Lua states in one process, one after the other and at the same time, and cancel requests from other threads.
#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/parallel.h"
#include "tensor/runtime.h"
#include "tests/vm/lua_state.h"
#include "vm/state.h"

namespace {

const char* const kTraining = R"(
  local pg = require "perigee"
  local w = pg.randn(64, 64):attach_grad()
  for i = 1, 20 do
    local y = pg.record(function() return ((w:matmul(w)):tanh() * pg.rand(64, 64)):sum() end)
    y:backward()
    w:copy_(w - w.grad * 0.01)
    pg.scope(function() return pg.randn(300, 300):exp():sum() end)
  end
  assert(w:sum():item() == w:sum():item())
)";

}  // namespace

TEST_CASE("states are independent and close in any order") {
  std::unique_ptr<LuaState> states[3];
  for (auto& state : states) state = std::make_unique<LuaState>();
  for (int round = 0; round < 2; ++round)
    for (auto& state : states) CHECK(state->run(kTraining) == "");
  states[1].reset();
  CHECK(states[0]->run(kTraining) == "");
  states[0].reset();
  CHECK(states[2]->run(kTraining) == "");
}

TEST_CASE("states run in threads while the number of threads changes") {
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (std::string& error : errors)
    threads.emplace_back([&error] {
      LuaState L;
      error = L.run(kTraining);
    });
  const int before = pg::num_threads();
  for (int i = 0; i < 50; ++i) pg::Runtime::current().threads().resize(1 + i % 5);
  for (std::thread& t : threads) t.join();
  pg::Runtime::current().threads().resize(before);
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("states may be closed by another thread than their user") {
  LuaState L;
  CHECK(L.run(kTraining) == "");
  CHECK(L.run("local pg = require 'perigee'; kept = pg.record(function() return pg.ones(9):attach_grad() * 2 end)") ==
        "");
  std::thread([&L] { lua_close(L.release()); }).join();
}

namespace {

// step() of a script: counts, and wakes the thread that waits for the count.
int count_step(lua_State* L) {
  auto& steps = *static_cast<std::atomic<int>*>(lua_touserdata(L, lua_upvalueindex(1)));
  ++steps;
  steps.notify_all();
  return 0;
}

}  // namespace

TEST_CASE("cancel from another thread ends a script anywhere and leaves the state usable") {
  LuaState L;
  std::atomic<int> steps{0};
  lua_pushlightuserdata(L, &steps);
  lua_pushcclosure(L, count_step, 1);
  lua_setglobal(L, "step");
  CHECK(L.run("x = require 'perigee'.ones(3)") == "");
  std::atomic<bool>& cancel = pg::vm::find_state(L).ctx.cancel;
  for (int i = 0; i < 20; ++i) {
    steps = 0;
    std::thread other([&cancel, &steps, i] {
      for (int seen = 0; seen <= 100 * i; seen = steps) steps.wait(seen);
      cancel = true;
    });
    const std::string error = L.run("for i = 1, 1e9 do x:mul_(1) step() end");
    other.join();
    CHECK(error.find("interrupt") != std::string::npos);
    CHECK(L.run("assert(x:sum():item() == 3)") == "");
  }
}

TEST_CASE("a closed state releases its runtime, and its finalizers may still use tensors") {
  int blocks = 0;
  pg::RuntimeOptions options;
  options.memory = {[](void* user, size_t bytes, size_t alignment) -> void* {
                      ++*static_cast<int*>(user);
                      return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
                    },
                    [](void* user, void* data, size_t) { --*static_cast<int*>(user), std::free(data); }, &blocks};
  {
    const pg::Ref<pg::Runtime> runtime = pg::Runtime::create(options);
    const pg::ScopedRuntime scope(*runtime);
    LuaState L;
    CHECK(L.run("last = newproxy(true)") == "");  // older than the state of perigee: its finalizer runs after that
    CHECK(L.run("pg = require 'perigee'; x = pg.ones(100)") == "");
    CHECK(L.run("getmetatable(last).__gc = function() pg.ones(100):add(x) end") == "");
    CHECK(L.run(kTraining) == "");
    CHECK(blocks > 0);
  }
  CHECK(blocks == 0);
}

TEST_CASE("a state uses the runtime that was current when it was made") {
  std::string text;
  pg::RuntimeOptions options;
  options.threads = 3;
  options.log = [](void* user, int, const char* line) { *static_cast<std::string*>(user) += line; };
  options.log_user = &text;
  const pg::Ref<pg::Runtime> runtime = pg::Runtime::create(options);
  const int64_t before = pg::Runtime::process().memory().stats().allocations;
  LuaState L;
  {
    const pg::ScopedRuntime scope(*runtime);
    CHECK(L.run("pg = require 'perigee'") == "");
  }
  CHECK(L.run(kTraining) == "");
  CHECK(L.run("assert(pg.get_num_threads() == 3); pg.set_num_threads(2)") == "");
  CHECK(runtime->threads().size() == 2);
  CHECK(L.run("local f = pg.jit(function(x) return (x * 2):sum() end); for n = 1, 4 do f(pg.ones(4)) end") == "");
  CHECK(L.run("f = pg.jit(function(x, n) return x * n end); for n = 1, 4 do f(pg.ones(4), n) end") == "");
  CHECK(text.find("traced again") != std::string::npos);
  CHECK(pg::Runtime::process().memory().stats().allocations == before);
  CHECK(runtime->memory().stats().allocations > 0);
}
