// Writes models. model_read.cpp reads them.
#include "graph/io/model_file.h"

#include <algorithm>

#include "graph/io/model_names.h"
#include "tensor/io/file.h"
#include "tensor/io/json.h"

namespace pg {
namespace {

Json list(const auto& items, const auto& json_of) {
  Json out = Json::array();
  for (const auto& item : items) out.push(json_of(item));
  return out;
}

Json json_type(const Type& type) {
  Json out = Json::array({name_of(type.dtype), Json::array_of(type.shape)});
  if (!type.device.is_cpu()) out.push(name_of(type.device));
  return out;
}

Json json_attr(const AttrValue& value) {
  struct Visitor {
    Json operator()(std::monostate) { return nullptr; }
    Json operator()(bool v) { return v; }
    Json operator()(int64_t v) { return v; }
    Json operator()(double v) { return v; }
    Json operator()(const std::string& v) { return v; }
    Json operator()(DType v) { return name_of(v); }
    Json operator()(Device v) { return name_of(v); }
    Json operator()(const Ints& v) { return Json::array_of(v); }
    Json operator()(const Floats& v) { return Json::array_of(v); }
    Json operator()(RandomKey v) { return Json::object({{"generator", v.seed}, {"tick", v.tick}}); }
    Json operator()(const Ref<Generator>&) { throw Error("a random op without its place among the program's"); }
    Json operator()(const std::shared_ptr<const Graph>&) { throw Error("a graph without its place in the file"); }
  };
  return std::visit(Visitor{}, value);
}

Json json_operand(const Operand& operand) {
  if (operand.is_none()) return nullptr;
  if (operand.is_number()) return Json::object({{"number", operand.number}});
  if (operand.output == 0) return operand.node;
  return Json::array({operand.node, operand.output});
}

Json json_tree(const Tree& tree) {
  switch (tree.kind) {
    case Tree::Kind::kNil:
      return nullptr;
    case Tree::Kind::kBoolean:
      return tree.boolean;
    case Tree::Kind::kNumber:
      return Json::object({{"number", tree.number}});
    case Tree::Kind::kString:
      return tree.text;
    case Tree::Kind::kInput:
      return Json::object({{"input", tree.index}});
    case Tree::Kind::kOutput:
      return Json::object({{"output", tree.index}});
    case Tree::Kind::kTable:
      break;
  }
  Json entries = Json::array();
  for (size_t k = 0; k < tree.keys.size(); ++k)
    entries.push(Json::array({json_tree(tree.keys[k]), json_tree(tree.values[k])}));
  return Json::object({{"table", entries}});
}

Json json_input(const ModelInput& input) {
  Json out = Json::object({{"name", input.name}, {"role", kRoleNames[int(input.role)]}});
  if (input.role != ModelInput::Role::kParameter) return out;
  if (input.req != GradReq::kWrite) out.set("grad_req", kRequestNames[int(input.req)]);
  if (!input.differentiable) out.set("differentiable", false);
  if (input.constant) out.set("constant", true);
  if (input.lr_mult != 1) out.set("lr_mult", double(input.lr_mult));
  if (input.wd_mult != 1) out.set("wd_mult", double(input.wd_mult));
  return out;
}

Json json_generator(const ModelGenerator& generator) {
  if (generator.is_default) return Json::object({{"default", true}});
  return Json::object({{"seed", generator.state.seed}, {"tick", generator.state.tick}});
}

std::string dump_list(const std::vector<std::string>& list, const std::string& indent) {
  std::string text = "[";
  for (const std::string& item : list) text += (text.size() > 1 ? ",\n" : "\n") + indent + item;
  return text + "]";
}

class Writer {
 public:
  explicit Writer(const Model& model) : model_(model), constants_(constant_names(model)) {}

  std::string text() {
    add_graph(model_.graph);
    std::vector<std::string> input_lines;
    for (const ModelInput& input : model_.inputs) input_lines.push_back(json_input(input).text());
    const Json writes = list(model_.writes, [](const Model::Write& w) { return Json::array({w.input, w.output}); });
    std::string out =
        fmt::format("{{\"format\":\"{}\",\"version\":{},\"producer\":{},\"name\":{},\n", kModelFormat,
                    version_of(model_.graph), Json("perigee " PERIGEE_VERSION).text(), Json(model_.name).text());
    out += "\"graphs\":" + dump_list(graphs_, "") + ",\n\"inputs\":" + dump_list(input_lines, " ");
    out += ",\n\"arguments\":" + list(model_.arguments, json_tree).text();
    out += ",\n\"results\":" + list(model_.results, json_tree).text();
    out += ",\n\"writes\":" + writes.text();
    return out + ",\n\"generators\":" + list(model_.generators, json_generator).text() + "}\n";
  }

 private:
  // Writes bodies first, because a reader needs them first.
  int add_graph(const Graph& graph) {
    std::vector<std::string> nodes;
    for (const Node& node : graph.nodes) nodes.push_back(json_node(node).text());
    const Json lines = list(graph.lines, Json::any_bytes);  // a path may hold any bytes, and nothing depends on it
    graphs_.push_back("{\"nodes\":" + dump_list(nodes, " ") + ",\n\"inputs\":" + Json::array_of(graph.inputs).text() +
                      ",\n\"outputs\":" + list(graph.outputs, json_operand).text() +
                      ",\n\"ticks\":" + Json::array_of(graph.ticks).text() +
                      ",\n\"guards\":" + list(graph.guards, json_guard).text() + ",\n\"lines\":" + lines.text() + "}");
    return int(graphs_.size()) - 1;
  }

  static Json json_guard(const TypeGuard& guard) {
    Json out = Json::object({{"of", json_operand(guard.of)}, {"kind", kGuardNames[int(guard.kind)]}});
    if (guard.kind == TypeGuard::kDim) out.set("dim", guard.dim);
    if (guard.kind == TypeGuard::kDType)
      out.set("value", name_of(DType(guard.value)));
    else if (guard.kind == TypeGuard::kDevice)
      out.set("value", name_of(Device{uint8_t(guard.value >> 8), uint8_t(guard.value)}));
    else
      out.set("value", guard.value);
    if (guard.line >= 0) out.set("line", guard.line);
    return out;
  }

  Json json_node(const Node& node) {
    Json out = Json::object();
    if (node.kind == NodeKind::kOp) {
      out.set("op", node.op->name).set("version", node.op->version);
    } else {
      out.set("kind", kKindNames[int(node.kind)]);
    }
    if (!node.name.empty()) out.set("name", node.name);
    if (node.kind == NodeKind::kConstant) out.set("tensor", constants_.at(&node));
    if (!node.inputs.empty()) out.set("in", list(node.inputs, json_operand));
    if (const Json attrs = json_attrs(node); !attrs.empty()) out.set("attrs", attrs);
    out.set("types", list(node.types, json_type));
    if (node.body) out.set("bodies", Json::array({add_graph(*node.body)}));
    if (node.heads != 0) out.set("heads", node.heads);
    if (node.create_graph) out.set("create_graph", true);
    if (node.first != 0) out.set("first", node.first);
    if (node.req != GradReq::kNull) out.set("req", kRequestNames[int(node.req)]);
    if (node.training != Mode::kAuto) out.set("training", node.training == Mode::kOn);
    if (node.recording != Mode::kAuto) out.set("recording", node.recording == Mode::kOn);
    if (node.line >= 0) out.set("line", node.line);
    return out;
  }

  Json json_attrs(const Node& node) {
    Json out = Json::object();
    for (size_t k = 0; node.op && k < node.attrs.size(); ++k) {
      const AttrDef& def = node.op->attrs[k];
      if (const auto* body = std::get_if<std::shared_ptr<const Graph>>(&node.attrs[k]))
        out.set(def.name, add_graph(**body));
      else if (!(node.attrs[k] == def.fallback))
        out.set(def.name, json_attr(node.attrs[k]));
    }
    return out;
  }

  const Model& model_;
  ConstantNames constants_;
  std::vector<std::string> graphs_;
};

void collect_constants(const Graph& graph, const std::set<std::string>& taken, ConstantNames& names) {
  for (const Node& node : graph.nodes) {
    for (const Graph* body : bodies_of(node)) collect_constants(*body, taken, names);
    if (node.kind != NodeKind::kConstant) continue;
    std::string name = fmt::format("constant/{}", names.size() + 1);
    while (taken.count(name)) name = "_" + name;
    names.emplace(&node, std::move(name));
  }
}

}  // namespace

int version_of(const Node& node) { return is_control(node) ? 4 : node.kind == NodeKind::kWrite ? 3 : 1; }

int version_of(const Graph& graph) {
  int version = 1;
  for (const Node& node : graph.nodes) {
    version = std::max(version, version_of(node));
    for (const Graph* body : bodies_of(node)) version = std::max(version, version_of(*body));
  }
  return version;
}

ConstantNames constant_names(const Model& model) {
  std::set<std::string> taken;
  for (const ModelInput& input : model.inputs) taken.insert(input.name);
  ConstantNames names;
  collect_constants(model.graph, taken, names);
  return names;
}

std::string model_json(const Model& model) {
  try {
    return Writer(model).text();
  } catch (const Error& e) {
    throw Error(fmt::format("export: {}", e.what()));
  }
}

NamedTensors model_tensors(const Model& model, std::span<const Value> values) {
  NamedTensors out;
  for (size_t k = 0; k < model.inputs.size(); ++k) {
    if (model.inputs[k].role == ModelInput::Role::kArgument) continue;
    if (!values[k].defined()) throw Error(fmt::format("export: '{}' has no value", model.inputs[k].name));
    out.tensors.emplace_back(model.inputs[k].name, values[k].detached());
  }
  std::map<std::string, Value> constants;
  for (const auto& [node, name] : constant_names(model)) constants.emplace(name, node->constant);
  for (auto& [name, value] : constants) out.tensors.emplace_back(name, value);
  out.metadata["format"] = kModelFormat;
  return out;
}

void save_model(const std::string& json_path, const std::string& tensors_path, const Model& model,
                std::span<const Value> values) {
  const NamedTensors tensors = model_tensors(model, values);
  const std::string text = model_json(model);
  write_file_atomic(json_path, [&](FileSink& sink) {
    sink.write(text);
    sink.flush();
    save_safetensors(tensors_path, tensors);
  });
}

}  // namespace pg
