#include "tensor/cpu/pointwise/native_registers.h"

#include <algorithm>

namespace pg::cpu {
namespace {

bool takes_memory(const NativeNode& n) {
  return (n.op >= NativeOp::kAdd && n.op <= NativeOp::kMin) || n.op == NativeOp::kCompare;
}

class Assignment {
 public:
  Assignment(const NativeGraph& graph, int count, int group, bool pinned)
      : graph_(graph), last_use_(graph.nodes.size(), -1) {
    const bool accumulators = graph.result >= 0 || graph.nodes[0].op == NativeOp::kAccumulator;
    first_ = accumulators ? kBlockVectors : 0;
    count_ = count;
    out_.group = group;
    out_.pinned = pinned;
    out_.first.assign(graph.nodes.size(), -1);
    out_.folds.assign(graph.nodes.size(), false);
  }

  std::optional<NativeRegisters> make() {
    find_uses();
    find_folds();
    if (out_.pinned) pin();
    if (first_ > count_) return std::nullopt;
    for (int r = first_; r + out_.group <= count_; r += out_.group) free_.push_back(r);
    std::reverse(free_.begin(), free_.end());
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!place(n)) return std::nullopt;
    return std::move(out_);
  }

 private:
  const NativeNode& node(size_t n) const { return graph_.nodes[n]; }

  // From the last node back, so that values that are used by unused ones do not count.
  void find_uses() {
    const int32_t end = int32_t(graph_.nodes.size());
    if (graph_.result >= 0) last_use_[size_t(graph_.result)] = end;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (!node(n).writes() && last_use_[n] < 0) continue;
      for (const int32_t o : node(n).operands)
        if (o >= 0) last_use_[size_t(o)] = std::max(last_use_[size_t(o)], int32_t(n));
    }
  }

  void find_folds() {
    for (size_t n = 0; n + 1 < graph_.nodes.size(); ++n) {
      const NativeNode& next = node(n + 1);
      const int32_t self = int32_t(n);
      out_.folds[n] = node(n).op == NativeOp::kLoad && node(n).kind == NativeKind::kFloat && takes_memory(next) &&
                      next.operands[1] == self && next.operands[0] != self && last_use_[n] == self + 1;
    }
  }

  void pin() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (node(n).uniform() && last_use_[n] >= 0) out_.first[n] = first_++;
  }

  bool place(size_t n) {
    if (node(n).op == NativeOp::kAccumulator) return out_.first[n] = 0, true;  // and moves with the group
    release_operands(n, false);
    const bool needs = !node(n).writes() && last_use_[n] >= 0 && !out_.folds[n] && out_.first[n] < 0;
    if (needs && free_.empty()) return false;
    if (needs) {
      out_.first[n] = free_.back();
      free_.pop_back();
    }
    release_operands(n, true);
    return true;
  }

  // Node n may be in the registers of an operand, vector by vector, but not of one that all its vectors read.
  void release_operands(size_t n, bool uniform) {
    for (const int32_t o : node(n).operands)
      if (o >= 0 && last_use_[size_t(o)] == int32_t(n) && node(size_t(o)).uniform() == uniform) release(size_t(o));
  }

  void release(size_t n) {
    const bool stays = node(n).op == NativeOp::kAccumulator || (out_.pinned && node(n).uniform()) || out_.first[n] < 0;
    if (!stays && std::find(free_.begin(), free_.end(), out_.first[n]) == free_.end()) free_.push_back(out_.first[n]);
  }

  const NativeGraph& graph_;
  NativeRegisters out_;
  std::vector<int32_t> last_use_;  // -1: the node is not needed
  std::vector<int> free_;
  int first_, count_;
};

}  // namespace

std::optional<NativeRegisters> assign_registers(const NativeGraph& graph, int count) {
  struct Way {
    int group;
    bool pinned;
  };
  for (const Way w : {Way{8, true}, Way{4, true}, Way{2, true}, Way{2, false}, Way{1, true}, Way{1, false}})
    if (auto found = Assignment(graph, count, w.group, w.pinned).make()) return found;
  return std::nullopt;
}

}  // namespace pg::cpu
