// Hoisting: values that do not depend on the carries of a loop are computed before it.
//
// A value that depends only on captures is loop-invariant. It is computed once and captured. This applies only to ops
// that compute, not to views, and in loops that may run no step only to ops that cannot fail.
//
// A value that depends only on slices and captures is computed for all rows at once, and the result is a new slice.
// This applies to products (the input projection of a recurrent cell becomes one product over all steps), to picks from
// tables, to the operands of these, to ops that are their only readers, and to values that the loop stacks. It
// requires that every row is a step, that all rows take at most 512 MiB, and that the loop does not rematerialize
// (`recompute`).
//
// Products of all rows may differ in the last bits (see lift.cpp). Everything else gives the same bits. An error is
// raised before the loop, with its line.
#include <algorithm>

#include "graph/passes/loop/loop.h"
#include "graph/passes/passes.h"

namespace pg {
namespace {

bool is_seed(const Node& node) { return is_product(node) || node.has(kPick); }

class Hoist {
 public:
  Hoist(Rewrite& rewrite, LoopEdit& loop)
      : rewrite_(rewrite), loop_(loop), body_(loop.body), lifter_(body_, loop.form().limit) {}

  bool run() {
    find();
    choose();
    return move();
  }

 private:
  using Kind = Lifter::Kind;

  // Finds the values of the body that have a counterpart outside.
  void find() {
    const bool rows = loop_.surely_runs() && !loop_.form().recompute;
    const auto put = [&](const std::vector<LoopEdit::Part>& parts, Kind kind) {
      for (const LoopEdit::Part& part : parts) {
        lifter_.put(Operand::of(size_t(part.input)), kind, int32_t(sources_.size()));
        sources_.push_back(part.from);
      }
    };
    put(loop_.captures, Kind::kSame);
    if (rows) put(loop_.slices, Kind::kRows);
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      const Node& node = body_.nodes[i];
      if (node.kind == NodeKind::kConstant) lifter_.lift(i);
      if (node.kind != NodeKind::kOp || node.types.empty() ||
          (!loop_.surely_runs() && !cannot_fail(*node.op, node.types[0].dtype)))
        continue;
      if (!rows || affordable(node.types[0], loop_.form().limit)) lifter_.lift(i);
    }
  }

  Kind kind(size_t i) const { return lifter_.kind(Operand::of(i)); }

  bool computes(size_t i) const {
    const Node& node = body_.nodes[i];
    return node.kind == NodeKind::kOp && !is_view(node) && !filled_with(node);
  }

  void choose() {
    chosen_.resize(body_.nodes.size());
    const std::vector<int32_t> uses = uses_of();
    for (size_t i = 0; i < body_.nodes.size(); ++i) {
      if (kind(i) == Kind::kSame) chosen_[i] = computes(i);
      if (kind(i) == Kind::kRows) chosen_[i] = is_seed(body_.nodes[i]) || follows(i, uses);
    }
    for (const LoopEdit::Stack& stack : loop_.stacks)
      if (stack.row.output == 0 && body_.node(stack.row).kind == NodeKind::kOp &&
          kind(size_t(stack.row.node)) == Kind::kRows)
        chosen_[size_t(stack.row.node)] = true;
    // Their operands are computed outside as well.
    std::vector<char> asked = chosen_;
    for (size_t i = body_.nodes.size(); i-- > 0;) {
      if (!asked[i] || body_.nodes[i].kind != NodeKind::kOp) continue;
      chosen_[i] = chosen_[i] || computes(i);
      for (const Operand& operand : body_.nodes[i].inputs)
        if (operand.is_node()) asked[size_t(operand.node)] = true;
    }
  }

  std::vector<int32_t> uses_of() const {
    std::vector<int32_t> uses(body_.nodes.size());
    for (const Node& node : body_.nodes)
      for (const Operand& operand : node.inputs)
        if (operand.is_node()) ++uses[size_t(operand.node)];
    for (const Operand& operand : loop_.wanted()) ++uses[size_t(operand.node)];
    return uses;
  }

  // Whether the node is the only reader of a chosen node and returns as many elements.
  bool follows(size_t i, const std::vector<int32_t>& uses) const {
    const Node& node = body_.nodes[i];
    if (!computes(i) && !node.is<"reshape_to">()) return false;
    for (const Operand& operand : node.inputs)
      if (operand.is_node() && chosen_[size_t(operand.node)] && kind(size_t(operand.node)) == Kind::kRows &&
          uses[size_t(operand.node)] == 1 && numel(body_.type(operand).shape) == numel(node.types[0].shape))
        return true;
    return false;
  }

  bool move() {
    // Marks the chosen nodes that the remaining body reads.
    std::vector<char> needed(body_.nodes.size());
    for (const Operand& operand : loop_.wanted()) needed[size_t(operand.node)] = true;
    bool any = false;
    for (size_t i = body_.nodes.size(); i-- > 0;) {
      if (has_effect(body_.nodes[i])) needed[i] = true;
      if (!needed[i]) continue;
      any |= chosen_[i];
      if (!chosen_[i])
        for (const Operand& operand : body_.nodes[i].inputs)
          if (operand.is_node()) needed[size_t(operand.node)] = true;
    }
    if (!any) return false;
    std::vector<std::pair<int32_t, Operand>> moved;
    for (size_t i = 0; i < body_.nodes.size(); ++i)
      if (needed[i] && chosen_[i])
        moved.emplace_back(int32_t(i), lifter_.copy(lifter_.at(Operand::of(i)), rewrite_,
                                                    [&](int32_t k) { return sources_[size_t(k)]; }));
    for (const auto& [node, from] : moved) {
      if (kind(size_t(node)) == Kind::kRows)
        loop_.make_slice(node, from);
      else
        loop_.make_capture(node, from);
    }
    return true;
  }

  Rewrite& rewrite_;
  LoopEdit& loop_;
  const Graph& body_;
  Lifter lifter_;
  std::vector<Operand> sources_;
  std::vector<char> chosen_;
};

}  // namespace

Graph hoist(Graph graph) {
  return rewrite_each(std::move(graph), [](Rewrite& rewrite, size_t i, const Node& node) {
    if (!node.is<"loop">()) return false;
    LoopEdit loop(node);
    const bool found = Hoist(rewrite, loop).run();
    if (found) loop.write(rewrite, i);
    return found;
  });
}

}  // namespace pg
