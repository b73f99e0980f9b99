// Two models, and what tests of model files do with their texts.
#pragma once
#include "graph/io/model_file.h"
#include "tests/graph/graphs.h"
#include "tests/tensor/files.h"

namespace pg::test {

// A model with linear, a constant, a random op with a mode, a written state, a guard, nested arguments and results.
Model sample_model();
Values sample_values();

struct Sample {
  Model model;
  NamedTensors tensors;
  std::string json;
  explicit Sample(Model of = sample_model(), const Values& values = sample_values())
      : model(std::move(of)), tensors(model_tensors(model, values)), json(model_json(model)) {}
};

// A model with a foreach, a while_loop and a cond.
Sample control_flow_sample();
// The same model as written by perigee 0.1.0.
std::string old_control_flow();

LoadedModel parse(const std::string& json, const NamedTensors& tensors);
// Returns the error for a malformed text, or "" if there is none. Checks that the error names the file.
std::string refused(const std::string& json, const NamedTensors& tensors);
std::string replaced(std::string text, const std::string& from, const std::string& to);

}  // namespace pg::test
