// An exported training step in a host without a Lua state.
#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/vm/host.h"

namespace {

constexpr const char* kScript = R"(
local pg = require "perigee"
pg.manual_seed(5)
local net = pg.nn.HybridSequential{pg.nn.Dense(8, {activation = "tanh"}), pg.nn.Dense(1)}
net:initialize()
local trainer = pg.optim.Trainer(net:collect_params(), "adam", {learning_rate = 0.01})
step = pg.jit(function(x, y)
  local loss = pg.record(function() return (net(x) - y):square():mean() end)
  loss:backward()
  trainer:step(1)
  return loss
end)
function batch(i)
  local x = pg.randn(16, 4, {generator = pg.Generator(i)})
  return x, x:sum(2, {keepdim = true})
end
function train(i) return step(batch(i)) end
function export(path) step:export(path) end
)";

struct Files {
  std::string folder = (std::filesystem::temp_directory_path() / "perigee-training-XXXXXX").string();
  Files() { REQUIRE(mkdtemp(folder.data()) != nullptr); }
  ~Files() { std::filesystem::remove_all(folder); }
  std::string at(const char* name) const { return folder + "/" + name; }
};

struct Training : BareHost {
  Training() {
    open(0, PERIGEE_INIT(perigee_state_config));
    REQUIRE(run(kScript) == PERIGEE_OK);
  }
  std::vector<perigee_tensor*> call(const char* path, int number, size_t results) {
    perigee_value argument = {}, out[2];
    argument.kind = PERIGEE_NUMBER;
    argument.as.number = number;
    REQUIRE(perigee_call(state, path, &argument, 1, out, results, nullptr) == PERIGEE_OK);
    std::vector<perigee_tensor*> tensors;
    for (size_t i = 0; i < results; ++i) tensors.push_back(out[i].as.tensor);
    return tensors;
  }
  void export_to(const std::string& path) {
    perigee_value argument = {};
    argument.kind = PERIGEE_STRING;
    argument.as.string = {path.data(), path.size()};
    REQUIRE(perigee_call(state, "export", &argument, 1, nullptr, 0, nullptr) == PERIGEE_OK);
  }
};

float item(perigee_tensor* t) {
  const float value = *static_cast<const float*>(perigee_tensor_data(t));
  perigee_tensor_release(t);
  return value;
}

float run(perigee_model* model, const std::vector<perigee_tensor*>& batch) {
  perigee_tensor* loss = nullptr;
  REQUIRE(perigee_model_run(model, batch.data(), batch.size(), &loss, 1) == PERIGEE_OK);
  return item(loss);
}

void release(const std::vector<perigee_tensor*>& tensors) {
  for (perigee_tensor* t : tensors) perigee_tensor_release(t);
}

perigee_model* load(perigee_runtime* runtime, const std::string& graph, const std::string& weights) {
  perigee_model* model = nullptr;
  REQUIRE(perigee_model_load(runtime, graph.c_str(), weights.c_str(), &model) == PERIGEE_OK);
  return model;
}

}  // namespace

TEST_CASE("host: 100 exported training steps equal the script's, bit for bit, and are saved") {
  const Files files;
  Training script;
  item(script.call("train", 1, 1)[0]);
  script.export_to(files.at("train"));
  perigee_model* model = load(script.runtime, files.at("train.json"), files.at("train.safetensors"));
  CHECK(perigee_model_input_count(model) == 2);
  float first = 0, last = 0;
  for (int i = 2; i <= 101; ++i) {
    const auto batch = script.call("batch", i, 2);
    const float expected = item(script.call("train", i, 1)[0]);
    last = run(model, batch);
    if (i == 2) first = last;
    release(batch);
    REQUIRE(last == expected);
    if (i == 50) {  // from here on the saved weights go on
      REQUIRE(perigee_model_save(model, files.at("saved.safetensors").c_str()) == PERIGEE_OK);
      perigee_model_release(model);
      model = load(script.runtime, files.at("train.json"), files.at("saved.safetensors"));
    }
  }
  CHECK(last < first);
  perigee_model_release(model);
}

TEST_CASE("host: a training step runs for one thread at a time, and a failed run changes nothing") {
  const Files files;
  Training script;
  item(script.call("train", 1, 1)[0]);
  script.export_to(files.at("train"));
  perigee_model* model = load(script.runtime, files.at("train.json"), files.at("train.safetensors"));
  const auto batch = script.call("batch", 2, 2);
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        perigee_tensor* loss = nullptr;
        if (perigee_model_run(model, batch.data(), 2, &loss, 1) == PERIGEE_OK) perigee_tensor_release(loss);
      }
    });
  for (std::thread& thread : threads) thread.join();
  perigee_tensor* loss = nullptr;
  const std::vector<perigee_tensor*> wrong = {batch[1], batch[0]};
  CHECK(perigee_model_run(model, wrong.data(), 2, &loss, 1) == PERIGEE_BAD_ARGUMENT);
  for (int i = 0; i < 20; ++i) {  // the script's own 20 steps with that batch
    perigee_value args[2] = {}, out;
    for (int k = 0; k < 2; ++k) args[k].kind = PERIGEE_TENSOR, args[k].as.tensor = batch[size_t(k)];
    REQUIRE(perigee_call(script.state, "step", args, 2, &out, 1, nullptr) == PERIGEE_OK);
    perigee_tensor_release(out.as.tensor);
  }
  const auto next = script.call("batch", 3, 2);
  CHECK(run(model, next) == item(script.call("train", 3, 1)[0]));
  release(batch);
  release(next);
  perigee_model_release(model);
}
