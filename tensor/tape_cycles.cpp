// Finds reference cycles of the tape by trial deletion (Bacon and Rajan 2001): nodes that are referenced only from the
// part of the tape that they reach themselves are garbage.
#include "tensor/tape.h"

namespace pg {

void TapeReach::add(TapeNode* node) {
  std::vector<const TapeNode*> open;
  auto meet = [&](const TapeNode* n) {
    if (!index_.emplace(n, found_.size()).second) return;
    found_.push_back({n});
    open.push_back(n);
  };
  meet(node);
  while (!open.empty()) {
    const TapeNode* n = open.back();
    open.pop_back();
    each_link(*n, meet);
  }
}

void TapeReach::find_outside() {
  for (size_t i = 0; i < found_.size(); ++i) each_link(*found_[i].node, [&](const TapeNode* n) { count(n); });
  std::vector<const TapeNode*> open;
  auto mark = [&](const TapeNode* n) {
    if (!std::exchange(at(n).outside, true)) open.push_back(n);
  };
  for (size_t i = 0; i < found_.size(); ++i) {
    const TapeNode& node = *found_[i].node;
    if (node.count() > found_[i].links) mark(&node);
    if (node.leaf && node.grad && !node.grad->unique() && node.grad->value.node()) mark(node.grad->value.node());
  }
  while (!open.empty()) {
    const TapeNode* n = open.back();
    open.pop_back();
    each_link(*n, mark);
  }
}

namespace {

// Returns the suspects whose gradient still has a history. Removes the others from the list of suspects.
std::vector<TapeNode*> real_suspects(Context& ctx) {
  std::vector<TapeNode*> leaves;
  for (RingLink* link = ctx.suspects.next; link != &ctx.suspects;) {
    auto* leaf = static_cast<TapeNode*>(link);
    link = link->next;
    if (leaf->grad->value.has_node())
      leaves.push_back(leaf);
    else
      leaf->leave();
  }
  return leaves;
}

// The histories are freed at the end, when the tape is no longer being read.
void drop(const std::vector<TapeNode*>& leaves) {
  Values dropped;
  dropped.reserve(leaves.size());
  for (TapeNode* leaf : leaves) {
    Value& grad = leaf->grad->value;
    dropped.push_back(std::exchange(grad, grad.detached()));
    leaf->leave();
  }
}

}  // namespace

void break_cycles(Context& ctx) {
  ctx.new_suspects = ctx.suspect_bytes = 0;
  const std::vector<TapeNode*> leaves = real_suspects(ctx);
  if (leaves.empty()) return;
  TapeReach reach;
  for (TapeNode* leaf : leaves) reach.add(leaf);
  reach.find_outside();
  std::vector<TapeNode*> garbage;
  for (TapeNode* leaf : leaves)
    if (!reach.outside(leaf)) garbage.push_back(leaf);
  drop(garbage);
}

void drop_histories(Context& ctx) { drop(real_suspects(ctx)); }

}  // namespace pg
