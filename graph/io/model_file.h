// Models as files: the graph as JSON, its constants and the values of its inputs as safetensors. Format version 2 has
// branches and loops; a graph without them is written as version 1. Loading verifies all of it (see verify(Model)): a
// malformed file is an Error `load: FILE: …` with the byte or the node.
#pragma once
#include "graph/io/model.h"
#include "tensor/io/formats.h"

namespace pg {

inline constexpr int kModelVersion = 3;

struct LoadedModel {
  Model model;
  std::vector<Value> values;  // of the model's inputs; undefined for arguments, and for all when no tensors were given
};

// The text of the JSON file, ending in a newline.
std::string model_json(const Model& model);

// The tensors that go with it: parameters and states by name, constants under names of their own.
NamedTensors model_tensors(const Model& model, std::span<const Value> values);

// Both files or, on an exception, as good as neither: the tensors take their place first, the JSON last.
void save_model(const std::string& json_path, const std::string& tensors_path, const Model& model,
                std::span<const Value> values);

struct ModelSource {
  std::string name;                       // of the text, for errors
  const NamedTensors* tensors = nullptr;  // without them parameters have no values, and constants are an error
  std::string tensors_name;
  bool hidden_ops = false;  // for tests: ops that scripts cannot call
};
LoadedModel parse_model(std::string_view json, const ModelSource& source);

// An empty tensors_path: without tensors.
LoadedModel load_model(const std::string& json_path, const std::string& tensors_path);

}  // namespace pg
