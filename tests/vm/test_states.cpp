// Several Lua states in one process, in turn and at once, and orders from other threads.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <lua.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tensor/error.h"
#include "tensor/parallel.h"
#include "vm/state.h"

extern "C" int luaopen_perigee(lua_State* L);

namespace {

// Runs a chunk; answers its error or "".
std::string run(lua_State* L, const char* text) {
  std::string error;
  if (luaL_loadstring(L, text) || lua_pcall(L, 0, 0, 0)) {
    error = lua_tostring(L, -1) ? lua_tostring(L, -1) : "an error that is no text";
    lua_pop(L, 1);
  }
  return error;
}

lua_State* new_state() {
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, luaopen_perigee);
  lua_setfield(L, -2, "perigee");
  lua_pop(L, 2);
  return L;
}

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

TEST_CASE("states side by side, closed in any order") {
  std::vector<lua_State*> states;
  for (int i = 0; i < 3; ++i) states.push_back(new_state());
  for (int round = 0; round < 2; ++round)
    for (lua_State* L : states) CHECK(run(L, kTraining) == "");
  lua_close(states[1]);
  CHECK(run(states[0], kTraining) == "");
  lua_close(states[0]);
  CHECK(run(states[2], kTraining) == "");
  lua_close(states[2]);
}

TEST_CASE("states in threads at once, while the number of threads changes") {
  std::vector<std::string> errors(4);
  std::vector<std::thread> threads;
  for (std::string& error : errors)
    threads.emplace_back([&error] {
      lua_State* L = new_state();
      error = run(L, kTraining);
      lua_close(L);
    });
  const int before = pg::num_threads();
  for (int i = 0; i < 50; ++i) pg::set_num_threads(1 + i % 5);
  for (std::thread& t : threads) t.join();
  pg::set_num_threads(before);
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("a state may be closed by another thread than the one that used it") {
  lua_State* L = new_state();
  CHECK(run(L, kTraining) == "");
  CHECK(run(L, "local pg = require 'perigee'; kept = pg.record(function() return pg.ones(9):attach_grad() * 2 end)") == "");
  std::thread([L] { lua_close(L); }).join();
}

TEST_CASE("cancel ends a script at any place and leaves the state usable") {
  lua_State* L = new_state();
  CHECK(run(L, "x = require 'perigee'.ones(3)") == "");
  std::atomic<bool>& cancel = pg::vm::find_state(L).ctx.cancel;
  for (int i = 0; i < 20; ++i) {
    std::thread other([&cancel, i] {
      std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
      cancel = true;
    });
    const std::string error = run(L, "for i = 1, 1e9 do x:mul_(1) end");
    other.join();
    CHECK(error.find("interrupt") != std::string::npos);
    CHECK(run(L, "assert(x:sum():item() == 3)") == "");
  }
  lua_close(L);
}
