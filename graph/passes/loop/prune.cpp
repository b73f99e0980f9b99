// Pruning of branches and loops: removes the outputs that nothing reads, and what only they need, in the body and among
// the operands.
//
// In loops the pass removes stacked outputs and carries without a reader (a carry that feeds only itself has none), and
// slices and captures that the body does not use or has twice. A carry that no step changes becomes a capture, and its
// final value is the operand. A stacked output of unchanged rows becomes the slice itself. Slices and captures with one
// number everywhere are made inside the body. The bits and the number of steps stay. A loop that may reject its count
// or may never end is kept.
#include <algorithm>
#include <map>
#include <utility>

#include "graph/passes/loop/loop.h"
#include "graph/passes/passes.h"

namespace pg {
namespace {

using Flags = std::vector<char>;

// Which outputs of each node are read.
class Liveness {
 public:
  explicit Liveness(const Graph& graph) : live_(graph.nodes.size()), needed_(graph.nodes.size()) {
    for (size_t i = 0; i < graph.nodes.size(); ++i) live_[i].resize(graph.nodes[i].types.size());
    for (const Operand& output : graph.outputs) mark(output);
    for (const TypeGuard& guard : graph.guards) mark(guard.of);
    for (size_t i = graph.nodes.size(); i-- > 0;) {
      const Node& node = graph.nodes[i];
      needed_[i] = node.kind == NodeKind::kInput || has_effect(node) ||
                   std::find(live_[i].begin(), live_[i].end(), 1) != live_[i].end();
      if (!needed_[i]) continue;
      if (node.is<"loop">())
        mark_loop(node, live_[i]);
      else if (node.is<"cond">())
        mark_cond(node, live_[i]);
      else
        for (const Operand& operand : node.inputs) mark(operand);
    }
  }

  const Flags& outputs(size_t i) const { return live_[i]; }
  // Whether node i is needed. The operands of a node that is not needed may have been removed.
  bool node(size_t i) const { return needed_[i]; }

  // The nodes of a loop's body that at least one step needs.
  static Flags needed_in(const LoopEdit& loop, const Flags& outputs) {
    std::vector<Operand> roots;
    if (loop.form().conditional) roots.push_back(loop.next_flag);
    for (const LoopEdit::Stack& stack : loop.stacks)
      if (any(stack.outputs, outputs)) roots.push_back(stack.row);
    Flags wanted(loop.carries.size());
    for (size_t k = 0; k < wanted.size(); ++k)
      if (any(loop.carries[k].outputs, outputs)) wanted[k] = true, roots.push_back(loop.carries[k].next);
    Flags needed = needed_nodes(loop.body, roots);
    for (bool again = true; again;) {
      again = false;
      for (size_t k = 0; k < wanted.size(); ++k) {
        if (wanted[k] || !needed[size_t(loop.carries[k].input)]) continue;
        wanted[k] = again = true;
        roots.push_back(loop.carries[k].next);
      }
      if (again) needed = needed_nodes(loop.body, roots);
    }
    return needed;
  }

  static bool any(const std::vector<int32_t>& outputs, const Flags& live) {
    return std::any_of(outputs.begin(), outputs.end(), [&](int32_t k) { return live[size_t(k)]; });
  }

 private:
  void mark(const Operand& operand) {
    if (operand.is_node()) live_[size_t(operand.node)][size_t(operand.output)] = true;
  }

  void mark_loop(const Node& node, const Flags& outputs) {
    const LoopEdit loop(node);
    const Flags needed = needed_in(loop, outputs);
    mark(loop.count);
    mark(loop.flag);
    for (const auto* parts : {&loop.slices, &loop.captures})
      for (const LoopEdit::Part& part : *parts)
        if (needed[size_t(part.input)]) mark(part.from);
    for (const LoopEdit::Carry& carry : loop.carries)
      if (needed[size_t(carry.input)] || any(carry.outputs, outputs)) mark(carry.from);
  }

  void mark_cond(const Node& node, const Flags& outputs) {
    mark(node.inputs[0]);
    for (const Graph* body : bodies_of(node)) {
      std::vector<Operand> roots;
      for (size_t k = 0; k < outputs.size(); ++k)
        if (outputs[k]) roots.push_back(body->outputs[k]);
      const Flags needed = needed_nodes(*body, roots);
      for (size_t k = 1; k < node.inputs.size(); ++k)
        if (needed[size_t(body->inputs[k - 1])]) mark(node.inputs[k]);
    }
  }

  std::vector<Flags> live_;
  Flags needed_;
};

// Whether the node is cheaper inside a body than as an operand: a fill, or one number.
bool goes_inside(const Node& node) {
  return filled_with(node) ||
         (node.kind == NodeKind::kConstant && host_reads(node.types[0].device) && numel(node.types[0].shape) == 1);
}

// Replaces an input of a body by a copy of such a node. For a slice the copy is a fill with the shape of the row.
bool take_inside(Graph& body, int32_t input, const Node& source, bool slice) {
  if (!goes_inside(source) || (slice && !filled_with(source))) return false;
  Node node = source;
  node.line = -1;
  if (slice) {
    const Type& row = body.nodes[size_t(input)].types[0];
    node.attrs[size_t(node.op->attr_index("shape"))] = Ints(row.shape.begin(), row.shape.end());
    node.types[0] = row;
  }
  body.nodes[size_t(input)] = std::move(node);
  return true;
}

class Pruner {
 public:
  explicit Pruner(Graph graph) : live_(graph), rewrite_(std::move(graph)) {}

  Graph run() {
    for (size_t i = 0; i < rewrite_.size(); ++i) {
      if (!live_.node(i)) continue;
      Node node = rewrite_.take(i);
      const bool done = node.is<"loop">() ? prune_loop(i, node) : node.is<"cond">() && prune_cond(i, node);
      if (!done) rewrite_.keep(i, rewrite_.append(std::move(node)));
    }
    return rewrite_.finish();
  }

 private:
  const Node& source(const Operand& operand) const { return rewrite_.graph().node(operand); }

  // Loops -----------------------------------------------------------------------------------------------------------

  bool prune_loop(size_t i, const Node& node) {
    LoopEdit loop(node);
    const Flags& outputs = live_.outputs(i);
    changed_ = false;
    drop_unread(loop, outputs);
    keep_unchanged(i, loop, outputs);
    merge_equal(loop);
    pass_through(i, loop);
    bool steps = false;
    if (loop.runs_all() && outputs[0]) {  // the number of steps is known
      rewrite_.replace(i, 0, fill(rewrite_, node.types[0], double(loop.form().limit)));
      changed_ = steps = true;
    }
    if (!changed_) return false;
    const Operand known = rewrite_.translated(Operand::of(i, 0));
    loop.write(rewrite_, i);
    if (steps) rewrite_.replace(i, 0, known);
    return true;
  }

  template <class List, class Test>
  void drop(List& list, const Test& test) {
    changed_ |= std::erase_if(list, test) > 0;
  }

  void drop_unread(LoopEdit& loop, const Flags& outputs) {
    const Flags needed = Liveness::needed_in(loop, outputs);
    drop(loop.stacks, [&](const LoopEdit::Stack& s) { return !Liveness::any(s.outputs, outputs); });
    drop(loop.carries,
         [&](const LoopEdit::Carry& c) { return !needed[size_t(c.input)] && !Liveness::any(c.outputs, outputs); });
    for (auto* parts : {&loop.slices, &loop.captures})
      drop(*parts, [&](const LoopEdit::Part& p) {
        return !needed[size_t(p.input)] || take_inside(loop.body, p.input, source(p.from), parts == &loop.slices);
      });
  }

  // Turns carries that no step changes into captures. A loop that may reject its count or may never end stays needed.
  void keep_unchanged(size_t i, LoopEdit& loop, const Flags& outputs) {
    size_t read = size_t(outputs[0]) + loop.stacks.size();
    for (const LoopEdit::Carry& carry : loop.carries) read += Liveness::any(carry.outputs, outputs);
    drop(loop.carries, [&](const LoopEdit::Carry& carry) {
      if (!(carry.next == Operand::of(size_t(carry.input)))) return false;
      const bool last = Liveness::any(carry.outputs, outputs) && read == 1;
      if (last && !loop.runs_all()) return false;
      read -= Liveness::any(carry.outputs, outputs);
      for (int32_t output : carry.outputs) rewrite_.replace(i, size_t(output), carry.from);
      loop.captures.push_back({carry.from, carry.input});
      return true;
    });
  }

  // Of two equal inputs, the one that comes first in the body is kept.
  void merge_parts(LoopEdit& loop, std::vector<LoopEdit::Part>& parts) {
    for (size_t a = 0; a < parts.size(); ++a)
      for (size_t b = a + 1; b < parts.size();) {
        if (!(parts[a].from == parts[b].from)) {
          ++b;
          continue;
        }
        if (parts[b].input < parts[a].input) std::swap(parts[a].input, parts[b].input);
        loop.redirect(Operand::of(size_t(parts[b].input)), Operand::of(size_t(parts[a].input)));
        parts.erase(parts.begin() + ptrdiff_t(b));
        changed_ = true;
      }
  }

  void merge_equal(LoopEdit& loop) {
    merge_parts(loop, loop.slices);
    merge_parts(loop, loop.captures);
    auto& carries = loop.carries;
    for (size_t a = 0; a < carries.size(); ++a)
      for (size_t b = a + 1; b < carries.size();) {
        if (!(carries[a].from == carries[b].from) || !(carries[a].next == carries[b].next)) {
          ++b;
          continue;
        }
        if (carries[b].input < carries[a].input) std::swap(carries[a].input, carries[b].input);
        carries[a].outputs.insert(carries[a].outputs.end(), carries[b].outputs.begin(), carries[b].outputs.end());
        const Operand gone = Operand::of(size_t(carries[b].input)), stays = Operand::of(size_t(carries[a].input));
        carries.erase(carries.begin() + ptrdiff_t(b));
        loop.redirect(gone, stays);
        changed_ = true;
      }
    auto& stacks = loop.stacks;
    for (size_t a = 0; a < stacks.size(); ++a)
      for (size_t b = a + 1; b < stacks.size();) {
        if (!(stacks[a].row == stacks[b].row)) {
          ++b;
          continue;
        }
        stacks[a].outputs.insert(stacks[a].outputs.end(), stacks[b].outputs.begin(), stacks[b].outputs.end());
        stacks.erase(stacks.begin() + ptrdiff_t(b));
        changed_ = true;
      }
  }

  // Replaces stacks of unchanged rows by the slices they come from.
  void pass_through(size_t i, LoopEdit& loop) {
    if (!loop.runs_all()) return;
    drop(loop.stacks, [&](const LoopEdit::Stack& stack) {
      for (const LoopEdit::Part& slice : loop.slices) {
        if (!(stack.row == Operand::of(size_t(slice.input))) || !(rewrite_.graph().type(slice.from) == stack.type))
          continue;
        for (int32_t output : stack.outputs) rewrite_.replace(i, size_t(output), slice.from);
        return true;
      }
      return false;
    });
  }

  // Branches --------------------------------------------------------------------------------------------------------

  bool prune_cond(size_t i, Node& node) {
    const Flags& outputs = live_.outputs(i);
    Graph bodies[2] = {*body_at(node, 0), *body_at(node, 1)};
    changed_ = false;
    std::vector<size_t> kept;  // numbers of the outputs that stay
    for (size_t k = 0; k < node.types.size(); ++k) {
      if (!outputs[k])
        changed_ = true;
      else if (!same_as_before(i, k, node, bodies))
        kept.push_back(k);
    }
    for (Graph& body : bodies) {
      std::vector<Operand> outs;
      for (size_t k : kept) outs.push_back(body.outputs[k]);
      body.outputs = std::move(outs);
    }
    drop_captures(node, bodies);
    if (!changed_) return false;
    Control control = control_of(node);
    for (size_t b = 0; b < 2; ++b) control.bodies[b] = std::make_shared<const Graph>(without_dead_nodes(bodies[b]));
    const size_t at = rewrite_.append(control_node(rewrite_.graph(), control, node.inputs));
    for (size_t k = 0; k < kept.size(); ++k) rewrite_.replace(i, kept[k], Operand::of(at, k));
    return true;
  }

  // Replaces output k by a capture if both branches return that capture.
  bool same_as_before(size_t i, size_t k, const Node& node, const Graph (&bodies)[2]) {
    for (size_t c = 1; c < node.inputs.size(); ++c) {
      if (!(bodies[0].outputs[k] == Operand::of(size_t(bodies[0].inputs[c - 1]))) ||
          !(bodies[1].outputs[k] == Operand::of(size_t(bodies[1].inputs[c - 1]))))
        continue;
      rewrite_.replace(i, k, node.inputs[c]);
      return changed_ = true;
    }
    return false;
  }

  // Returns the position among `equal` captures of one whose inputs come earlier in both bodies, or 0.
  static size_t twin(const std::vector<size_t>& equal, const std::vector<int32_t> (&kept)[2], const int32_t (&in)[2]) {
    for (size_t c : equal)
      if (kept[0][c - 1] < in[0] && kept[1][c - 1] < in[1]) return c;
    return 0;
  }

  static void redirect(Graph& body, int32_t from, int32_t to) {
    for (Node& node : body.nodes)
      for (Operand& operand : node.inputs)
        if (operand.node == from) operand.node = to;
    for (Operand& output : body.outputs)
      if (output.node == from) output.node = to;
    body.nodes[size_t(from)].kind = NodeKind::kConstant;  // dead code, which is removed later
  }

  void drop_captures(Node& node, Graph (&bodies)[2]) {
    const Flags needed[2] = {needed_nodes(bodies[0], bodies[0].outputs), needed_nodes(bodies[1], bodies[1].outputs)};
    Operands inputs{node.inputs[0]};
    std::vector<int32_t> kept[2];
    std::map<std::pair<int32_t, int32_t>, std::vector<size_t>> places;  // by operand: its captures in `inputs`
    for (size_t c = 1; c < node.inputs.size(); ++c) {
      const int32_t in[2] = {bodies[0].inputs[c - 1], bodies[1].inputs[c - 1]};
      const bool read = needed[0][size_t(in[0])] || needed[1][size_t(in[1])];
      std::vector<size_t>& equal = places[{node.inputs[c].node, node.inputs[c].output}];
      const size_t same = twin(equal, kept, in);
      if (read && same > 0) {
        for (size_t b = 0; b < 2; ++b) redirect(bodies[b], in[b], kept[b][same - 1]);
        changed_ = true;
        continue;
      }
      if (read && !goes_inside(source(node.inputs[c]))) {
        equal.push_back(inputs.size());
        inputs.push_back(node.inputs[c]);
        for (size_t b = 0; b < 2; ++b) kept[b].push_back(in[b]);
        continue;
      }
      changed_ = true;
      for (size_t b = 0; b < 2; ++b)
        if (!read ||
            !take_inside(bodies[b], in[b], source(node.inputs[c]), false))  // an unread capture may have no source
          bodies[b].nodes[size_t(in[b])].kind = NodeKind::kConstant;
    }
    node.inputs = inputs;
    for (size_t b = 0; b < 2; ++b) bodies[b].inputs = kept[b];
  }

  Liveness live_;
  Rewrite rewrite_;
  bool changed_ = false;
};

}  // namespace

Graph prune(Graph graph) { return Pruner(std::move(graph)).run(); }

}  // namespace pg
