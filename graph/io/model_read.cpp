// Reads models. A file is not trusted: structure, references, attributes, types and sizes are checked before the model
// is returned.
#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/io/model_file.h"
#include "graph/io/model_names.h"
#include "tensor/io/file.h"
#include "tensor/io/json.h"

namespace pg {
namespace {

constexpr int64_t kMaxIndex = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxDim = kMaxElements;

template <size_t N>
std::optional<int> index_in(const char* const (&names)[N], const std::string& text) {
  for (size_t k = 0; k < N; ++k)
    if (text == names[k]) return int(k);
  return std::nullopt;
}

class ModelReader : public JsonReader {
 public:
  ModelReader(std::string_view text, const ModelSource& source) : JsonReader(source.name, text), source_(source) {}

  LoadedModel read() {
    const auto at = document();
    seek(at[3]), out_.model.name = string(1000);
    seek(at[4]), read_graphs();
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

 protected:
  std::string context() const override {
    if (graph_ < 0) return "";
    if (node_ < 0) return fmt::format("graph {}: ", graph_);
    return fmt::format("graph {}, node {}{}: ", graph_, node_, op_ ? fmt::format(" ({})", op_->name) : "");
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

  void require(size_t at, const char* field) {
    if (at == kAbsent) fail(fmt::format("no field '{}'", field));
    seek(at);
  }

  // Graphs ----------------------------------------------------------------------------------------------------------

  void read_graphs() {
    const size_t start = place();
    array([&](size_t g) {
      graph_ = int(g);
      graphs_.push_back(std::make_shared<Graph>());
      depths_.push_back(0);
      read_graph(*graphs_.back());
    });
    graph_ = node_ = -1;
    if (graphs_.empty()) fail_at(start, "no graphs");
    for (size_t g = 0; g + 1 < graphs_.size(); ++g)
      if (!used_.count(int32_t(g))) fail_at(start, fmt::format("graph {} is the body of no node", g));
    out_.model.graph = std::move(*graphs_.back());
  }

  void read_graph(Graph& graph) {
    const auto at = fields({"nodes", "inputs", "outputs", "ticks", "guards", "lines"});
    const size_t behind = place();
    require(at[0], "nodes");
    array([&](size_t i) {
      node_ = int64_t(i);
      graph.nodes.emplace_back();
      read_node(graph, graph.nodes.back());
      op_ = nullptr;
    });
    node_ = -1;
    require(at[1], "inputs");
    array([&](size_t) { graph.inputs.push_back(int32_t(integer(0, kMaxIndex))); });
    require(at[2], "outputs");
    array([&](size_t) { graph.outputs.push_back(read_operand()); });
    require(at[3], "ticks");
    array([&](size_t) { graph.ticks.push_back(uint64_t(integer(0, kMaxDim))); });
    require(at[4], "guards");
    array([&](size_t) { graph.guards.push_back(read_guard(graph)); });
    require(at[5], "lines");
    array([&](size_t) { graph.lines.push_back(string(10000)); });
    seek(behind);
  }

  Operand read_operand() {
    switch (kind()) {
      case Kind::kNull:
        null();
        return {};
      case Kind::kNumber:
        return Operand::of(size_t(integer(0, kMaxIndex)));
      case Kind::kObject: {
        const auto at = fields({"number"});
        const size_t behind = place();
        require(at[0], "number");
        const double v = number();
        seek(behind);
        return Operand::immediate(v);
      }
      case Kind::kArray: {
        Operand operand;
        array([&](size_t k) {
          if (k > 1) fail("expected a node and an output");
          (k == 0 ? operand.node : operand.output) = int32_t(integer(0, kMaxIndex));
        });
        if (!operand.is_node()) fail("expected a node and an output");
        return operand;
      }
      default:
        fail("expected an operand");
    }
  }

  // Reads a guard. Its operand is checked here, because it is looked up before verify runs.
  TypeGuard read_guard(const Graph& graph) {
    const auto at = fields({"of", "kind", "dim", "value", "line"});
    const size_t behind = place();
    TypeGuard guard;
    require(at[0], "of");
    const size_t of_at = place();
    guard.of = read_operand();
    require(at[1], "kind");
    const size_t kind_at = place();
    const auto kind = index_in(kGuardNames, string(100));
    if (!kind) fail_at(kind_at, "unknown kind of guard");
    guard.kind = TypeGuard::Kind(*kind);
    const bool counts = guard.kind == TypeGuard::kOutputs;  // the guarded node may have no outputs
    if (!guard.of.is_node() || size_t(guard.of.node) >= graph.nodes.size() ||
        size_t(guard.of.output) >= graph.node(guard.of).types.size() + counts)
      fail_at(of_at, "a guard of a node that does not exist");
    if (at[2] != kAbsent) seek(at[2]), guard.dim = int32_t(integer(0, kMaxRank - 1));
    require(at[3], "value");
    if (guard.kind == TypeGuard::kDType) {
      guard.value = int64_t(read_dtype());
    } else if (guard.kind == TypeGuard::kDevice) {
      const Device device = read_device();
      guard.value = int64_t(device.kind) << 8 | device.index;
    } else {
      guard.value = integer(0, kMaxDim);
    }
    if (at[4] != kAbsent) seek(at[4]), guard.line = int32_t(integer(0, kMaxIndex));
    seek(behind);
    return guard;
  }

  // Nodes -----------------------------------------------------------------------------------------------------------

  void read_node(const Graph& graph, Node& node) {
    const auto at = fields({"op", "version", "kind", "name", "tensor", "in", "attrs", "types", "bodies", "heads",
                            "create_graph", "first", "req", "training", "recording", "line", "loop", "streams"});
    const size_t behind = place();
    read_kind(at[0], at[1], at[2], node);
    if (at[3] != kAbsent) seek(at[3]), node.name = string(10000);
    if (at[5] != kAbsent) seek(at[5]), array([&](size_t) { node.inputs.push_back(read_earlier(graph)); });
    require(at[7], "types");
    array([&](size_t) { node.types.push_back(read_type()); });
    if (at[4] != kAbsent) seek(at[4]), read_constant(node);
    if (node.op) read_attrs(at[6], node);
    if (!node.op && at[6] != kAbsent) fail_at(at[6], "attributes of what is no op");
    std::vector<std::shared_ptr<const Graph>> bodies;
    if (at[8] != kAbsent) seek(at[8]), bodies = read_bodies();
    if (at[9] != kAbsent) seek(at[9]), node.heads = int32_t(integer(0, kMaxIndex / 4));
    if (at[10] != kAbsent) seek(at[10]), node.create_graph = boolean();
    if (at[11] != kAbsent) seek(at[11]), node.first = int32_t(integer(0, kMaxIndex));
    if (at[12] != kAbsent) seek(at[12]), node.req = read_request();
    if (at[13] != kAbsent) seek(at[13]), node.training = boolean() ? Mode::kOn : Mode::kOff;
    if (at[14] != kAbsent) seek(at[14]), node.recording = boolean() ? Mode::kOn : Mode::kOff;
    if (at[15] != kAbsent) seek(at[15]), node.line = int32_t(integer(0, kMaxIndex));
    if (old_control_)
      read_old_control(node, std::move(bodies), at[16], at[17]);
    else
      take_body(node, bodies, at[16], at[17]);
    check_kind(node, at[4]);
    seek(behind);
  }

  void read_kind(size_t op_at, size_t version_at, size_t kind_at, Node& node) {
    old_control_ = nullptr;
    if (op_at == kAbsent) {
      require(kind_at, "op");
      const std::string text = string(100);
      if (version_ < 4 && (text == "cond" || text == "loop")) {
        if (version_ < 2) fail_at(kind_at, fmt::format("a node of kind '{}' in a file of format version 1", text));
        old_control_ = &registry().require(text);
        return;
      }
      const auto kind = index_in(kKindNames, text);
      if (!kind || NodeKind(*kind) == NodeKind::kOp || NodeKind(*kind) == NodeKind::kFused)
        fail_at(kind_at, fmt::format("unknown kind of node '{}'", text.substr(0, 60)));
      node.kind = NodeKind(*kind);
      if (version_ < version_of(node))
        fail_at(kind_at, fmt::format("a node of kind '{}' in a file of format version {}", text, version_));
      return;
    }
    if (kind_at != kAbsent) fail_at(kind_at, "a node with both an op and a kind");
    seek(op_at);
    const std::string name = string(1000);
    op_ = node.op = registry().find(name);
    if (!op_) {
      std::vector<std::string_view> known;
      for (const OpDef* op : registry().ops())
        if (!op->has(kHidden)) known.push_back(op->name);
      const std::string near = suggest(name, known);
      fail_at(op_at, fmt::format("unknown op '{}'{}", name.substr(0, 60),
                                 near.empty() ? "" : " (did you mean '" + near + "'?)"));
    }
    if (!is_for_programs(*op_) && !source_.hidden_ops) fail_at(op_at, "this op is not for programs");
    if (version_ < version_of(node)) fail_at(op_at, fmt::format("the op in a file of format version {}", version_));
    require(version_at, "version");
    if (const int64_t version = integer(1, kMaxIndex); version != op_->version)
      fail_at(version_at, fmt::format("version {} of the op; this program has {}", version, op_->version));
  }

  // Checks what verify(Graph) and other code rely on.
  void check_kind(const Node& node, size_t tensor_at) {
    if ((node.kind == NodeKind::kConstant) != (tensor_at != kAbsent))
      fail("a tensor is what constants have, and nothing else");
    if (node.heads != 0 && node.kind != NodeKind::kGradient && node.kind != NodeKind::kCustom)
      fail("heads of what takes no gradient");
    if ((node.create_graph && node.kind != NodeKind::kGradient && node.kind != NodeKind::kLeaf) ||
        (node.first && node.kind != NodeKind::kGradient))
      fail("a walk of what takes no gradient");
  }

  void take_body(Node& node, const std::vector<std::shared_ptr<const Graph>>& bodies, size_t loop_at,
                 size_t streams_at) {
    if (bodies.size() != size_t(node.kind == NodeKind::kCustom))
      fail("custom nodes have one body, and nothing else has a field 'bodies'");
    if (loop_at != kAbsent || streams_at != kAbsent) fail("the form of a loop is what loops have, and nothing else");
    if (!bodies.empty()) node.body = bodies[0];
  }

  // Reads branches and loops of format versions 2 and 3.
  void read_old_control(Node& node, std::vector<std::shared_ptr<const Graph>> bodies, size_t loop_at,
                        size_t streams_at) {
    Control control;
    control.op = old_control_;
    control.name = node.name.empty() ? old_control_->name : std::exchange(node.name, "");
    if (bodies.empty() || bodies.size() > 2) fail("branches have two bodies, loops one or two");
    control.bodies = std::move(bodies);
    if (control.is_loop() != (loop_at != kAbsent)) fail("the form of a loop is what loops have, and nothing else");
    if (loop_at != kAbsent) seek(loop_at), read_loop(control.loop);
    if (streams_at != kAbsent) seek(streams_at), array([&](size_t) { control.streams.push_back(read_stream()); });
    node.op = control.op;
    node.attrs = control.attrs();
  }

  void read_loop(LoopForm& loop) {
    const auto at =
        fields({"slices", "carries", "counted", "conditional", "reverse", "recompute", "limit", "checkpoint"});
    const size_t behind = place();
    require(at[0], "slices");
    loop.slices = int32_t(integer(0, kMaxIndex / 4));
    require(at[1], "carries");
    loop.carries = int32_t(integer(0, kMaxIndex / 4));
    if (at[2] != kAbsent) seek(at[2]), loop.counted = boolean();
    if (at[3] != kAbsent) seek(at[3]), loop.conditional = boolean();
    if (at[4] != kAbsent) seek(at[4]), loop.reverse = boolean();
    if (at[5] != kAbsent) seek(at[5]), loop.recompute = boolean();
    if (at[6] != kAbsent) seek(at[6]), loop.limit = integer(0, kMaxDim);
    if (at[7] != kAbsent) seek(at[7]), loop.checkpoint = integer(1, kMaxIndex);
    seek(behind);
  }

  BodyStream read_stream() {
    BodyStream stream;
    size_t parts = 0;
    array([&](size_t k) {
      parts = k + 1;
      if (k > 1) fail("expected a generator and a tick");
      (k == 0 ? stream.generator : stream.tick) = uint64_t(integer(0, k == 0 ? kMaxIndex : kMaxDim));
    });
    if (parts != 2) fail("expected a generator and a tick");
    return stream;
  }

  Operand read_earlier(const Graph& graph) {
    const size_t at = place();
    const Operand operand = read_operand();
    if (!operand.is_node()) return operand;
    if (operand.node >= node_) fail_at(at, fmt::format("the operand %{} is not an earlier node", operand.node));
    if (size_t(operand.output) >= graph.node(operand).types.size())
      fail_at(at, fmt::format("node %{} has no output {}", operand.node, operand.output));
    return operand;
  }

  DType read_dtype() {
    const size_t at = place();
    const std::string text = string(100);
    const auto dtype = dtype_from_name(text);
    if (!dtype) fail_at(at, fmt::format("unknown dtype '{}'", text));
    return *dtype;
  }

  Device read_device() {
    const size_t at = place();
    const std::string text = string(100);
    try {
      return device_from_name(text);
    } catch (const Error& error) {
      fail_at(at, fmt::format("device '{}': {}", text, error.what()));
    }
  }

  GradReq read_request() {
    const size_t at = place();
    const auto request = index_in(kRequestNames, string(100));
    if (!request) fail_at(at, "expected \"null\", \"write\" or \"add\"");
    return GradReq(*request);
  }

  Type read_type() {
    const size_t at = place();
    Type type;
    size_t parts = 0;
    array([&](size_t k) {
      parts = k + 1;
      if (k == 0) {
        type.dtype = read_dtype();
      } else if (k == 1) {
        array([&](size_t d) {
          if (d == size_t(kMaxRank)) fail(fmt::format("more than {} dims", kMaxRank));
          type.shape.push_back(integer(0, kMaxDim));
        });
      } else if (k == 2) {
        type.device = read_device();
      } else {
        fail("expected a dtype, dims and a device");
      }
    });
    if (parts < 2) fail_at(at, "expected a dtype and dims");
    try {
      checked_numel("graph", type.shape);
    } catch (const Error&) {
      fail_at(at, fmt::format("the shape {} has too many elements", to_string(type.shape)));
    }
    return type;
  }

  void read_attrs(size_t at, Node& node) {
    node.attrs = make_attrs(*node.op);
    if (at == kAbsent) return;
    seek(at);
    std::vector<char> seen(node.op->attrs.size());
    object([&](const std::string& key, size_t key_at) {
      const int k = node.op->attr_index(key.c_str());
      if (k < 0 || key != node.op->attrs[size_t(k)].name)
        fail_at(key_at, fmt::format("unknown attribute '{}'", key.substr(0, 60)));
      if (seen[size_t(k)]++) fail_at(key_at, fmt::format("duplicate key '{}'", key));
      node.attrs[size_t(k)] = read_attr(node.op->attrs[size_t(k)]);
    });
  }

  AttrValue read_attr(const AttrDef& def) {
    if (kind() == Kind::kNull) {
      null();
      return {};
    }
    switch (def.kind) {
      case AttrKind::kBool:
        return boolean();
      case AttrKind::kInt:
      case AttrKind::kDim:
        return read_int();
      case AttrKind::kFloat:
        return number();
      case AttrKind::kString:
        return string();
      case AttrKind::kDType:
        return read_dtype();
      case AttrKind::kDevice:
        return read_device();
      case AttrKind::kInts:
      case AttrKind::kDims: {
        Ints list;
        array([&](size_t) { list.push_back(read_int()); });
        return list;
      }
      case AttrKind::kFloats: {
        Floats list;
        array([&](size_t) { list.push_back(number()); });
        return list;
      }
      case AttrKind::kRandom:
        return read_key();
      case AttrKind::kGraph:
        return read_body();
    }
    fail("unknown kind of attribute");
  }

  int64_t read_int() { return integer(-kMaxElements, kMaxElements); }

  RandomKey read_key() {
    const auto at = fields({"generator", "tick"});
    const size_t behind = place();
    RandomKey key;
    require(at[0], "generator");
    key.seed = uint64_t(integer(0, kMaxIndex));
    require(at[1], "tick");
    key.tick = uint64_t(integer(0, kMaxDim));
    seek(behind);
    return key;
  }

  // Reads a body. A graph is the body of one node and precedes the graph of that node, so there are no cycles, and
  // shared bodies cannot make the model grow exponentially.
  std::shared_ptr<const Graph> read_body() {
    const size_t at = place();
    const int64_t g = integer(0, kMaxIndex);
    if (g >= graph_) fail_at(at, fmt::format("the body {} is not an earlier graph", g));
    if (!used_.insert(int32_t(g)).second) fail_at(at, fmt::format("graph {} is the body of two nodes", g));
    int& depth = depths_[size_t(graph_)];
    depth = std::max(depth, depths_[size_t(g)] + 1);
    if (depth > kMaxGraphDepth) fail_at(at, fmt::format("more than {} graphs within one another", kMaxGraphDepth));
    return graphs_[size_t(g)];
  }

  std::vector<std::shared_ptr<const Graph>> read_bodies() {
    std::vector<std::shared_ptr<const Graph>> bodies;
    array([&](size_t) { bodies.push_back(read_body()); });
    return bodies;
  }

  void read_constant(Node& node) {
    const size_t at = place();
    const std::string name = string(10000);
    if (!source_.tensors) fail_at(at, fmt::format("the constant '{}' needs the file with the tensors", name));
    const Value* value = find_tensor(name);
    if (!value) fail_at(at, fmt::format("{} lacks the tensor '{}'", source_.tensors_name, name));
    if (node.types.size() != 1 || !alike(value->type(), node.types[0]))
      fail_at(at, fmt::format("the constant '{}' is {} in {}", name, to_string(value->type()), source_.tensors_name));
    node.constant = on_device(*value, node.types[0].device);
  }

  // The rest --------------------------------------------------------------------------------------------------------

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

  // Tensors ---------------------------------------------------------------------------------------------------------

  const Value* find_tensor(const std::string& name) {
    if (places_.empty())
      for (size_t k = 0; k < source_.tensors->tensors.size(); ++k)
        places_.emplace(source_.tensors->tensors[k].first, k);
    const auto found = places_.find(name);
    if (found == places_.end()) return nullptr;
    taken_.insert(found->second);
    return &source_.tensors->tensors[found->second].second;
  }

  // Ignores the device. Tensor files store no devices: the graph says where its tensors are.
  static bool alike(const Type& a, const Type& b) { return a.dtype == b.dtype && a.shape == b.shape; }
  static Value on_device(const Value& value, Device device) {
    Context ctx;
    return to_device(ctx, value, device);
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
        throw Error(fmt::format("load: {}: lacks the tensor '{}' of {}", source_.tensors_name, input.name, source()));
      const Type& type = model.input_type(k);
      if (!alike(value->type(), type))
        throw Error(fmt::format("load: {}: '{}' is {}, in {} it is {}", source_.tensors_name, input.name,
                                to_string(value->type()), source(), to_string(type)));
      out_.values[k] = on_device(*value, type.device);
    }
    for (size_t k = 0; k < source_.tensors->tensors.size(); ++k)
      if (!taken_.count(k))
        throw Error(fmt::format("load: {}: holds '{}', which {} has not", source_.tensors_name,
                                source_.tensors->tensors[k].first, source()));
  }

  const ModelSource& source_;
  LoadedModel out_;
  std::vector<std::shared_ptr<Graph>> graphs_;
  std::vector<int> depths_;  // by graph: levels of graphs nested in it
  std::unordered_set<int32_t> used_;
  std::unordered_map<std::string, size_t> places_;
  std::unordered_set<size_t> taken_;
  int64_t version_ = 1, graph_ = -1, node_ = -1;
  const OpDef* old_control_ = nullptr;  // the op of a branch or loop of versions 2 and 3
  const OpDef* op_ = nullptr;
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
