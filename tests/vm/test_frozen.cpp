// Frozen graphs in several threads and Lua states at the same time.
#include <doctest/doctest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/vm/lua_state.h"
#include "vm/graph.h"

namespace {

// A net with running statistics, dropout and a counter of its runs.
const char* const kMake = R"(
  local pg = require "perigee"
  local nn = pg.nn
  pg.manual_seed(4)
  local body = nn.HybridSequential{nn.Dense(32, {activation = "tanh"}), nn.BatchNorm(), nn.Dropout(0.5), nn.Dense(8)}
  local net = nn.block{body = body, runs = pg.zeros(1), forward = function(self, x)
    self.runs:add_(1)
    return self.body(x), self.runs + 0
  end}
  net:initialize()
  net(pg.ones(4, 16))
  graph = net:freeze()
  net.body[1].weight:zero_()
)";

// Runs the graph on inputs of several sizes. The result must depend only on the input.
const char* const kUse = R"(
  local pg = require "perigee"
  local seen = {}
  for i = 1, 60 do
    local n = 1 + i % 3
    local x = pg.ones(n, 16):cumsum(2) * 0.01
    local y, runs = graph:run(x)
    assert(y:dim() == 2 and y:size(1) == n and y:size(2) == 8)
    local before = seen[n]
    if before then assert(y:equal(before), "another result") end
    seen[n] = y
    last = runs:item()
    if i % 7 == 0 then pg.train_mode(function() graph:run(x) end) end
    if i % 7 == 0 then seen = {} end
  end
)";

void give(pg::Ref<pg::FrozenGraph> graph, lua_State* L) {
  pg::vm::push_frozen_graph(L, std::move(graph));
  lua_setglobal(L, "graph");
}

pg::Ref<pg::FrozenGraph> take(lua_State* L) {
  lua_getglobal(L, "graph");
  pg::Ref<pg::FrozenGraph> graph = pg::vm::to_frozen_graph(L, -1);
  lua_pop(L, 1);
  REQUIRE(bool(graph));
  return graph;
}

// Runs the chunk in `count` threads. Each has its own state, with the graph as a global.
void run_in_threads(int count, const pg::Ref<pg::FrozenGraph>& graph, const char* chunk) {
  std::vector<std::string> errors{size_t(count)};
  std::vector<std::thread> threads;
  for (std::string& error : errors)
    threads.emplace_back([&error, graph, chunk] {
      LuaState own;
      give(graph, own);
      error = own.run(chunk);
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) CHECK(error == "");
}

}  // namespace

TEST_CASE("one frozen graph runs in several threads with a Lua state each") {
  LuaState L;
  REQUIRE(L.run(kMake) == "");
  const pg::Ref<pg::FrozenGraph> graph = take(L);
  lua_close(L.release());  // the graph outlives the state that created it
  run_in_threads(4, graph, R"(
    local pg = require "perigee"
    local x = pg.ones(2, 16)
    local y = graph:run(x)
    for i = 1, 100 do assert((graph:run(x)):equal(y), "another result") end
    assert((y:abs():sum():item()) > 0)
  )");
  // Each run adds one to the value that it read, and the last run to finish sets the final value.
  LuaState last;
  give(graph, last);
  CHECK(last.run("local _, runs = graph:run(require('perigee').ones(1, 16)); assert(runs:item() >= 2 and runs:item() "
                 "<= 410, runs:item())") == "");
}

TEST_CASE("one frozen graph trains and predicts in several threads at once") {
  LuaState L;
  REQUIRE(L.run(kMake) == "");
  CHECK(L.run(kUse) == "");
  const pg::Ref<pg::FrozenGraph> graph = take(L);
  run_in_threads(3, graph, R"(
    local pg = require "perigee"
    for i = 1, 60 do
      local x = pg.ones(1 + i % 4, 16)
      local y = i % 2 == 0 and graph:run(x) or pg.train_mode(function() return (graph:run(x)) end)
      assert(y:isfinite():all():item(), "not finite")
    end
  )");
}

TEST_CASE("16 states in 16 threads train and share one frozen graph") {
  LuaState L;
  REQUIRE(L.run(kMake) == "");
  const pg::Ref<pg::FrozenGraph> graph = take(L);
  run_in_threads(16, graph, R"(
    local pg = require "perigee"
    local nn = pg.nn
    pg.manual_seed(4)
    local net = nn.HybridSequential{
      nn.Conv2D(4, 3, {padding = 1, activation = "relu"}), nn.BatchNorm(), nn.Flatten(), nn.Dropout(0.2), nn.Dense(8)}
    net:initialize("xavier")
    net:hybridize()
    local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 1e-3})
    local loss = pg.loss.L2Loss()
    for i = 1, 6 do
      local n = 1 + i % 3
      local y = graph:run(pg.randn(n, 16))
      local l = pg.record(function() return loss(net(pg.randn(n, 1, 6, 6)), y) end)
      l:backward()
      trainer:step(n)
      local total = pg.foreach(function(x, s) return x * s, s + x end, y, pg.zeros(8))
      assert(total:isfinite():all():item() and l:isfinite():all():item())
      pg.scope(function() return pg.randn(64, 300):softmax(2):matmul(pg.randn(300, 64)):sum() end)
    end
  )");
}

TEST_CASE("values that are not frozen graphs are refused") {
  LuaState L;
  REQUIRE(L.run("require 'perigee'") == "");
  lua_newtable(L);
  CHECK(!pg::vm::to_frozen_graph(L, -1));
  lua_pushnumber(L, 3);
  CHECK(!pg::vm::to_frozen_graph(L, -1));
  CHECK(L.run("require('perigee').graph(io.stdout)").find("frozen graph") != std::string::npos);
}
