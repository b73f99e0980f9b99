// Reads models. A file is not trusted: structure, references, attributes, types and sizes are checked before the model
// is returned.
#include <algorithm>

#include "graph/io/graph_reader.h"
#include "graph/io/model_names.h"
#include "tensor/io/file.h"

namespace pg {
namespace {

class ModelReader : public GraphReader {
 public:
  ModelReader(std::string_view text, const ModelSource& source) : GraphReader(text, source) {}

  LoadedModel read() {
    const auto at = document();
    seek(at[3]), out_.model.name = string(1000);
    seek(at[4]), out_.model.graph = read_graphs();
    seek(at[5]), array([&](size_t) { out_.model.inputs.push_back(read_input()); });
    seek(at[6]), array([&](size_t) { out_.model.arguments.push_back(read_tree(0)); });
    seek(at[7]), array([&](size_t) { out_.model.results.push_back(read_tree(0)); });
    seek(at[8]), read_writes();
    seek(at[9]), read_generators();
    try {
      verify(out_.model, source_.hidden_ops);
    } catch (const Error& error) {
      throw Error(fmt::format("load: {}: {}", source(), error.what()));
    }
    take_values();
    return std::move(out_);
  }

 private:
  // The fields of the document. The version is checked before unknown fields are rejected, because a newer version may
  // have more fields.
  std::array<size_t, 10> document() {
    static const char* const kNames[10] = {"format", "version",   "producer", "name",   "graphs",
                                           "inputs", "arguments", "results",  "writes", "generators"};
    std::array<size_t, 10> at;
    at.fill(kAbsent);
    std::string unknown;
    size_t unknown_at = 0;
    object([&](const std::string& key, size_t key_at) {
      if (const auto k = index_in(kNames, key)) {
        if (at[size_t(*k)] != kAbsent) fail_at(key_at, fmt::format("duplicate key '{}'", key));
        at[size_t(*k)] = place();
      } else if (unknown.empty()) {
        unknown = "'" + key.substr(0, 60) + "'";
        unknown_at = key_at;
      }
      skip();
    });
    if (at[0] == kAbsent) fail_at(0, "no field 'format': not a graph of perigee");
    seek(at[0]);
    if (const std::string format = string(1000); format != kModelFormat)
      fail_at(at[0], fmt::format("the format is '{}', not '{}'", format.substr(0, 60), kModelFormat));
    if (at[1] == kAbsent) fail_at(0, "no field 'version'");
    seek(at[1]);
    version_ = integer(1, kMaxIndex);
    if (version_ > kModelVersion)
      fail_at(at[1], fmt::format("format version {}; this program reads up to {}", version_, kModelVersion));
    if (!unknown.empty()) fail_at(unknown_at, "unknown field " + unknown);
    for (size_t k = 2; k < 10; ++k)
      if (at[k] == kAbsent) fail_at(0, fmt::format("no field '{}'", kNames[k]));
    seek(at[2]), string(1000);
    return at;
  }

  ModelInput read_input() {
    const auto at = fields({"name", "role", "grad_req", "differentiable", "constant", "lr_mult", "wd_mult"});
    const size_t behind = place();
    ModelInput input;
    require(at[0], "name");
    input.name = string(10000);
    require(at[1], "role");
    const size_t role_at = place();
    const auto role = index_in(kRoleNames, string(100));
    if (!role) fail_at(role_at, "expected \"argument\", \"parameter\" or \"state\"");
    input.role = ModelInput::Role(*role);
    for (size_t k = 2; k < at.size(); ++k)
      if (at[k] != kAbsent && input.role != ModelInput::Role::kParameter)
        fail_at(at[k], "this field is for parameters");
    if (at[2] != kAbsent) seek(at[2]), input.req = read_request();
    if (at[3] != kAbsent) seek(at[3]), input.differentiable = boolean();
    if (at[4] != kAbsent) seek(at[4]), input.constant = boolean();
    if (at[5] != kAbsent) seek(at[5]), input.lr_mult = number();
    if (at[6] != kAbsent) seek(at[6]), input.wd_mult = number();
    seek(behind);
    return input;
  }

  Tree read_tree(int depth) {
    if (depth > kMaxTreeDepth) fail(fmt::format("nested more than {} deep", kMaxTreeDepth));
    Tree tree;
    switch (kind()) {
      case Kind::kNull:
        null();
        return tree;
      case Kind::kBoolean:
        tree.kind = Tree::Kind::kBoolean;
        tree.boolean = boolean();
        return tree;
      case Kind::kString:
        tree.kind = Tree::Kind::kString;
        tree.text = string();
        return tree;
      case Kind::kObject:
        break;
      default:
        fail("expected a tree");
    }
    int found = 0;
    object([&](const std::string& key, size_t key_at) {
      if (found++) fail_at(key_at, "expected one field");
      if (key == "number") {
        tree.kind = Tree::Kind::kNumber;
        tree.number = number();
      } else if (key == "input" || key == "output") {
        tree.kind = key == "input" ? Tree::Kind::kInput : Tree::Kind::kOutput;
        tree.index = int32_t(integer(0, kMaxIndex));
      } else if (key == "table") {
        tree.kind = Tree::Kind::kTable;
        array([&](size_t) { read_entry(tree, depth); });
      } else {
        fail_at(key_at, fmt::format("unknown field '{}'", key.substr(0, 60)));
      }
    });
    if (found == 0) fail("an empty tree");
    return tree;
  }

  void read_entry(Tree& table, int depth) {
    size_t parts = 0;
    array([&](size_t k) {
      parts = k + 1;
      if (k > 1) fail("expected a key and a value");
      (k == 0 ? table.keys : table.values).push_back(read_tree(depth + 1));
    });
    if (parts != 2) fail("expected a key and a value");
  }

  void read_writes() {
    array([&](size_t) {
      Model::Write& write = out_.model.writes.emplace_back();
      size_t parts = 0;
      array([&](size_t k) {
        parts = k + 1;
        if (k > 1) fail("expected an input and an output");
        (k == 0 ? write.input : write.output) = int32_t(integer(0, kMaxIndex));
      });
      if (parts != 2) fail("expected an input and an output");
    });
  }

  void read_generators() {
    int defaults = 0;
    array([&](size_t) {
      const auto at = fields({"default", "seed", "tick"});
      const size_t behind = place();
      ModelGenerator& generator = out_.model.generators.emplace_back();
      generator.is_default = at[0] != kAbsent;
      if (generator.is_default) {
        seek(at[0]);
        if (!boolean() || at[1] != kAbsent || at[2] != kAbsent || defaults++)
          fail_at(at[0], "not one default generator");
      } else {
        require(at[1], "seed");
        generator.state.seed = natural();
        require(at[2], "tick");
        generator.state.tick = natural();
      }
      seek(behind);
    });
  }

  void take_values() {
    const Model& model = out_.model;
    out_.values.resize(model.inputs.size());
    if (!source_.tensors) return;
    for (size_t k = 0; k < model.inputs.size(); ++k) {
      const ModelInput& input = model.inputs[k];
      if (input.role == ModelInput::Role::kArgument) continue;
      const Value* value = find_tensor(input.name);
      if (!value)
        throw Error(
            fmt::format("load: {}: does not have the tensor '{}' of {}", source_.tensors_name, input.name, source()));
      const Type& type = model.input_type(k);
      if (!alike(value->type(), type))
        throw Error(fmt::format("load: {}: '{}' is {}, in {} it is {}", source_.tensors_name, input.name,
                                to_string(value->type()), source(), to_string(type)));
      out_.values[k] = on_device(*value, type.device);
    }
    for (size_t k = 0; k < source_.tensors->tensors.size(); ++k)
      if (!taken_.count(k))
        throw Error(fmt::format("load: {}: has the tensor '{}', which {} does not have", source_.tensors_name,
                                source_.tensors->tensors[k].first, source()));
  }

  LoadedModel out_;
};

}  // namespace

LoadedModel parse_model(std::string_view json, const ModelSource& source) {
  if (const size_t at = json.find_first_not_of(" \t\r\n"); at == json.npos || json[at] != '{')
    throw Error(fmt::format("load: {}: at byte {}: expected an object: not a graph of perigee", source.name,
                            std::min(at, json.size())));
  return ModelReader(json, source).read();
}

LoadedModel load_model(const std::string& json_path, const std::string& tensors_path) {
  const std::string text = read_file(json_path);
  ModelSource source{json_path, nullptr, tensors_path, false};
  if (tensors_path.empty()) return parse_model(text, source);
  const NamedTensors tensors = load_safetensors(tensors_path);
  source.tensors = &tensors;
  return parse_model(text, source);
}

}  // namespace pg
