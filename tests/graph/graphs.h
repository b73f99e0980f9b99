// Helpers for tests that build graphs by hand.
#pragma once
#include "../tensor/arrays.h"
#include "graph/ir/ir.h"

namespace pg::test {

class GraphMaker {
 public:
  Graph graph;

  Operand input(const Type& type, const std::string& name = "x") {
    Node node;
    node.kind = NodeKind::kInput;
    node.types = {type};
    node.name = name;
    graph.inputs.push_back(int32_t(graph.nodes.size()));
    return add(std::move(node));
  }
  Operand input(Dims shape, DType dtype = DType::kFloat32) { return input(Type{dtype, {}, shape}); }

  Operand constant(const Value& value) {
    Node node;
    node.kind = NodeKind::kConstant;
    node.types = {value.type()};
    node.constant = value;
    return add(std::move(node));
  }

  // Returns the first output. Output i of the node is {node, i}.
  Operand op(const char* name, std::initializer_list<Operand> inputs, AttrList attrs = {}) {
    return op_list(name, std::span<const Operand>(inputs.begin(), inputs.size()), attrs);
  }
  Operand op_list(const char* name, std::span<const Operand> inputs, AttrList attrs = {}) {
    Node node;
    node.op = &registry().require(name);
    node.attrs = make_attrs(*node.op, attrs);
    for (const Operand& o : inputs) node.inputs.push_back(o);
    SmallVector<Value, 4> values;
    for (const Operand& o : inputs)
      values.push_back(o.is_number() ? Value(o.number) : o.is_none() ? Value() : Value(Array::make(graph.type(o))));
    SmallVector<Type, 2> types;
    infer_types(*node.op, values, node.attrs, types);
    for (const Type& t : types) node.types.push_back(t);
    return add(std::move(node));
  }
  // Sets the script line of the last node.
  void at(const std::string& line) {
    graph.nodes.back().line = int32_t(graph.lines.size());
    graph.lines.push_back(line);
  }
  void output(Operand o) { graph.outputs.push_back(o); }

 private:
  Operand add(Node node) {
    graph.nodes.push_back(std::move(node));
    return Operand::of(graph.nodes.size() - 1);
  }
};

// Linear layers of these widths with relu between them.
inline Graph mlp(int64_t batch, std::initializer_list<int64_t> widths) {
  GraphMaker m;
  Operand x = m.input({batch, *widths.begin()});
  for (auto w = widths.begin(); w + 1 != widths.end(); ++w) {
    const Operand weight = m.input({w[1], w[0]}), bias = m.input({w[1]});
    x = m.op("linear", {x, weight, bias});
    if (w + 2 != widths.end()) x = m.op("relu", {x});
  }
  m.output(x);
  return m.graph;
}

// Runs the graph op by op.
inline Values run_eagerly(Context& ctx, const Graph& graph, std::span<const Value> inputs) {
  std::vector<Values> made(graph.nodes.size());
  size_t next = 0;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.kind == NodeKind::kInput) {
      made[n] = {inputs[next++]};
    } else if (node.kind == NodeKind::kConstant) {
      made[n] = {node.constant};
    } else {
      SmallVector<Value, 4> in;
      for (const Operand& o : node.inputs)
        in.push_back(o.is_number() ? Value(o.number) : o.is_none() ? Value() : made[size_t(o.node)][size_t(o.output)]);
      made[n] = apply(ctx, *node.op, in, node.attrs);
    }
  }
  Values out;
  for (const Operand& o : graph.outputs) out.push_back(made[size_t(o.node)][size_t(o.output)]);
  return out;
}

inline Value range(Dims shape, double start = 0, double step = 1) {
  Value v = make_array(Type{DType::kFloat32, {}, shape});
  for (int64_t i = 0; i < v.numel(); ++i) static_cast<float*>(v.array().data())[i] = float(start + step * double(i));
  return v;
}

}  // namespace pg::test
