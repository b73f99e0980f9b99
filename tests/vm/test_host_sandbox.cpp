// Sandboxed states: what works in them, and the attempts of tests/sandbox/escapes.lua to leave them.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <lua.hpp>
#include <vector>

#include "tests/vm/host.h"

namespace {

struct Attempt {
  std::string what, script, outcome;
};

std::vector<Attempt> attempts() {
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  if (luaL_dofile(L, PERIGEE_SOURCE_DIR "/tests/sandbox/escapes.lua")) FAIL(lua_tostring(L, -1));
  std::vector<Attempt> list;
  for (int i = 1; i <= int(lua_objlen(L, 1)); ++i, lua_settop(L, 1)) {
    lua_rawgeti(L, 1, i);
    std::string* const parts[] = {&list.emplace_back().what, &list.back().script, &list.back().outcome};
    for (int k = 0; k < 3; ++k) {
      lua_rawgeti(L, 2, k + 1);
      *parts[k] = lua_tostring(L, -1);
    }
  }
  lua_close(L);
  return list;
}

void sandbox(perigee_state_config& config) {
  config.sandboxed = 1;
  config.memory_limit = 32u << 20;
  config.instruction_limit = 3000000;
  config.time_limit_us = 2000000;
  config.print = [](void*, const char*, size_t) {};
}

void check_outcome(perigee_status status, const std::string& outcome) {
  const std::string message = status == PERIGEE_OK ? "" : perigee_last_error()->message;
  CAPTURE(message);
  if (outcome == "held") {
    CHECK(status == PERIGEE_OK);
  } else if (outcome == "budget") {
    CHECK(status == PERIGEE_BUDGET_EXCEEDED);
  } else if (outcome == "memory") {
    CHECK(status == PERIGEE_OUT_OF_MEMORY);
  } else if (outcome.empty()) {  // any end by an error, or a harmless result
    CHECK(status != PERIGEE_INTERNAL);
  } else {
    CHECK(status == PERIGEE_SCRIPT_ERROR);
    CHECK(message.find(outcome) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("host sandbox: no attempt leaves it, and the state works after each") {
  const std::vector<Attempt> list = attempts();
  CHECK(list.size() >= 100);
  LimitedHost host(sandbox);
  for (const Attempt& attempt : list) {
    CAPTURE(attempt.what);
    check_outcome(host.run(attempt.script), attempt.outcome);
    CHECK(host.works());
    host.run("local keep = string.upper");
  }
  CHECK(access("/tmp/perigee_escape.npy", F_OK) != 0);
}

TEST_CASE("host sandbox: errors and tracebacks are those of other states") {
  LimitedHost other([](perigee_state_config&) {});
  LimitedHost host([](perigee_state_config& c) { c.sandboxed = 1; });
  const std::string block =
      "local C = nn.HybridBlock:extend('C')\nfunction C:forward(x)\nreturn x:reshape(7)\nend\n"
      "local net = nn.HybridSequential{nn.Dense(2), nn.HybridSequential{C()}} net:initialize() ";
  const std::string dense = "local net = nn.Dense(2, {in_units = 3}) net:initialize() ";
  const std::pair<std::string, const char*> scripts[] = {
      {dense + "net(pg.ones(1, 3), 2)", "host.lua:1: Dense: got 2 inputs (expected 1)"},
      {dense + "net:hybridize() net(pg.ones(1, 3)) net(pg.ones(1, 3), 2)",
       "host.lua:1: Dense: got 2 inputs (expected 1)"},
      {"local net = nn.HybridSequential{nn.Dense(2, {in_units = 3})} net:initialize() net(pg.ones(1, 3), 3)",
       "child 1, a Dense, takes 1"},
      {dense + "net(pg.ones(1, 4))", "expected 3 features"},
      {block + "net(pg.ones(1, 3))", "(in block '2.1', C, forward at host.lua:2-4)"},
      {block + "net:hybridize() net(pg.ones(1, 3))", "(in block '2.1', C)"},
      {"local bad = false local f = pg.jit(function(x) return (x * 2):tap(function() if bad then error('tapped') end "
       "end) end)\nf(pg.ones(2)) bad = true\nf(pg.ones(2))",
       "tapped"},
      {"local function f() return coroutine.wrap(function() error('x') end)() end f()", "host.lua:1: host.lua:1: x"},
  };
  for (const auto& [script, part] : scripts) {
    const std::string text = "local pg = require 'perigee' local nn = pg.nn " + script;
    CAPTURE(text);
    REQUIRE(other.run(text) == PERIGEE_SCRIPT_ERROR);
    const std::string message = perigee_last_error()->message, traceback = perigee_last_error()->traceback;
    CHECK(message.find(part) != std::string::npos);
    CHECK(host.run(text) == PERIGEE_SCRIPT_ERROR);
    CHECK(perigee_last_error()->message == message);
    if (script.find("coroutine") == std::string::npos) CHECK(perigee_last_error()->traceback == traceback);
  }
}

TEST_CASE("host sandbox: the library works in it") {
  LimitedHost host([](perigee_state_config& c) { c.sandboxed = 1; });
  const char* const scripts[] = {
      "pg = require 'perigee' nn = pg.nn net = nn.HybridSequential{nn.Dense(4, {activation = 'relu'}), nn.Dense(2)} "
      "net:initialize() x = pg.randn(8, 3) y = net(x) net:hybridize() assert(net(x):allclose(y, {atol = 1e-5}))",
      "trainer = pg.optim.Trainer(net:collect_params(), 'adam', {learning_rate = 0.01}) "
      "for i = 1, 3 do local l = pg.record(function() return (net(x) * net(x)):sum() end) l:backward() trainer:step(1) "
      "end",
      "step = pg.jit(function(x) local l = pg.record(function() return net(x):sum() end) l:backward() trainer:step(1) "
      "return l end) "
      "for i = 1, 4 do step(x) end",
      "for a, b in pg.data.DataLoader(pg.data.ArrayDataset(x, x), {batch_size = 4, shuffle = true}):iter() do "
      "assert(a:equal(b)) end",
      "assert(pg.loop(10, function(i, s) return s + i end, pg.zeros(1)):item() == 55)",
      "local outs = pg.foreach(function(x, s) return x + s, s + 1 end, x, pg.zeros(3)) assert(outs.shape[1] == 8)",
      "local f = pg.jit(function(t) local n = 0 for k, v in pairs(t) do n = n + v end return n * 2 end) "
      "assert(f({a = pg.ones(1), b = pg.ones(1)}):item() == 4)",
      "local f = pg.jit(function(x) local ok, e = pcall(error, 'x') return x * #(('a'):rep(3) .. tostring(ok)) end) "
      "assert(f(pg.ones(1)):item() == 8)",
      "pg.help() pg.help('conv2d') pg.help(nn.Dense) print(pg, nn, net, x) print(net:graph())",
      "local p = pg.utils.progress(3, 'p') p:step(1)",
      "for w in ('one two'):gmatch('%a+') do print(w) end assert(('a,b'):find(',', 1, true) == 2)",
      "pg.manual_seed(1) assert(pg.metric and pg.loss.L2Loss)",
  };
  for (const char* script : scripts) {
    CAPTURE(std::string(script));
    const perigee_status status = host.run(script);
    CAPTURE(std::string(perigee_last_error()->message));
    CHECK(status == PERIGEE_OK);
  }
  CHECK(host.printed.find("pg.conv2d") != std::string::npos);
}

TEST_CASE("host sandbox: scripts and states go on after memory ran out at any point") {
  LimitedHost host(sandbox);
  for (const char* fill :
       {"local x = pg.ones(1e4) x:attach_grad() pg.record(function() while true do x = x:sin() end end)",
        "local t = {} pg.no_grad(function() while true do t[#t + 1] = pg.ones(1e3) end end)",
        "pg.no_grad(function() local t = {} while true do t = {t} end end)",
        "error(select(2, xpcall(function() local t = {} while true do t = {t} end end, function(e) for i = 1, 9 do e = "
        "e end return e end)))"}) {
    CAPTURE(std::string(fill));
    for (int size = 1; size < 40000; size += 1777) {
      CAPTURE(size);
      const std::string start = fmt::format("local pg, keep = require 'perigee', ('x'):rep({}) ", size);
      check_outcome(host.run(start + fill), "memory");
      CHECK(host.works());
      check_outcome(host.run(start + "assert(not pcall(function() " + fill + " end)) assert(#('y'):rep(2e6) == 2e6)"),
                    "held");
    }
  }
}
