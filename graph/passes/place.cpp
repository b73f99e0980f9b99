// Place: keeps predicates, flags, counts and numbers of steps on the device that computes them. In a trace they are on
// the host, which decides. A device whose programs hold branches and loops needs them in its own memory.
//
// Applied to branches and loops whose results are all on one device that captures programs. A predicate, flag or count
// that was computed there is taken before its copy to the host. The number of the step becomes one of the device if the
// body only copies it there; so does the number of steps that the loop returns, of which the host gets a copy.
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/device_table.h"

namespace pg {
namespace {

// Returns the device of all types from `first` on if it captures programs.
std::optional<Device> device_of(const Node& node, size_t first) {
  if (node.types.size() <= first) return std::nullopt;
  const Device device = node.types[first].device;
  for (size_t k = first; k < node.types.size(); ++k)
    if (!(node.types[k].device == device)) return std::nullopt;
  return captures(device) ? std::optional(device) : std::nullopt;
}

// Returns the operand that a value of the host is a copy of, if that is on the device, else none.
Operand source_on(const Graph& graph, const Operand& operand, Device device) {
  const Node& node = graph.node(operand);
  if (!node.is<"to">() || !host_reads(node.types[0].device)) return {};
  return graph.type(node.inputs[0]).device == device ? node.inputs[0] : Operand{};
}

// Moves the number of the step in a body from the host to the device. Returns false if something else than copies there
// reads it.
bool place_index(Graph& body, Device device) {
  const Operand index = Operand::of(size_t(body.inputs[0]));
  if (!host_reads(body.type(index).device)) return false;
  std::vector<char> copies(body.nodes.size());
  for (size_t i = 0; i < body.nodes.size(); ++i) {
    const Node& node = body.nodes[i];
    if (std::find(node.inputs.begin(), node.inputs.end(), index) == node.inputs.end()) continue;
    if (!node.is<"to">() || !(node.types[0].device == device)) return false;
    copies[i] = node.types[0].dtype == DType::kInt64;
  }
  if (std::find(body.outputs.begin(), body.outputs.end(), index) != body.outputs.end()) return false;
  body.nodes[size_t(index.node)].types[0].device = device;
  const auto redirect = [&](Operand& operand) {
    if (operand.is_node() && copies[size_t(operand.node)]) operand = index;
  };
  for (Node& node : body.nodes)
    for (Operand& operand : node.inputs) redirect(operand);
  for (Operand& output : body.outputs) redirect(output);
  return true;
}

// Makes the flag that a body returns one of the device, if it is computed there.
bool place_flag(Graph& body, Device device) {
  Operand& flag = body.outputs[0];
  const Operand from = source_on(body, flag, device);
  if (!from.is_node()) return false;
  if (body.type(from).dtype == DType::kBool) return flag = from, true;
  const OpDef& op = op_named<"to">();
  body.nodes.push_back(
      make_node(body, op, {&from, 1}, make_attrs(op, {{"dtype", DType::kBool}}), body.node(flag).line));
  return flag = Operand::of(body.nodes.size() - 1), true;
}

class Placer {
 public:
  explicit Placer(Graph graph) : rewrite_(std::move(graph)) {}

  Graph run() {
    for (size_t i = 0; i < rewrite_.size(); ++i) {
      const Node& old = rewrite_.old(i);
      if (const auto device = is_control(old) ? device_of(old, old.is<"loop">()) : std::nullopt)
        old.is<"loop">() ? place_loop(i, *device) : place_cond(i, *device);
      else
        copy(i);
    }
    return changed_ ? without_dead_nodes(rewrite_.finish()) : rewrite_.finish();
  }

 private:
  // What goes to the host and back stays.
  void copy(size_t i) {
    const Node& old = rewrite_.old(i);
    if (changed_ && old.is<"to">() && !host_reads(old.types[0].device)) {
      const Operand from = source_on(rewrite_.graph(), rewrite_.translated(old.inputs[0]), old.types[0].device);
      if (from.is_node() && rewrite_.graph().type(from) == old.types[0]) return rewrite_.replace(i, 0, from);
    }
    rewrite_.copy(i);
  }

  void place_operand(Operand& operand, Device device) {
    const Operand from = source_on(rewrite_.graph(), operand, device);
    if (!from.is_node()) return;
    changed_ = true;
    const DType dtype = rewrite_.graph().type(operand).dtype;
    operand = rewrite_.graph().type(from).dtype == dtype ? from : rewrite_.emit<"to">({from}, {{"dtype", dtype}});
  }

  void place_cond(size_t i, Device device) {
    Node node = rewrite_.take(i);
    place_operand(node.inputs[0], device);
    rewrite_.keep(i, rewrite_.append(std::move(node)));
  }

  void place_loop(size_t i, Device device) {
    Node node = rewrite_.take(i);
    Control control = control_of(node);
    Graph body = *control.bodies[0];
    const bool indexed = place_index(body, device);
    const bool flagged = control.loop.conditional && place_flag(body, device);
    for (int32_t k = 0; k < control.loop.first_slice(false); ++k) place_operand(node.inputs[size_t(k)], device);
    if (!indexed && !flagged) return rewrite_.keep(i, rewrite_.append(std::move(node)));
    changed_ = true;
    control.bodies[0] = std::make_shared<const Graph>(without_dead_nodes(body));
    const size_t at = rewrite_.append(control_node(rewrite_.graph(), control, node.inputs));
    for (size_t k = 1; k < node.types.size(); ++k) rewrite_.replace(i, k, Operand::of(at, k));
    const Operand steps = Operand::of(at, 0);
    rewrite_.replace(i, 0, indexed ? rewrite_.emit<"to">({steps}, {{"device", Device{}}}, node.line) : steps);
  }

  Rewrite rewrite_;
  bool changed_ = false;
};

}  // namespace

Graph place(Graph graph) { return Placer(std::move(graph)).run(); }

}  // namespace pg
