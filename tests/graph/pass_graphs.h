// Builds, runs and compares graphs in tests, without a planner.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/plan/fused.h"
#include "graphs.h"

namespace pg::test {

inline PassOptions pass_options(bool kernels, std::vector<std::string> disabled = {}) {
  PassOptions out;
  if (!kernels) out.last = Pass::kShape;
  out.disabled = std::move(disabled);
  out.verify = true;
  return out;
}

inline bool has_op(const Graph& graph, const char* name) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const Node& n) { return n.op == &registry().require(name); });
}

// Appends nodes: `g.op("add", {x, 2.0})`.
class GraphSketch {
 public:
  struct Arg : Operand {
    Arg(Operand operand) : Operand(operand) {}          // NOLINT
    Arg(double number) : Operand(immediate(number)) {}  // NOLINT
  };
  Graph graph;

  Operand input(const char* name, Dims shape, DType dtype = DType::kFloat32) {
    Node node;
    node.kind = NodeKind::kInput;
    node.name = name;
    node.types.push_back(Type{dtype, {}, shape});
    graph.inputs.push_back(int32_t(graph.nodes.size()));
    graph.nodes.push_back(std::move(node));
    return Operand::of(graph.nodes.size() - 1);
  }
  Operand constant(Value value) {
    Node node;
    node.kind = NodeKind::kConstant;
    node.types.push_back(value.type());
    node.constant = std::move(value);
    graph.nodes.push_back(std::move(node));
    return Operand::of(graph.nodes.size() - 1);
  }
  Operand op(const char* name, std::initializer_list<Arg> inputs, AttrList attrs = {}) {
    return op(name, std::vector<Arg>(inputs), attrs);
  }
  Operand op(const char* name, const std::vector<Arg>& inputs, AttrList attrs = {}) {
    const OpDef& def = registry().require(name);
    Operands operands;
    for (const Operand& operand : inputs) operands.push_back(operand);
    graph.nodes.push_back(make_node(graph, def, operands, make_attrs(def, attrs), -1));
    return Operand::of(graph.nodes.size() - 1);
  }
  Graph done(std::initializer_list<Operand> outputs) {
    graph.outputs.assign(outputs.begin(), outputs.end());
    verify(graph);
    return graph;
  }
};

// Runs a fused node by its kernel.
inline std::vector<Value> run_fused(const Node& node, std::span<const Value> inputs) {
  std::vector<View> in, out;
  std::vector<Value> results;
  for (const Value& v : inputs) in.push_back({&v.type(), &v.array().strides, v.array().data()});
  for (const Type& type : node.types) results.push_back(make_array(type));
  for (const Value& v : results) out.push_back({&v.type(), &v.array().strides, v.array().data()});
  FusedKernel::compile(*node.body)->run(in, out);
  return results;
}

// Runs a specialized graph node by node in the eager interpreter. With `kernels`, fused nodes run by their kernels.
inline std::vector<Value> evaluate_graph(const Graph& graph, std::span<const Value> inputs, bool kernels = false) {
  Context ctx;
  std::vector<std::vector<Value>> results(graph.nodes.size());
  const auto value_of = [&](const Operand& o) {
    return o.is_number() ? Value(o.number) : o.is_none() ? Value() : results[size_t(o.node)][size_t(o.output)];
  };
  size_t next_input = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    std::vector<Value> in;
    for (const Operand& operand : node.inputs) in.push_back(value_of(operand));
    if (node.kind == NodeKind::kInput) {
      results[i] = {inputs[next_input++]};
    } else if (node.kind == NodeKind::kConstant) {
      results[i] = {node.constant};
    } else if (node.kind == NodeKind::kFused) {
      results[i] = kernels ? run_fused(node, in) : evaluate_graph(*node.body, in);
    } else {
      for (Value& v : apply(ctx, *node.op, in, node.attrs)) results[i].push_back(v.detached());
    }
  }
  std::vector<Value> out;
  for (const Operand& operand : graph.outputs) out.push_back(to_contiguous(ctx, value_of(operand)));
  return out;
}

// Returns "" if two values have the same type and the same elements up to `tolerance` (relative and absolute). With
// tolerance 0 every bit must be equal, except for the payload of NaNs.
inline std::string difference(const Value& a, const Value& b, double tolerance = 0) {
  if (!(a.type() == b.type())) return to_string(a.type()) + " and " + to_string(b.type());
  const int64_t size = size_of(a.dtype());
  for (int64_t i = 0; i < a.numel(); ++i) {
    const char *pa = static_cast<const char*>(a.array().data()) + i * size,
               *pb = static_cast<const char*>(b.array().data()) + i * size;
    const double x = load_number(a.dtype(), pa), y = load_number(a.dtype(), pb);
    if (std::isnan(x) && std::isnan(y)) continue;
    const bool close = tolerance == 0 ? !std::memcmp(pa, pb, size_t(size))
                                      : x == y || std::fabs(x - y) <= tolerance * (1 + std::fabs(x));
    if (!close) return fmt::format("element {}: {} and {}", i + 1, x, y);
  }
  return "";
}

// Compares all outputs of two graphs on the same inputs.
inline std::string difference(const Graph& a, const Graph& b, std::span<const Value> inputs, double tolerance = 0) {
  const auto x = evaluate_graph(a, inputs);
  for (const bool kernels : {false, true}) {
    const auto y = evaluate_graph(b, inputs, kernels);
    if (x.size() != y.size()) return "another number of outputs";
    for (size_t k = 0; k < x.size(); ++k)
      if (std::string text = difference(x[k], y[k], tolerance); !text.empty())
        return fmt::format("output {}{}: {}", k + 1, kernels ? " of fused kernels" : "", text);
  }
  return "";
}

}  // namespace pg::test
