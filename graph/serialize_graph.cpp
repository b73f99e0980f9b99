// Writing models. See serialize_graph_read.cpp for the other direction.
#include "graph/serialize_graph.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/serialize_file.h"
#include "graph/serialize_graph_names.h"

namespace pg {
namespace {

using Json = nlohmann::ordered_json;

Json json_number(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  return v;
}

Json json_type(const Type& type) {
  Json shape = Json::array();
  for (int64_t d : type.shape) shape.push_back(d);
  Json out = {name_of(type.dtype), shape};
  if (!type.device.is_cpu()) out.push_back(name_of(type.device));
  return out;
}

Json json_attr(const AttrValue& value) {
  struct Visitor {
    Json operator()(std::monostate) { return nullptr; }
    Json operator()(bool v) { return v; }
    Json operator()(int64_t v) { return v; }
    Json operator()(double v) { return json_number(v); }
    Json operator()(const std::string& v) { return v; }
    Json operator()(DType v) { return name_of(v); }
    Json operator()(Device v) { return name_of(v); }
    Json operator()(const Ints& v) { return v.empty() ? Json::array() : Json(v); }
    Json operator()(const Floats& v) {
      Json out = Json::array();
      for (double x : v) out.push_back(json_number(x));
      return out;
    }
    Json operator()(RandomKey v) { return {{"generator", v.seed}, {"tick", v.tick}}; }
    Json operator()(const Ref<Generator>&) { throw Error("export: a random op without its place among the program's"); }
  };
  return std::visit(Visitor{}, value);
}

Json json_operand(const Operand& operand) {
  if (operand.is_none()) return nullptr;
  if (operand.is_number()) return {{"number", json_number(operand.number)}};
  if (operand.output == 0) return operand.node;
  return {operand.node, operand.output};
}

Json json_tree(const Tree& tree) {
  switch (tree.kind) {
    case Tree::Kind::kNil: return nullptr;
    case Tree::Kind::kBoolean: return tree.boolean;
    case Tree::Kind::kNumber: return {{"number", json_number(tree.number)}};
    case Tree::Kind::kString: return tree.text;
    case Tree::Kind::kInput: return {{"input", tree.index}};
    case Tree::Kind::kOutput: return {{"output", tree.index}};
    case Tree::Kind::kTable: break;
  }
  Json entries = Json::array();
  for (size_t k = 0; k < tree.keys.size(); ++k) entries.push_back({json_tree(tree.keys[k]), json_tree(tree.values[k])});
  return {{"table", entries}};
}

Json json_trees(const std::vector<Tree>& trees) {
  Json out = Json::array();
  for (const Tree& tree : trees) out.push_back(json_tree(tree));
  return out;
}

Json json_input(const ModelInput& input) {
  Json out = {{"name", input.name}, {"role", kRoleNames[int(input.role)]}};
  if (input.role != ModelInput::Role::kParameter) return out;
  if (input.req != GradReq::kWrite) out["grad_req"] = kRequestNames[int(input.req)];
  if (!input.differentiable) out["differentiable"] = false;
  if (input.constant) out["constant"] = true;
  if (input.lr_mult != 1) out["lr_mult"] = json_number(input.lr_mult);
  if (input.wd_mult != 1) out["wd_mult"] = json_number(input.wd_mult);
  return out;
}

Json json_generator(const ModelGenerator& generator) {
  if (generator.is_default) return {{"default", true}};
  return {{"seed", generator.state.seed}, {"tick", generator.state.tick}};
}

// Not all bytes a script may hold are text.
std::string dump(const Json& json) {
  try {
    return json.dump();
  } catch (const nlohmann::json::exception&) {
    throw Error("export: a name or a string that is not UTF-8: " + json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 200));
  }
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
    Json inputs = Json::array(), writes = Json::array(), generators = Json::array();
    std::vector<std::string> input_lines;
    for (const ModelInput& input : model_.inputs) input_lines.push_back(dump(json_input(input)));
    for (const Model::Write& write : model_.writes) writes.push_back({write.input, write.output});
    for (const ModelGenerator& generator : model_.generators) generators.push_back(json_generator(generator));
    std::string out = fmt::format("{{\"format\":\"{}\",\"version\":{},\"producer\":{},\"name\":{},\n", kModelFormat,
                                  has_control_flow(model_.graph) ? 2 : 1, dump("perigee " PERIGEE_VERSION), dump(model_.name));
    out += "\"graphs\":" + dump_list(graphs_, "") + ",\n\"inputs\":" + dump_list(input_lines, " ");
    out += ",\n\"arguments\":" + dump(json_trees(model_.arguments)) + ",\n\"results\":" + dump(json_trees(model_.results));
    return out + ",\n\"writes\":" + dump(writes) + ",\n\"generators\":" + dump(generators) + "}\n";
  }

 private:
  // Bodies first, so that a reader knows them.
  int add_graph(const Graph& graph) {
    std::vector<std::string> nodes;
    for (const Node& node : graph.nodes) nodes.push_back(dump(json_node(node)));
    Json outputs = Json::array(), guards = Json::array(), lines = Json::array();
    for (const Operand& output : graph.outputs) outputs.push_back(json_operand(output));
    for (const TypeGuard& guard : graph.guards) guards.push_back(json_guard(guard));
    for (const std::string& line : graph.lines)  // a path may hold any bytes, and nothing depends on it
      lines.push_back(Json::parse(Json(line).dump(-1, ' ', false, Json::error_handler_t::replace)));
    graphs_.push_back("{\"nodes\":" + dump_list(nodes, " ") + ",\n\"inputs\":" + dump(graph.inputs.empty() ? Json::array() : Json(graph.inputs)) +
                      ",\n\"outputs\":" + dump(outputs) + ",\n\"ticks\":" + dump(graph.ticks.empty() ? Json::array() : Json(graph.ticks)) +
                      ",\n\"guards\":" + dump(guards) + ",\n\"lines\":" + dump(lines) + "}");
    return int(graphs_.size()) - 1;
  }

  Json json_guard(const TypeGuard& guard) {
    Json out = {{"of", json_operand(guard.of)}, {"kind", kGuardNames[int(guard.kind)]}};
    if (guard.kind == TypeGuard::kDim) out["dim"] = guard.dim;
    if (guard.kind == TypeGuard::kDType)
      out["value"] = name_of(DType(guard.value));
    else if (guard.kind == TypeGuard::kDevice)
      out["value"] = name_of(Device{uint8_t(guard.value >> 8), uint8_t(guard.value)});
    else
      out["value"] = guard.value;
    if (guard.line >= 0) out["line"] = guard.line;
    return out;
  }

  Json json_node(const Node& node) {
    Json out = Json::object();
    if (node.kind == NodeKind::kOp) {
      out["op"] = node.op->name;
      out["version"] = node.op->version;
    } else {
      out["kind"] = kKindNames[int(node.kind)];
    }
    if (!node.name.empty()) out["name"] = node.name;
    if (node.kind == NodeKind::kConstant) out["tensor"] = constants_.at(&node);
    if (!node.inputs.empty()) {
      Json& in = out["in"] = Json::array();
      for (const Operand& operand : node.inputs) in.push_back(json_operand(operand));
    }
    add_attrs(node, out);
    Json& types = out["types"] = Json::array();
    for (const Type& type : node.types) types.push_back(json_type(type));
    for (const auto& body : node.bodies) out["bodies"].push_back(add_graph(*body));
    if (node.kind == NodeKind::kLoop) out["loop"] = json_loop(node.loop);
    for (const BodyStream& stream : node.streams) out["streams"].push_back({stream.generator, stream.tick});
    if (node.heads != 0) out["heads"] = node.heads;
    if (node.create_graph) out["create_graph"] = true;
    if (node.first != 0) out["first"] = node.first;
    if (node.req != GradReq::kNull) out["req"] = kRequestNames[int(node.req)];
    if (node.training != Mode::kAuto) out["training"] = node.training == Mode::kOn;
    if (node.recording != Mode::kAuto) out["recording"] = node.recording == Mode::kOn;
    if (node.line >= 0) out["line"] = node.line;
    return out;
  }

  static Json json_loop(const LoopForm& loop) {
    Json out = {{"slices", loop.slices}, {"carries", loop.carries}};
    if (loop.counted) out["counted"] = true;
    if (loop.conditional) out["conditional"] = true;
    if (loop.reverse) out["reverse"] = true;
    if (loop.recompute) out["recompute"] = true;
    if (loop.limit != LoopForm::kNoLimit) out["limit"] = loop.limit;
    if (loop.checkpoint != 0) out["checkpoint"] = loop.checkpoint;
    return out;
  }

  static void add_attrs(const Node& node, Json& out) {
    for (size_t k = 0; node.op && k < node.attrs.size(); ++k) {
      const AttrDef& def = node.op->attrs[k];
      if (def.kind == AttrKind::kRandom || !(node.attrs[k] == def.fallback)) out["attrs"][def.name] = json_attr(node.attrs[k]);
    }
  }

  const Model& model_;
  ConstantNames constants_;
  std::vector<std::string> graphs_;
};

void collect_constants(const Graph& graph, const std::set<std::string>& taken, ConstantNames& names) {
  for (const Node& node : graph.nodes) {
    for (const auto& body : node.bodies) collect_constants(*body, taken, names);
    if (node.kind != NodeKind::kConstant) continue;
    std::string name = fmt::format("constant/{}", names.size() + 1);
    while (taken.count(name)) name = "_" + name;
    names.emplace(&node, std::move(name));
  }
}

}  // namespace

bool has_control_flow(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.kind == NodeKind::kCond || node.kind == NodeKind::kLoop) return true;
    for (const auto& body : node.bodies)
      if (has_control_flow(*body)) return true;
  }
  return false;
}

ConstantNames constant_names(const Model& model) {
  std::set<std::string> taken;
  for (const ModelInput& input : model.inputs) taken.insert(input.name);
  ConstantNames names;
  collect_constants(model.graph, taken, names);
  return names;
}

std::string model_json(const Model& model) { return Writer(model).text(); }

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

void save_model(const std::string& json_path, const std::string& tensors_path, const Model& model, std::span<const Value> values) {
  const NamedTensors tensors = model_tensors(model, values);
  const std::string text = model_json(model);
  write_file_atomic(json_path, [&](FileSink& sink) {
    sink.write(text);
    sink.flush();
    save_safetensors(tensors_path, tensors);
  });
}

}  // namespace pg
