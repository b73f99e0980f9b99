#include "graph/passes/rewrite.h"

#include <bit>

namespace pg {

SmallVector<Value, 4> typed_values(const Graph& graph, std::span<const Operand> operands) {
  SmallVector<Value, 4> values;
  for (const Operand& operand : operands) {
    if (operand.is_number())
      values.emplace_back(operand.number);
    else if (operand.is_none())
      values.emplace_back();
    else
      values.emplace_back(Array::make(graph.type(operand)));
  }
  return values;
}

Node make_node(const Graph& graph, const OpDef& op, std::span<const Operand> inputs, Attrs attrs, int32_t line) {
  Node node;
  node.op = &op;
  node.attrs = std::move(attrs);
  node.line = line;
  for (const Operand& operand : inputs) node.inputs.push_back(operand);
  SmallVector<Type, 2> types;
  infer_types(op, typed_values(graph, inputs), node.attrs, types);
  for (Type& type : types) node.types.push_back(type);
  return node;
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

namespace {

bool same_value(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<double>(&a)) return same_bits(*x, std::get<double>(b));
  if (const auto* x = std::get_if<Floats>(&a)) {
    const Floats& y = std::get<Floats>(b);
    if (x->size() != y.size()) return false;
    for (size_t i = 0; i < x->size(); ++i)
      if (!same_bits((*x)[i], y[i])) return false;
    return true;
  }
  return a == b;
}

bool same_node(const Node& a, const Node& b) {
  if (a.kind != b.kind || a.op != b.op || a.inputs.size() != b.inputs.size() || a.types.size() != b.types.size())
    return false;
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (!(a.inputs[i] == b.inputs[i])) return false;
  for (size_t i = 0; i < a.types.size(); ++i)
    if (!(a.types[i] == b.types[i])) return false;
  if (a.body != b.body) return false;
  if (a.kind == NodeKind::kConstant) return a.constant.array_ref().get() == b.constant.array_ref().get();
  return a.kind != NodeKind::kOp || same_attrs(a, b);
}

}  // namespace

bool same_attrs(const Node& a, const Node& b) {
  if (a.attrs.size() != b.attrs.size()) return false;
  for (size_t i = 0; i < a.attrs.size(); ++i)
    if (!same_value(a.attrs[i], b.attrs[i])) return false;
  return true;
}

void mix(size_t& hash, size_t value) { hash ^= value + 0x9e3779b97f4a7c15ull + (hash << 6) + (hash >> 2); }

namespace {

struct AttrHash {
  size_t operator()(std::monostate) const { return 0; }
  size_t operator()(bool v) const { return v; }
  size_t operator()(int64_t v) const { return size_t(v); }
  size_t operator()(double v) const { return std::bit_cast<uint64_t>(v); }
  size_t operator()(const std::string& v) const { return std::hash<std::string>()(v); }
  size_t operator()(DType v) const { return size_t(v); }
  size_t operator()(Device v) const { return size_t(v.kind) * 256 + v.index; }
  size_t operator()(RandomKey v) const { return size_t(v.seed * 31 + v.tick); }
  size_t operator()(const Ref<Generator>& v) const { return std::hash<const void*>()(v.get()); }
  size_t operator()(const std::shared_ptr<const Graph>& v) const { return std::hash<const void*>()(v.get()); }
  template <class T>
  size_t operator()(const std::vector<T>& list) const {
    size_t hash = list.size();
    for (const T& v : list) mix(hash, (*this)(v));
    return hash;
  }
};

}  // namespace

size_t hash_of(const Attrs& attrs) {
  size_t hash = 0;
  for (size_t i = 0; i < attrs.size(); ++i) mix(hash, std::visit(AttrHash{}, attrs[i]));
  return hash;
}

bool same_graph(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size() || a.inputs != b.inputs || !(a.outputs == b.outputs)) return false;
  for (size_t i = 0; i < a.nodes.size(); ++i)
    if (!same_node(a.nodes[i], b.nodes[i])) return false;
  return true;
}

Rewrite::Rewrite(Graph from) : from_(std::move(from)) {
  to_.lines = from_.lines;
  to_.ticks = from_.ticks;
  to_.nodes.reserve(from_.nodes.size());
  size_t outputs = 0;
  first_.reserve(from_.nodes.size());
  for (const Node& node : from_.nodes) {
    first_.push_back(outputs);
    outputs += node.types.size();
  }
  places_.resize(outputs);
}

Operand Rewrite::translated(const Operand& operand) const {
  if (!operand.is_node()) return operand;
  return places_[first_[size_t(operand.node)] + size_t(operand.output)];
}

Node Rewrite::take(size_t i) {
  Node node = std::move(from_.nodes[i]);
  from_.nodes[i].types = node.types;  // replace() compares with these types
  from_.nodes[i].kind = node.kind;
  for (Operand& operand : node.inputs) operand = translated(operand);
  return node;
}

bool is_view(const Node& node) { return node.kind == NodeKind::kOp && node.op->view && !node.op->has(kCopies); }

std::optional<double> filled_with(const Node& node) {
  if (node.kind != NodeKind::kOp || !node.op->fill || !node.inputs.empty()) return std::nullopt;
  return node.op->fill(AttrReader(*node.op, node.attrs));
}

Operand Rewrite::emit(const OpDef& op, std::span<const Operand> inputs, Attrs attrs, int32_t line) {
  return Operand::of(append(make_node(to_, op, inputs, std::move(attrs), line)));
}

size_t Rewrite::append(Node node) {
  to_.nodes.push_back(std::move(node));
  return to_.nodes.size() - 1;
}

void Rewrite::keep(size_t i, size_t at) {
  for (size_t k = 0; k < from_.nodes[i].types.size(); ++k) replace(i, k, Operand::of(at, k));
}

void Rewrite::replace(size_t i, size_t output, const Operand& by) {
  if (!(to_.type(by) == from_.nodes[i].types[output]))
    throw Error(fmt::format("graph: a pass put {} in the place of output {} of node {}, which is {}",
                            to_string(to_.type(by)), output, i, to_string(from_.nodes[i].types[output])));
  places_[first_[i] + output] = by;
}

Graph Rewrite::finish() {
  for (int32_t input : from_.inputs) to_.inputs.push_back(translated(Operand::of(size_t(input))).node);
  for (const Operand& output : from_.outputs) to_.outputs.push_back(translated(output));
  for (TypeGuard guard : from_.guards) {
    guard.of = translated(guard.of);
    to_.guards.push_back(guard);
  }
  return std::move(to_);
}

}  // namespace pg
