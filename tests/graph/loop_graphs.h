// Loops and branches in graphs made by hand.
#pragma once
#include <algorithm>

#include "graph/exec/exec.h"
#include "graph/plan/plan.h"
#include "pass_graphs.h"

namespace pg::test {

inline const Type kIndexType{DType::kInt64, {}, {}};

// A body: an index, then inputs of these types.
struct BodySketch : GraphSketch {
  std::vector<Operand> in;
  explicit BodySketch(std::initializer_list<Dims> shapes, bool index = true) {
    if (index) in.push_back(input("", {}, DType::kInt64));
    for (const Dims& shape : shapes) in.push_back(input("", shape));
  }
  std::shared_ptr<const Graph> done(std::initializer_list<Operand> outputs) {
    return std::make_shared<const Graph>(GraphSketch::done(outputs));
  }
};

// Appends a loop or branch, its output types as its body says; answers its node.
inline size_t add_control(GraphSketch& g, NodeKind kind, const LoopForm& form, std::vector<Operand> inputs,
                          std::vector<std::shared_ptr<const Graph>> bodies) {
  Node node;
  node.kind = kind;
  node.loop = form;
  for (const Operand& operand : inputs) node.inputs.push_back(operand);
  if (kind == NodeKind::kLoop) node.types.push_back(kIndexType);
  const Graph& body = *bodies[0];
  const size_t flag = kind == NodeKind::kLoop && form.conditional,
               carries = kind == NodeKind::kLoop ? size_t(form.carries) : body.outputs.size();
  for (size_t k = flag; k < body.outputs.size(); ++k) {
    const Type& type = body.type(body.outputs[k]);
    node.types.push_back(k - flag < carries ? type : stack_type(type, std::max<int64_t>(form.limit, 0)));
  }
  node.bodies = std::move(bodies);
  g.graph.nodes.push_back(std::move(node));
  return g.graph.nodes.size() - 1;
}

inline LoopForm loop_form(int32_t slices, int32_t carries, int64_t limit) {
  LoopForm form;
  form.slices = slices;
  form.carries = carries;
  form.limit = limit;
  return form;
}

// The outputs of a graph by its plan.
inline std::vector<Value> run_plan(const Graph& graph, std::span<const Value> inputs) {
  Context ctx;
  std::vector<Value> in(inputs.begin(), inputs.end()), out;
  for (const Value& v : run(*make_plan(graph), ctx, in)) out.push_back(to_contiguous(ctx, v));
  return out;
}

}  // namespace pg::test
