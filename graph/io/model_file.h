// Model files: the graph as JSON, and its constants and the values of its inputs as safetensors. The version of the
// format is 1, 3 if the graph has writes, or 4 if it has branches or loops. Versions 2 and 3 had special nodes for
// branches and loops, which can still be read. Loading verifies everything (see verify(Model)). For a malformed file it
// throws Error `load: FILE: …` with the byte or the node.
#pragma once
#include "graph/io/model.h"
#include "tensor/io/formats.h"

namespace pg {

inline constexpr int kModelVersion = 4;

struct LoadedModel {
  Model model;
  std::vector<Value> values;  // by input of the model; undefined for arguments, and for all if no tensors were given
};

// Returns the text of the JSON file, ending in a newline.
std::string model_json(const Model& model);

// Returns the tensors of the model: parameters and states by name, constants by generated names.
NamedTensors model_tensors(const Model& model, std::span<const Value> values);

// Writes both files, each atomically. The tensors are replaced first, the JSON last.
void save_model(const std::string& json_path, const std::string& tensors_path, const Model& model,
                std::span<const Value> values);

struct ModelSource {
  std::string name;                       // of the text, for error messages
  const NamedTensors* tensors = nullptr;  // if null, parameters have no values, and constants are an error
  std::string tensors_name;
  bool hidden_ops = false;  // accepts ops that scripts cannot call, for tests
};
LoadedModel parse_model(std::string_view json, const ModelSource& source);

// With an empty tensors_path no tensors are loaded.
LoadedModel load_model(const std::string& json_path, const std::string& tensors_path);

}  // namespace pg
