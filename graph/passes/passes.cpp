#include "graph/passes/passes.h"

#include <algorithm>

#include "graph/passes/rewrite.h"
#include "tensor/device_table.h"
#include "tensor/settings.h"
#include "tensor/stack_depth.h"

namespace pg {
namespace {

constexpr Pass kPasses[] = {
    {"fold", fold, Pass::kClean},             // computes ops on constants
    {"cse", eliminate_common, Pass::kClean},  // merges nodes that compute the same value
    {"simplify", simplify, Pass::kClean},     // applies identities that preserve every bit
    {"dce", eliminate_dead, Pass::kClean},    // removes unused nodes
    {"steps", count_steps, Pass::kClean},     // finds the number of steps of loops and the rows that they read
    {"prune", prune, Pass::kClean},           // removes unused parts of branches and loops
    {"hoist", hoist, Pass::kClean},           // moves work that does not depend on earlier steps before a loop
    {"sink", sink, Pass::kClean},             // moves work that no later step needs after a loop, for all steps at once
    {"gather_gradients", gather_gradients,
     Pass::kClean},                              // sums the gradients of all steps in one product after a loop
    {"bn_fold", fold_batch_norm, Pass::kShape},  // folds batch normalization at inference into the weights before it
    {"recompute", recompute, Pass::kShape},      // rematerializes large values with cheap ops instead of keeping them
    {"layout", choose_layouts, Pass::kLayout},   // puts the channels last where convolutions are fastest
    {"place", place, Pass::kPlaces},             // keeps what branches and loops decide by on their device
    {"epilogue", attach_epilogues,
     Pass::kKernels},                            // makes bias and activation the epilogue of the product before them
    {"parts", compute_parts, Pass::kKernels},    // computes pointwise values in the parts that others read
    {"fuse", fuse, Pass::kKernels},              // fuses connected pointwise ops into one kernel
    {"addend", attach_addends, Pass::kKernels},  // makes what is added to a product part of the product
    {"separate", separate_outputs,
     Pass::kKernels},                              // writes what a loop's body returns twice twice, instead of copying
    {"materialize", materialize, Pass::kKernels},  // replaces the remaining fills by constants
};

// One round more than any chain of rules is known to need. A graph after the last round is correct but may not be
// minimal.
constexpr int kMaxRounds = 6;

bool names(const std::vector<std::string>& list, const char* pass) {
  return std::find(list.begin(), list.end(), pass) != list.end();
}

std::vector<std::string> listed(const char* text) {
  std::vector<std::string> out(1);
  for (; text && *text; ++text) {
    if (*text == ',')
      out.emplace_back();
    else if (*text != ' ')
      out.back() += *text;
  }
  std::erase(out, "");
  return out;
}

void check_names(const std::vector<std::string>& list, const char* where) {
  for (const std::string& name : list) {
    if (name == "all" ||
        std::any_of(std::begin(kPasses), std::end(kPasses), [&](const Pass& p) { return name == p.name; }))
      continue;
    std::vector<std::string_view> known;
    for (const Pass& pass : kPasses) known.push_back(pass.name);
    throw Error(fmt::format("{}: no pass '{}'{}", where, name, did_you_mean(name, known)));
  }
}

Device device_of(const Graph& graph, const Node& node) {
  for (const Operand& operand : node.inputs)
    if (operand.is_node()) return graph.type(operand).device;
  return node.types.empty() ? Device{} : node.types[0].device;
}

// Whether f holds for any node of the graph or of its bodies.
template <class F>
bool any_node(const Graph& graph, const F& f) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    if (f(graph, node)) return true;
    const auto bodies = bodies_of(node);
    return std::any_of(bodies.begin(), bodies.end(), [&](const Graph* body) { return any_node(*body, f); });
  });
}

bool leaves_host(const Graph& graph) {
  return any_node(graph, [](const Graph&, const Node& node) {
    return std::any_of(node.types.begin(), node.types.end(), [](const Type& type) { return !host_reads(type.device); });
  });
}

bool lacks_kernel(const Graph& graph) {
  return any_node(graph, [](const Graph& g, const Node& node) {
    if (node.kind != NodeKind::kOp || node.op->view || is_control(node)) return false;
    std::vector<Type> inputs;
    for (const Operand& operand : node.inputs)
      if (operand.is_node()) inputs.push_back(g.type(operand));
    return !kernel_row(*node.op, device_of(g, node), std::span<const Type>(inputs)).fn;
  });
}

// The passes that a call of optimize() runs.
class Selection {
 public:
  explicit Selection(const PassOptions& options)
      : options_(options), environment_(listed(setting("PERIGEE_DISABLE_PASSES"))) {
    check_names(options.disabled, "optimize");
    check_names(environment_, "PERIGEE_DISABLE_PASSES");
#ifdef NDEBUG
    verify_ = options.verify || switched_on("PERIGEE_VERIFY_PASSES");
#endif
  }

  bool runs(const Pass& pass) const {
    for (const auto* list : {&options_.disabled, &environment_})
      if (names(*list, pass.name) || names(*list, "all")) return false;
    return pass.stage <= options_.last && (options_.layouts || pass.stage != Pass::kLayout);
  }

  // Discards the result of a pass if a device lacks a kernel for it.
  Graph run(const Pass& pass, Graph graph) const {
    if (!leaves_host(graph)) return checked_run(pass, std::move(graph));
    Graph better = checked_run(pass, graph);
    return lacks_kernel(better) && !lacks_kernel(graph) ? graph : better;
  }

 private:
  Graph checked_run(const Pass& pass, Graph graph) const {
    graph = pass.run(std::move(graph));
    if (verify_) check(pass, graph);
    return graph;
  }

  static void check(const Pass& pass, const Graph& graph) try { verify(graph); } catch (const Error& error) {
    throw Error(fmt::format("pass {}: {}", pass.name, error.what()));
  }

  const PassOptions& options_;
  std::vector<std::string> environment_;
  bool verify_ = true;
};

// Replaces the bodies of branches and loops by better(body).
template <class Better>
void improve_bodies(Graph& graph, const Better& better) {
  check_body_depth();
  for (Node& node : graph.nodes) {
    if (!is_control(node)) continue;
    change_bodies(node, [&](const Graph& body) -> std::shared_ptr<const Graph> {
      Graph improved = better(body);
      if (same_graph(improved, body)) return nullptr;
      return std::make_shared<const Graph>(std::move(improved));
    });
  }
}

// Bodies come first: a node that leaves a body may leave the graph around it too.
Graph clean(const Selection& selection, Graph graph) {
  for (int round = 0; round < kMaxRounds; ++round) {
    const Graph before = graph;
    improve_bodies(graph, [&](const Graph& body) { return clean(selection, body); });
    for (const Pass& pass : kPasses)
      if (pass.stage == Pass::kClean && selection.runs(pass)) graph = selection.run(pass, std::move(graph));
    if (same_graph(before, graph)) break;
  }
  return graph;
}

Graph run_stage(const Selection& selection, Pass::Stage stage, Graph graph) {
  improve_bodies(graph, [&](const Graph& body) { return run_stage(selection, stage, body); });
  for (const Pass& pass : kPasses)
    if (pass.stage == stage && selection.runs(pass)) graph = selection.run(pass, std::move(graph));
  return graph;
}

}  // namespace

std::span<const Pass> passes() { return kPasses; }

void check_pass_settings() { check_names(listed(setting("PERIGEE_DISABLE_PASSES")), "PERIGEE_DISABLE_PASSES"); }

Graph optimize(Graph graph, const PassOptions& options) {
  const Selection selection(options);
  graph = clean(selection, std::move(graph));
  const Graph before = graph;
  graph = run_stage(selection, Pass::kShape, std::move(graph));
  if (!same_graph(before, graph)) graph = clean(selection, std::move(graph));
  for (Pass::Stage stage : {Pass::kLayout, Pass::kPlaces, Pass::kKernels})
    if (stage <= options.last) graph = run_stage(selection, stage, std::move(graph));
  return graph;
}

}  // namespace pg
