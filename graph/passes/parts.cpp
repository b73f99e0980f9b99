// Parts: slices of a pointwise value, such as the gates of a recurrent cell in the sum of its products, become
// pointwise values of slices, which can be fused with what reads them. Fusion does not reach through a view.
//
// This happens if nothing else reads the value, only pointwise ops of the same shape read the slices, and the slices
// have no more elements than the value: then nothing is computed twice. It applies to the pointwise ops behind the
// value too. The bits stay. The host keeps such values whole: its launches cost less than reads with strides.
#include <algorithm>
#include <map>
#include <tuple>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/plan/fused.h"

namespace pg {
namespace {

constexpr int32_t kNone = -1;

bool shows_slices(const Node& node) {
  return node.kind == NodeKind::kOp && node.op->view && node.inputs.size() == 1 && node.inputs[0].is_node() &&
         !node.types.empty() && (node.has(kListOutput) || node.has(kIndexing)) && !host_reads(node.types[0].device);
}

class Parts {
 public:
  explicit Parts(Graph graph) : rewrite_(std::move(graph)), readers_(rewrite_.size()), root_(rewrite_.size(), kNone) {
    is_output_.resize(rewrite_.size());
    for (size_t i = 0; i < rewrite_.size(); ++i) nodes_.push_back(rewrite_.old(i));
    for (size_t i = 0; i < nodes_.size(); ++i)
      for (const Operand& operand : nodes_[i].inputs)
        if (operand.is_node()) readers_[size_t(operand.node)].push_back(int32_t(i));
    for (const Operand& output : rewrite_.old_outputs()) is_output_[size_t(output.node)] = true;
    for (size_t i = nodes_.size(); i-- > 0;) root_[i] = root_of(i);
  }

  Graph run() {
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (cuts(i) && is_cut(nodes_[i].inputs[0]))
        for (size_t k = 0; k < nodes_[i].types.size(); ++k) rewrite_.replace(i, k, part(nodes_[i].inputs[0], i, k));
      else
        rewrite_.copy(i);
    return without_dead_nodes(rewrite_.finish());
  }

 private:
  // Whether the node is computed in parts.
  bool is_cut(const Operand& operand) const { return root_[size_t(operand.node)] != kNone; }

  bool computes(size_t i) const {
    const Node& node = nodes_[i];
    const auto here = [&](const Operand& operand) {
      return !operand.is_node() || type_of(operand).device == node.types[0].device;
    };
    return fusable(node) && !is_view(node) && !host_reads(node.types[0].device) &&
           std::all_of(node.inputs.begin(), node.inputs.end(), here);
  }
  const Type& type_of(const Operand& o) const { return nodes_[size_t(o.node)].types[size_t(o.output)]; }

  // Whether node i shows slices of its operand to pointwise ops of their shape only.
  bool cuts(size_t i) const {
    return !is_output_[i] && shows_slices(nodes_[i]) && !readers_[i].empty() &&
           std::all_of(readers_[i].begin(), readers_[i].end(), [&](int32_t r) {
             const Node& reader = nodes_[size_t(r)];
             const auto fits = [&](const Operand& o) {
               return o.node != int32_t(i) || type_of(o).shape == reader.types[0].shape;
             };
             return computes(size_t(r)) && std::all_of(reader.inputs.begin(), reader.inputs.end(), fits);
           });
  }

  // The last pointwise node behind whose slices node i is computed, or kNone if it is computed as a whole.
  int32_t root_of(size_t i) const {
    if (!computes(i) || is_output_[i] || readers_[i].empty()) return kNone;
    if (cuts(size_t(readers_[i][0]))) return shows_once(i) ? int32_t(i) : kNone;
    const int32_t root = root_[size_t(readers_[i][0])];
    const bool inner = std::all_of(readers_[i].begin(), readers_[i].end(), [&](int32_t r) {
      return root_[size_t(r)] == root && nodes_[size_t(r)].types[0].shape == nodes_[i].types[0].shape;
    });
    return inner ? root : kNone;
  }

  bool shows_once(size_t i) const {
    int64_t shown = 0;
    for (int32_t r : readers_[i]) {
      if (!cuts(size_t(r))) return false;
      for (const Type& type : nodes_[size_t(r)].types) shown += numel(type.shape);
    }
    return shown <= numel(nodes_[i].types[0].shape);
  }

  // Output k of slice i applied to an operand.
  Operand part(const Operand& operand, size_t i, size_t k) {
    if (!is_cut(operand)) return slice(operand, rewrite_.translated(operand), i, k);
    const auto key = std::make_tuple(operand.node, i, k);
    if (const auto known = parts_.find(key); known != parts_.end()) return known->second;
    const Node& node = nodes_[size_t(operand.node)];
    Operands inputs = node.inputs;
    for (Operand& input : inputs)
      if (input.is_node()) input = aligned_part(input, node.types[0].shape, i, k);
    return parts_[key] = rewrite_.emit(*node.op, inputs, node.attrs, node.line);
  }

  // The same for an operand that broadcasts to a shape, which the slice is of.
  Operand aligned_part(const Operand& operand, const Dims& shape, size_t i, size_t k) {
    const Dims& own = type_of(operand).shape;
    if (own == shape) return part(operand, i, k);
    const Operand at = rewrite_.translated(operand);
    if (numel(own) == 1 && own.size() <= nodes_[i].types[k].shape.size()) return at;
    Operand& wide = wide_[{operand.node, operand.output}];
    if (wide.is_none())
      wide = rewrite_.emit<"broadcast_to">({at}, {{"shape", Ints(shape.begin(), shape.end())}}, nodes_[i].line);
    return slice(operand, wide, i, k);
  }

  Operand slice(const Operand& old, const Operand& operand, size_t i, size_t k) {
    int32_t& at = slices_.try_emplace({old.node, old.output, i}, kNone).first->second;
    const Node& node = nodes_[i];
    if (at == kNone) at = rewrite_.emit(*node.op, Operands{operand}, node.attrs, node.line).node;
    return Operand::of(size_t(at), k);
  }

  Rewrite rewrite_;
  std::vector<Node> nodes_;  // of the old graph
  std::vector<std::vector<int32_t>> readers_;
  std::vector<char> is_output_;
  std::vector<int32_t> root_;
  std::map<std::tuple<int32_t, size_t, size_t>, Operand> parts_;
  std::map<std::tuple<int32_t, int32_t, size_t>, int32_t> slices_;
  std::map<std::pair<int32_t, int32_t>, Operand> wide_;
};

}  // namespace

Graph compute_parts(Graph graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), shows_slices)) return graph;
  return Parts(std::move(graph)).run();
}

}  // namespace pg
