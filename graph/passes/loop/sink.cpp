// Sinking: products that only stacked outputs of a loop need are computed after the loop, over the rows of all steps at
// once, with the ops that follow them. Examples are the gradient of the slices of a recurrent cell and the projection
// of its outputs. The loop returns the rows of their operands instead.
//
// This requires that every row is a step and that one side of the product is loop-invariant. Products of all rows may
// differ in the last bits (see lift.cpp). An error is raised after the loop.
#include <algorithm>

#include "graph/passes/evaluate.h"
#include "graph/passes/loop/loop.h"
#include "graph/passes/passes.h"

namespace pg {
namespace {

class Sink {
 public:
  Sink(const Node& node, const std::vector<char>& banned) : loop(node), after(loop), banned_(banned) {}
  LoopEdit loop;
  AfterLoop after;
  size_t failed = 0;  // the node that cannot be computed over all rows

  enum class Result { kNothing, kDone, kFailed };
  Result run() {
    choose();
    if (std::find(chosen_.begin(), chosen_.end(), 1) == chosen_.end()) return Result::kNothing;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      if (!chosen_[i]) continue;
      for (const Operand& operand : loop.body.nodes[i].inputs)
        if (operand.is_node() && after.lifter.kind(operand) == Lifter::Kind::kNone) after.rows(operand);
      if (after.lifter.lift(i)) continue;
      failed = i;
      return Result::kFailed;
    }
    std::erase_if(loop.stacks, [&](const LoopEdit::Stack& stack) {
      const bool moves = chosen_[size_t(stack.row.node)];
      if (moves) moved_.push_back(stack);
      return moves;
    });
    return Result::kDone;
  }

  void write(Rewrite& rewrite, size_t i) {
    const size_t at = loop.write(rewrite, i);
    for (const LoopEdit::Stack& stack : moved_) {
      const Operand whole = after.copy(after.lifter.at(stack.row), rewrite, at);
      for (int32_t output : stack.outputs) rewrite.replace(i, size_t(output), whole);
    }
  }

 private:
  // Chooses products that only stacked outputs need, and the nodes that follow them.
  void choose() {
    const std::vector<Node>& nodes = loop.body.nodes;
    std::vector<int32_t> stays(nodes.size());  // by node: number of readers that stay in the loop
    chosen_.resize(nodes.size());
    if (loop.form().conditional) ++stays[size_t(loop.next_flag.node)];
    for (const LoopEdit::Carry& carry : loop.carries) ++stays[size_t(carry.next.node)];
    std::vector<char> given(nodes.size());
    for (const LoopEdit::Stack& stack : loop.stacks) given[size_t(stack.row.node)] = true;
    for (size_t i = nodes.size(); i-- > 0;) {
      const Node& node = nodes[i];
      chosen_[i] = given[i] && stays[i] == 0 && can_move(i);
      for (const Operand& operand : node.inputs) {
        if (!operand.is_node()) continue;
        if (chosen_[i])
          given[size_t(operand.node)] = true;
        else
          ++stays[size_t(operand.node)];
      }
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto moves = [&](const Operand& o) { return o.is_node() && chosen_[size_t(o.node)]; };
      chosen_[i] =
          chosen_[i] && (product_of_rows(i) || std::any_of(nodes[i].inputs.begin(), nodes[i].inputs.end(), moves));
    }
  }

  bool can_move(size_t i) const {
    const Node& node = loop.body.nodes[i];
    return !banned_[i] && is_pure(node) && node.types.size() == 1 &&
           after.lifter.kind(Operand::of(i)) == Lifter::Kind::kNone;
  }

  bool product_of_rows(size_t i) const {
    const Node& node = loop.body.nodes[i];
    if (!is_product(node) || !node.inputs[0].is_node() || !node.inputs[1].is_node()) return false;
    for (const Operand& operand : node.inputs) {
      if (!operand.is_node() || after.is_same(operand) || after.has_rows(operand)) continue;
      if (!affordable(loop.body.type(operand), loop.form().limit)) return false;
    }
    return after.is_same(node.inputs[0]) != after.is_same(node.inputs[1]);
  }

  const std::vector<char>& banned_;
  std::vector<char> chosen_;
  std::vector<LoopEdit::Stack> moved_;
};

bool sink_loop(Rewrite& rewrite, size_t i, const Node& node) {
  std::vector<char> banned(body_at(node, 0)->nodes.size());
  for (;;) {
    Sink sink(node, banned);
    if (!sink.loop.surely_runs()) return false;
    const Sink::Result result = sink.run();
    if (result == Sink::Result::kNothing) return false;
    if (result == Sink::Result::kDone) {
      sink.write(rewrite, i);
      return true;
    }
    banned[sink.failed] = true;
  }
}

}  // namespace

Graph sink(Graph graph) {
  return rewrite_each(std::move(graph), [](Rewrite& rewrite, size_t i, const Node& node) {
    return node.is<"loop">() && sink_loop(rewrite, i, node);
  });
}

}  // namespace pg
