#include "graph/io/graph_reader.h"

#include <algorithm>

#include "graph/io/model_names.h"

namespace pg {

std::string GraphReader::context() const {
  if (graph_ < 0) return "";
  if (node_ < 0) return fmt::format("graph {}: ", graph_);
  return fmt::format("graph {}, node {}{}: ", graph_, node_, op_ ? fmt::format(" ({})", op_->name) : "");
}

// Graphs ----------------------------------------------------------------------------------------------------------

Graph GraphReader::read_graphs() {
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
  return std::move(*graphs_.back());
}

void GraphReader::read_graph(Graph& graph) {
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

Operand GraphReader::read_operand() {
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
TypeGuard GraphReader::read_guard(const Graph& graph) {
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

void GraphReader::read_node(const Graph& graph, Node& node) {
  const auto at = fields({"op", "version", "kind", "name", "tensor", "in", "attrs", "types", "bodies", "heads",
                          "create_graph", "first", "req", "training", "recording", "line", "loop", "streams"});
  const size_t behind = place();
  read_kind(at[0], at[1], at[2], node);
  if (at[3] != kAbsent) seek(at[3]), node.name = string(10000);
  if (at[5] != kAbsent) seek(at[5]), array([&](size_t) { node.inputs.push_back(read_earlier(graph)); });
  require(at[7], "types");
  array([&](size_t) { node.types.push_back(read_type()); });
  if (at[4] != kAbsent) seek(at[4]), read_constant(node);
  if (op_) node.attrs = read_attrs(*op_, op_version_, at[6], at[0]);
  if (!node.op && at[6] != kAbsent) fail_at(at[6], "only ops have attributes");
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
    set_body(node, bodies, at[16], at[17]);
  check_kind(node, at[4]);
  seek(behind);
}

void GraphReader::read_kind(size_t op_at, size_t version_at, size_t kind_at, Node& node) {
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
  try {
    op_ = node.op = &op_for_programs(name, source_.hidden_ops);
  } catch (const Error& error) {
    fail_at(op_at, error.what());
  }
  if (version_ < version_of(node)) fail_at(op_at, fmt::format("the op in a file of format version {}", version_));
  require(version_at, "version");
  op_version_ = integer(1, kMaxIndex);
  if (op_version_ > op_->version)
    fail_at(version_at, fmt::format("version {} of the op; this program reads up to version {}: a newer perigee wrote "
                                    "the file, load it with that one",
                                    op_version_, op_->version));
}

// Checks what verify(Graph) and other code rely on.
void GraphReader::check_kind(const Node& node, size_t tensor_at) {
  if ((node.kind == NodeKind::kConstant) != (tensor_at != kAbsent))
    fail("constants, and only constants, have a field 'tensor'");
  if (node.heads != 0 && node.kind != NodeKind::kGradient && node.kind != NodeKind::kCustom)
    fail("only gradients and custom nodes have heads");
  if ((node.create_graph && node.kind != NodeKind::kGradient && node.kind != NodeKind::kLeaf) ||
      (node.first && node.kind != NodeKind::kGradient))
    fail("only gradients and leaves have a walk");
}

void GraphReader::set_body(Node& node, const std::vector<std::shared_ptr<const Graph>>& bodies, size_t loop_at,
                           size_t streams_at) {
  if (bodies.size() != size_t(node.kind == NodeKind::kCustom))
    fail("custom nodes have one body, and other nodes have no field 'bodies'");
  if (loop_at != kAbsent || streams_at != kAbsent) fail("loops, and only loops, have a field 'loop'");
  if (!bodies.empty()) node.body = bodies[0];
}

// Reads branches and loops of format versions 2 and 3.
void GraphReader::read_old_control(Node& node, std::vector<std::shared_ptr<const Graph>> bodies, size_t loop_at,
                                   size_t streams_at) {
  Control control;
  control.op = old_control_;
  control.name = node.name.empty() ? old_control_->name : std::exchange(node.name, "");
  if (bodies.empty() || bodies.size() > 2) fail("branches have two bodies, loops one or two");
  control.bodies = std::move(bodies);
  if (control.is_loop() != (loop_at != kAbsent)) fail("loops, and only loops, have a field 'loop'");
  if (loop_at != kAbsent) seek(loop_at), read_loop(control.loop);
  if (streams_at != kAbsent) seek(streams_at), array([&](size_t) { control.streams.push_back(read_stream()); });
  node.op = control.op;
  node.attrs = control.attrs();
}

void GraphReader::read_loop(LoopForm& loop) {
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

BodyStream GraphReader::read_stream() {
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

Operand GraphReader::read_earlier(const Graph& graph) {
  const size_t at = place();
  const Operand operand = read_operand();
  if (!operand.is_node()) return operand;
  if (operand.node >= node_) fail_at(at, fmt::format("the operand %{} is not an earlier node", operand.node));
  if (size_t(operand.output) >= graph.node(operand).types.size())
    fail_at(at, fmt::format("node %{} has no output {}", operand.node, operand.output));
  return operand;
}

GradReq GraphReader::read_request() {
  const size_t at = place();
  const auto request = index_in(kRequestNames, string(100));
  if (!request) fail_at(at, "expected \"null\", \"write\" or \"add\"");
  return GradReq(*request);
}

// A graph is the body of one node and precedes the graph of that node, so there are no cycles, and
// shared bodies cannot make the model grow exponentially.
std::shared_ptr<const Graph> GraphReader::take_body(int64_t g, size_t at) {
  if (g < 0 || g >= graph_) fail_at(at, fmt::format("the body {} is not an earlier graph", g));
  if (!used_.insert(int32_t(g)).second) fail_at(at, fmt::format("graph {} is the body of two nodes", g));
  int& depth = depths_[size_t(graph_)];
  depth = std::max(depth, depths_[size_t(g)] + 1);
  if (depth > kMaxGraphDepth) fail_at(at, fmt::format("more than {} graphs within one another", kMaxGraphDepth));
  return graphs_[size_t(g)];
}

std::vector<std::shared_ptr<const Graph>> GraphReader::read_bodies() {
  std::vector<std::shared_ptr<const Graph>> bodies;
  array([&](size_t) { bodies.push_back(read_body()); });
  return bodies;
}

void GraphReader::read_constant(Node& node) {
  const size_t at = place();
  const std::string name = string(10000);
  if (!source_.tensors) fail_at(at, fmt::format("the constant '{}' needs the file with the tensors", name));
  const Value* value = find_tensor(name);
  if (!value) fail_at(at, fmt::format("{} lacks the tensor '{}'", source_.tensors_name, name));
  if (node.types.size() != 1 || !alike(value->type(), node.types[0]))
    fail_at(at, fmt::format("the constant '{}' is {} in {}", name, to_string(value->type()), source_.tensors_name));
  node.constant = on_device(*value, node.types[0].device);
}

const Value* GraphReader::find_tensor(const std::string& name) {
  if (places_.empty())
    for (size_t k = 0; k < source_.tensors->tensors.size(); ++k) places_.emplace(source_.tensors->tensors[k].first, k);
  const auto found = places_.find(name);
  if (found == places_.end()) return nullptr;
  taken_.insert(found->second);
  return &source_.tensors->tensors[found->second].second;
}

// Ignores the device. Tensor files store no devices: the graph says where its tensors are.
bool GraphReader::alike(const Type& a, const Type& b) { return a.dtype == b.dtype && a.shape == b.shape; }
Value GraphReader::on_device(const Value& value, Device device) {
  Context ctx;
  return to_device(ctx, value, device);
}

}  // namespace pg
