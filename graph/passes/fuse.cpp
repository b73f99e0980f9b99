// Fusion: pointwise ops that feed each other, with reductions and joins (cat, stack) at their end, become one kFused
// node.
//
// The pass is greedy, in the order of the nodes. Each node joins the groups of its producers. Then groups that read the
// same tensor join. A group is a set of nodes over one shape, its index space. No path leaves a group and enters it
// again, so the group can run as one step. Values that other nodes need are further outputs of the group: nothing is
// computed twice. Smaller operands are inputs of the body with their own shape. A group of one-element tensors joins a
// larger group if nothing else reads it. The bits stay: the kernels of bodies compute what the ops compute one by one.
// Ops with an effect keep their order.
#include <algorithm>
#include <iterator>
#include <unordered_map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/plan/fused.h"
#include "graph/plan/fused_body.h"

namespace pg {
namespace {

// A step of the graph under construction. At first there is one per node.
struct Group {
  std::vector<int32_t> members;  // ascending
  std::vector<int32_t> sources;  // nodes outside that the members read (once each); an effect before an effect
  Dims space;
  bool fusable = false;
  std::vector<int32_t> reductions;  // the members that are reductions, ascending
  int64_t row = 0;                  // number of elements per total of the reductions; 0 without
  bool shares = true;               // whether all of them may be with others
  std::vector<int32_t> joins;       // the members that are joins, ascending
  bool lone() const { return members.size() == reductions.size() + joins.size(); }  // no pointwise op
};

bool insert_sorted(std::vector<int32_t>& list, int32_t value) {
  const auto at = std::lower_bound(list.begin(), list.end(), value);
  if (at != list.end() && *at == value) return false;
  list.insert(at, value);
  return true;
}

std::vector<int32_t> joined(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  std::vector<int32_t> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

bool contains(const std::vector<int32_t>& list, int32_t value) {
  return std::binary_search(list.begin(), list.end(), value);
}

class Grouping {
 public:
  explicit Grouping(const Graph& graph) : graph_(graph), readers_(graph.nodes.size()), is_output_(graph.nodes.size()) {
    make_groups();
    for (size_t i = 0; i < graph.nodes.size(); ++i) grow(int32_t(i));
    for (size_t i = 0; i < graph.nodes.size(); ++i) join_readers(int32_t(i));
  }

  int32_t id_of(int32_t node) const { return of_[size_t(node)]; }
  const Group& group(int32_t id) const { return groups_[size_t(id)]; }
  const std::vector<int32_t>& order() const { return order_; }

  // Whether an output of the graph or a node outside its group reads the node.
  bool leaves(int32_t node) const {
    if (is_output_[size_t(node)]) return true;
    for (int32_t reader : readers_[size_t(node)])
      if (of_[size_t(reader)] != of_[size_t(node)]) return true;
    return false;
  }

 private:
  void make_groups() {
    const size_t n = graph_.nodes.size();
    int32_t last_effect = -1;
    groups_.resize(n);
    of_.resize(n);
    needed_.resize(n, 0);
    for (size_t i = 0; i < n; ++i) {
      const Node& node = graph_.nodes[i];
      Group& group = groups_[i];
      of_[i] = int32_t(i);
      order_.push_back(int32_t(i));
      place_.push_back(int32_t(i));
      group.members = {int32_t(i)};
      group.fusable = computes(node) && fusable(node) && on_one_device(node);
      if (group.fusable) group.space = node.types[0].shape;
      for (const Operand& operand : node.inputs) {
        if (!operand.is_node()) continue;
        if (insert_sorted(group.sources, operand.node)) readers_[size_t(operand.node)].push_back(int32_t(i));
      }
      if (!has_effect(node)) continue;
      if (last_effect >= 0) insert_sorted(group.sources, last_effect);
      last_effect = int32_t(i);
    }
    for (const Operand& output : graph_.outputs) is_output_[size_t(output.node)] = true;
  }

  // A view outside a group costs nothing and may remain a view, so it is not fused.
  static bool computes(const Node& node) { return node.kind == NodeKind::kOp && !is_view(node) && !is_control(node); }

  bool on_one_device(const Node& node) const {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](const Operand& operand) {
      return !operand.is_node() || graph_.type(operand).device == node.types[0].device;
    });
  }

  // Joins a node to the groups of its operands if possible.
  void grow(int32_t i) {
    const Node& node = graph_.nodes[size_t(i)];
    Group& own = groups_[size_t(i)];
    if (!own.fusable && fusable_join(graph_, node)) {
      own.fusable = true;
      own.joins = {i};
      own.space = graph_.type(node.inputs[0]).shape;
    } else if (!own.fusable) {
      if (!reduces(node)) return;
      own.fusable = true;
      own.reductions = {i};
      own.space = graph_.type(node.inputs[0]).shape;
      own.row = reduced_row(node, graph_.type(node.inputs[0]));
      own.shares = shares_body(node, graph_.type(node.inputs[0]), own.row);
    }
    for (const Operand& operand : node.inputs)
      if (operand.is_node() && of_[size_t(operand.node)] != of_[size_t(i)])
        try_join(of_[size_t(operand.node)], of_[size_t(i)]);
    const Group& now = groups_[size_t(of_[size_t(i)])];
    if (now.lone() && !now.shares) own.fusable = false;
  }

  // Joins groups over one space that read the same tensor and are close to each other, so that the tensor is read once.
  void join_readers(int32_t i) {
    constexpr int32_t kClose = 24;
    const std::vector<int32_t>& readers = readers_[size_t(i)];
    if (readers.size() < 2 || readers.size() > 64 || graph_.nodes[size_t(i)].types.size() != 1) return;
    const int64_t count = numel(graph_.nodes[size_t(i)].types[0].shape);
    std::vector<int32_t> before;  // earlier readers over this space
    for (int32_t reader : readers) {
      const Group& group = groups_[size_t(of_[size_t(reader)])];
      if (!group.fusable || numel(group.space) != count) continue;
      for (size_t k = before.size(); k-- > 0;) {
        int32_t a = of_[size_t(before[k])], b = of_[size_t(reader)];
        if (a == b) break;
        if (place_[size_t(a)] > place_[size_t(b)]) std::swap(a, b);
        if (place_[size_t(b)] - place_[size_t(a)] > kClose) continue;
        if (groups_[size_t(a)].space == groups_[size_t(b)].space) try_join(a, b);
      }
      before.push_back(reader);
    }
  }

  bool reduces(const Node& node) const {
    if (node.kind != NodeKind::kOp || node.types.size() != 1 || node.inputs.empty() || !node.inputs[0].is_node())
      return false;
    const Type& reduced = graph_.type(node.inputs[0]);
    // A sum_to that sums nothing keeps -0. A sum starts from 0.
    if (numel(reduced.shape) == numel(node.types[0].shape) || numel(reduced.shape) == 0) return false;
    return fusable_reduction(node, reduced);
  }

  bool one_space(const Group& a, const Group& b) const {
    if (a.space == b.space) return true;
    const bool small_a = numel(a.space) == 1, small_b = numel(b.space) == 1;
    if (small_a && small_b) return a.reductions.empty() && b.reductions.empty();
    return (small_a && private_to(a, b)) || (small_b && private_to(b, a));
  }

  // Whether only members of `reader` and of the group itself read the group.
  bool private_to(const Group& group, const Group& reader) const {
    for (int32_t member : group.members) {
      if (is_output_[size_t(member)]) return false;
      for (int32_t user : readers_[size_t(member)])
        if (!contains(reader.members, user) && !contains(group.members, user)) return false;
    }
    return true;
  }

  // Whether a member of `reader` reads a reduction or join of the group.
  static bool reads_end(const Group& reader, const Group& group) {
    const auto reads = [&](int32_t end) { return contains(reader.sources, end); };
    return std::any_of(group.reductions.begin(), group.reductions.end(), reads) ||
           std::any_of(group.joins.begin(), group.joins.end(), reads);
  }

  bool within_limits(const Group& merged) const {
    if (merged.reductions.size() > (merged.shares ? kMaxReductions : 1)) return false;
    const size_t more = numel(merged.space) == 1 ? 8 : 1;
    if (merged.members.size() > kMaxFusedSteps * more || merged.sources.size() > kMaxFusedInputs * more) return false;
    size_t outputs = 0;
    for (int32_t join : merged.joins) outputs += graph_.nodes[size_t(join)].inputs.size();
    if (merged.members.size() + outputs <= kMaxFusedOutputs * more) return true;
    for (int32_t member : merged.members) {
      bool outside = is_output_[size_t(member)];
      for (int32_t reader : readers_[size_t(member)]) outside |= !contains(merged.members, reader);
      outputs += outside;
    }
    return outputs <= kMaxFusedOutputs * more;
  }

  void try_join(int32_t a, int32_t b) {
    const Group &x = groups_[size_t(a)], &y = groups_[size_t(b)];
    if (!x.fusable || !y.fusable || (x.lone() && y.lone())) return;
    if (x.row != 0 && y.row != 0 && x.row != y.row) return;
    if (reads_end(x, y) || reads_end(y, x) || !one_space(x, y)) return;
    Group merged;
    merged.members = joined(x.members, y.members);
    for (int32_t source : joined(x.sources, y.sources))
      if (!contains(merged.members, source)) merged.sources.push_back(source);
    merged.space =
        numel(x.space) > numel(y.space) || (numel(x.space) == numel(y.space) && x.space.size() >= y.space.size())
            ? x.space
            : y.space;
    merged.fusable = true;
    merged.reductions = joined(x.reductions, y.reductions);
    merged.joins = joined(x.joins, y.joins);
    merged.row = std::max(x.row, y.row);
    merged.shares = x.shares && y.shares;
    if (!within_limits(merged) || !make_neighbours(a, b)) return;
    for (int32_t member : x.members) of_[size_t(member)] = b;
    groups_[size_t(a)] = {};
    groups_[size_t(b)] = std::move(merged);
  }

  // The groups are ordered so that each comes after the groups it reads. For b, which reads a, moves the groups between
  // a and b: those that b needs go before a, the others after b. Then a and b can become one. Returns false if b needs
  // a group that reads a, or if the distance is too long.
  bool make_neighbours(int32_t a, int32_t b) {
    constexpr int32_t kMaxDistance = 512;  // bounds the work, and how long a value is kept before it is read
    const int32_t from = place_[size_t(a)], to = place_[size_t(b)];
    if (to - from > kMaxDistance) return false;
    ++walk_;
    std::vector<int32_t> open = {b};
    while (!open.empty()) {
      const int32_t id = open.back();
      open.pop_back();
      for (int32_t source : groups_[size_t(id)].sources) {
        const int32_t before = of_[size_t(source)];
        if (before == a && id != b) return false;
        if (place_[size_t(before)] <= from || needed_[size_t(before)] == walk_) continue;
        needed_[size_t(before)] = walk_;
        open.push_back(before);
      }
    }
    std::vector<int32_t> first, rest;
    for (int32_t at = from + 1; at < to; ++at)
      if (const int32_t id = order_[size_t(at)]; id >= 0) (needed_[size_t(id)] == walk_ ? first : rest).push_back(id);
    int32_t at = from;
    const auto put = [&](int32_t id) {
      order_[size_t(at)] = id;
      if (id >= 0) place_[size_t(id)] = at;
      ++at;
    };
    for (int32_t id : first) put(id);
    put(b);
    for (int32_t id : rest) put(id);
    while (at <= to) put(-1);
    return true;
  }

  const Graph& graph_;
  std::vector<Group> groups_;  // by id; empty after the group has joined another
  std::vector<int32_t> of_;    // by node: its group
  std::vector<std::vector<int32_t>> readers_;
  std::vector<char> is_output_;
  std::vector<int32_t> order_, place_;  // groups in the order of steps (-1: none); by group: its position
  std::vector<int32_t> needed_;         // by group: the last walk that found it needed
  int32_t walk_ = 0;
};

// Writes the groups of a graph as nodes of another graph.
class Writer {
 public:
  Writer(Rewrite& rewrite, const Grouping& grouping) : rewrite_(rewrite), grouping_(grouping), done_(rewrite.size()) {}

  void write_all() {
    for (size_t i = 0; i < rewrite_.size(); ++i)
      if (rewrite_.old(i).kind == NodeKind::kInput) write(grouping_.id_of(int32_t(i)));
    for (int32_t id : grouping_.order())
      if (id >= 0) write(id);
  }

 private:
  void write(int32_t id) {
    if (done_[size_t(id)]) return;
    done_[size_t(id)] = true;
    const Group& group = grouping_.group(id);
    if (group.members.size() > 1) return write_fused(group);
    rewrite_.copy(size_t(group.members[0]));
  }

  void write_fused(const Group& group) {
    refusing_ = false;
    Node fused;
    fused.kind = NodeKind::kFused;
    Graph body;
    std::unordered_map<int64_t, Operand> inside;  // by operand in the new graph
    std::unordered_map<int32_t, int32_t> places;  // of the members, by old index
    for (int32_t member : group.members) {
      Node node = rewrite_.old(size_t(member));
      for (Operand& operand : node.inputs) {
        if (!operand.is_node()) continue;
        if (const auto at = places.find(operand.node); at != places.end())
          operand.node = at->second;
        else
          operand = input_for(rewrite_.translated(operand), fused, body, inside);
      }
      keep_line(node, body, fused);
      places[member] = int32_t(body.nodes.size());
      body.nodes.push_back(std::move(node));
    }
    std::vector<int32_t> leaving;
    for (int32_t member : group.members) {
      if (!grouping_.leaves(member)) continue;
      leaving.push_back(member);
      body.outputs.push_back(Operand::of(size_t(places[member])));
      fused.types.push_back(rewrite_.old(size_t(member)).types[0]);
    }
    fused.body = std::make_shared<const Graph>(std::move(body));
    const size_t at = rewrite_.append(std::move(fused));
    for (size_t k = 0; k < leaving.size(); ++k) rewrite_.replace(size_t(leaving[k]), 0, Operand::of(at, k));
  }

  Operand input_for(const Operand& outer, Node& fused, Graph& body, std::unordered_map<int64_t, Operand>& inside) {
    const int64_t key = int64_t(outer.node) << 32 | outer.output;
    if (const auto at = inside.find(key); at != inside.end()) return at->second;
    Node input;
    input.kind = NodeKind::kInput;
    input.types.push_back(rewrite_.graph().type(outer));
    fused.inputs.push_back(outer);
    body.inputs.push_back(int32_t(body.nodes.size()));
    body.nodes.push_back(std::move(input));
    return inside[key] = Operand::of(body.nodes.size() - 1);
  }

  // Errors name the line of the fused node: the line of a member that can raise an error, else of the last member.
  void keep_line(Node& node, Graph& body, Node& fused) {
    const int32_t line = node.line;
    if (line < 0) return;
    const bool refuses = node.has(kRefuses) && !is_float(node.types[0].dtype);
    if (!refusing_ || refuses) fused.line = line;
    refusing_ |= refuses;
    body.lines.push_back(rewrite_.graph().lines[size_t(line)]);
    node.line = int32_t(body.lines.size()) - 1;
  }

  Rewrite& rewrite_;
  const Grouping& grouping_;
  std::vector<char> done_;
  bool refusing_ = false;
};

}  // namespace

Graph fuse(Graph graph) {
  const Graph source = graph;
  const Grouping grouping(source);
  Rewrite rewrite(std::move(graph));
  Writer(rewrite, grouping).write_all();
  return rewrite.finish();
}

}  // namespace pg
