// Rematerialization: a large value that is read again much later is computed again there instead of kept, if a few
// cheap ops make it from values that stay in memory anyway. Such values are the residuals of backward: activations
// after a batch normalization, whose gradient needs the tensor before it, and sums with a tensor that other nodes keep.
//
// Only values that live that long in any case are used. The bits stay: batch_norm_apply computes what batch_norm_train
// computes.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/recompute.h"

namespace pg {
namespace {

constexpr int32_t kFar = 16;  // nodes between a use and the next use

class Recompute {
 public:
  explicit Recompute(Graph graph) : source_(std::move(graph)), rewrite_(source_), plans_(source_.nodes.size()) {
    for (size_t i = 0; i < source_.nodes.size(); ++i)
      for (const Operand& operand : source_.nodes[i].inputs)
        if (operand.is_node() && operand.output == 0) plans_[size_t(operand.node)].readers.push_back(int32_t(i));
    for (const Operand& output : source_.outputs)
      if (output.output == 0) plans_[size_t(output.node)].returned = true;
    for (size_t i = 0; i < source_.nodes.size(); ++i) choose(int32_t(i));
  }

  Graph run() {
    for (size_t i = 0; i < source_.nodes.size(); ++i) {
      Node node = rewrite_.take(i);
      for (size_t k = 0; k < node.inputs.size(); ++k) {
        const Operand& operand = source_.nodes[i].inputs[k];
        if (is_again(operand, int32_t(i))) node.inputs[k] = made_again(operand);
      }
      rewrite_.keep(i, rewrite_.append(std::move(node)));
    }
    return rewrite_.finish();
  }

 private:
  // What happens to the first output of a node.
  struct Plan {
    std::vector<int32_t> readers;  // ascending
    bool returned = false;
    int32_t from = -1;  // readers from this one on read the recomputed value; -1: the value is kept
    Operand made;       // the recomputed value in the new graph
  };
  const Plan& plan(const Operand& value) const { return plans_[size_t(value.node)]; }

  static bool is_cheap(const Node& node) {
    return node.has(kCheap) && fuses(node.types[0].device) && is_float(node.types[0].dtype);
  }

  void choose(int32_t i) {
    Plan& plan = plans_[size_t(i)];
    const Node& node = source_.nodes[size_t(i)];
    if (plan.returned || !is_cheap(node) || bytes_of(node.types[0]) < kWorthRecomputing) return;
    for (size_t k = 1; k < plan.readers.size(); ++k) {
      const int32_t reader = plan.readers[k];
      if (reader - plan.readers[k - 1] <= kFar || !can_make(Operand::of(size_t(i)), reader, kRecomputeDepth)) continue;
      plan.from = reader;
      return claim(Operand::of(size_t(i)), reader);
    }
  }

  // Whether the value is in memory when node `at` runs, without any help of this pass.
  bool stays(const Operand& value, int32_t at) const {
    if (!value.is_node()) return true;
    const Node& node = source_.node(value);
    if (node.kind == NodeKind::kInput || node.kind == NodeKind::kConstant ||
        bytes_of(source_.type(value)) < kWorthRecomputing)
      return true;
    if (value.output > 0) return false;
    return plan(value).from < 0 &&
           (plan(value).returned || (!plan(value).readers.empty() && plan(value).readers.back() >= at));
  }
  // Whether the value is recomputed for a reader at or after `at`. If so, it can also be recomputed earlier.
  bool is_planned(const Operand& value, int32_t at) const {
    return value.output == 0 && plan(value).from >= 0 && plan(value).readers.back() >= at;
  }
  bool can_have(const Operand& value, int32_t at, int depth) const {
    return stays(value, at) || is_planned(value, at) || can_make(value, at, depth);
  }
  bool can_make(const Operand& value, int32_t at, int depth) const {
    const Node& node = source_.node(value);
    if (depth == 0 || value.output > 0 || !is_cheap(node)) return false;
    for (const Operand& operand : node.inputs)
      if (!can_have(operand, at, depth - 1)) return false;
    return true;
  }

  // Ensures that the operands of the recomputed value are available at `at`.
  void claim(const Operand& value, int32_t at) {
    for (const Operand& operand : source_.node(value).inputs) {
      if (stays(operand, at)) continue;
      Plan& plan = plans_[size_t(operand.node)];
      if (plan.from >= 0 && plan.from <= at) continue;
      if (plan.from >= 0) plan.from = at;
      claim(operand, at);
    }
  }

  bool is_again(const Operand& operand, int32_t reader) const {
    return operand.is_node() && operand.output == 0 && plan(operand).from >= 0 && reader >= plan(operand).from;
  }
  Operand made_again(const Operand& value) {
    Plan& plan = plans_[size_t(value.node)];
    if (plan.made.is_none()) plan.made = make(value, plan.from);
    return plan.made;
  }

  Operand make(const Operand& value, int32_t at) {
    const Node& node = source_.node(value);
    const auto have = [&](const Operand& o) {
      if (stays(o, at)) return rewrite_.translated(o);
      return is_planned(o, at) ? made_again(o) : make(o, at);
    };
    const Recomputation how = recomputation(*node.op, node.inputs.size());
    Operands inputs;
    for (int32_t k : how.operands)
      inputs.push_back(k >= 0 ? have(node.inputs[size_t(k)])
                              : rewrite_.translated(Operand::of(size_t(value.node), size_t(~k))));
    return rewrite_.emit(*how.op, inputs, make_attrs(*how.op), node.line);
  }

  const Graph source_;
  Rewrite rewrite_;
  std::vector<Plan> plans_;
};

}  // namespace

Graph recompute(Graph graph) { return Recompute(std::move(graph)).run(); }

}  // namespace pg
