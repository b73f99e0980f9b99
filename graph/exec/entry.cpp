#include "graph/exec/entry.h"

#include <algorithm>

#include "graph/exec/kept.h"
#include "graph/passes/passes.h"
#include "tensor/observer.h"

namespace pg {
namespace {

// Gradients of fewer bytes together are new arrays instead of being written over the old ones.
constexpr Bytes kLargeGradients = Bytes(1 << 20);

// A gradient that is asked for later may flow to other inputs than the run that checked these guards.
Graph without_flow_guards(Graph trace) {
  std::erase_if(trace.guards, [](const TypeGuard& guard) { return guard.kind == TypeGuard::kRequiresGrad; });
  return trace;
}

// Returns the trace (inputs, leaves, cotangents) → gradients. Values that the script detached stay detached in these
// gradients. leaves: those that the trace returns.
Graph gradient_trace(const Graph& trace, std::span<const int32_t> leaves, const Specialized& joint) {
  Graph graph = without_flow_guards(without_effects(trace));  // effects happened in the first run
  for (int32_t leaf : leaves) {
    Node input;
    input.kind = NodeKind::kInput;
    input.types = trace.nodes[size_t(leaf)].types;
    graph.nodes[size_t(leaf)] = std::move(input);
    graph.inputs.push_back(leaf);
  }
  const std::vector<int32_t> sources = graph.inputs;
  Node gradient;
  gradient.kind = NodeKind::kGradient;
  gradient.heads = int32_t(joint.heads.size());
  gradient.create_graph = true;
  for (int32_t head : joint.heads) gradient.inputs.push_back(trace.outputs[size_t(head)]);
  for (int32_t head : joint.heads) {
    Node cotangent;
    cotangent.kind = NodeKind::kInput;
    cotangent.name = fmt::format("cotangent {}", head + 1);
    cotangent.types.push_back(trace.type(trace.outputs[size_t(head)]));
    gradient.inputs.push_back(Operand::of(graph.nodes.size()));
    graph.inputs.push_back(int32_t(graph.nodes.size()));
    graph.nodes.push_back(std::move(cotangent));
  }
  graph.outputs.clear();
  for (int32_t input : joint.wanted) {
    const Operand of = Operand::of(size_t(sources[size_t(input)]));
    gradient.inputs.push_back(of);
    graph.outputs.push_back({int32_t(graph.nodes.size()), int32_t(gradient.types.size()), 0});
    gradient.types.push_back(trace.type(of));
  }
  graph.nodes.push_back(std::move(gradient));
  return graph;
}

// Marks the inputs that last and that the program does not replace by other values.
void mark_lasting(Graph& graph, const Program::Options& options) {
  for (int32_t input : options.lasting) graph.nodes[size_t(graph.inputs[size_t(input)])].lasts = true;
  for (const Replacement& r : options.replacements) {
    const int32_t input = graph.inputs[size_t(r.input)];
    int32_t now = graph.outputs[size_t(r.output)].node;
    while (graph.nodes[size_t(now)].is<"detach">()) now = graph.nodes[size_t(now)].inputs[0].node;
    if (now != input) graph.nodes[size_t(input)].lasts = false;
  }
}

// Of one half: the layouts were chosen for both.
PassOptions half_options() {
  PassOptions options;
  options.layouts = false;
  return options;
}

}  // namespace

Flow flow_of(const Value& v) {
  const TapeNode* node = v.node();
  if (!node || (is_frozen(v) && node->custom_name != kFlowing)) return Flow::kNone;
  if (!node->leaf) return Flow::kHistory;
  return node->req == GradReq::kAdd ? Flow::kAdd : Flow::kWrite;
}

Program::Entry::Entry(const Program& program, Signature given)
    : signature(std::move(given)),
      exact_flows(signature.recording || program.reads_flows_),
      options(program.options_),
      trace(program.trace_),
      leaves(program.leaves_),
      shelf(program.shelf_) {}

bool Program::Entry::fits(std::span<const Value> inputs, bool recording, bool training) const {
  if (signature.training != training || signature.recording != recording) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!(inputs[i].type() == signature.types[i])) return false;
    if (exact_flows && flow_of(inputs[i]) != signature.flows[i]) return false;
  }
  return true;
}

Graph Program::Entry::differentiate() {
  joint = specialize(*trace, signature, leaves);
  Graph whole = std::move(joint.graph);
  joint.graph = {};
  if (!signature.recording) mark_lasting(whole, options);
  if (joint.heads.empty()) return optimize(whole);
  for (const int32_t head : joint.heads) head_types.push_back(whole.type(whole.outputs[size_t(head)]));
  PassOptions passes;
  passes.last = Pass::kLayout;
  joint.graph = optimize(std::move(whole), passes);
  Split halves = split(joint);
  joint.graph = {};
  Bytes gradients;
  for (const Operand& gradient : halves.backward.outputs) gradients += bytes_of(halves.backward.type(gradient));
  lends = gradients >= kLargeGradients;
  backward_graph = std::move(halves.backward);
  kept = std::move(halves.kept);
  return optimize(halves.forward, half_options());
}

std::shared_ptr<const Plan> Program::Entry::backward_plan(Context& ctx) {
  const std::lock_guard lock(mutex);
  if (!backward) {
    PlanOptions plan = plan_options(kept);
    plan.name += " backward";
    plan.consumed = residuals;
    for (size_t i = kept.size(); i < backward_graph.inputs.size(); ++i) plan.changing.push_back(int32_t(i));
    if (lends)
      for (size_t k = 0; k < joint.wanted.size(); ++k) plan.lendable.push_back(int32_t(k));
    backward = observed(ctx, Work::Kind::kCompile, plan.name,
                        [&] { return make_plan(optimize(backward_graph, half_options()), plan); });
    backward_graph = {};
  }
  return backward;
}

Program& Program::Entry::gradient_program() {
  const std::lock_guard lock(mutex);
  if (!differentiable) {
    differentiable = Ref<Program>(new Program(gradient_trace(*trace, leaves, joint), {}, gradient_options()));
  }
  return *differentiable;
}

Program& Program::Entry::whole_gradient_program() {
  const std::lock_guard lock(mutex);
  if (!whole_gradient) {
    Signature all = signature;
    all.recording = true;
    for (size_t i = 0; i < all.types.size(); ++i)
      all.flows[i] = is_float(all.types[i].dtype) ? Flow::kWrite : Flow::kNone;
    whole = specialize(without_flow_guards(*trace), all, leaves);
    whole_gradient = Ref<Program>(new Program(gradient_trace(*trace, leaves, whole), {}, gradient_options()));
  }
  return *whole_gradient;
}

Program::Options Program::Entry::gradient_options() const {
  return {
      .name = options.name + " gradient", .static_alloc = options.static_alloc, .static_shape = options.static_shape};
}

PlanOptions Program::Entry::plan_options(std::span<const int32_t> inputs) const {
  PlanOptions plan;
  plan.name = options.name;
  plan.static_alloc = options.static_alloc;
  plan.shelf = shelf;
  for (size_t i = 0; signature.recording && i < inputs.size(); ++i)
    if (signature.flows[size_t(inputs[i])] != Flow::kNone) plan.changing.push_back(int32_t(i));
  if (joint.heads.empty()) plan.lendable = options.lendable, plan.replacements = options.replacements;
  return plan;
}

}  // namespace pg
