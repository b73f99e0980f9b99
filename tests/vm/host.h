// Hosts with one runtime and one state, for tests of the C API.
#pragma once
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <string>

#include "vm/include/perigee.h"

inline std::string message() { return perigee_last_error()->message; }

struct BareHost {
  perigee_runtime* runtime = nullptr;
  perigee_state* state = nullptr;

  BareHost() = default;
  BareHost(const BareHost&) = delete;
  ~BareHost() {
    perigee_state_close(state);
    perigee_runtime_release(runtime);
  }

  void open(const perigee_runtime_config& config, const perigee_state_config* options = nullptr) {
    REQUIRE(perigee_runtime_create(&config, &runtime) == PERIGEE_OK);
    REQUIRE(perigee_state_open(runtime, options, &state) == PERIGEE_OK);
  }
  void open(int threads, const perigee_state_config& options) {
    auto config = PERIGEE_INIT(perigee_runtime_config);
    config.threads = threads;
    open(config, &options);
  }
  perigee_status run(const std::string& text) { return perigee_run(state, text.data(), text.size(), "host.lua"); }
};

// Keeps what the state prints.
struct PrintingHost : BareHost {
  std::string printed;

  perigee_state_config options() {
    auto config = PERIGEE_INIT(perigee_state_config);
    config.user = this;
    config.print = [](void* user, const char* text, size_t size) {
      static_cast<PrintingHost*>(user)->printed.append(text, size);
    };
    return config;
  }
};

struct LimitedHost : PrintingHost {
  std::chrono::microseconds time_limit{};

  // set(config) changes the config of the state.
  explicit LimitedHost(const std::function<void(perigee_state_config&)>& set) {
    auto config = options();
    set(config);
    time_limit = std::chrono::microseconds(config.time_limit_us);
    open(1, config);
  }

  // Whether the text runs to its end. Other processes may take the time that a call has, so it may run again.
  bool completes(const std::string& text) {
    using Clock = std::chrono::steady_clock;
    for (int tries = 0; tries < 50; ++tries) {
      const auto start = Clock::now();
      const perigee_status status = run(text);
      const bool late = time_limit.count() > 0 && Clock::now() - start >= time_limit;
      if (status != PERIGEE_BUDGET_EXCEEDED || !late) return status == PERIGEE_OK;
    }
    return false;
  }
  // Whether the state computes as it should.
  bool works() { return completes("local pg = require 'perigee' assert((pg.ones(3, 4) * 2):sum():item() == 24)"); }
};

// Scripts that never end by themselves and try to swallow what would end them.
inline const char* const stubborn_scripts[] = {
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do pcall(error, 'again') end",
    "xpcall(function() while true do end end, function() while true do end end)",
    "while true do xpcall(error, function() while true do end end) end",
    "xpcall(function() while true do end end, function() pcall(function() while true do end end) while true do end "
    "end)",
    "local function f() while true do end end while true do coroutine.resume(coroutine.create(f)) end",
    "local function f() while true do pcall(coroutine.yield) end end local co = coroutine.wrap(f) while true do co() "
    "end",
    "local co co = coroutine.wrap(function() while true do pcall(coroutine.wrap(function() while true do end end)) end "
    "end) co()",
    "local t = setmetatable({}, {__index = function() while true do end end}) while true do pcall(function() return "
    "t.x end) end",
    "local t = setmetatable({}, {__tostring = function() while true do end end}) while true do pcall(tostring, t) end",
    "for _ in function() return 1 end do end",
    "local t = {} for i = 1, 100 do t[i] = i end while true do pcall(table.sort, t, function() while true do end end) "
    "end",
    "(('x'):rep(10)):gsub('.', function() while true do end end)",
    "local function f() return pcall(f) end while true do f() end",
    "local function f() return f() end f()",
    "local function f() f() end while true do pcall(f) end",
    "goto again ::again:: goto again",
    "repeat local ok = pcall(load, function() while true do end end) until false",
    "local pg = require 'perigee' while true do pcall(function() local x = pg.ones(10) + 1 end) end",
    "local pg = require 'perigee' local x = pg.ones(10) x:attach_grad() while true do pcall(pg.record, function() "
    "while true do end end) end",
    "local pg = require 'perigee' local f = pg.jit(function(x) while true do x = x * 1.5 end end) while true do "
    "pcall(f, pg.ones(3)) end",
    "local pg = require 'perigee' while true do pcall(pg.scope, function() while true do end end) end",
    "local pg = require 'perigee' while true do local ok = pcall(pg.foreach, function(x, s) while true do end end, "
    "pg.ones(3), pg.ones(1)) end",
    "local p = print while true do p() end",
};
