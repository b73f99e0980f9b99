// Makes the k-th allocation of a script fail, for every k: allocations of Lua, and of the library in C++. Each failure
// must be an error that the host can catch, and the state must stay usable.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "tensor/runtime.h"
#include "tensor/buffer.h"
#include "tests/vm/allocations.h"
#include "tests/vm/lua_state.h"
#include "vm/box.h"

namespace {

using pg::test::Countdown;
thread_local Countdown lua;
thread_local Countdown& cpp = pg::test::cpp_allocations;

// The size of the last block that Lua asked for, and the bytes of a userdata before its content.
size_t last_size = 0, header = 0;

// LuaJIT drops a finalizer when its stack cannot grow, and then the tensor is never freed. This function frees it, so
// that the test detects other leaks.
void release_dropped(void* block) {
  auto* box = reinterpret_cast<pg::vm::Box*>(static_cast<char*>(block) + header);
  if (!box->state || !pg::vm::is_live(box->state) || box->collected) return;
  const auto* words = static_cast<const void* const*>(block);
  const auto* end = words + header / sizeof *words;
  if (std::find(words, end, box->state->tensor_metatable) == end) return;
  box->value = pg::Value();
  box->collected = true;
}

void* lua_allocate(void*, void* block, size_t old, size_t size) {
  if (block && header && old == header + sizeof(pg::vm::Box) && size == 0) release_dropped(block);
  if (size == 0) return std::free(block), nullptr;
  last_size = size;
  return lua.fails() ? nullptr : std::realloc(block, size);
}

void measure_header(lua_State* L) {
  constexpr size_t kSize = 1000;
  lua_newuserdata(L, kSize);
  header = last_size - kSize;
  lua_pop(L, 1);
}

// Each script returns nothing and runs in a state in which it has failed before.
const char* const kScripts[] = {
    R"(-- ops
      local x, w = pg.range(1, 24):reshape(2, 3, 4), pg.range(1, 12):reshape(3, 4)
      local y = pg.cat({(x * w + 1):softmax(-1), x}, 2):permute{3, 1, 2}:contiguous():cumsum(1)
      local v, k = y:sort(2)
      pg.ones(1, 2, 4, 4):conv2d(pg.ones(2, 2, 3, 3), {padding = 1}):relu():max_pool2d(2):mean():item()
      pg.einsum("bij,ij->b", x, w)
      local z = x[{1, {2, 3}}]:clone()
      z[z:gt(7)] = 3
      return tostring(x), k:totable(), pg.linalg.inv(pg.eye(3) * 2)
    )",
    R"(-- gradients
      local w = pg.range(1, 3):attach_grad()
      local cube = pg.autograd.Function{
        forward = function(ctx, x) ctx.saved[1] = x; return x * x * x end,
        backward = function(ctx, dy) return dy * ctx.saved[1]:square() * 3 end,
      }
      pg.record(function()
        local y = cube(w):sum() + pg.checkpoint(function(x) return x:exp():sum() end, w)
        local g = pg.autograd.grad({y}, {w}, {create_graph = true})
        g[1]:sum():backward()
      end)
      pg.jvp(function(x) return x:sin() end, {w}, {pg.ones(3)})
    )",
    R"(-- an eager training step
      local net = pg.nn.Sequential{pg.nn.Dense(4, {activation = "relu"}), pg.nn.BatchNorm(), pg.nn.Dropout(0.5), pg.nn.Dense(2)}
      net:initialize("xavier")
      local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.1})
      pg.record(function() return pg.loss.SoftmaxCrossEntropyLoss()(net(pg.ones(3, 3)), pg.tensor{1, 2, 1}) end):backward()
      trainer:step(3)
    )",
    R"(-- a hybridized training step
      local net = pg.nn.HybridSequential{pg.nn.Conv2D(2, 3, {activation = "tanh"}), pg.nn.Flatten(), pg.nn.Dense(2)}
      net:initialize()
      net:hybridize()
      local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1, momentum = 0.9})
      pg.record(function() return pg.loss.L2Loss()(net(pg.ones(2, 1, 4, 4)), pg.ones(2, 2)) end):backward()
      trainer:step(2)
    )",
    R"(-- a jitted function with guards
      local scale = {by = 2}
      local f = pg.jit(function(x, n) return (x * scale.by + n):exp():sum(1) end)
      f(pg.ones(2, 3), 1)
      scale.by = 3
      f(pg.ones(2, 3), 1)
      f(pg.ones(4, 3), 2)
      pg.grad(function(x) return (f(x, 1)):sum() end)(pg.ones(2, 2))
    )",
    R"(-- control flow
      local f = pg.jit(function(x)
        local y = pg.cond(x:sum():gt(0), function() return x * 2 end, function() return x - 1 end)
        local out, s = pg.foreach(function(row, s) return row + s, s * 0.5 end, y, pg.ones(2))
        local n, v = pg.while_loop(function(i) return i:lt(3) end, function(i, v) return v, {i + 1, v * v} end,
                                   {pg.tensor(0), s}, {max_iterations = 4})
        return out:sum() + pg.loop(3, function(_, w) return w:sin() end, y):sum()
      end)
      local x = pg.ones(3, 2):attach_grad()
      pg.record(function() return f(x) end):backward()
    )",
    R"(-- files
      local name = os.tmpname()
      local path = name .. ".safetensors"
      local a = pg.range(1, 6):reshape(2, 3)
      local ok, e = pcall(function()
        pg.save(path, {a = a, b = pg.ones(2, {dtype = "int64"})})
        assert(pg.load(path).a:equal(a))
      end)
      os.remove(path)
      os.remove(name)
      if not ok then error(e, 0) end
    )",
    R"(-- export and import
      local path = os.tmpname()
      local ok, e = pcall(function()
        local net = pg.nn.HybridSequential{pg.nn.Dense(3, {activation = "relu"}), pg.nn.Dense(2)}
        net:initialize()
        net:hybridize()
        net(pg.ones(1, 4))
        local json, tensors = net:export(path)
        local ok, e = pcall(function() pg.nn.SymbolBlock.imports(json, nil, tensors)(pg.ones(2, 4)) end)
        os.remove(json)
        os.remove(tensors)
        if not ok then error(e, 0) end
      end)
      os.remove(path)
      if not ok then error(e, 0) end
    )",
    R"(-- data and metrics
      local loader = pg.data.DataLoader(pg.data.ArrayDataset(pg.range(1, 10), pg.range(1, 10)), {batch_size = 3, shuffle = true})
      local accuracy = pg.metric.Accuracy()
      for x, y in loader:iter() do accuracy:update({y:gt(5)}, {x:gt(5)}) end
      accuracy:get()
    )",
    R"(-- views and scopes
      local x = pg.ones(40, 3)
      local rows = {}
      for i = 1, 30 do rows[i] = x[i] end
      local best = pg.scope(function()
        local sums = {}
        for i, row in ipairs(rows) do sums[i] = (row * i):sum() end
        return sums[30]
      end)
      rows = {rows[1], rows[2]}
      x[3] = best
      x[{{1, 2}}] = 0
      assert(rows[1]:sum():item() == 3)
    )",
    R"(-- errors, printing, a frozen graph
      pcall(function() return pg.ones(2):matmul(pg.ones(3, 4)) end)
      pcall(function() return pg.ones(2):no_such_method() end)
      local net = pg.nn.HybridSequential{pg.nn.rnn.LSTM(3), pg.nn.Dense(2)}
      net:initialize("xavier")
      local x = pg.randn(4, 2, 3)
      net(x)
      local graph = net:freeze()
      graph:run(x)
      return tostring(net), tostring(graph), net:summary(x)
    )",
};

bool fails_from_memory(const std::string& error) {
  return error.find("memory") != std::string::npos || error.find("bad_alloc") != std::string::npos;
}

// Returns the bytes in use after everything dead has been freed. Compiled traces keep the closures they were made from,
// and unused slots of a frame keep values of older frames, so both are cleared first. Each collection runs one level of
// finalizers. Objects kept by a dead Function are freed at the next op.
int64_t live_bytes(LuaState& L) {
  REQUIRE(L.run("jit.flush()") == "");
  for (int i = 0; i < 8; ++i) {
    REQUIRE(L.run("pg.ones(1):release()") == "");
    luaL_checkstack(L, 200, "");
    lua_settop(L, lua_gettop(L) + 200);
    lua_settop(L, lua_gettop(L) - 200);
    lua_getglobal(L, "pg");
    lua_getfield(L, -1, "testing");
    lua_getfield(L, -1, "collect");
    REQUIRE(lua_pcall(L, 0, 0, 0) == 0);
    lua_pop(L, 2);
  }
  return pg::Runtime::current().memory().stats().live;
}

// Runs the chunk with the k-th allocation failing, for k = 1, 2 … until no allocation fails.
void sweep(LuaState& L, Countdown& countdown, const char* script, bool persistent) {
  REQUIRE(L.run("pg = require 'perigee'") == "");
  const std::string text = script;
  REQUIRE(L.run(text.c_str()) == "");
  const int64_t before = live_bytes(L);
  std::set<std::string> seen;
  CAPTURE(text);
  CAPTURE(persistent);
  // Every run costs a trace, so slow sweeps skip some k. PERIGEE_EVERY_ALLOCATION includes all.
  const bool all = std::getenv("PERIGEE_EVERY_ALLOCATION") != nullptr;
  const long step = all ? 1 : std::getenv("PERIGEE_SANITIZED") ? 7 : persistent ? 3 : 1;
  for (long k = 1;; k += step) {
    CAPTURE(k);
    const bool compiled = luaL_loadstring(L, text.c_str()) == 0;
    REQUIRE(compiled);
    countdown = {k, persistent, false};
    const bool failed = lua_pcall(L, 0, 0, 0) != 0;
    const bool happened = countdown.happened;
    countdown = {};
    const std::string error = L.result(failed);
    if (failed && seen.insert(error).second) CHECK_MESSAGE(fails_from_memory(error), error);
    if (!happened) break;
    REQUIRE(k < 1000000);
  }
  REQUIRE(L.run(text.c_str()) == "");
  CHECK(live_bytes(L) <= before);  // the last trace of a branch may be held until the next one
  CHECK(L.run("assert(not pg.testing.graphs_off() and not pg.is_recording() and not pg.is_training())") == "");
}

}  // namespace

TEST_CASE("every allocation of Lua may fail") {
  for (const char* script : kScripts)
    for (bool persistent : {false, true}) {
      LuaState L(lua_newstate(lua_allocate, nullptr));
      if (!static_cast<lua_State*>(L)) {
        MESSAGE("skipped: this LuaJIT takes no allocator");
        return;
      }
      LuaState::open(L);
      measure_header(L);
      REQUIRE(L.run("jit.off()") == "");  // LuaJIT's compiler crashes without memory, in plain Lua too
      sweep(L, lua, script, persistent);
    }
}

TEST_CASE("every allocation may fail while the library is opened") {
  for (Countdown* countdown : {&lua, &cpp})
    for (long k = 1;; ++k) {
      LuaState L(lua_newstate(lua_allocate, nullptr));
      if (!static_cast<lua_State*>(L)) return;
      LuaState::open(L);
      REQUIRE(luaL_loadstring(L, "require 'perigee'") == 0);
      *countdown = {k, true, false};
      const bool failed = lua_pcall(L, 0, 0, 0) != 0;
      const bool happened = countdown->happened;
      *countdown = {};
      const std::string error = L.result(failed);
      CAPTURE(k);
      if (error != "") REQUIRE_MESSAGE(fails_from_memory(error), error);
      if (!happened) break;
    }
}

#ifndef PERIGEE_SANITIZED
TEST_CASE("every allocation of C++ may fail") {
  for (const char* script : kScripts)
    for (bool persistent : {false, true}) {
      LuaState L;
      // LuaJIT's trace stitching passes wrong arguments on (see tests/luajit), in plain Lua too.
      REQUIRE(L.run("require('jit.opt').start('minstitch=100000')") == "");
      sweep(L, cpp, script, persistent);
    }
}
#endif
