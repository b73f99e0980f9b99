// What passes the border of the C API: memory of the host in results, strings, callbacks, other users of a Lua state.
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <lua.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/vm/host.h"
#include "tests/vm/host_model.h"

using namespace pg::test;

namespace {

std::string block(const std::string& forward) {
  return "(function() local B = nn.HybridBlock:extend('B') function B:forward" + forward + " end return B() end)()";
}

std::vector<float> elements(const perigee::Tensor& t) {
  const float* data = floats(t);
  return {data, data + perigee_tensor_bytes(t.get()) / sizeof(float)};
}

using Floats = std::vector<float>;

void set(const perigee::Tensor& t, const Floats& values) {
  std::memcpy(const_cast<float*>(floats(t)), values.data(), values.size() * sizeof(float));
}

}  // namespace

TEST_CASE("host border: results that are inputs or views of them are right where an output is an input") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const perigee::Tensor a = zeros(runtime, {4}), b = zeros(runtime, {4}), z = zeros(runtime, {4}),
                        two = zeros(runtime, {2});
  set(a, {1, 2, 3, 4});
  const perigee::Model same = ModelFiles(block("(x) return x * 2, x"), "net(pg.ones(4))").load(runtime);
  REQUIRE(run_into(same, {a.get()}, {a.get(), z.get()}) == PERIGEE_OK);
  CHECK(elements(a) == Floats{2, 4, 6, 8});
  CHECK(elements(z) == Floats{1, 2, 3, 4});
  const perigee::Model swap = ModelFiles(block("(x, y) return y, x"), "net(pg.ones(4), pg.ones(4))").load(runtime);
  set(b, {5, 6, 7, 8});
  REQUIRE(run_into(swap, {a.get(), b.get()}, {a.get(), b.get()}) == PERIGEE_OK);
  CHECK(elements(a) == Floats{5, 6, 7, 8});
  CHECK(elements(b) == Floats{2, 4, 6, 8});
  const perigee::Model part = ModelFiles(block("(x) return x + 1, x[{{2, 3}}]"), "net(pg.ones(4))").load(runtime);
  REQUIRE(run_into(part, {a.get()}, {a.get(), two.get()}) == PERIGEE_OK);
  CHECK(elements(a) == Floats{6, 7, 8, 9});
  CHECK(elements(two) == Floats{6, 7});
  const perigee::Model copy = ModelFiles(block("(x) return x + 1, x:clone()"), "net(pg.ones(4))").load(runtime);
  REQUIRE(run_into(copy, {a.get()}, {a.get(), z.get()}) == PERIGEE_OK);
  CHECK(elements(z) == Floats{6, 7, 8, 9});
  CHECK(run_into(same, {b.get()}, {a.get(), a.get()}) == PERIGEE_BAD_ARGUMENT);
  CHECK(message().find("overlap") != std::string::npos);
}

TEST_CASE("host border: results do not depend on the host's memory") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  for (const char* result : {"x", "x:reshape(2, 2)", "x[{{2, 3}}]", "x:clone()", "x:reshape(2, 2):t()"}) {
    const perigee::Model model =
        ModelFiles(block("(x) return " + std::string(result)), "net(pg.ones(4))").load(runtime);
    float data[] = {1, 2, 3, 4};
    perigee::Tensor y;
    {
      const perigee::Tensor x = wrap(runtime, data, {4});
      perigee_tensor* const in = x.get();
      REQUIRE(perigee_model_run(model.get(), &in, 1, y.out(), 1) == PERIGEE_OK);
    }
    const Floats before = elements(y);
    CHECK(before[0] >= 1);
    std::memset(data, 0, sizeof data);
    CHECK(elements(y) == before);
  }
}

TEST_CASE("host border: a model names its function, its inputs and their types") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const perigee::Model model = ModelFiles("nn.Dense(4)", "net(pg.ones(1, 3))").load(runtime);
  const perigee::Tensor wide = zeros(runtime, {1, 5}), y = zeros(runtime, {1, 4});
  perigee_tensor* const in = wide.get();
  perigee::Tensor out;
  CHECK(perigee_model_run(model.get(), &in, 1, out.out(), 1) == PERIGEE_BAD_ARGUMENT);
  CHECK(message().find("perigee_model_run: ") == 0);
  CHECK(message().find("float32 1x5 cpu, exported with float32 1x3 cpu") != std::string::npos);
  CHECK(run_into(model, {}, {y.get()}) == PERIGEE_BAD_ARGUMENT);
  CHECK(message().find("perigee_model_run_into: ") == 0);
  double data[3] = {};
  const int64_t shape[] = {1, 3};
  perigee::Tensor x;
  REQUIRE(perigee_tensor_wrap(runtime.get(), data, PERIGEE_FLOAT64, 2, shape, nullptr, nullptr, nullptr, x.out()) ==
          PERIGEE_OK);
  CHECK(run_into(model, {x.get()}, {y.get()}) == PERIGEE_BAD_ARGUMENT);
  CHECK(message().find("(expected float32, got float64)") != std::string::npos);
}

TEST_CASE("host border: a run that fails takes no random numbers") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  const ModelFiles files(block("(x) return x + pg.rand(4)"), "net(pg.zeros(4))");
  const perigee::Tensor x = zeros(runtime, {4}), wrong = zeros(runtime, {3}), y = zeros(runtime, {4});
  Floats expected;
  for (bool fails : {false, true}) {
    const perigee::Model model = files.load(runtime);
    REQUIRE(run_into(model, {x.get()}, {y.get()}) == PERIGEE_OK);
    for (int i = 0; fails && i < 2; ++i) {
      CHECK(run_into(model, {wrong.get()}, {y.get()}) == PERIGEE_BAD_ARGUMENT);
      CHECK(run_into(model, {x.get()}, {wrong.get()}) == PERIGEE_BAD_ARGUMENT);
    }
    REQUIRE(run_into(model, {x.get()}, {y.get()}) == PERIGEE_OK);
    if (!fails) expected = elements(y);
  }
  CHECK(elements(y) == expected);
}

TEST_CASE("host border: an interrupt ends loops that LuaJIT would compile") {
  LimitedHost host([](perigee_state_config&) {});
  for (const char* text : {"while true do end", "local t = 0 for i = 1, 1e15 do t = t + i % 7 end",
                           "local t = {} while true do t[1] = (t[1] or 0) + 1 end",
                           "while true do pcall(function() while true do end end) end"}) {
    std::atomic<bool> done{false};
    std::thread other([&] {
      while (!done) {
        perigee_interrupt(host.state);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    CHECK(host.run(text) == PERIGEE_CANCELLED);
    done = true;
    other.join();
    CHECK(message() == "host.lua:1: interrupted");
  }
  CHECK(host.works());
}

TEST_CASE("host border: strings that a call has given may be arguments of the next") {
  LimitedHost host([](perigee_state_config&) {});
  REQUIRE(host.run("collectgarbage('setpause', 0) collectgarbage('setstepmul', 1e6) local n = 0 "
                   "function make() n = n + 1 return ('text'):rep(5000) .. n end "
                   "function use(s, t) assert(s == t and s == ('text'):rep(5000) .. n) return s end") == PERIGEE_OK);
  for (int i = 0; i < 50; ++i) {
    perigee_value args[2];
    REQUIRE(perigee_call(host.state, "make", nullptr, 0, args, 1, nullptr) == PERIGEE_OK);
    args[1] = args[0];
    REQUIRE(perigee_call(host.state, "use", args, 2, args, 1, nullptr) == PERIGEE_OK);
  }
  // A capacity that no list has.
  size_t count = 0;
  perigee_value result;
  CHECK(perigee_call(host.state, "make", nullptr, 0, &result, SIZE_MAX, &count) == PERIGEE_OK);
  CHECK(count == 1);
  REQUIRE(host.run("number = 3") == PERIGEE_OK);
  CHECK(perigee_call(host.state, "number", nullptr, 0, nullptr, 0, nullptr) == PERIGEE_NOT_FOUND);
  CHECK(message() == "perigee_call: 'number' is a number, not a function");
  CHECK(perigee_get(host.state, ".", &result) == PERIGEE_NOT_FOUND);
}

TEST_CASE("host border: a callback's calls on models and tensors have no limits or files of the state") {
  struct Outer {
    perigee_runtime* runtime = nullptr;
    perigee_status made = PERIGEE_INTERNAL, other = PERIGEE_INTERNAL;
    std::string asked;
  } outer;
  LimitedHost host([&](perigee_state_config& config) {
    config.sandboxed = 1;
    config.memory_limit = 8 << 20;
    config.user = &outer;
    config.open_file = [](void* user, const char* path, const char*, perigee_file*) {
      static_cast<Outer*>(user)->asked += path;
      return 0;
    };
    config.print = [](void* user, const char*, size_t) {
      auto& self = *static_cast<Outer*>(user);
      const int64_t shape[] = {4 << 20};
      perigee::Tensor large;
      self.made = perigee_tensor_create(self.runtime, PERIGEE_FLOAT32, 1, shape, large.out());
      perigee::Model model;
      self.other = perigee_model_load(self.runtime, "/tmp", "/tmp", model.out());
    };
  });
  outer.runtime = host.runtime;
  REQUIRE(host.run("print('now')") == PERIGEE_OK);
  CHECK(outer.made == PERIGEE_OK);
  CHECK(outer.other == PERIGEE_BAD_FILE);
  CHECK(outer.asked == "");
}

TEST_CASE("host border: a Lua state has one handle, and one copy of the library") {
  LimitedHost host([](perigee_state_config&) {});
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  perigee_state *first = nullptr, *second = nullptr;
  REQUIRE(perigee_state_attach(host.runtime, L, &first) == PERIGEE_OK);
  CHECK(perigee_state_attach(host.runtime, L, &second) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_state_attach(host.runtime, perigee_state_lua(host.state), &second) == PERIGEE_BAD_ARGUMENT);
  CHECK(message().find("no other perigee_state") != std::string::npos);
  perigee_state_close(first);
  REQUIRE(perigee_state_attach(host.runtime, L, &second) == PERIGEE_OK);
  perigee_interrupt(second);
  perigee_state_close(second);
  lua_close(L);

  L = luaL_newstate();
  luaL_openlibs(L);
  REQUIRE(luaL_dostring(L, "package.loaded.perigee = {}") == 0);  // as a module would
  CHECK(perigee_state_attach(host.runtime, L, &second) == PERIGEE_BAD_ARGUMENT);
  CHECK(message().find("another copy of the library") != std::string::npos);
  lua_close(L);
}

TEST_CASE("host border: scripts do not end the process, and help and progress go to the host") {
  LimitedHost host([](perigee_state_config&) {});
  CHECK(host.run("os.exit(3)") == PERIGEE_SCRIPT_ERROR);
  CHECK(message().find("os.exit: the process belongs to a host") != std::string::npos);
  REQUIRE(host.run("local pg = require 'perigee' pg.help('abs') "
                   "local bar = pg.utils.progress(2, 'training') bar:step() bar:step()") == PERIGEE_OK);
  CHECK(host.printed.find("abs") != std::string::npos);
  CHECK(host.printed.find("training 2/2") != std::string::npos);
}

TEST_CASE("host border: an interrupt that comes too late leaves nothing behind in a state of the host") {
  perigee_runtime* runtime = nullptr;
  REQUIRE(perigee_runtime_create(nullptr, &runtime) == PERIGEE_OK);
  lua_State* const L = luaL_newstate();
  luaL_openlibs(L);
  perigee_state* state = nullptr;
  REQUIRE(perigee_state_attach(runtime, L, &state) == PERIGEE_OK);
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) perigee_interrupt(state);
  });
  int failed = 0;
  for (int i = 0; i < 20000; ++i) {
    perigee_run(state, "return 1", 8, "host.lua");
    failed += luaL_dostring(L, "local n = 0 for i = 1, 20 do n = n + i end") != 0;
    lua_settop(L, 0);
  }
  done = true;
  other.join();
  CHECK(failed == 0);
  perigee_state_close(state);
  lua_close(L);
  perigee_runtime_release(runtime);
}

TEST_CASE("host border: what ends one call does not name another, however often it is interrupted") {
  LimitedHost limited([](perigee_state_config& config) { config.instruction_limit = 100000; });
  LimitedHost small([](perigee_state_config& config) { config.memory_limit = 16u << 20; });
  LimitedHost free([](perigee_state_config&) {});
  for (int i = 0; i < 50; ++i) {
    for (LimitedHost* host : {&limited, &small, &free}) {
      std::atomic<bool> done{false};
      std::thread other([&] {
        while (!done) perigee_interrupt(host->state);
      });
      const perigee_status ended = host->run("while true do pcall(string.rep, 'x', 2e7) end");
      done = true;
      other.join();
      CHECK(ended != PERIGEE_OK);
      CHECK(host->works());
    }
    CHECK(limited.run("while true do end") == PERIGEE_BUDGET_EXCEEDED);
    CHECK(message().find("limit of 100000 instructions") != std::string::npos);
  }
}

namespace {

// Runs scripts that nest without end on a thread with a stack of so many KiB.
void check_nesting(std::span<const char* const> scripts, size_t kib) {
  struct Task {
    const char* script;
    bool sandboxed;
    perigee_status status = PERIGEE_OK;
    bool overflow = false;
  };
  const auto run = [](void* arg) -> void* {
    auto& task = *static_cast<Task*>(arg);
    LimitedHost host([&](perigee_state_config& config) {
      config.sandboxed = task.sandboxed;
      config.memory_limit = 256u << 20;
    });
    task.status = host.run(task.script);
    task.overflow = message().find("stack overflow") != std::string::npos;
    return nullptr;
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr size_t kFrames = 8;  // the sanitizers make frames larger
#else
  constexpr size_t kFrames = 1;
#endif
  for (const char* script : scripts) {
    for (const bool sandboxed : {false, true}) {
      CAPTURE(std::string(script));
      CAPTURE(kib);
      Task task{script, sandboxed};
      pthread_attr_t attributes;
      pthread_attr_init(&attributes);
      REQUIRE(pthread_attr_setstacksize(&attributes, (kib * kFrames) << 10) == 0);
      pthread_t thread;
      REQUIRE(pthread_create(&thread, &attributes, run, &task) == 0);
      pthread_join(thread, nullptr);
      pthread_attr_destroy(&attributes);
      CHECK(task.status == PERIGEE_SCRIPT_ERROR);
      CHECK(task.overflow);
    }
  }
}

}  // namespace

TEST_CASE("host border: what scripts nest stops before the end of a small stack") {
  const char* const nested[] = {
      "local function f() return coroutine.wrap(function() return f() + 1 end)() + 1 end f()",
      "local function f() local ok, e = coroutine.resume(coroutine.create(f)) error(e, 0) end f()",
      "local function f() table.sort({2, 1}, function() f() return true end) end f()",
      "local function f() return (('a'):gsub('a', function() f() return 'x' end)) end f()",
      "local function f() load(function() f() return nil end) end f()",
      "local pg = require 'perigee' local function f() pg.record(function() f() end) end f()",
      "local pg = require 'perigee' local function f() pg.scope(function() f() end) end f()",
  };
  for (const size_t kib : {128, 256, 1024, 8192}) check_nesting(nested, kib);  // the last is the usual one
}

TEST_CASE("host border: loops and branches that nest too deep for a small stack are an error") {
  const char* const nested[] = {
      R"(local pg = require 'perigee'
         local function nest(n, x)
           if n == 0 then return x * x end
           return pg.loop(1, function(_, v) return nest(n - 1, v) end, x)
         end
         for n = 1, 100 do pg.grad(function(x) return nest(n, x):sum() end)(pg.ones(2)) end)",
      R"(local pg = require 'perigee'
         local function nest(n, x)
           if n == 0 then return x * x end
           return pg.cond(x:sum():gt(0), function() return nest(n - 1, x) end, function() return x end)
         end
         for n = 1, 100 do pg.grad(function(x) return nest(n, x):sum() end)(pg.ones(2)) end)",
  };
  check_nesting(nested, 128);
}

TEST_CASE("host border: calls fit the half of a small stack that scripts leave") {
  const std::string start = R"(
      local pg = require "perigee"
      local eye, x, many = pg.eye(200), pg.ones(3, 500, 12), {}
      local half, double, classes = x:to("bfloat16"), x:to("float64"), pg.ones(3, 12, {dtype = "int64"})
      for i = 1, 250 do many[i] = pg.tensor(i) end
      local total = pg.jit(function(s, ...) for _, x in ipairs{...} do s = s + x end return s end)
      local function nest() )";
  const std::string end = " return (('a'):gsub('a', function() nest() return 'x' end)) end nest()";
  std::vector<std::string> texts;
  std::vector<const char*> scripts;
  for (const char* call : {"pg.linalg.inv(eye)", "x:sum(2)", "x:var(2)", "half:sum(2)", "total(unpack(many))",
                           "pg.grad(function(y) return pg.cross_entropy(y, classes) end)(double)"})
    texts.push_back(start + call + end);
  for (const std::string& text : texts) scripts.push_back(text.c_str());
  check_nesting(scripts, 128);
}

TEST_CASE("host border: bools that are neither 0 nor 1, and strides that overflow") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  unsigned char mask[6] = {0, 1, 255, 0, 1, 1};
  const int64_t six[] = {6}, shape[] = {2, 2}, strides[] = {3, 1}, gaps[] = {3, 2}, far[] = {INT64_MAX, INT64_MAX};
  perigee_tensor* t = nullptr;
  CHECK(perigee_tensor_wrap(runtime.get(), mask, PERIGEE_BOOL, 1, six, nullptr, nullptr, nullptr, &t) ==
        PERIGEE_BAD_ARGUMENT);
  CHECK(std::string(perigee_last_error()->message).find("bools that are 0 or 1") != std::string::npos);
  CHECK(perigee_tensor_wrap(runtime.get(), mask, PERIGEE_BOOL, 2, shape, gaps, nullptr, nullptr, &t) ==
        PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_tensor_wrap(runtime.get(), mask, PERIGEE_BOOL, 2, shape, strides, nullptr, nullptr, &t) == PERIGEE_OK);
  perigee_tensor_release(t);
  CHECK(perigee_tensor_wrap(runtime.get(), mask, PERIGEE_UINT8, 1, six, nullptr, nullptr, nullptr, &t) == PERIGEE_OK);
  perigee_tensor_release(t);
  CHECK(perigee_tensor_wrap(runtime.get(), mask, PERIGEE_UINT8, 2, shape, far, nullptr, nullptr, &t) ==
        PERIGEE_BAD_ARGUMENT);
}

TEST_CASE("host border: a hook of the host is back after an interrupt and after a limit") {
  const auto hook = [](lua_State*, lua_Debug*) {};
  LimitedHost free([](perigee_state_config&) {});
  LimitedHost limited([](perigee_state_config& config) { config.instruction_limit = 100000; });
  for (LimitedHost* host : {&free, &limited}) {
    lua_State* L = perigee_state_lua(host->state);
    lua_sethook(L, hook, LUA_MASKCOUNT, 1000);
    std::atomic<bool> done{false};
    std::thread other([&] {
      while (!done) perigee_interrupt(host->state);
    });
    CHECK(host->run("while true do end") != PERIGEE_OK);
    done = true;
    other.join();
    CHECK(host->run("x = 1") == PERIGEE_OK);  // an interrupt may have come just when the call had ended
    CHECK(bool(lua_gethook(L) == lua_Hook(hook)));
    CHECK(lua_gethookcount(L) == 1000);
    CHECK(lua_gethookmask(L) == LUA_MASKCOUNT);
  }
}

TEST_CASE("host border: neither a coroutine nor a state without libraries can be attached") {
  HostMemory memory;
  const perigee::Runtime runtime = memory.runtime();
  perigee_state* state = nullptr;
  lua_State* bare = luaL_newstate();
  CHECK(perigee_state_attach(runtime.get(), bare, &state) == PERIGEE_BAD_ARGUMENT);
  CHECK(std::string(perigee_last_error()->message).find("luaL_openlibs") != std::string::npos);
  luaL_openlibs(bare);
  CHECK(perigee_state_attach(runtime.get(), lua_newthread(bare), &state) == PERIGEE_BAD_ARGUMENT);
  CHECK(std::string(perigee_last_error()->message).find("coroutine") != std::string::npos);
  lua_settop(bare, 0);
  CHECK(perigee_state_attach(runtime.get(), bare, &state) == PERIGEE_OK);
  perigee_state_close(state);
  lua_close(bare);
}
