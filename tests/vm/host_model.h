// What tests of the C API share: a runtime whose tensor memory is counted, and exported models.
#pragma once
#include <doctest/doctest.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "vm/include/perigee.hpp"

#include <unistd.h>

namespace pg::test {

// Tensor memory of a host: counted, and failing when told to.
struct HostMemory {
  std::atomic<long> asked{0}, live{0}, left{0};  // requests; blocks in use; requests until one fails, 0: off
  bool persistent = false, happened = false;

  static void* allocate(void* user, size_t bytes, size_t alignment) {
    auto& self = *static_cast<HostMemory*>(user);
    ++self.asked;
    if (self.left > 0 && --self.left == 0) {
      self.happened = true;
      if (self.persistent) self.left = 1;
      return nullptr;
    }
    void* block = nullptr;
    if (posix_memalign(&block, alignment, bytes)) return nullptr;
    ++self.live;
    return block;
  }
  static void release(void* user, void* data, size_t) {
    --static_cast<HostMemory*>(user)->live;
    std::free(data);
  }
  void fail(long request) {
    happened = false;
    left = request;
  }
  bool stop() {
    left = 0;
    return happened;
  }

  perigee_status create(perigee::Runtime& made) {
    auto config = PERIGEE_INIT(perigee_runtime_config);
    config.threads = 1;
    config.allocate = allocate;
    config.release = release;
    config.user = this;
    return perigee_runtime_create(&config, made.out());
  }
  perigee::Runtime runtime() {
    perigee::Runtime made;
    REQUIRE(create(made) == PERIGEE_OK);
    return made;
  }
};

inline void must_run(const perigee::State& state, const std::string& text) {
  const perigee_status status = perigee::run(state, text, "test");
  REQUIRE_MESSAGE(status == PERIGEE_OK, std::string(perigee_last_error()->message));
}

inline perigee::State open_state(const perigee::Runtime& runtime) {
  auto config = PERIGEE_INIT(perigee_state_config);
  perigee::State state;
  REQUIRE(perigee_state_open(runtime.get(), &config, state.out()) == PERIGEE_OK);
  return state;
}

// The contents of the two files of an exported block. `make` is an expression in Lua that gives the block, and `call`
// calls it once: "net(pg.ones(2, 4))".
struct ModelFiles {
  std::string graph, weights;

  ModelFiles(const std::string& make, const std::string& call) {
    perigee::Runtime runtime;
    REQUIRE(perigee_runtime_create(nullptr, runtime.out()) == PERIGEE_OK);
    const perigee::State state = open_state(runtime);
    const std::string folder = "/tmp/perigee_model_" + std::to_string(getpid());
    must_run(state, "local pg = require 'perigee' pg.manual_seed(1) local nn = pg.nn local net = " + make +
                        " net:initialize('xavier') " + call + " files = {net:export('" + folder + "')}");
    graph = content(state, 1), weights = content(state, 2);
  }

  perigee::Model load(const perigee::Runtime& runtime) const {
    perigee::Model model;
    const perigee_status status =
        perigee_model_load_memory(runtime.get(), graph.data(), graph.size(), weights.empty() ? nullptr : weights.data(),
                                  weights.size(), model.out());
    REQUIRE_MESSAGE(status == PERIGEE_OK, std::string(perigee_last_error()->message));
    return model;
  }

 private:
  static std::string content(const perigee::State& state, int which) {
    must_run(state, "path = files[" + std::to_string(which) + "] or ''");
    perigee_value path;
    REQUIRE(perigee_get(state.get(), "path", &path) == PERIGEE_OK);
    std::ifstream file(path.as.string.data, std::ios::binary);
    std::stringstream all;
    all << file.rdbuf();
    std::remove(path.as.string.data);
    return all.str();
  }
};

inline perigee::Tensor wrap(const perigee::Runtime& runtime, float* data, std::initializer_list<int64_t> shape) {
  perigee::Tensor tensor;
  REQUIRE(perigee_tensor_wrap(runtime.get(), data, PERIGEE_FLOAT32, int(shape.size()), shape.begin(), nullptr, nullptr,
                              nullptr, tensor.out()) == PERIGEE_OK);
  return tensor;
}

inline perigee::Tensor zeros(const perigee::Runtime& runtime, std::initializer_list<int64_t> shape) {
  perigee::Tensor tensor;
  REQUIRE(perigee_tensor_create(runtime.get(), PERIGEE_FLOAT32, int(shape.size()), shape.begin(), tensor.out()) ==
          PERIGEE_OK);
  return tensor;
}

inline const float* floats(const perigee::Tensor& tensor) {
  return static_cast<const float*>(perigee_tensor_data(tensor.get()));
}

inline perigee_status run_into(const perigee::Model& model, const std::vector<perigee_tensor*>& in,
                               const std::vector<perigee_tensor*>& out) {
  return perigee_model_run_into(model.get(), in.data(), in.size(), out.data(), out.size());
}

}  // namespace pg::test
