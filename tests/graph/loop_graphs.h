// Builds loops and branches by hand.
#pragma once
#include <algorithm>

#include "graph/exec/exec.h"
#include "graph/plan/plan.h"
#include "pass_graphs.h"

namespace pg::test {

// A body with an index, followed by inputs of these types.
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

// Appends a loop or branch. Returns its node.
inline size_t add_control(GraphSketch& g, Control control, std::vector<Operand> inputs,
                          std::vector<std::shared_ptr<const Graph>> bodies) {
  control.bodies = std::move(bodies);
  g.graph.nodes.push_back(control_node(g.graph, control, inputs));
  return g.graph.nodes.size() - 1;
}
inline size_t add_loop(GraphSketch& g, const LoopForm& form, std::vector<Operand> inputs,
                       std::vector<std::shared_ptr<const Graph>> bodies) {
  return add_control(g, Control::loop_of("loop", form), std::move(inputs), std::move(bodies));
}
inline size_t add_cond(GraphSketch& g, std::vector<Operand> inputs, std::vector<std::shared_ptr<const Graph>> bodies) {
  return add_control(g, Control::cond("cond"), std::move(inputs), std::move(bodies));
}

inline LoopForm loop_form(int32_t slices, int32_t carries, int64_t limit) {
  LoopForm form;
  form.slices = slices;
  form.carries = carries;
  form.limit = limit;
  return form;
}

// Plans and runs the graph. Returns its outputs.
inline std::vector<Value> run_plan(const Graph& graph, std::span<const Value> inputs) {
  Context ctx;
  std::vector<Value> in(inputs.begin(), inputs.end()), out;
  for (const Value& v : run(*make_plan(graph), ctx, in)) out.push_back(to_contiguous(ctx, v));
  return out;
}

}  // namespace pg::test
