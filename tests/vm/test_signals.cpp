// A host whose timer raises signals that run on the thread's own stack (no SA_ONSTACK), as in game engines and
// profilers.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/time.h>

#include <atomic>
#include <string>

#include "tests/vm/lua_state.h"

namespace {

std::atomic<int> ticks{0};

void count(int) { ++ticks; }

// Raises a signal every half millisecond while it exists.
class Timer {
 public:
  Timer() {
    struct sigaction action = {};
    action.sa_handler = count;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, &before_);
    set(500);
  }
  ~Timer() {
    set(0);
    sigaction(SIGALRM, &before_, nullptr);
  }

 private:
  static void set(suseconds_t every) {
    const itimerval value{{0, every}, {0, every}};
    setitimer(ITIMER_REAL, &value, nullptr);
  }
  struct sigaction before_;
};

int take_ticks(lua_State* L) {
  lua_pushinteger(L, ticks.exchange(0));
  return 1;
}

// Runs each piece of work until enough signals have interrupted it. Its results must always be the bits of the first
// run.
const char kScript[] = R"(
  local take_ticks, start, stop = ...
  package.path = TOP .. "/?.lua;" .. package.path
  local results = {}
  local work = require "tests.signals"
  for i, piece in ipairs(work) do results[i] = piece.run() end
  start()
  for i, piece in ipairs(work) do
    take_ticks()
    local hits, rounds = 0, 0
    while hits < 20 and rounds < 100000 do
      local out = piece.run()
      for k, y in ipairs(out) do
        if not y:equal(results[i][k]) then stop() error(piece.name .. " differs") end
      end
      hits, rounds = hits + take_ticks(), rounds + 1
    end
  end
  stop()
)";

Timer* timer = nullptr;
int start_timer(lua_State*) { return timer = new Timer, 0; }
int stop_timer(lua_State*) { return delete timer, timer = nullptr, 0; }

}  // namespace

TEST_CASE("signals on the thread's own stack do not change results") {
  LuaState L;
  std::string error = L.result(luaL_loadstring(L, kScript));
  if (error.empty()) {
    lua_pushcfunction(L, take_ticks);
    lua_pushcfunction(L, start_timer);
    lua_pushcfunction(L, stop_timer);
    error = L.result(lua_pcall(L, 3, 0, 0));
  }
  stop_timer(L);
  CHECK(error == "");
}
