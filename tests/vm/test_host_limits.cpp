// The limits of a state: memory, instructions and time.
#include <doctest/doctest.h>

#include <chrono>
#include <thread>

#include "tests/vm/host.h"

TEST_CASE("host limits: no script swallows the end of its instructions") {
  LimitedHost host([](perigee_state_config& c) { c.instruction_limit = 300000; });
  for (const char* script : stubborn_scripts) {
    CAPTURE(std::string(script));
    CHECK(host.run(script) == PERIGEE_BUDGET_EXCEEDED);
    CHECK(host.works());
  }
  CHECK(host.run("for i = 1, 1000 do end while true do end") == PERIGEE_BUDGET_EXCEEDED);
  CHECK(message() == "host.lua:1: the limit of 300000 instructions of one call is reached");
  CHECK(perigee_last_error()->line == 1);
  CHECK(std::string(perigee_last_error()->chunk) == "host.lua");
  CHECK(host.run("for i = 1, 100000 do end") == PERIGEE_OK);  // each call has its own
  CHECK(host.run("for i = 1, 100000 do end") == PERIGEE_OK);
  CHECK(host.run("local parts = {'return ', '1 + ', '2'} "
                 "assert(load(function() return table.remove(parts, 1) end)() == 3) "
                 "assert(load('return x', 'name', 't', {x = 5})() == 5) "
                 "assert(select(2, load('x =', '=name')):find('name:1:')) "
                 "assert(load(string.dump(function() return 7 end))() == 7)") == PERIGEE_OK);
  CHECK(host.run("jit.on()") == PERIGEE_SCRIPT_ERROR);
  CHECK(host.run("debug.sethook()") == PERIGEE_SCRIPT_ERROR);
}

TEST_CASE("host limits: captured loops and ops use up instructions too") {
  LimitedHost host([](perigee_state_config& c) { c.instruction_limit = 300000; });
  for (const char* script : {
           "pg.loop(1000000000000, function(i, s) return (s * 1.5):sin() end, pg.ones(10))",
           "pg.loop(1000000000000, function(i, s) return s * 0.5 end, pg.ones(1))",  // one kernel for all steps
           "pg.jit(function(s) return pg.while_loop(function(s) return s:sum():gt(0) end, "
           "function(s) return nil, {s + 1} end, {s}, {max_iterations = 1000000000000}) end)(pg.ones(3))",
           "pg.loop(1000000000000, function(i, s) return pg.cond(s:sum():gt(0), function() return s:sin() end, "
           "function() return s:cos() end) end, pg.ones(3))",
           "while true do pcall(function() pg.loop(1000000000000, function(i, s) return s:sin() end, pg.ones(2)) end) "
           "end",
       }) {
    CAPTURE(std::string(script));
    CHECK(host.run((std::string("local pg = require 'perigee' ") + script).c_str()) == PERIGEE_BUDGET_EXCEEDED);
    CHECK(message().find("the limit of 300000 instructions of one call is reached") != std::string::npos);
    CHECK(host.works());
  }
  CHECK(host.run("local pg = require 'perigee' local s = pg.loop(1000, function(i, s) return s + 1 end, pg.zeros(2)) "
                 "assert(s:sum():item() == 2000)") == PERIGEE_OK);
}

TEST_CASE("host limits: no script swallows the end of its time") {
  LimitedHost host([](perigee_state_config& c) { c.time_limit_us = 20000; });
  for (const char* script : stubborn_scripts) {
    CAPTURE(std::string(script));
    CHECK(host.run(script) == PERIGEE_BUDGET_EXCEEDED);
  }
  CHECK(host.run("local pg = require 'perigee' "
                 "local s = pg.loop(1000000000000, function(i, s) return (s * 1.5):sin() end, pg.ones(1000))") ==
        PERIGEE_BUDGET_EXCEEDED);
  CHECK(host.run("local pg = require 'perigee' local x = pg.ones(3000, 3000) for i = 1, 100 do x = x:matmul(x) end") ==
        PERIGEE_BUDGET_EXCEEDED);
  CHECK(message().find("the limit of 20000 µs of one call is reached") != std::string::npos);
}

TEST_CASE("host limits: an interrupt is not swallowed by a message handler") {
  LimitedHost host([](perigee_state_config&) {});
  REQUIRE(host.run("jit.off()") == PERIGEE_OK);
  for (const char* script : stubborn_scripts) {
    CAPTURE(std::string(script));
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      perigee_interrupt(host.state);
    });
    CHECK(host.run(script) == PERIGEE_CANCELLED);
    other.join();
    CHECK(host.works());
  }
}

TEST_CASE("host limits: the collector goes on where calls are ended one after the other") {
  LimitedHost host([](perigee_state_config& c) { c.instruction_limit = 20000; });
  for (int i = 0; i < 1000; ++i) REQUIRE(host.run("while true do local t = {} end") == PERIGEE_BUDGET_EXCEEDED);
  perigee_memory_info info = PERIGEE_INIT(perigee_memory_info);
  REQUIRE(perigee_memory(host.state, &info) == PERIGEE_OK);
  CHECK(info.lua_bytes < 8u << 20);
}

TEST_CASE("host limits: memory of Lua and tensors together") {
  constexpr uint64_t kLimit = 16u << 20;
  LimitedHost host([](perigee_state_config& c) { c.memory_limit = kLimit; });
  const char* const hogs[] = {
      "local s = ('x'):rep(1e9)",
      "local s = 'x' while true do s = s .. s end",
      "local t = {} for i = 1, 1e9 do t[i] = i end",
      "local t = {} for i = 1, 1e9 do t[i] = {} end",
      "local t = {} for i = 1, 1e9 do t[i] = function() return i end end",
      "local t = {} for i = 1, 1e9 do t[i] = coroutine.create(print) end",
      "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(100) .. i end",
      "local t = {} for i = 1, 1e9 do t[i] = i .. '' end table.concat(t, ('x'):rep(1e6))",
      "local pg = require 'perigee' local x = pg.ones(2^30)",
      "local pg = require 'perigee' local t = {} for i = 1, 1e9 do t[i] = pg.ones(1000) end",
      "local pg = require 'perigee' local t = {} for i = 1, 1e9 do t[i] = pg.ones(1) end",
      "local pg = require 'perigee' local x = pg.ones(1e5) x:attach_grad() "
      "pg.record(function() local y = x for i = 1, 1e9 do y = y:sin() end end)",
      "local pg = require 'perigee' local f = pg.jit(function(x) return x:reshape{5000, 1}:matmul(x:reshape{1, "
      "5000}):sum() end) "
      "f(pg.ones(5000))",
      "local pg = require 'perigee' local t = {} for i = 1, 1e9 do t[i] = pg.ones(1000):totable() end",
      "local pg = require 'perigee' local x = pg.ones(1) while true do x = pg.cat({x, x}, 1) end",
      "local pg = require 'perigee' pg.foreach(function(x, s) return s, s + 1 end, pg.ones(100000), pg.ones(1000))",
      "local pg = require 'perigee' local x = pg.ones(4) x:attach_grad() "
      "pg.record(function() local y = x for i = 1, 1e6 do y = y:reshape(2, 2) y = y:reshape(4) end end)",
      "local pg = require 'perigee' pg.jit(function(x) for i = 1, 2e5 do x = x * 1.5 end return x end)(pg.ones(2))",
      "local pg = require 'perigee' local y = pg.symbol('d', {shape = {2}}) for i = 1, 2e5 do y = y + 1 end",
      "local pg = require 'perigee' pg.zeros({4000000}, {dtype = 'float16'}):unique()",
      "local pg = require 'perigee' pg.ones({4000000}, {dtype = 'uint8'}):bincount()",
      "local pg = require 'perigee' pg.zeros({4000000}, {dtype = 'uint8'}):logsumexp()",
      "local pg = require 'perigee' pg.zeros({4000000}, {dtype = 'uint8'}):sort()",
      "local pg = require 'perigee' pg.zeros(2000000):quantile(0.5)",
      "local pg = require 'perigee' pg.randperm(2500000)",
      "local pg = require 'perigee' pg.rand(10):multinomial(4000000, {replacement = true})",
      "local pg = require 'perigee' pg.linalg.qr(pg.zeros(1000, 1000))",
      "local pg = require 'perigee' pg.fft.rfft(pg.zeros(524287))",
      "local pg = require 'perigee' pg.linalg.eigh(pg.zeros(1000, 1000))",
      "local pg = require 'perigee' local x = pg.zeros({1200, 1200}, {dtype = 'float16'}) x:matmul(x)",
  };
  for (const char* script : hogs) {
    CAPTURE(std::string(script));
    CHECK(host.run(script) == PERIGEE_OUT_OF_MEMORY);
    CAPTURE(message());
    auto info = PERIGEE_INIT(perigee_memory_info);
    REQUIRE(perigee_memory(host.state, &info) == PERIGEE_OK);
    CHECK(info.lua_bytes + info.tensor_bytes < kLimit / 4 * 3);
    CHECK(host.works());
    const std::string caught = std::string("assert(not pcall(function() ") + script + " end))";
    CHECK(host.run(caught.c_str() + std::string(" assert(#('y'):rep(1e6) == 1e6)")) == PERIGEE_OK);
  }
}

TEST_CASE("host limits: a lack of memory has its status wherever it is met") {
  LimitedHost host([](perigee_state_config& c) { c.memory_limit = 16u << 20; });
  for (const char* text : {"not enough memory", "host.lua:1: not enough memory", "f: not enough memory",
                           "host.lua:1: not enough memory (in the body of foreach)",
                           "not enough memory (in the cond of while_loop) (in block Net)", "out of memory: x",
                           "host.lua:1: out of memory: x (in block 'a', Dense)"}) {
    CAPTURE(std::string(text));
    CHECK(host.run(std::string("error([[") + text + "]], 0)") == PERIGEE_OUT_OF_MEMORY);
  }
  for (const char* text : {"stack overflow (f), or not enough memory", "not enough memory cards", "a nout of memory"}) {
    CAPTURE(std::string(text));
    CHECK(host.run(std::string("error([[") + text + "]], 0)") == PERIGEE_SCRIPT_ERROR);
  }
  for (int room = 0; room < 2500; room += 50) {
    CAPTURE(room);
    const std::string fill = "local keep = {} collectgarbage() while collectgarbage('count') < 16384 - " +
                             std::to_string(room) + " do keep[#keep + 1] = ('x'):rep(8000) .. #keep end ";
    const perigee_status status =
        host.run("local pg = require 'perigee' " + fill +
                 "local a, b = {k = {1, 2, 3}}, {pg.ones(3), 2} "
                 "local f = pg.jit(function(x) for i = 1, 20 do x = x * a.k[i % 3 + 1] + b[1] * b[2] end return x end) "
                 "f(pg.ones(3)) f(pg.ones(3)) a.k[1] = 7 f(pg.ones(3)) "
                 "local body = function(x, s) return x + s, s + 1 end "
                 "pg.foreach(body, pg.ones(5, 3), pg.ones(3)) "
                 "pg.jit(function(x) return (pg.foreach(body, x, pg.ones(3))) end)(pg.ones(5, 3)) "
                 "pg.jit(function(x) return pg.while_loop(function(i) return i:sum():lt(10) end, function(i) return "
                 "nil, {i + 1} "
                 "end, {x}) end)(pg.ones(1))");
    CAPTURE(message());
    CHECK((status == PERIGEE_OK || status == PERIGEE_OUT_OF_MEMORY));
    CHECK(host.works());
  }
}

TEST_CASE("host limits: garbage is collected before memory is refused") {
  LimitedHost host([](perigee_state_config& c) { c.memory_limit = 48u << 20; });
  const char* const wasteful[] = {
      "for i = 1, 200 do local s = ('x'):rep(4e6) .. i end",
      "local s = '' for i = 1, 20000 do s = s .. i end",
      "for i = 1, 300000 do local t = {i, {i}} end",
      "local t for i = 1, 200 do t = {} for k = 1, 10000 do t[k] = k end end",
      "local pg = require 'perigee' for i = 1, 200 do local x = pg.ones(1e6) end",
      "local pg = require 'perigee' local x = pg.ones(1e6) for i = 1, 100 do x = x * 1.5 end",
      "local pg = require 'perigee' for i = 1, 30 do local x = pg.ones(1e6) local s = ('x'):rep(5e6) .. i end",
      "local keep = {} for i = 1, 1e5 do keep[i] = {i} end for i = 1, 300000 do local t = {i, {i}} end",
  };
  for (const char* script : wasteful) {
    CAPTURE(std::string(script));
    CHECK(host.run(script) == PERIGEE_OK);
  }
  LimitedHost hooked([](perigee_state_config& c) { c.memory_limit = 48u << 20, c.instruction_limit = 1u << 30; });
  for (const char* script : wasteful) {
    CAPTURE(std::string(script));
    CHECK(hooked.run(script) == PERIGEE_OK);
  }
}

TEST_CASE("host limits: what small objects take is given back") {
  LimitedHost host([](perigee_state_config& c) { c.memory_limit = 24u << 20; });
  const char* const scripts[] = {
      "local x = pg.ones(4) x:attach_grad() "
      "pg.record(function() local y = x for i = 1, 3000 do y = y:reshape(2, 2):reshape(4) end return y:sum() end)"
      ":backward()",
      "local f = pg.jit(function(x) for i = 1, 500 do x = x * 1.5 end return x end) f(pg.ones(2)) f(pg.ones(2))",
      "local y = pg.symbol('d', {shape = {2}}) for i = 1, 3000 do y = y + 1 end "
      "y = nil collectgarbage()",  // the symbols of a state share a graph
      "local x, t = pg.ones(4), {} for i = 1, 5000 do t[i] = x:reshape(2, 2) end",
  };
  for (const char* script : scripts) {
    CAPTURE(std::string(script));
    for (int i = 0; i < 40; ++i) REQUIRE(host.run(std::string("local pg = require 'perigee' ") + script) == PERIGEE_OK);
  }
  CHECK(host.run("collectgarbage() collectgarbage() assert(#('y'):rep(4e6) == 4e6)") == PERIGEE_OK);
}

TEST_CASE("host limits: tensors may outlive a state with a memory limit") {
  LimitedHost host([](perigee_state_config& c) { c.memory_limit = 48u << 20; });
  REQUIRE(host.run("local pg = require 'perigee' local w = pg.ones(1000) w:attach_grad() "
                   "x = pg.record(function() return w * 1 end)") == PERIGEE_OK);
  perigee_value value;
  REQUIRE(perigee_get(host.state, "x", &value) == PERIGEE_OK);
  perigee_state_close(host.state);
  host.state = nullptr;
  CHECK(static_cast<const float*>(perigee_tensor_data(value.as.tensor))[999] == 1);
  perigee_tensor_release(value.as.tensor);
}

TEST_CASE("host limits: a config that cannot be used is refused") {
  perigee_runtime* runtime = nullptr;
  REQUIRE(perigee_runtime_create(nullptr, &runtime) == PERIGEE_OK);
  perigee_state* state = nullptr;
  auto config = PERIGEE_INIT(perigee_state_config);
  for (const uint64_t limit : {uint64_t(1), uint64_t(20) << 10, uint64_t(60) << 10}) {
    config.memory_limit = limit;  // too little for the library
    CHECK(perigee_state_open(runtime, &config, &state) == PERIGEE_OUT_OF_MEMORY);
  }
  config.memory_limit = 0;
  config.time_limit_us = -1;
  CHECK(perigee_state_open(runtime, &config, &state) == PERIGEE_BAD_ARGUMENT);
  perigee_runtime_release(runtime);
}

TEST_CASE("host limits: requests that are refused count as instructions too") {
  for (const char* script : {"local z = require('perigee').zeros while true do pcall(z, 1e9) end",
                             "local s = ('x'):rep(2e7) while true do pcall(function() return s .. s .. s end) end"}) {
    LimitedHost host([](perigee_state_config& c) {
      c.memory_limit = 64u << 20;
      c.instruction_limit = 20000;
    });
    CHECK(host.run(script) == PERIGEE_BUDGET_EXCEEDED);
    CHECK(host.works());
  }
}

TEST_CASE("host limits: the compiler stays off with a memory limit") {
  LimitedHost host([](perigee_state_config& c) { c.memory_limit = 64u << 20; });
  CHECK(host.run("jit.on()") == PERIGEE_SCRIPT_ERROR);
  CHECK(message().find("jit.on is not available in a state with limits") != std::string::npos);
}

TEST_CASE("host limits: a call that an op ends has a message with its place") {
  LimitedHost host([](perigee_state_config& c) { c.time_limit_us = 2000; });
  CHECK(host.run("local x = require('perigee').ones(2000, 2000)\nlocal y = x:matmul(x):matmul(x)") ==
        PERIGEE_BUDGET_EXCEEDED);
  CHECK(message().find("host.lua:") == 0);
  CHECK(message().find("the limit of 2000 µs of one call is reached") != std::string::npos);
}

TEST_CASE("host limits: a call that ends leaves no scope open") {
  enum { kInstructions, kTime, kInterrupt, kJob };
  const char* const loop = "print('go') while true do end";
  const std::string bodies[] = {
      "pg.record(function() LOOP end)",
      "pcall(pg.record, function() LOOP end)",
      "coroutine.wrap(function() pg.record(function() LOOP end) end)()",
      "pg.train_mode(function() LOOP end)",
      "pg.grad(function(x) LOOP end)(pg.ones(2))",
      "pg.debug(function() LOOP end)",
      "pg.jit(function(x) LOOP end)(pg.ones(2))",
      "pg.jit(function(x) return pg.record(function() LOOP end) end)(pg.ones(2))",
      "pg.jit(function(x) pcall(pg.train_mode, function() LOOP end) return x end)(pg.ones(2))",
      "pg.jit(function(x) return pg.autograd.detect_anomaly(function() LOOP end) end)(pg.ones(2))",
      "pg.jit(function(x) return pg.debug(function() LOOP end) end)(pg.ones(2))",
      "pg.loop(3, function(i, s) LOOP end, pg.ones(1))",
      "pg.cond(pg.ones{}:gt(0), function() LOOP end, function() LOOP end)",
      "pg.profile(function() LOOP end)",
      "pg.autograd.detect_anomaly(function() LOOP end)",
      "pg.scope(function() LOOP end)",
  };
  for (int ending : {kInstructions, kTime, kInterrupt, kJob})
    for (std::string body : bodies) {
      CAPTURE(ending);
      CAPTURE(body);
      LimitedHost host([&](perigee_state_config& c) {
        if (ending == kInstructions) c.instruction_limit = 1000000;
        if (ending == kTime) c.time_limit_us = 100000;
        if (ending < kInterrupt) return;
        c.print = [](void* user, const char*, size_t) { perigee_interrupt(static_cast<LimitedHost*>(user)->state); };
      });
      body.replace(body.find("LOOP"), 4, loop);
      while (body.find("LOOP") != body.npos) body.replace(body.find("LOOP"), 4, loop);
      REQUIRE(host.completes("pg = require 'perigee' f = pg.jit(function(x) return x * 3 end) function run() " + body +
                             " end"));
      if (ending == kJob) {
        perigee_job* job = nullptr;
        int done = 0;
        REQUIRE(perigee_job_start(host.state, "run", nullptr, 0, &job) == PERIGEE_OK);
        CHECK(perigee_job_step(job, 20000, &done) == PERIGEE_CANCELLED);
        perigee_job_release(job);
      } else {
        CHECK(host.run("run()") == (ending == kInterrupt ? PERIGEE_CANCELLED : PERIGEE_BUDGET_EXCEEDED));
      }
      CHECK(host.completes("assert(not pg.is_recording() and not pg.is_training())"));
      CHECK(host.completes("for i = 1, 3 do f(pg.ones(2)) end assert(f:cache_info().traces == 1)"));
      CHECK(host.completes("pg.profile(function() pg.ones(2) end)"));
      CHECK(host.completes("pg.ones(1):mul(-1):log()"));
      CHECK(host.completes("assert(pg.loop(3, function(i, s) return s + i end, pg.ones(1)):item() == 7)"));
    }
}
