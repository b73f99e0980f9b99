// Jobs of the C API. tests/lua/test_jobs.lua tests what a job may do.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "tensor/runtime.h"
#include "tests/vm/host.h"
#include "tests/vm/lua_state.h"
#include "vm/bindings.h"

namespace {

constexpr const char* kScript = R"(
local pg = require "perigee"
function count(n)
  local x = pg.zeros(1)
  for i = 1, n do
    x = x + 1
    pg.progress(i / n)
  end
  return x, n, "text", nil, true
end
function fails()
  pg.ones(2):sum()
  error("broken")
end
function stubborn()
  while true do pcall(function() while true do pg.ones(2):sum() end end) end
end
function spin() while not go do end return "spun" end
function talk()
  print("hello")
  pg.ones(1):sum()
  return 1
end
function odd() return {} end
function many(n)
  local t = {}
  for i = 1, n do t[i] = i end
  return unpack(t)
end
callable = setmetatable({}, {__call = function(_, x) return x end})
function same(x) return x end
number = 3
)";

struct Host : BareHost {
  void (*on_print)(Host&) = nullptr;
  perigee_job* job = nullptr;
  perigee_status seen = PERIGEE_OK;

  Host() {
    auto config = PERIGEE_INIT(perigee_state_config);
    config.user = this;
    config.print = [](void* user, const char*, size_t) {
      Host& host = *static_cast<Host*>(user);
      if (host.on_print) host.on_print(host);
    };
    open(2, config);
    REQUIRE(run(kScript) == PERIGEE_OK);
  }

  perigee_job* start(const char* path, double argument = 0) {
    perigee_value value = {};
    value.kind = PERIGEE_NUMBER;
    value.as.number = argument;
    perigee_job* out = nullptr;
    REQUIRE(perigee_job_start(state, path, &value, 1, &out) == PERIGEE_OK);
    return out;
  }
};

// Steps of no time until the job is done. Returns their number.
int finish(perigee_job* job) {
  int done = 0, steps = 0;
  for (; !done; ++steps) REQUIRE(perigee_job_step(job, 0, &done) == PERIGEE_OK);
  return steps;
}

}  // namespace

TEST_CASE("a job runs in slices and gives its results") {
  Host host;
  perigee_job* job = host.start("count", 5);
  double progress = -1;
  CHECK(perigee_job_progress(job, &progress) == PERIGEE_OK);
  CHECK(progress == 0);
  perigee_value results[8];
  size_t count = 0;
  CHECK(perigee_job_results(job, results, 8, &count) == PERIGEE_BAD_ARGUMENT);
  CHECK(message() == "perigee_job_results: bad argument 'job' (expected a job that is done)");
  CHECK(finish(job) > 5);
  int done = 0;
  CHECK(perigee_job_step(job, 1000, &done) == PERIGEE_OK);
  CHECK(done == 1);
  CHECK(perigee_job_progress(job, &progress) == PERIGEE_OK);
  CHECK(progress == 1);
  for (int round = 0; round < 2; ++round) {
    REQUIRE(perigee_job_results(job, results, 8, &count) == PERIGEE_OK);
    CHECK(count == 5);
    CHECK(static_cast<const float*>(perigee_tensor_data(results[0].as.tensor))[0] == 5);
    CHECK(results[1].as.number == 5);
    CHECK(std::string(results[2].as.string.data, results[2].as.string.size) == "text");
    CHECK(results[3].kind == PERIGEE_NIL);
    CHECK(results[4].as.boolean == 1);
    perigee_tensor_release(results[0].as.tensor);
  }
  CHECK(perigee_job_results(job, nullptr, 0, &count) == PERIGEE_OK);
  CHECK(count == 5);
  perigee_job_release(job);
}

TEST_CASE("a job may have as many results as a call") {
  Host host;
  for (int wanted : {4000, 7000, 7900}) {
    perigee_job* job = host.start("many", wanted);
    finish(job);
    std::vector<perigee_value> results(static_cast<size_t>(wanted));
    size_t count = 0;
    REQUIRE(perigee_job_results(job, results.data(), results.size(), &count) == PERIGEE_OK);
    CHECK(count == size_t(wanted));
    CHECK(results.back().as.number == wanted);
    CHECK(perigee_job_results(job, nullptr, 0, &count) == PERIGEE_OK);
    perigee_job_release(job);
  }
}

TEST_CASE("a model with state takes its turn in a job and in the host") {
  Host host;
  const std::string path = (std::filesystem::temp_directory_path() / fmt::format("perigee_job_{}", getpid())).string();
  REQUIRE(host.run(R"(
local pg = require "perigee"
local net = pg.nn.Dense(2, {in_units = 3})
net:initialize()
local trainer = pg.optim.Trainer(net:collect_params(), "sgd", {learning_rate = 0.1})
local step = pg.jit(function(x)
  local l = pg.record(function() return net(x):square():sum() end)
  l:backward()
  trainer:step(1)
  return l
end)
step(pg.ones(1, 3))
step(pg.ones(1, 3))
step:export(")" + path +
                   R"(")
function use(n)
  for _ = 1, n do model(pg.ones(1, 3)) end
  return model(pg.ones(1, 3))
end)") == PERIGEE_OK);
  perigee_value model = {};
  model.kind = PERIGEE_MODEL;
  REQUIRE(perigee_model_load(host.runtime, (path + ".json").c_str(), (path + ".safetensors").c_str(),
                             &model.as.model) == PERIGEE_OK);
  REQUIRE(perigee_set(host.state, "model", &model) == PERIGEE_OK);
  const int64_t shape[] = {1, 3};
  perigee_tensor *x = nullptr, *loss = nullptr;
  REQUIRE(perigee_tensor_create(host.runtime, PERIGEE_FLOAT32, 2, shape, &x) == PERIGEE_OK);
  perigee_job* job = host.start("use", 5);
  for (int done = 0; !done;) {
    REQUIRE(perigee_job_step(job, 0, &done) == PERIGEE_OK);
    REQUIRE(perigee_model_run(model.as.model, &x, 1, &loss, 1) == PERIGEE_OK);
    perigee_tensor_release(loss);
  }
  perigee_tensor_release(x);
  perigee_model_release(model.as.model);
  perigee_job_release(job);
  for (const char* end : {".json", ".safetensors"}) std::filesystem::remove(path + end);
}

TEST_CASE("a job in one slice, a negative budget, and a callable table") {
  Host host;
  perigee_job* job = host.start("count", 3);
  int done = 0;
  REQUIRE(perigee_job_step(job, 60'000'000, &done) == PERIGEE_OK);
  CHECK(done == 1);
  perigee_job_release(job);
  job = host.start("count", 3);
  REQUIRE(perigee_job_step(job, -5, &done) == PERIGEE_OK);
  CHECK(done == 0);
  perigee_job_release(job);
  job = host.start("callable", 7);
  finish(job);
  perigee_value value;
  REQUIRE(perigee_job_results(job, &value, 1, nullptr) == PERIGEE_OK);
  CHECK(value.as.number == 7);
  perigee_job_release(job);
  perigee_job_release(nullptr);
}

TEST_CASE("wrong arguments of the functions of jobs") {
  Host host;
  perigee_job* job = nullptr;
  int done = 0;
  double progress = 0;
  size_t count = 0;
  CHECK(perigee_job_start(nullptr, "count", nullptr, 0, &job) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_start(host.state, nullptr, nullptr, 0, &job) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_start(host.state, "count", nullptr, 1, &job) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_start(host.state, "count", nullptr, 0, nullptr) == PERIGEE_BAD_ARGUMENT);
  std::vector<perigee_value> many(201);
  CHECK(perigee_job_start(host.state, "count", many.data(), many.size(), &job) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_start(host.state, "nothing", nullptr, 0, &job) == PERIGEE_NOT_FOUND);
  CHECK(message() == "perigee_job_start: there is no 'nothing'");
  CHECK(perigee_job_start(host.state, "a.b", nullptr, 0, &job) == PERIGEE_NOT_FOUND);
  CHECK(perigee_job_start(host.state, "number", nullptr, 0, &job) == PERIGEE_NOT_FOUND);
  CHECK(message() == "perigee_job_start: 'number' is a number, not a function");
  CHECK(job == nullptr);
  CHECK(perigee_job_step(nullptr, 0, &done) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_results(nullptr, nullptr, 0, &count) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_progress(nullptr, &progress) == PERIGEE_BAD_ARGUMENT);
  job = host.start("odd");
  CHECK(perigee_job_step(job, 0, nullptr) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_progress(job, nullptr) == PERIGEE_BAD_ARGUMENT);
  finish(job);
  perigee_value value;
  CHECK(perigee_job_results(job, nullptr, 1, &count) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_job_results(job, &value, 1, &count) == PERIGEE_UNSUPPORTED);
  perigee_job_release(job);
}

TEST_CASE("an error of the job has its traceback, and stays") {
  Host host;
  perigee_job* job = host.start("fails");
  int done = 7;
  perigee_status status;
  while ((status = perigee_job_step(job, 0, &done)) == PERIGEE_OK) CHECK(done == 0);
  for (int round = 0; round < 2; ++round) {
    CHECK(status == PERIGEE_SCRIPT_ERROR);
    CHECK(message() == "host.lua:13: broken");
    CHECK(std::string(perigee_last_error()->traceback).find("host.lua:13: in function") != std::string::npos);
    CHECK(std::string(perigee_last_error()->chunk) == "host.lua");
    CHECK(perigee_last_error()->line == 13);
    status = perigee_job_step(job, 1000, &done);
  }
  CHECK(perigee_job_results(job, nullptr, 0, nullptr) == PERIGEE_SCRIPT_ERROR);
  CHECK(done == 0);
  perigee_job_release(job);
}

TEST_CASE("between slices the state runs other calls and other jobs") {
  Host host;
  perigee_job *a = host.start("count", 4), *b = host.start("count", 6);
  int a_done = 0, b_done = 0;
  while (!a_done || !b_done) {
    REQUIRE(perigee_job_step(a, 0, &a_done) == PERIGEE_OK);
    CHECK(host.run("local pg = require 'perigee'; assert(not pg.is_recording()); pg.ones(3):sum()") == PERIGEE_OK);
    REQUIRE(perigee_job_step(b, 0, &b_done) == PERIGEE_OK);
    REQUIRE(perigee_gc_step(host.state, 50) == PERIGEE_OK);
  }
  perigee_value results[2];
  REQUIRE(perigee_job_results(b, results, 2, nullptr) == PERIGEE_OK);
  CHECK(static_cast<const float*>(perigee_tensor_data(results[0].as.tensor))[0] == 6);
  perigee_tensor_release(results[0].as.tensor);
  perigee_job_release(a);
  perigee_job_release(b);
}

TEST_CASE("a loop without ops is suspended in a state that was opened") {
  Host host;
  perigee_job* job = host.start("spin");
  int done = 1;
  for (int i = 0; i < 3; ++i) {
    REQUIRE(perigee_job_step(job, 100, &done) == PERIGEE_OK);
    CHECK(done == 0);
  }
  CHECK(host.run("go = true") == PERIGEE_OK);
  finish(job);
  perigee_job_release(job);
}

TEST_CASE("release ends a job that pcall would keep running, on another thread too") {
  Host host;
  for (const char* path : {"stubborn", "spin"})
    for (int steps : {0, 1, 3}) {
      perigee_job* job = host.start(path);
      std::thread([&] {
        int done = 0;
        for (int i = 0; i < steps; ++i) CHECK(perigee_job_step(job, 0, &done) == PERIGEE_OK);
      }).join();
      perigee_job_release(job);
      CHECK(host.run("local pg = require 'perigee'; for i = 1, 100 do pg.ones(2):sum() end") == PERIGEE_OK);
    }
}

TEST_CASE("an interrupt ends the slice and the job") {
  Host host;
  for (const char* path : {"stubborn", "spin"}) {
    perigee_job* job = host.start(path);
    std::atomic<bool> over{false};
    std::thread other([&] {
      while (!over) {
        perigee_interrupt(host.state);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
    int done = 0;
    perigee_status status;
    while ((status = perigee_job_step(job, 10'000'000, &done)) == PERIGEE_OK) {}
    over = true;
    other.join();
    CHECK(status == PERIGEE_CANCELLED);
    CHECK(perigee_job_step(job, 0, &done) == PERIGEE_CANCELLED);
    CHECK(perigee_job_results(job, nullptr, 0, nullptr) == PERIGEE_CANCELLED);
    perigee_job_release(job);
    CHECK(host.run("local pg = require 'perigee'; for i = 1, 100 do pg.ones(2):sum() end") == PERIGEE_OK);
  }
}

TEST_CASE("a state closes with unfinished jobs, whose handles stay harmless") {
  Host host;
  std::vector<perigee_job*> jobs;
  for (const char* path : {"count", "stubborn", "spin", "fails"})
    for (int steps : {0, 2}) {
      jobs.push_back(host.start(path, 9));
      int done = 0;
      for (int i = 0; i < steps; ++i) (void)perigee_job_step(jobs.back(), 0, &done);
    }
  CHECK(host.run("local pg = require 'perigee'; left = pg.job(stubborn); left:step(0); left:step(0)") == PERIGEE_OK);
  perigee_state_close(host.state);
  host.state = nullptr;
  for (perigee_job* job : jobs) {
    int done = 0;
    double progress = 0;
    CHECK(perigee_job_step(job, 0, &done) == PERIGEE_BAD_ARGUMENT);
    CHECK(message() == "perigee_job_step: bad argument 'job' (expected a job whose state is open)");
    CHECK(perigee_job_results(job, nullptr, 0, nullptr) == PERIGEE_BAD_ARGUMENT);
    CHECK(perigee_job_progress(job, &progress) == PERIGEE_OK);
    perigee_job_release(job);
  }
}

TEST_CASE("callbacks of a slice cannot use the state, but may release the job") {
  Host host;
  host.job = host.start("talk");
  host.on_print = [](Host& h) {
    int done = 0;
    h.seen = perigee_job_step(h.job, 0, &done);
  };
  finish(host.job);
  CHECK(host.seen == PERIGEE_BAD_ARGUMENT);
  perigee_job_release(host.job);
  host.job = host.start("talk");
  host.on_print = [](Host& h) { perigee_job_release(h.job); };
  int done = 0;
  perigee_status status = PERIGEE_OK;
  while (status == PERIGEE_OK && !done) status = perigee_job_step(host.job, 0, &done);
  CHECK(status == PERIGEE_CANCELLED);
}

TEST_CASE("lua_close ends the jobs that scripts have left") {
  const auto threads = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  pg::Runtime::process().threads().stop();  // small tensors start no others
  const auto before = threads();
  {
    lua_State* const L = luaL_newstate();
    LuaState lua(L);
    pg::vm::open_libraries(L);
    CHECK(lua.run(kScript) == "");
    CHECK(lua.run(R"(
local pg = require "perigee"
jobs = {}
for i, f in ipairs{stubborn, spin, count} do
  jobs[i] = pg.job(f, 9)
  jobs[i]:step(0)
  jobs[i]:step(0)
end)") == "");
    CHECK(threads() == before + 3);
  }
  CHECK(threads() == before);
}

TEST_CASE("an attached state has jobs; its loops without ops are not suspended") {
  lua_State* const L = luaL_newstate();
  const LuaState lua(L);
  luaL_openlibs(L);
  perigee_runtime* runtime = nullptr;
  auto config = PERIGEE_INIT(perigee_runtime_config);
  config.threads = 1;
  REQUIRE(perigee_runtime_create(&config, &runtime) == PERIGEE_OK);
  perigee_state* state = nullptr;
  REQUIRE(perigee_state_attach(runtime, L, &state) == PERIGEE_OK);
  REQUIRE(perigee_run(state, kScript, std::strlen(kScript), "jobs.lua") == PERIGEE_OK);
  perigee_job *job = nullptr, *left = nullptr;
  perigee_value five = {};
  five.kind = PERIGEE_NUMBER;
  five.as.number = 5;
  REQUIRE(perigee_job_start(state, "count", &five, 1, &job) == PERIGEE_OK);
  CHECK(finish(job) > 5);
  perigee_job_release(job);
  REQUIRE(perigee_job_start(state, "stubborn", nullptr, 0, &left) == PERIGEE_OK);
  int done = 0;
  REQUIRE(perigee_job_step(left, 0, &done) == PERIGEE_OK);
  REQUIRE(perigee_job_step(left, 0, &done) == PERIGEE_OK);
  perigee_state_close(state);
  CHECK(perigee_job_step(left, 0, &done) == PERIGEE_BAD_ARGUMENT);
  perigee_job_release(left);
  perigee_runtime_release(runtime);
}
