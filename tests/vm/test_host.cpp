// The C API: vm/include/perigee.h.
#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/vm/host.h"
#include "tests/vm/lua_state.h"

namespace {

struct Host : PrintingHost {
  explicit Host(int threads = 1) {
    auto config = options();
    config.find_module = [](void*, const char* name, const char** source, size_t* size) {
      if (std::strcmp(name, "made.up")) return 0;
      *source = "return {answer = 42, name = ...}";
      *size = std::strlen(*source);
      return 1;
    };
    open(threads, config);
  }

  perigee_value get(const char* path) {
    perigee_value value;
    REQUIRE(perigee_get(state, path, &value) == PERIGEE_OK);
    return value;
  }
};

perigee_value number(double n) {
  perigee_value value = {};
  value.kind = PERIGEE_NUMBER;
  value.as.number = n;
  return value;
}

perigee_value tensor(perigee_tensor* t) {
  perigee_value value = {};
  value.kind = PERIGEE_TENSOR;
  value.as.tensor = t;
  return value;
}

perigee_tensor* range(perigee_runtime* runtime, int64_t n) {
  static float data[100];
  for (int i = 0; i < 100; ++i) data[i] = float(i + 1);
  perigee_tensor* out = nullptr;
  REQUIRE(perigee_tensor_wrap(runtime, data, PERIGEE_FLOAT32, 1, &n, nullptr, nullptr, nullptr, &out) == PERIGEE_OK);
  return out;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}

}  // namespace

TEST_CASE("host: chunks, prints, modules and values of all kinds") {
  Host host;
  CHECK(host.run("print('a', 1, nil) print() print(require('made.up').answer, (require 'made.up').name)") ==
        PERIGEE_OK);
  CHECK(host.printed == "a\t1\tnil\n\n42\tmade.up\n");
  CHECK(host.run("assert(pg == nil and perigee == nil); t = {inner = {s = 'te\\0xt', b = true, n = 2.5}}") ==
        PERIGEE_OK);
  CHECK(host.get("t.inner.n").as.number == 2.5);
  CHECK(host.get("t.inner.b").as.boolean == 1);
  CHECK(host.get("t.inner.missing").kind == PERIGEE_NIL);
  const perigee_value text = host.get("t.inner.s");
  CHECK(std::string(text.as.string.data, text.as.string.size) == std::string("te\0xt", 5));
  perigee_value value = number(7);
  CHECK(perigee_set(host.state, "t.inner.n", &value) == PERIGEE_OK);
  CHECK(host.run("assert(t.inner.n == 7)") == PERIGEE_OK);
  CHECK(perigee_set(host.state, "t.absent.n", &value) == PERIGEE_NOT_FOUND);
  CHECK(perigee_get(host.state, "t.inner", &value) == PERIGEE_UNSUPPORTED);
  CHECK(value.as.number == 7);
}

TEST_CASE("host: a call gives its results, as many as fit") {
  Host host;
  REQUIRE(
      host.run("local pg = require 'perigee' m = {f = function(a, b) return a + b, 'x', pg.ones(2, 3):t() * a end}") ==
      PERIGEE_OK);
  const perigee_value args[] = {number(3), number(4)};
  perigee_value results[3];
  size_t count = 0;
  CHECK(perigee_call(host.state, "m.f", args, 2, results, 1, &count) == PERIGEE_OK);
  CHECK(count == 3);
  CHECK(results[0].as.number == 7);
  REQUIRE(perigee_call(host.state, "m.f", args, 2, results, 3, nullptr) == PERIGEE_OK);
  perigee_tensor* t = results[2].as.tensor;
  CHECK(perigee_tensor_rank(t) == 2);
  CHECK(perigee_tensor_shape(t)[0] == 3);
  CHECK(perigee_tensor_dtype(t) == PERIGEE_FLOAT32);
  CHECK(perigee_tensor_bytes(t) == 24);
  CHECK(static_cast<const float*>(perigee_tensor_data(t))[5] == 3);
  perigee_tensor_release(t);
  CHECK(perigee_call(host.state, "m.g", args, 2, nullptr, 0, nullptr) == PERIGEE_NOT_FOUND);
  CHECK(perigee_call(host.state, "m", args, 2, nullptr, 0, nullptr) == PERIGEE_NOT_FOUND);
  CHECK(perigee_call(host.state, "m.f", args, 2, nullptr, 1, nullptr) == PERIGEE_BAD_ARGUMENT);
}

TEST_CASE("host: errors have status, message, place and traceback") {
  Host host;
  CHECK(host.run("local function f()\n  error('bad luck')\nend\nlocal x = f()\nreturn x") == PERIGEE_SCRIPT_ERROR);
  const perigee_error* error = perigee_last_error();
  CHECK(message() == "host.lua:2: bad luck");
  CHECK(std::string(error->chunk) == "host.lua");
  CHECK(error->line == 2);
  CHECK(std::string(error->traceback) == "host.lua:2: in function 'f'\nhost.lua:4: in main chunk\n");
  const std::string raise = "\nerror('a.lua:7: text')";
  CHECK(perigee_run(host.state, raise.data(), raise.size(), "a:12: b") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "a:12: b:2: a.lua:7: text");
  CHECK(std::string(perigee_last_error()->chunk) == "a:12: b");
  CHECK(perigee_last_error()->line == 2);
  CHECK(host.run("x = = 1") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "host.lua:1: unexpected symbol near '='");
  CHECK(perigee_last_error()->line == 1);
  CHECK(host.run("error({})") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "(error object is a table value)");
  CHECK(host.run("error(setmetatable({}, {__tostring = function() return 'mine' end}))") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "mine");
  CHECK(host.run("error(setmetatable({}, {__tostring = function() error('no text') end}))") == PERIGEE_SCRIPT_ERROR);
  CHECK(message() == "(error object is a table value)");
  CHECK(host.run("local pg = require 'perigee' pg.ones(2):mm(pg.ones(3))") == PERIGEE_SCRIPT_ERROR);
  CHECK(perigee_last_error()->line == 1);
  CHECK(host.run("\033LJ") == PERIGEE_BAD_ARGUMENT);
  CHECK(host.run("local function f() return f() + 1 end f()") == PERIGEE_SCRIPT_ERROR);
  CHECK(message().find("stack overflow") != std::string::npos);
  CHECK(host.run("require('perigee').ones(2^46)") == PERIGEE_OUT_OF_MEMORY);
  CHECK(host.run("x = 1") == PERIGEE_OK);
  CHECK(perigee_run_file(host.state, "no such file") == PERIGEE_NOT_FOUND);
  CHECK(perigee_run_file(host.state, "/etc/passwd/no folder") == PERIGEE_NOT_FOUND);
  for (const char* unreadable : {"/", "/proc/self/mem"}) {
    CHECK(perigee_run_file(host.state, unreadable) == PERIGEE_BAD_FILE);
    CHECK(message().find(unreadable) != std::string::npos);
  }
  CHECK(std::string(perigee_status_name(PERIGEE_NOT_FOUND)) == "PERIGEE_NOT_FOUND");
}

TEST_CASE("host: NULL is a bad argument everywhere") {
  Host host;
  perigee_value value = number(1);
  perigee_tensor* t = nullptr;
  perigee_model* m = nullptr;
  perigee_state* s = nullptr;
  const int64_t shape[] = {2};
  const perigee_status all[] = {
      perigee_runtime_create(nullptr, nullptr),
      perigee_state_open(nullptr, nullptr, &s),
      perigee_state_open(host.runtime, nullptr, nullptr),
      perigee_state_attach(host.runtime, nullptr, &s),
      perigee_run(nullptr, "", 0, nullptr),
      perigee_run(host.state, nullptr, 1, nullptr),
      perigee_run_file(host.state, nullptr),
      perigee_call(nullptr, "f", nullptr, 0, nullptr, 0, nullptr),
      perigee_call(host.state, nullptr, nullptr, 0, nullptr, 0, nullptr),
      perigee_call(host.state, "f", nullptr, 1, nullptr, 0, nullptr),
      perigee_set(host.state, "x", nullptr),
      perigee_get(host.state, nullptr, &value),
      perigee_gc_step(nullptr, 1),
      perigee_gc_step(host.state, -1),
      perigee_memory(host.state, nullptr),
      perigee_tensor_create(nullptr, PERIGEE_FLOAT32, 1, shape, &t),
      perigee_tensor_create(host.runtime, PERIGEE_FLOAT32, 1, nullptr, &t),
      perigee_tensor_create(host.runtime, perigee_dtype(12), 1, shape, &t),
      perigee_tensor_create(host.runtime, PERIGEE_FLOAT32, 99, shape, &t),
      perigee_tensor_wrap(host.runtime, nullptr, PERIGEE_FLOAT32, 1, shape, nullptr, nullptr, nullptr, &t),
      perigee_tensor_from_dlpack(host.runtime, nullptr, &t),
      perigee_tensor_to_dlpack(nullptr, nullptr),
      perigee_model_load(nullptr, "a", "b", &m),
      perigee_model_load(host.runtime, nullptr, "b", &m),
      perigee_model_load_memory(host.runtime, nullptr, 0, nullptr, 0, &m),
      perigee_model_run(nullptr, nullptr, 0, nullptr, 0),
      perigee_model_run_into(nullptr, nullptr, 0, nullptr, 0),
      perigee_model_save(nullptr, "a"),
  };
  for (size_t i = 0; i < std::size(all); ++i) CHECK_MESSAGE(all[i] == PERIGEE_BAD_ARGUMENT, "call ", i);
  value = tensor(nullptr);
  CHECK(perigee_set(host.state, "x", &value) == PERIGEE_BAD_ARGUMENT);
  CHECK(perigee_tensor_data(nullptr) == nullptr);
  CHECK(perigee_tensor_rank(nullptr) == -1);
  CHECK(perigee_tensor_dtype(nullptr) == PERIGEE_BOOL);
  CHECK(perigee_tensor_shape(nullptr) == nullptr);
  CHECK(perigee_tensor_bytes(nullptr) == 0);
  CHECK(perigee_tensor_retain(nullptr) == nullptr);
  CHECK(perigee_model_retain(nullptr) == nullptr);
  CHECK(perigee_model_input_count(nullptr) == 0);
  CHECK(perigee_model_output_count(nullptr) == 0);
  CHECK(perigee_model_input_name(nullptr, 0) == nullptr);
  CHECK(perigee_model_output_name(nullptr, 0) == nullptr);
  CHECK(perigee_state_lua(nullptr) == nullptr);
  CHECK(perigee_version() == std::string(PERIGEE_VERSION));
  perigee_state_close(nullptr);
  perigee_tensor_release(nullptr);
  perigee_model_release(nullptr);
  perigee_runtime_release(nullptr);
  perigee_interrupt(nullptr);
}

TEST_CASE("host: wrapped memory is not copied, never written, and released once") {
  float data[] = {1, 2, 3, 4, 5, 6};
  int released = 0;
  perigee_tensor* t = nullptr;
  {
    Host host;
    const int64_t shape[] = {3, 2}, strides[] = {1, 3};  // the transpose
    REQUIRE(perigee_tensor_wrap(
                host.runtime, data, PERIGEE_FLOAT32, 2, shape, strides,
                [](void* user, void*) { ++*static_cast<int*>(user); }, &released, &t) == PERIGEE_OK);
    perigee_value value = tensor(t);
    REQUIRE(perigee_set(host.state, "x", &value) == PERIGEE_OK);
    perigee_tensor_release(t);
    CHECK(host.run("x:add_(1) y = x:t() * 1 x[{1, 1}] = 100") == PERIGEE_OK);
    CHECK(data[0] == 1);
    value = host.get("y");
    t = value.as.tensor;
    CHECK(static_cast<const float*>(perigee_tensor_data(t))[3] == 5);
    CHECK(host.run("x, y = nil collectgarbage() collectgarbage()") == PERIGEE_OK);
    CHECK(released == 1);
  }
  CHECK(static_cast<const float*>(perigee_tensor_data(t))[0] == 2);  // outlives its state and runtime
  perigee_tensor_release(t);
  const int64_t shape[] = {2, 3}, bad[] = {-1, 1};
  Host host;
  CHECK(perigee_tensor_wrap(
            host.runtime, data, PERIGEE_FLOAT32, 2, shape, bad, [](void* user, void*) { ++*static_cast<int*>(user); },
            &released, &t) == PERIGEE_BAD_ARGUMENT);
  CHECK(released == 1);
}

TEST_CASE("host: tensors pass through DLPack without a copy") {
  for (int dtype = PERIGEE_BOOL; dtype <= PERIGEE_FLOAT64; ++dtype) {
    Host host;
    double data[6] = {};
    int released = 0;
    perigee_tensor *t = nullptr, *back = nullptr;
    const int64_t shape[] = {3, 2}, strides[] = {1, 3};
    REQUIRE(perigee_tensor_wrap(
                host.runtime, data, perigee_dtype(dtype), 2, shape, strides,
                [](void* user, void*) { ++*static_cast<int*>(user); }, &released, &t) == PERIGEE_OK);
    DLManagedTensor* managed = nullptr;
    REQUIRE(perigee_tensor_to_dlpack(t, &managed) == PERIGEE_OK);
    perigee_tensor_release(t);
    CHECK(managed->dl_tensor.data == data);
    CHECK(managed->dl_tensor.strides[1] == 3);
    managed->dl_tensor.device.device_type = kDLCUDA;
    CHECK(perigee_tensor_from_dlpack(host.runtime, managed, &back) == PERIGEE_UNSUPPORTED);
    managed->dl_tensor.device.device_type = kDLCPU;
    managed->dl_tensor.dtype.lanes = 4;
    CHECK(perigee_tensor_from_dlpack(host.runtime, managed, &back) == PERIGEE_UNSUPPORTED);
    managed->dl_tensor.dtype.lanes = 1;
    REQUIRE(perigee_tensor_from_dlpack(host.runtime, managed, &back) == PERIGEE_OK);
    CHECK(perigee_tensor_dtype(back) == dtype);
    CHECK(perigee_tensor_shape(back)[0] == 3);
    CHECK(released == 0);
    perigee_tensor_release(back);
    CHECK(released == 1);
  }
}

TEST_CASE("host: a callback cannot use or close the state that calls it") {
  Host host;
  auto options = PERIGEE_INIT(perigee_state_config);
  perigee_state* state = nullptr;
  options.user = &state;
  options.print = [](void* user, const char*, size_t) {
    perigee_state* const own = *static_cast<perigee_state**>(user);
    perigee_state_close(own);
    CHECK(perigee_run(own, "", 0, nullptr) == PERIGEE_BAD_ARGUMENT);
  };
  REQUIRE(perigee_state_open(host.runtime, &options, &state) == PERIGEE_OK);
  CHECK(perigee_run(state, "print(1) x = 2", 14, nullptr) == PERIGEE_OK);
  CHECK(perigee_run(state, "assert(x == 2)", 14, nullptr) == PERIGEE_OK);
  perigee_state_close(state);
}

TEST_CASE("host: a runtime is warmed up, and again") {
  auto config = PERIGEE_INIT(perigee_runtime_config);
  config.warm_up = 1;
  for (int i = 0; i < 2; ++i) {
    perigee_runtime* runtime = nullptr;
    REQUIRE(perigee_runtime_create(&config, &runtime) == PERIGEE_OK);
    perigee_runtime_release(runtime);
  }
  config.allocate = [](void*, size_t, size_t) -> void* { return nullptr; };
  config.release = [](void*, void*, size_t) {};
  perigee_runtime* runtime = nullptr;
  CHECK(perigee_runtime_create(&config, &runtime) == PERIGEE_OUT_OF_MEMORY);
  CHECK(runtime == nullptr);
}

TEST_CASE("host: a runtime without spinning computes the same; the field may be absent") {
  for (uint32_t size :
       {uint32_t(offsetof(perigee_runtime_config, no_spin)), uint32_t(sizeof(perigee_runtime_config))}) {
    auto config = PERIGEE_INIT(perigee_runtime_config);
    config.size = size;
    config.threads = 3;
    config.no_spin = 1;
    BareHost host;
    host.open(config);
    CHECK(host.run("local pg = require 'perigee' local x = pg.ones(300, 300) "
                   "for _ = 1, 20 do assert(x:matmul(x):sum():item() == 300 ^ 3) end") == PERIGEE_OK);
  }
}

TEST_CASE("host: an interrupt ends a call, also inside pcall") {
  Host host;
  REQUIRE(
      host.run("local pg = require 'perigee' jit.off() "
               "function spin() while true do pcall(function() while true do local x = pg.ones(10) end end) end end") ==
      PERIGEE_OK);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    perigee_interrupt(host.state);
  });
  CHECK(perigee_call(host.state, "spin", nullptr, 0, nullptr, 0, nullptr) == PERIGEE_CANCELLED);
  other.join();
  CHECK(host.run("local pg = require 'perigee' assert(pg.ones(3):sum():item() == 3)") == PERIGEE_OK);
  perigee_interrupt(host.state);  // between calls: no effect
  CHECK(host.run("x = 1") == PERIGEE_OK);
}

TEST_CASE("host: a model runs without its state, in several threads, and is saved") {
  const std::string folder = "/tmp/perigee_host_" + std::to_string(getpid());
  perigee_model* model = nullptr;
  perigee_runtime* runtime = nullptr;
  {
    Host host;
    REQUIRE(
        host.run("local pg = require 'perigee' local net = pg.nn.HybridSequential{pg.nn.Dense(3), pg.nn.BatchNorm()} "
                 "net:initialize() local x = pg.range(1, 8):reshape{2, 4} net(x) "
                 "files = {net:export('" +
                 folder + "')} graph, params = files[1], files[2] y = net(x)") == PERIGEE_OK);
    CHECK(perigee_model_load(host.runtime, "no file", nullptr, &model) == PERIGEE_NOT_FOUND);
    CHECK(perigee_model_load(host.runtime, host.get("params").as.string.data, nullptr, &model) == PERIGEE_BAD_FILE);
    const std::string graph = host.get("graph").as.string.data, weights = host.get("params").as.string.data;
    REQUIRE(perigee_model_load(host.runtime, graph.c_str(), weights.c_str(), &model) == PERIGEE_OK);
    const std::string graph_bytes = content_of(graph), weight_bytes = content_of(weights);
    const auto load = [&](size_t graph_size, const void* data, size_t size) {
      perigee_model_release(model);
      model = nullptr;
      return perigee_model_load_memory(host.runtime, graph_bytes.data(), graph_size, data, size, &model);
    };
    CHECK(load(graph_bytes.size() / 2, weight_bytes.data(), weight_bytes.size()) == PERIGEE_BAD_FILE);
    for (size_t cut = 0; cut < weight_bytes.size(); cut += 7)
      CHECK(load(graph_bytes.size(), weight_bytes.data(), cut) == PERIGEE_BAD_FILE);
    CHECK(load(graph_bytes.size(), nullptr, 0) == PERIGEE_BAD_FILE);
    REQUIRE(load(graph_bytes.size(), weight_bytes.data(), weight_bytes.size()) == PERIGEE_OK);
    CHECK(perigee_model_save(model, weights.c_str()) == PERIGEE_OK);
    for (const std::string& file : {graph, weights}) std::remove(file.c_str());
    CHECK(perigee_model_save(model, "/no/such/folder/file") == PERIGEE_BAD_FILE);
    perigee_value value;
    value.kind = PERIGEE_MODEL;
    value.as.model = model;
    CHECK(perigee_set(host.state, "model", &value) == PERIGEE_OK);
    CHECK(host.run("local pg = require 'perigee' assert(model(pg.range(1, 8):reshape{2, 4}):allclose(y))") ==
          PERIGEE_OK);
    auto config = PERIGEE_INIT(perigee_runtime_config);
    REQUIRE(perigee_runtime_create(&config, &runtime) == PERIGEE_OK);
  }
  CHECK(perigee_model_input_count(model) == 1);
  CHECK(perigee_model_output_count(model) == 1);
  CHECK(perigee_model_output_name(model, 1) == nullptr);
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      const int64_t shape[] = {2, 4}, out_shape[] = {2, 3};
      float data[8] = {1, 2, 3, 4, 5, 6, 7, 8};
      perigee_tensor *x = nullptr, *y = nullptr, *z = nullptr;
      REQUIRE(perigee_tensor_wrap(runtime, data, PERIGEE_FLOAT32, 2, shape, nullptr, nullptr, nullptr, &x) ==
              PERIGEE_OK);
      REQUIRE(perigee_tensor_create(runtime, PERIGEE_FLOAT32, 2, out_shape, &z) == PERIGEE_OK);
      for (int i = 0; i < 50; ++i) {
        REQUIRE(perigee_model_run(model, &x, 1, &y, 1) == PERIGEE_OK);
        REQUIRE(perigee_model_run_into(model, &x, 1, &z, 1) == PERIGEE_OK);
        CHECK(!std::memcmp(perigee_tensor_data(y), perigee_tensor_data(z), 24));
        perigee_tensor_release(y);
      }
      REQUIRE(perigee_model_run(model, &x, 1, &y, 1) == PERIGEE_OK);
      CHECK(perigee_model_run_into(model, &x, 1, &y, 1) == PERIGEE_BAD_ARGUMENT);  // not the host's
      perigee_tensor_release(y);
      CHECK(perigee_model_run_into(model, &x, 1, &x, 1) == PERIGEE_BAD_ARGUMENT);
      CHECK(perigee_model_run(model, &x, 1, &y, 2) == PERIGEE_BAD_ARGUMENT);
      CHECK(perigee_model_run(model, &z, 1, &y, 1) == PERIGEE_BAD_ARGUMENT);
      perigee_tensor_release(x);
      perigee_tensor_release(z);
    });
  for (std::thread& t : threads) t.join();
  perigee_model_release(model);
  perigee_runtime_release(runtime);
}

TEST_CASE("host: a state of the host's own, and two states of one runtime") {
  Host host;
  lua_State* L = luaL_newstate();
  luaL_openlibs(L);
  perigee_state* mine = nullptr;
  REQUIRE(perigee_state_attach(host.runtime, L, &mine) == PERIGEE_OK);
  const char text[] = "local pg = require 'perigee' assert(not rawget(_G, 'pg')) x = pg.ones(2)";
  CHECK(perigee_run(mine, text, sizeof text - 1, nullptr) == PERIGEE_OK);
  auto info = PERIGEE_INIT(perigee_memory_info);
  CHECK(perigee_memory(mine, &info) == PERIGEE_OK);
  CHECK(info.tensors >= 1);
  CHECK(info.lua_bytes > 10000);
  CHECK(perigee_gc_step(mine, 1000) == PERIGEE_OK);
  perigee_state_close(mine);
  CHECK(luaL_dostring(L, "assert(x:sum():item() == 2)") == 0);
  lua_close(L);
  perigee_tensor* t = range(host.runtime, 5);
  const perigee_value value = tensor(t);
  CHECK(perigee_set(host.state, "x", &value) == PERIGEE_OK);
  CHECK(host.run("assert(x:sum():item() == 15)") == PERIGEE_OK);
  perigee_tensor_release(t);
}
