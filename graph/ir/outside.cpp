#include "graph/ir/outside.h"

#include <set>
#include <tuple>
#include <vector>

namespace pg {
namespace {

class OutsideWalk {
 public:
  explicit OutsideWalk(const TraceExtent& trace) : trace_(trace) {}

  bool leads_to(std::span<const Value> heads, std::span<const Value> wanted) {
    for (const Value& v : wanted) {
      wanted_.insert(v.node());
      if (const Value* outside = trace_.outside(v.node())) wanted_.insert(outside->node());
    }
    wanted_.erase(nullptr);
    for (const Value& v : heads) meet(v, false);
    while (!open_.empty() && !found_) {
      const auto [node, output, outside] = open_.back();
      open_.pop_back();
      const bool before = outside || node->sequence < trace_.start;
      if (node->behind)
        for (int32_t k : (*node->behind)[output]) meet(node->inputs[size_t(k)], before);
      else
        for (const Value& input : node->inputs) meet(input, before);
    }
    return found_;
  }

 private:
  using Place = std::tuple<const TapeNode*, uint32_t, bool>;  // a node, an output, whether the path has left the trace

  void meet(const Value& v, bool outside) {
    const TapeNode* node = v.node();
    if (!node) return;
    found_ |= outside && wanted_.count(node);
    if (const Value* value = trace_.outside(node)) return add(*value, true);
    if (!node->leaf) add(v, outside);
  }

  void add(const Value& v, bool outside) {
    const TapeNode* node = v.node();
    if (!node || node->leaf || node->sequence < trace_.end) return;
    const Place place{node, node->behind ? v.node_output() : 0, outside};
    if (seen_.insert(place).second) open_.push_back(place);
  }

  const TraceExtent& trace_;
  std::set<const TapeNode*> wanted_;
  std::set<Place> seen_;
  std::vector<Place> open_;
  bool found_ = false;
};

}  // namespace

bool leads_outside(std::span<const Value> heads, std::span<const Value> wanted, const TraceExtent& trace) {
  return OutsideWalk(trace).leads_to(heads, wanted);
}

}  // namespace pg
